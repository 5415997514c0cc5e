//! The result, the keys, and what is refused.

use super::{fixed, ptp};
use crate::configs::Attached;
use crate::subjects::{each, node};
use crate::veth_plugins::has_set_address;
use serde_json::json;
use testns::Verb;

/// udev would give the pods' gateway another address some milliseconds after ADD.
#[test]
fn the_address_of_the_hosts_end_is_set() {
    let node = node();
    let attached = Attached::add(&node, &ptp(json!({})), &node.container());
    assert!(has_set_address(&node, attached.host_veth()));
}

/// Without a gateway there is no other end. The reference fails half-way, and leaves the veth.
#[test]
fn an_address_without_a_gateway_is_refused() {
    each(|who, node| {
        let ipam = json!({"type": "static", "addresses": [{"address": "10.7.0.4/24"}]});
        let reply = node.call(Verb::Add, ptp(json!({"ipam": ipam})), &node.container());
        if !who.is_ours() {
            reply.fails();
            assert!(node.host().links().iter().any(|link| link.kind == "veth"));
            return;
        }
        let error = reply.fails_with(110);
        assert_eq!(error.msg, "cannot use address 10.7.0.4/24: the IPAM plugin gave no gateway for it");
        node.assert_as_before();
    });
}

/// A pod whose address the node already routes elsewhere could not be reached. The reference succeeds all the same.
#[test]
fn an_address_that_the_node_routes_elsewhere_is_refused() {
    each(|who, node| {
        let (one, two) = (node.container(), node.container());
        let config = ptp(json!({"ipam": fixed(&[("10.7.0.4/24", "10.7.0.1")])}));
        let first = Attached::add(node, &config, &one);
        node.remember();
        let reply = node.call(Verb::Add, &config, &two);
        if !who.is_ours() {
            reply.ok();
            assert!(!two.namespace().pings(crate::configs::ip("10.7.0.1"), std::time::Duration::ZERO));
            return;
        }
        let error = reply.fails_with(103);
        assert!(error.msg.contains("route 10.7.0.4/32"), "{error:?}");
        assert!(error.details.contains("Undone: link veth"), "{error:?}");
        node.assert_as_before();
        assert!(two.namespace().find_link("eth0").is_none());
        first.check().ok();
    });
}
