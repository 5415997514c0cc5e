//! What the kernel grants no interface: an IPv6 address on a link of less than 1280 bytes, or the end of duplicate address
//! detection without a carrier. And kinds of links that a kernel lacks.

use super::{DUMMY, IPVLAN, InterfacePlugin, LinkPlace, MACVLAN, VLAN, each_interface_plugin};
use crate::bridge::stays;
use crate::prelude::*;
use std::time::{Duration, Instant};

const REFUSAL: &str =
    "cannot use network config: key mtu = 1279: expected 1280 at least, as the interface has the IPv6 address fd07::2";

fn an_mtu_that_is_too_small_for_ipv6_is_refused(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(2);
    let small = kind.config(0, json!({"mtu": 1279}));
    let error = node.call(Verb::Add, &small, &node.container()).fails_with(7);
    assert_eq!(error.msg, REFUSAL);
    node.assert_as_before_except(|line| kind.stays(line));
    let ipv4 = kind.config(0, json!({"mtu": 1279, "ipam": v4()}));
    Attached::add(&node, &ipv4, &node.container()).check().ok();
    Attached::add(&node, &kind.config(1, json!({"mtu": 1280})), &node.container()).check().ok();
}

each_interface_plugin! {
    ptp: PTP, macvlan: MACVLAN, ipvlan: IPVLAN, vlan: VLAN, tap: TAP;
    (an_mtu_that_is_too_small_for_ipv6_is_refused)
}

#[test]
fn an_mtu_that_is_too_small_for_ipv6_is_refused_on_a_bridge() {
    let node = node();
    let error = node.call(Verb::Add, bridge(json!({"mtu": 1279, "ipam": dual()})), &node.container()).fails_with(7);
    assert_eq!(error.msg, REFUSAL);
    node.assert_as_before_except(stays);
    Attached::add(&node, &bridge(json!({"mtu": 1279})), &node.container()).check().ok();
}

/// The link has its master's MTU, or had it before: no key is to blame.
fn a_link_that_is_too_small_for_ipv6_is_named(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(1);
    let lower = if kind.place == LinkPlace::Upon { "uplink" } else { "dev0" };
    node.host().set_mtu(lower, 1200);
    let error = node.call(Verb::Add, kind.config(0, json!({})), &node.container()).fails();
    assert!(error.details.contains("eth0 has MTU 1200: IPv6 needs 1280 bytes"), "{error:?}");
}

/// No address settles without a carrier: ADD does not wait for it, and the address is there for when the carrier comes.
fn a_link_without_a_carrier_is_not_waited_for(kind: InterfacePlugin) {
    let (node, outside) = kind.node(1);
    outside.set_down(if kind.place == LinkPlace::Upon { "outside" } else { "near0" });
    let pod = node.container();
    let begin = Instant::now();
    let attached = Attached::add(&node, &kind.config(0, json!({})), &pod);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!(pod.namespace().global_addresses("eth0"), ["10.7.0.2/24", "fd07::2/64"]);
    attached.check().ok();
}

each_interface_plugin! {
    mod lower:
    macvlan: MACVLAN, ipvlan: IPVLAN, host_device: HOST_DEVICE;
    (a_link_that_is_too_small_for_ipv6_is_named a_link_without_a_carrier_is_not_waited_for)
}

/// Where the kernel lacks the kind, ADD and STATUS name the module, and nothing is left.
#[test]
fn a_kernel_without_the_kind_is_named() {
    for (kind, module) in [(MACVLAN, "macvlan"), (IPVLAN, "ipvlan"), (VLAN, "8021q"), (DUMMY, "dummy")] {
        if kind.feature.is_none_or(Feature::is_here) {
            continue;
        }
        let (node, _outside) = kind.node(0);
        let named = format!("Load module {module} ");
        let add = node.call(Verb::Add, kind.config(0, json!({})), &node.container()).fails_with(101);
        let status = node.call(Verb::Status, kind.config(0, json!({})), Attachment::none()).fails_with(50);
        assert!(add.details.contains(&named) && status.details.contains(&named), "{add:?} {status:?}");
        node.assert_as_before_except(stays);
    }
}
