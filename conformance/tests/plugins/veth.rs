//! Cases of each plugin that connects a container by a veth: bridge and ptp.

use crate::bridge::stays;
use crate::configs::{Attached, addresses, dual, ip, v4, v6};
use crate::subjects::{each, node};
use serde_json::Value;
use std::fs::File;
use testns::{Call, Node, Remains, Verb};

/// Whether the Ethernet address of a link of the node was set (`NET_ADDR_SET`). udev replaces addresses that the kernel chose at random
/// (`MACAddressPolicy=persistent`), some milliseconds after ADD.
#[track_caller]
pub(crate) fn has_set_address(node: &Node, link: &str) -> bool {
    let read = || std::fs::read_to_string(format!("/sys/class/net/{link}/addr_assign_type"));
    node.host().enter(read).expect("read how the address was chosen") == "3\n"
}

/// SPEC 2, DEL: repeated calls succeed.
pub(crate) fn del_twice_succeeds(config: &Value) {
    each(|_, node| {
        let attached = Attached::add(node, config, &node.container());
        attached.del().ok();
        attached.del().ok();
        Call::new(Verb::Del, &attached.config, &attached.attachment).run(node).ok(); // and without prevResult
        node.assert_as_before_except(stays);
    });
}

/// SPEC 2, DEL: it succeeds for an attachment that was never added.
pub(crate) fn del_of_what_was_never_added_succeeds(config: &Value) {
    each(|_, node| {
        node.call(Verb::Del, config, &node.container()).ok();
        node.assert_as_before_except(stays);
    });
}

/// SPEC 2, DEL: the namespace may exist, be gone, be a plain file or not be given, with and without prevResult. The
/// veth is removed even while another process keeps the namespace alive.
pub(crate) fn del_needs_neither_the_namespace_nor_prev_result(config: &Value) {
    for remains in Remains::ALL {
        for with_result in [true, false] {
            let node = node();
            let pod = node.container();
            let mut attached = Attached::add(&node, config, &pod);
            let _held = File::open(pod.namespace().path()).unwrap();
            attached.attachment = pod.leave(remains);
            let without = Call::new(Verb::Del, &attached.config, &attached.attachment);
            let call = if with_result { attached.call(Verb::Del) } else { without };
            call.run(&node).ok();
            call.run(&node).ok();
            let changes = node.changes();
            let left = changes.lines().find(|line| !stays(line));
            assert!(left.is_none(), "{remains:?}, prevResult {with_result}: {changes}");
            assert!(node.host().find_link(attached.host_veth()).is_none());
        }
    }
}

/// Two pods of the config with this `ipam`.
pub(crate) fn pods_reach_each_other_over_ipv4(config: impl Fn(Value) -> Value) {
    pods_reach_each_other(&config(v4()), &["10.7.0.2/24"], &["10.7.0.3/24"], &["10.7.0.1"]);
}

/// As over IPv4.
pub(crate) fn pods_reach_each_other_over_ipv6(config: impl Fn(Value) -> Value) {
    pods_reach_each_other(&config(v6()), &["fd07::2/64"], &["fd07::3/64"], &["fd07::1"]);
}

/// As over IPv4.
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
