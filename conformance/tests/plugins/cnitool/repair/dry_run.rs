//! The promises of a dry run of `cnitool repair`, and the differences that a repair leaves.

use super::{Site, bridge, has_programs, sh};
use serde_json::{Value, json};

/// Each row's verdict and difference.
fn verdicts(rows: &[Value]) -> Vec<(&str, &str)> {
    rows.iter().map(|row| (row["verdict"].as_str().unwrap(), row["difference"].as_str().unwrap())).collect()
}

/// A bridge that is made anew begins with `route_localnet` off.
#[test]
fn a_bridge_made_anew_forwards_ports_of_the_loopback_address() {
    testns::needs!(has_programs());
    let site = Site::new(&bridge());
    let host = site.tour.node.host();
    let setting = || host.sysctl("net/ipv4/conf/office0/route_localnet");
    assert_eq!(setting(), "1");
    sh(host, "ip link del office0");
    let (code, rows) = site.run(&["office"]);
    assert_eq!((code, setting().as_str()), (Some(0), "1"), "{rows:?}");
    assert!(
        verdicts(&rows).contains(&("repaired", "this is lost: sysctl net/ipv4/conf/office0/route_localnet=1")),
        "{rows:?}"
    );
}

/// Nothing is set at a port of a bridge that is not the network's, and a dry run says so.
#[test]
fn settings_of_a_port_are_written_on_its_own_bridge_only() {
    let site = Site::new(&json!([{"type": "bridge", "bridge": "office0", "isGateway": true, "hairpinMode": true,
        "ipam": {"type": "host-local", "subnet": "SUBNET.0/24"}}]));
    let (host, veth) = (site.tour.node.host(), site.veth());
    host.add_link("other0", "bridge");
    host.set_master(&veth, "other0");
    let before = host.snapshot();
    for words in [vec!["office", "--dry-run"], vec!["office"]] {
        let (code, rows) = site.run(&words);
        assert_eq!(code, Some(1), "{rows:?}");
        assert!(verdicts(&rows).iter().all(|(verdict, _)| *verdict == "left"), "{rows:?}");
    }
    assert_eq!(testns::changes(&before, &host.snapshot()), "");
}

/// A dry run promises no address that the link cannot have.
#[test]
fn an_address_of_a_disabled_family_is_not_promised() {
    let site = Site::new(&bridge());
    let host = site.tour.node.host();
    sh(host, "sysctl -qw net.ipv6.conf.office0.disable_ipv6=1");
    let shown = site.run(&["office", "--dry-run"]);
    assert_eq!(shown.0, Some(1), "{shown:?}");
    assert!(verdicts(&shown.1).iter().all(|(verdict, _)| *verdict == "left"), "{shown:?}");
    let (code, rows) = site.run(&["office"]);
    assert_eq!((code, verdicts(&rows)), (Some(1), verdicts(&shown.1)));
}
