//! `cnitool prepare`: the node's own part of a network, before its first container.

use super::{Tour, netns};
use serde_json::json;

#[test]
fn a_prepared_bridge_is_that_of_the_first_container() {
    let tour = Tour::with_plugins();
    tour.cnitool(&["prepare", "office", "--check"]);
    let host = tour.node.host();
    let bridge = host.link("cni0");
    assert_eq!(host.global_addresses("cni0"), [format!("{}.1/24", tour.subnet)]);
    assert_eq!((tour.reserved(), host.links().len()), (0, 2), "{:?}", host.links());
    assert_eq!(std::fs::read_dir("/var/lib/cni/results").unwrap().count(), 0);
    let pod = tour.node.container();
    tour.cnitool(&["add", "office", &netns(&pod)]);
    assert_eq!(host.link("cni0").index, bridge.index);
}

/// An ADD of host-device would take its device away from the node, if for a moment.
#[test]
fn a_network_that_leaves_nothing_on_the_node_is_not_prepared() {
    let tour = Tour::with_plugins();
    tour.node.host().add_veth("nic0", tour.node.host(), "nic1");
    let network = json!({"cniVersion": "1.1.0", "name": "nic", "plugins": [{"type": "host-device", "device": "nic0"}]});
    std::fs::write("/etc/cni/net.d/20-nic.conflist", network.to_string()).unwrap();
    let (before, refused) = (tour.node.host().links(), tour.call(&["prepare", "nic"]));
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("its first plugin is host-device"));
    assert_eq!(tour.node.host().links(), before);
}
