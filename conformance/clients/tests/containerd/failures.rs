//! A pod whose network cannot be made: the kubelet reads why, nothing is left, others are undisturbed.

use clients::containerd::Daemon;
use clients::containerd::runtime_v1::PodSandboxConfig;
use serde_json::json;

use crate::cri::with_list;
use crate::networks::{self, NAME};

/// A plugin behind ours fails: the kubelet reads which and why, and what ours did is undone.
#[test]
fn a_failure_later_in_the_chain_leaves_nothing() {
    let Some(daemon) = Daemon::start() else { return };
    let mut list = networks::pods();
    list["plugins"][1] = json!({"type": "tuning", "sysctl": {"net.core.no_such_key": "1"}});
    let cri = with_list(&daemon, &list);
    let refusal = cri.try_run_pod(PodSandboxConfig::named(&daemon, "fails")).unwrap_err();
    assert!(refusal.message.contains(r#"plugin type="tuning" failed (add)"#), "{refusal}");
    assert!(refusal.message.contains("no_such_key"), "{refusal}");
    assert_eq!(daemon.reservations(NAME), [""; 0]);
    let changes = daemon.changes();
    let of_pod = |line: &&str| line.contains(" veth") || line.starts_with("+ nft element");
    assert_eq!(changes.lines().filter(of_pod).collect::<Vec<_>>(), [""; 0]);
    assert!(changes.contains("link cni0"), "bridge was not called: {changes}");
}
