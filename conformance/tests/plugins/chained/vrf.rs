//! The vrf plugin.

use super::{behind, bridged};
use crate::prelude::*;
use conformance::chained_plugins::vrf as full;

fn config(own: Value) -> Value {
    with(json!({"cniVersion": "1.0.0", "name": "net", "type": "vrf", "vrfname": "blue"}), own)
}

fn vrfs(pod: &Container) -> Vec<String> {
    pod.namespace().links().into_iter().filter(|link| link.kind == "vrf").map(|link| link.name).collect()
}

#[test]
fn the_interface_moves_into_the_vrf_with_addresses_and_routes() {
    testns::needs!(Feature::Vrf.or_skip());
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let addresses = pod.namespace().global_addresses("eth0");
    // The kernel keeps no IPv6 address of a link that joins a VRF.
    pod.namespace().set_sysctl("net/ipv6/conf/eth0/keep_addr_on_down", "0");
    let attached = Attached::add(&node, &behind(&before, full()), &pod);
    assert_eq!(attached.result, before.result);
    assert_eq!(pod.namespace().link("eth0").master.as_deref(), Some("blue"));
    assert_eq!(pod.namespace().global_addresses("eth0"), addresses);
    let routes = pod.namespace().routes();
    for to in ["0.0.0.0/0", "::/0", "10.7.0.0/24", "fd07::/64"] {
        assert!(routes.iter().any(|route| route.to == to && route.table == 1), "{to}: {routes:#?}");
    }
    attached.check_and_del();
    assert_eq!((pod.namespace().link("eth0").master, vrfs(&pod)), (None, vec![]));
}

/// The kernel makes one IPv6 route of two interfaces' default routes, and the part of the one that joins again when that gets up.
#[test]
fn of_a_route_that_two_interfaces_share_the_own_part_leaves_the_main_table() {
    testns::needs!(Feature::Vrf.or_skip());
    let (node, pod) = node_with_pod();
    bridged(&node, &pod);
    let ipam = json!({"type": "host-local", "subnet": "fd08::/64", "routes": [{"dst": "::/0"}]});
    let second = bridge(json!({"name": "second", "bridge": "br1", "isGateway": true, "ipam": ipam}));
    let before = Attached::add(&node, &second, pod.attachment_as("net1"));
    let links = |table: u32| -> Vec<String> {
        let all = pod.namespace().routes().into_iter().filter(|route| route.to == "::/0" && route.table == table);
        all.flat_map(|route| route.hops).map(|hop| hop.link).collect()
    };
    assert_eq!(links(254), ["eth0", "net1"]);
    let add = Call::new(Verb::Add, behind(&before, config(json!({"name": "second"}))), pod.attachment_as("net1"));
    // An ADD that fails at any message leaves both parts.
    let refused = |message: &usize| add.refuse(&node, *message).reply.output.code() != 0;
    (1..).take_while(refused).for_each(|message| assert_eq!(links(254), ["eth0", "net1"], "message {message}"));
    assert_eq!((links(254), links(1)), (vec!["eth0".to_owned()], vec!["net1".to_owned()]));
}

#[test]
fn tables_are_chosen_and_conflicts_are_named() {
    testns::needs!(Feature::Vrf.or_skip());
    let (node, pod) = node_with_pod();
    let call = |ifname: &str, own: Value| {
        let attachment = pod.attachment_as(ifname);
        let before = bridged(&node, &attachment);
        Call::new(Verb::Add, behind(&before, config(own)), &attachment).run(&node)
    };
    call("eth0", json!({"table": 7})).ok();
    let failure = call("net1", json!({"table": 8})).fails_with(103);
    assert!(failure.msg.ends_with("it is there with table 7, not 8"), "{failure:?}");
    // As the reference, two VRFs may have one table.
    call("net2", json!({"vrfname": "red", "table": 7})).ok();
    let failure = call("net3", json!({"vrfname": "eth0"})).fails_with(103);
    assert!(failure.msg.ends_with("a veth has that name"), "{failure:?}");
    call("net4", json!({"vrfname": "green"})).ok();
    assert!(pod.namespace().routes().iter().any(|route| route.table == 1 && route.to == "10.7.0.0/24"));
    assert_eq!(vrfs(&pod), ["blue", "red", "green"]);
}

#[test]
fn an_interface_of_another_vrf_is_refused() {
    testns::needs!(Feature::Vrf.or_skip());
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    Attached::add(&node, &behind(&before, full()), &pod);
    let other = behind(&before, config(json!({"vrfname": "red"})));
    let failure = Call::new(Verb::Add, other, &pod).run(&node).fails_with(103);
    assert!(failure.msg.ends_with("it is in blue already"), "{failure:?}");
    assert_eq!(vrfs(&pod), ["blue"]);
}

#[test]
fn check_names_each_difference() {
    testns::needs!(Feature::Vrf.or_skip());
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let attached = Attached::add(&node, &behind(&before, full()), &pod);
    let differs = |word: &str| {
        let failure = attached.check().fails_with(107);
        assert!(failure.msg.ends_with(word), "{word}: {failure:?}");
    };
    pod.namespace().set_down("blue");
    differs("it is down");
    pod.namespace().clear_master("eth0");
    differs("it is not in VRF blue");
    pod.namespace().delete_link("blue");
    differs("it is not found");
}
