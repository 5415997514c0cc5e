//! DEL in every state in which a runtime may come with it.

use super::ptp;
use crate::bridge::stays;
use crate::configs::{Attached, first_ip};
use crate::subjects::node;
use serde_json::json;
use testns::{Call, Remains, Verb};

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
