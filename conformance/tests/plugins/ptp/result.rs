//! The result, the keys, and what is refused.

use super::{fixed, ptp};
use crate::configs::{Attached, drop_empty_dns, dual, normalised, with};
use crate::subjects::{each, node, same};
use crate::veth::has_set_address;
use serde_json::json;
use testns::Verb;

/// udev would give the pods' gateway another address some milliseconds after ADD.
#[test]
fn the_address_of_the_hosts_end_is_set() {
    let node = node();
    let attached = Attached::add(&node, &ptp(json!({})), &node.container());
    assert!(has_set_address(&node, attached.host_veth()));
}

/// Results are equal but for hardware addresses and names of veths.
#[test]
fn results_are_the_references() {
    let dns = json!({"nameservers": ["10.7.0.53"], "search": ["a.b"], "options": ["ndots:2"]});
    let routes = json!([{"dst": "10.9.0.0/16"}, {"dst": "0.0.0.0/0", "gw": "10.7.0.1"}]);
    for own in [
        json!({}),
        json!({"mtu": 1400, "dns": dns}),
        json!({"ipMasq": true, "ipam": with(dual(), json!({"routes": routes}))}),
        json!({"runtimeConfig": {"ips": ["10.7.0.77"], "mac": "0a:00:00:00:00:07"}}),
        json!({"args": {"cni": {"ips": ["10.7.0.78"]}}}),
    ] {
        for version in ["0.3.1", "0.4.0", "1.0.0"] {
            same(|node| {
                let config = ptp(with(own.clone(), json!({"cniVersion": version})));
                let mut result = Attached::add(node, &config, &node.container()).result;
                drop_empty_dns(&mut result);
                normalised(&result)
            });
        }
    }
}

#[test]
fn both_ends_have_the_mtu() {
    each(|_, node| {
        let pod = node.container();
        let attached = Attached::add(node, &ptp(json!({"mtu": 1400})), &pod);
        assert_eq!(node.host().link(attached.host_veth()).mtu_bytes, 1400);
        assert_eq!(pod.namespace().link("eth0").mtu_bytes, 1400);
    });
}

/// CVE-2020-10749: the node does not take the pod for its router.
#[test]
fn the_node_listens_to_no_router_in_the_pod() {
    each(|_, node| {
        let attached = Attached::add(node, &ptp(json!({})), &node.container());
        let key = format!("net/ipv6/conf/{}/accept_ra", attached.host_veth());
        assert_eq!(node.host().sysctl(&key), "0");
    });
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
