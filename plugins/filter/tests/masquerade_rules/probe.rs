//! What STATUS asks.

use std::process::Command;

use cni_filter::{Backend, Filter};
use netops::nft::Nft;

use super::{TABLE, add};
use crate::node::{ETH0, in_netns};

#[test]
fn a_probe_changes_nothing() {
    in_netns(|| {
        let mut filter = Filter::open("").unwrap();
        filter.probe_masquerade(Backend::Nftables).unwrap();
        filter.probe_spoof_guard().unwrap();
        assert_eq!(Nft::open("the host").unwrap().find_table(&TABLE).unwrap(), None);
        add(ETH0, &["10.1.0.5/24"]);
        filter.probe_masquerade(Backend::Nftables).unwrap();
    });
}

#[test]
fn status_reports_what_is_missing() {
    // A user namespace that does not own this network namespace gives no privilege over it.
    let test = ["--exact", "probe::probe_without_privilege", "--ignored"];
    let this = std::env::current_exe().unwrap();
    let status = Command::new("unshare").arg("--user").arg(this).args(test).status();
    assert!(status.unwrap().success());
}

#[test]
#[ignore = "started by status_reports_what_is_missing"]
fn probe_without_privilege() {
    let error = Filter::open("").unwrap().probe_masquerade(Backend::Nftables).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot get nft chain inet cni_plugins_masquerade postrouting on the host: operation not permitted"
    );
}
