//! Several attachments do not affect each other.

use super::stays;
use crate::configs::{Attached, bridge, dual, ip};
use crate::subjects::each;
use serde_json::json;

/// A container may be attached to one network twice, under two interface names.
#[test]
fn two_attachments_of_one_container_are_independent() {
    each(|_, node| {
        let config = bridge(json!({"isGateway": true, "macspoofchk": true, "ipam": dual()}));
        let pod = node.container();
        let eth0 = Attached::add(node, &config, &pod);
        let net1 = Attached::add(node, &config, pod.attachment_as("net1"));
        assert_ne!(eth0.host_veth(), net1.host_veth());
        assert_eq!(pod.namespace().global_addresses("eth0"), ["10.7.0.2/24", "fd07::2/64"]);
        assert_eq!(pod.namespace().global_addresses("net1"), ["10.7.0.3/24", "fd07::3/64"]);
        eth0.check().ok();
        net1.check().ok();
        eth0.del().ok();
        assert!(node.host().find_link(eth0.host_veth()).is_none());
        assert_eq!(node.host().link(net1.host_veth()).master.as_deref(), Some("br0"));
        net1.check().ok();
        pod.namespace().ping(ip("10.7.0.1"));
        eth0.del().ok(); // a second DEL does not remove the other attachment
        net1.check().ok();
        net1.del().ok();
        assert!(pod.namespace().find_link("net1").is_none());
        node.assert_as_before_except(stays);
    });
}

/// The order of DEL does not matter, and after it the name is free again.
#[test]
fn an_attachment_can_be_made_again_after_its_del() {
    each(|_, node| {
        let config = bridge(json!({"isGateway": true, "ipam": dual()}));
        let pod = node.container();
        let net1 = Attached::add(node, &config, pod.attachment_as("net1"));
        let eth0 = Attached::add(node, &config, &pod);
        net1.del().ok();
        eth0.check().ok();
        let again = Attached::add(node, &config, pod.attachment_as("net1"));
        eth0.check().ok();
        again.check().ok();
        eth0.del().ok();
        again.del().ok();
        node.assert_as_before_except(stays);
    });
}

/// Two networks on two bridges in one container.
#[test]
fn a_container_may_be_on_two_networks() {
    each(|_, node| {
        let front = bridge(json!({"isDefaultGateway": true}));
        let ipam = json!({"type": "host-local", "subnet": "10.8.0.0/24"});
        let back = bridge(json!({"name": "back", "bridge": "br1", "isGateway": true, "ipam": ipam}));
        let pod = node.container();
        let eth0 = Attached::add(node, &front, &pod);
        let net1 = Attached::add(node, &back, pod.attachment_as("net1"));
        pod.namespace().ping(ip("10.7.0.1"));
        pod.namespace().ping(ip("10.8.0.1"));
        eth0.check().ok();
        net1.check().ok();
        eth0.del().ok();
        net1.check().ok();
        net1.del().ok();
        assert_eq!(pod.namespace().links().len(), 1);
    });
}
