//! DEL in every state in which a runtime may come with it.

use super::ptp;
use crate::bridge::stays;
use crate::configs::{Attached, dual, first_ip, with};
use crate::subjects::node;
use crate::veth;
use serde_json::{Value, json};
use testns::{Call, Remains, Verb};

fn full(own: Value) -> Value {
    ptp(with(json!({"ipMasq": true, "ipam": dual()}), own))
}

#[test]
fn del_twice_succeeds() {
    veth::del_twice_succeeds(&full(json!({})));
}

#[test]
fn del_of_what_was_never_added_succeeds() {
    veth::del_of_what_was_never_added_succeeds(&full(json!({})));
}

#[test]
fn del_needs_neither_the_namespace_nor_prev_result() {
    veth::del_needs_neither_the_namespace_nor_prev_result(&full(json!({})));
}

/// DEL reads no key of its own: a config that ADD refuses is good enough.
#[test]
fn del_takes_a_config_that_add_refuses() {
    let node = node();
    let pod = node.container();
    Attached::add(&node, &full(json!({})), &pod);
    let broken = full(json!({"mtu": -1, "ipMasq": "yes", "ipMasqBackend": "x", "dns": 5}));
    node.call(Verb::Add, &broken, &node.container_named("other")).fails();
    node.call(Verb::Del, &broken, &pod).ok();
    node.assert_as_before_except(stays);
}

/// An address is free only when no link speaks for it: the DEL after that frees it.
#[test]
fn an_address_stays_held_while_its_link_is_left() {
    let node = node();
    let attached = Attached::add(&node, &ptp(json!({})), &node.container());
    let reservation = format!("/var/lib/cni/networks/net/{}", first_ip(&attached.result));
    let failure = attached.call(Verb::Del).refuse(&node, 1).reply.fails();
    assert!(failure.details.contains("stay held"), "{failure:?}");
    assert!(std::fs::exists(&reservation).unwrap());
    attached.del().ok();
    assert!(!std::fs::exists(&reservation).unwrap());
    node.assert_as_before_except(stays);
}

/// A link that another process put where the host veth was stays.
#[test]
fn del_leaves_links_of_others_alone() {
    let node = node();
    let pod = node.container();
    let attached = Attached::add(&node, &ptp(json!({})), &pod);
    let name = attached.host_veth().to_owned();
    node.host().delete_link(&name);
    let other = node.container();
    node.host().add_veth(&name, other.namespace(), "eth0");
    attached.del().ok();
    assert!(node.host().find_link(&name).is_some());
    Call::new(Verb::Del, &attached.config, pod.leave(Remains::EmptyPath)).run(&node).ok();
    assert!(node.host().find_link(&name).is_some());
}

/// DEL after the container lost its link, or the node its end.
#[test]
fn del_succeeds_when_links_are_gone() {
    let node = node();
    for on_node in [true, false] {
        let pod = node.container();
        let attached = Attached::add(&node, &full(json!({})), &pod);
        if on_node {
            node.host().delete_link(attached.host_veth())
        } else {
            pod.namespace().delete_link("eth0")
        }
        attached.del().ok();
        node.assert_as_before_except(stays);
    }
}
