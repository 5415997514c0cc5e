//! Ethernet addresses of the bridge and of its ports: what ADD chose stays, whatever comes and goes beside it.

use crate::prelude::*;
use crate::veth_plugins::has_set_address;

/// udev would give the pods' gateway another address some milliseconds after ADD.
#[test]
fn the_addresses_of_a_new_bridge_and_its_ports_are_set() {
    for config in [bridge(json!({"isGateway": true})), bridge(json!({})), layer2(json!({}))] {
        let node = node();
        let attached = Attached::add(&node, &config, &node.container());
        for link in ["br0", attached.host_veth()] {
            assert!(has_set_address(&node, link), "{link}: {config}");
        }
    }
}

#[test]
fn the_addresses_of_a_gateway_in_a_vlan_are_set() {
    testns::needs!(Feature::BridgeVlanFiltering.or_skip());
    let node = node();
    Attached::add(&node, &bridge(json!({"isGateway": true, "vlan": 100})), &node.container());
    let veths = node.host().links().into_iter().filter(|link| link.kind == "veth");
    for veth in veths {
        assert!(has_set_address(&node, &veth.name), "{}", veth.name);
    }
    assert!(has_set_address(&node, "br0.100"));
}

#[test]
fn a_new_bridge_does_not_follow_its_ports() {
    for own in [json!({"isGateway": true}), json!({})] {
        let node = node();
        let attached = Attached::add(&node, &bridge(own), &node.container());
        let mac = node.host().link("br0").mac;
        assert_eq!(attached.result["interfaces"][0]["mac"], json!(mac));
        node.host().add_veth("low", node.host(), "other");
        node.host().set_mac("low", "02:00:00:00:00:01");
        node.host().set_master("low", "br0");
        assert_eq!(node.host().link("br0").mac, mac);
        attached.check().ok();
    }
}

/// An address plugin that is a process of its own, which is called when the link is there.
fn of_another_make(node: &Node, address: &str) -> Value {
    json!({"type": "probe-ipam", "address": address, "log": node.work_dir().join("log")})
}

/// The bridge is there before the gateway's address is known: it takes none of its first port's, and keeps its own.
#[test]
fn a_gateway_keeps_its_address_with_an_address_plugin_of_another_make() {
    for is_there in [false, true] {
        let node = node();
        install_probe(&node);
        if is_there {
            node.host().add_link("br0", "bridge");
            // Above any that ADD chooses: a port that joins would lower it.
            node.host().add_veth("high", node.host(), "other");
            node.host().set_mac("high", "fe:ff:ff:ff:ff:ff");
            node.host().set_master("high", "br0");
        }
        let before = node.host().find_link("br0").map(|bridge| bridge.mac);
        let mut first = None;
        for number in 2..7 {
            let ipam = of_another_make(&node, &format!("10.7.0.{number}/24"));
            let attached = Attached::add(&node, &bridge(json!({"isGateway": true, "ipam": ipam})), &node.container());
            let mac = node.host().link("br0").mac;
            assert_ne!(mac, node.host().link(attached.host_veth()).mac);
            assert_eq!(attached.result["interfaces"][0]["mac"], json!(mac));
            let kept = before.clone().or(first.clone()).unwrap_or(mac.clone());
            assert_eq!(mac, kept, "the bridge was there: {is_there}");
            first = Some(mac);
            attached.check().ok();
        }
    }
}

/// A bridge that lost its last port has the Ethernet address zero, also a pinned one, and no host reaches a gateway of that.
#[test]
fn a_gateway_without_an_address_gets_one() {
    const ZERO: &str = "00:00:00:00:00:00";
    for (is_pinned, has_gateway, is_of_another_make) in
        [(false, false, false), (true, false, false), (true, true, false), (false, false, true), (true, true, true)]
    {
        let node = node();
        let host = node.host();
        install_probe(&node);
        host.add_link("br0", "bridge");
        host.add_veth("port", host, "other");
        host.set_master("port", "br0");
        host.clear_master("port");
        assert_eq!(host.link("br0").mac, ZERO);
        if is_pinned {
            host.set_mac("br0", ZERO);
        }
        if has_gateway {
            host.add_address("br0", "10.7.0.1/24");
        }
        let ipam = if is_of_another_make { of_another_make(&node, "10.7.0.9/24") } else { v4() };
        let pod = node.container();
        let mut attached = Attached::add(&node, &bridge(json!({"isGateway": true, "ipam": ipam})), &pod);
        pod.namespace().ping(ip("10.7.0.1"));
        assert!(has_set_address(&node, "br0") && host.link("br0").mac != ZERO);
        assert_eq!(attached.result["interfaces"][0]["mac"], json!(host.link("br0").mac));
        attached.check().ok();
        // As an earlier version reported it.
        attached.result["interfaces"][0]["mac"] = json!(ZERO);
        attached.check().ok();
        host.set_master("port", "br0");
    }
}
