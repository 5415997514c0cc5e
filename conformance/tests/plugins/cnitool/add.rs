//! `cnitool add` beside what is in the container, and `cnitool prepare`: the node's own part of a network, before its first container.

use super::{Tour, netns};
use serde_json::{Value, json};

impl Tour {
    fn reserved(&self) -> usize {
        let entries = std::fs::read_dir("/var/lib/cni/networks/office").unwrap();
        let starts = |name: &str| name.starts_with(&self.subnet);
        entries.filter(|entry| starts(entry.as_ref().unwrap().file_name().to_str().unwrap())).count()
    }
}

/// A rollback's DEL would remove it: a veth of the reference's has no mark that says whose it is.
#[test]
fn an_add_whose_interface_is_there_already_leaves_it() {
    let tour = Tour::with_plugins();
    let pod = tour.node.container();
    pod.namespace().add_veth("eth0", tour.node.host(), "theirs");
    let netns = netns(&pod);
    let words = ["--json", "add", "office", &netns];
    let refused = tour.call(&words);
    assert_eq!(refused.status.code(), Some(1));
    let error: Value = serde_json::from_slice(&refused.stderr).unwrap();
    let msg = format!("cannot add network office: interface eth0 is in {netns} already, a veth");
    assert_eq!((&error["code"], &error["msg"]), (&json!(103), &json!(msg)));
    assert!(pod.namespace().find_link("eth0").is_some() && tour.node.host().find_link("theirs").is_some());
    pod.namespace().delete_link("eth0");
    // Once it is attached, a second ADD is the plugin's to refuse.
    tour.cnitool(&["add", "office", &netns]);
    assert_eq!(tour.call(&words).status.code(), Some(1));
    tour.cnitool(&["check", "office", &netns]);
}

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
