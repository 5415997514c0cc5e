//! Pods get addresses on a bridge and reach each other.

use super::stays;
use crate::configs::{Attached, bridge, ip};
use crate::subjects::each;
use serde_json::json;
use testns::Verb;

/// Two addresses of one family work like one of each. The reference reports the second gateway as a conflict.
#[test]
fn a_pod_may_have_two_addresses_of_one_family() {
    each(|who, node| {
        let ranges = json!([[{"subnet": "10.7.0.0/24"}], [{"subnet": "10.8.0.0/24"}]]);
        let config = bridge(json!({"isGateway": true, "ipam": {"type": "host-local", "ranges": ranges}}));
        let pod = node.container();
        if !who.is_ours() {
            let failure = node.call(Verb::Add, &config, &pod).fails();
            assert!(failure.msg.contains("already has an IP address different from 10.8.0.1/24"), "{failure:?}");
            return;
        }
        let attached = Attached::add(node, &config, &pod);
        assert_eq!(pod.namespace().global_addresses("eth0"), ["10.7.0.2/24", "10.8.0.2/24"]);
        pod.namespace().ping(ip("10.7.0.1"));
        pod.namespace().ping(ip("10.8.0.1"));
        attached.check_and_del();
        node.assert_as_before_except(stays);
    });
}

#[test]
fn ipv4_works_where_ipv6_is_off() {
    each(|_, node| {
        for key in ["all", "default"] {
            node.host().set_sysctl(&format!("net/ipv6/conf/{key}/disable_ipv6"), "1");
        }
        let config = bridge(json!({"isDefaultGateway": true, "ipMasq": true}));
        let (one, two) = (node.container(), node.container());
        let attached = [Attached::add(node, &config, &one), Attached::add(node, &config, &two)];
        one.namespace().ping(ip("10.7.0.3"));
        one.namespace().ping(ip("10.7.0.1"));
        attached.iter().for_each(|attached| drop(attached.check().ok()));
        attached.iter().for_each(|attached| drop(attached.del().ok()));
    });
}
