//! VLANs: what is refused everywhere, and what a kernel with VLAN filtering does.

use crate::prelude::*;
use std::time::Duration;
use testns::PortVlan;

/// Templates write keys that ask for nothing: the bridge does not filter VLANs, also where the kernel could not.
#[test]
fn keys_that_ask_for_no_vlan_are_absent_keys() {
    let node = node();
    for own in [
        json!({"vlan": 0}),
        json!({"vlanTrunk": []}),
        json!({"vlanTrunk": null, "vlan": 0, "preserveDefaultVlan": false}),
        json!({"vlanTrunk": [], "vlan": 0, "preserveDefaultVlan": true}),
    ] {
        let attached = Attached::add(&node, &bridge(own.clone()), &node.container());
        attached.check().ok();
        assert_ne!(node.host().link("br0").vlan_filtering, Some(true), "{own}");
        attached.del().ok();
    }
}

fn vlans(node: &Node, link: &str) -> Vec<(u16, bool, bool)> {
    let of_link = node.host().port_vlans().into_iter().filter(|vlan| vlan.link == link);
    of_link.map(|PortVlan { id, pvid, untagged, .. }| (id, pvid, untagged)).collect()
}

fn port_vlans(node: &Node, own: Value) -> Vec<(u16, bool, bool)> {
    let attached = Attached::add(node, &layer2(own), &node.container());
    vlans(node, attached.host_veth())
}

/// vlan: PVID and untagged; the kernel's default VLAN is removed unless the config keeps it.
#[test]
fn a_vlan_is_the_ports_pvid() {
    testns::needs!(Feature::BridgeVlanFiltering.or_skip());
    let node = node();
    assert_eq!(port_vlans(&node, json!({"vlan": 100})), [(100, true, true)]);
    assert_eq!(node.host().link("br0").vlan_filtering, Some(true));
    let kept = port_vlans(&node, json!({"vlan": 100, "preserveDefaultVlan": true}));
    assert_eq!(kept, [(1, false, true), (100, true, true)]);
}

/// vlanTrunk: tagged; without `vlan` the port has PVID 1 too.
#[test]
fn a_trunk_is_tagged() {
    testns::needs!(Feature::BridgeVlanFiltering.or_skip());
    let node = node();
    let trunk = json!([{"id": 200}, {"minID": 300, "maxID": 302}]);
    let tagged = [200, 300, 301, 302].map(|id| (id, false, false));
    let with = |first: (u16, bool, bool)| [vec![first], tagged.to_vec()].concat();
    assert_eq!(port_vlans(&node, json!({"vlanTrunk": trunk})), with((1, true, true)));
    assert_eq!(port_vlans(&node, json!({"vlan": 100, "vlanTrunk": trunk})), with((100, true, true)));
    assert_eq!(port_vlans(&node, json!({"vlanTrunk": []})), [(1, true, true)]);
}

/// Pods of one VLAN reach each other, and not those of another.
#[test]
fn vlans_keep_pods_apart() {
    testns::needs!(Feature::BridgeVlanFiltering.or_skip());
    let node = node();
    let (one, two, other) = (node.container(), node.container(), node.container());
    Attached::add(&node, &bridge(json!({"vlan": 100})), &one);
    let two_ip = first_ip(&Attached::add(&node, &bridge(json!({"vlan": 100})), &two).result);
    Attached::add(&node, &bridge(json!({"vlan": 200})), &other);
    one.namespace().ping(two_ip);
    assert!(!other.namespace().pings(two_ip, Duration::from_millis(300)));
}

/// A gateway in a VLAN is on an access port of its own: the result's fourth interface.
#[test]
fn a_gateway_in_a_vlan_has_a_port_of_its_own() {
    testns::needs!(Feature::BridgeVlanFiltering.or_skip());
    let (node, pod) = node_with_pod();
    let attached = Attached::add(&node, &bridge(json!({"vlan": 100, "isGateway": true})), &pod);
    assert_eq!(attached.result["interfaces"][3]["name"], "br0.100");
    assert_eq!(node.host().global_addresses("br0.100"), ["10.7.0.1/24"]);
    pod.namespace().ping(ip("10.7.0.1"));
    attached.check().ok();
    Attached::add(&node, &bridge(json!({"vlan": 100, "isGateway": true})), &node.container()).check().ok();
    attached.del().ok();
}
