//! Cases of each plugin that connects a container by a veth: bridge and ptp.

use crate::bridge::stays;
use crate::configs::{Attached, addresses, dual, ip, v6};
use crate::subjects::each;
use serde_json::Value;
use testns::Node;

/// Whether the Ethernet address of a link of the node was set (`NET_ADDR_SET`). udev replaces addresses that the kernel chose at random
/// (`MACAddressPolicy=persistent`), some milliseconds after ADD.
#[track_caller]
pub(crate) fn has_set_address(node: &Node, link: &str) -> bool {
    let read = || std::fs::read_to_string(format!("/sys/class/net/{link}/addr_assign_type"));
    node.host().enter(read).expect("read how the address was chosen") == "3\n"
}

/// Two pods of the config with this `ipam`.
pub(crate) fn pods_reach_each_other_over_ipv6(config: impl Fn(Value) -> Value) {
    pods_reach_each_other(&config(v6()), &["fd07::2/64"], &["fd07::3/64"], &["fd07::1"]);
}

/// As over IPv6.
pub(crate) fn pods_reach_each_other_over_both(config: impl Fn(Value) -> Value) {
    let (one, two) = (["10.7.0.2/24", "fd07::2/64"], ["10.7.0.3/24", "fd07::3/64"]);
    pods_reach_each_other(&config(dual()), &one, &two, &["10.7.0.1", "fd07::1"]);
}

/// Two pods reach each other, the gateway and the node by each address; after DEL nothing of them is left.
fn pods_reach_each_other(config: &Value, first: &[&str], second: &[&str], gateways: &[&str]) {
    each(|_, node| {
        let (one, two) = (node.container(), node.container());
        let attached = [Attached::add(node, config, &one), Attached::add(node, config, &two)];
        assert_eq!(addresses(&attached[0].result), first);
        assert_eq!(addresses(&attached[1].result), second);
        let plain = |address: &&str| ip(address.split('/').next().unwrap());
        for (pod, own, others) in [(&one, first, second), (&two, second, first)] {
            assert_eq!(pod.namespace().global_addresses("eth0"), own);
            others.iter().chain(gateways).for_each(|other| pod.namespace().ping(plain(other)));
            own.iter().for_each(|own| node.host().ping(plain(own)));
        }
        attached.iter().for_each(|attached| drop(attached.check().ok()));
        attached.iter().for_each(|attached| drop(attached.del().ok()));
        assert!(one.namespace().find_link("eth0").is_none());
        node.assert_as_before_except(stays);
    });
}
