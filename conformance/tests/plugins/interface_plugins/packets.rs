//! Packets: to the gateway, to another container, and beyond; those of ptp and vlan have tests of their own.

use super::{InterfacePlugin, LinkPlace, each_interface_plugin};
use crate::prelude::*;
use std::net::IpAddr;
use std::time::Duration;

const GATEWAYS: [&str; 2] = ["10.7.0.1", "fd07::1"];
/// Addresses that are reached through the gateway only.
const BEYOND: [&str; 2] = ["198.51.100.1", "2001:db8::1"];

fn be_gateway(outside: &Namespace) {
    for address in ["10.7.0.1/24", "fd07::1/64"] {
        outside.add_address("outside", address);
    }
    for address in ["198.51.100.1/32", "2001:db8::1/128"] {
        outside.add_address("lo", address);
    }
    outside.set_up("lo");
}

fn own_addresses(attached: &Attached<'_>) -> Vec<IpAddr> {
    addresses(&attached.result).iter().map(|address| ip(address.split('/').next().unwrap())).collect()
}

fn packets_reach_gateway_peer_and_beyond(kind: InterfacePlugin) {
    let (node, outside) = kind.node(2);
    be_gateway(&outside);
    let routes = json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]);
    let pods = [node.container(), node.container()];
    let add = |number| {
        let ipam = with(dual(), json!({"routes": routes}));
        Attached::add(&node, &kind.config(number, json!({"ipam": ipam})), &pods[number])
    };
    let made = [add(0), add(1)];
    for (pod, other) in [(&pods[0], &made[1]), (&pods[1], &made[0])] {
        let peers = own_addresses(other);
        GATEWAYS.iter().chain(&BEYOND).map(|text| ip(text)).chain(peers).for_each(|to| pod.namespace().ping(to));
    }
    made.iter().flat_map(own_addresses).for_each(|to| outside.ping(to));
}

/// When ADD returns, no address is still looked for on the link: each answers the first request, where packets can come in.
fn addresses_answer_when_add_returns(kind: InterfacePlugin) {
    let (node, outside) = kind.node(4);
    if kind.place != LinkPlace::Pair && kind.place != LinkPlace::Inside {
        be_gateway(&outside);
    }
    for number in 0..4 {
        let pod = node.container();
        pod.namespace().set_up("lo"); // by which a container reaches itself
        let attached = Attached::add(&node, &kind.config(number, json!({})), &pod);
        let asking = match kind.place {
            LinkPlace::Pair => node.host(),
            LinkPlace::Upon | LinkPlace::Device => &outside,
            LinkPlace::Inside => pod.namespace(),
        };
        for to in own_addresses(&attached) {
            assert!(asking.pings(to, Duration::ZERO), "{to} does not answer");
        }
    }
}

/// A host that has just spoken with a container reaches the next one that has its address by the first packet, whatever the Ethernet
/// address.
fn the_next_container_of_an_address_is_reached_by_the_first_packet(kind: InterfacePlugin) {
    let (node, outside) = kind.node(2);
    be_gateway(&outside);
    let ipam = json!({"type": "static", "addresses": [{"address": "10.7.0.9/24"}, {"address": "fd07::9/64"}]});
    for number in 0..2 {
        let attached = Attached::add(&node, &kind.config(number, json!({"ipam": ipam})), &node.container());
        for to in own_addresses(&attached) {
            let within = if number == 0 { Duration::from_secs(5) } else { Duration::ZERO };
            assert!(outside.pings(to, within), "container {number}: no answer from {to}");
        }
        attached.del().ok();
    }
}

each_interface_plugin! {
    mod next:
    macvlan: MACVLAN, host_device: HOST_DEVICE;
    (the_next_container_of_an_address_is_reached_by_the_first_packet)
}

each_interface_plugin! {
    macvlan: MACVLAN, ipvlan: IPVLAN, host_device: HOST_DEVICE;
    (packets_reach_gateway_peer_and_beyond)
}

each_interface_plugin! {
    mod addresses:
    ptp: PTP, macvlan: MACVLAN, ipvlan: IPVLAN, host_device: HOST_DEVICE, tap: TAP, dummy: DUMMY;
    (addresses_answer_when_add_returns)
}
