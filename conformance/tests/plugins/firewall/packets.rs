//! Packets, with a node that forwards nothing by itself, as docker leaves it.

use super::{add, config, on};
use crate::prelude::*;
use conformance::subjects::machine_outside;
use std::time::Duration;
use testns::{Transport, exchange};

const LONG: Duration = Duration::from_secs(10);
pub(super) const SHORT: Duration = Duration::from_millis(300);

pub(super) fn closed(node: &Node) -> bool {
    if !super::has_iptables() {
        return false;
    }
    for program in ["iptables", "ip6tables"] {
        on(node, program, &["-P", "FORWARD", "DROP"]);
    }
    true
}

/// A machine outside that has routes to both networks.
pub(super) fn remote(node: &Node) -> Namespace {
    let remote = machine_outside(node);
    for (net, via) in [("10.7.0.0/24", "192.0.2.1"), ("10.8.0.0/24", "192.0.2.1"), ("fd07::/64", "2001:db8::1")] {
        remote.add_route(net, via, "eth0");
    }
    remote
}

/// A container of bridge and firewall.
pub(super) fn attach<'a>(node: &'a Node, network: &Value, own: Value, pod: &Container) -> Attached<'a> {
    let made = Attached::add(node, network, pod);
    let added = add(node, config(own), pod, made.result);
    pod.namespace().wait_for_addresses();
    added
}

pub(super) fn network() -> Value {
    bridge(json!({"isDefaultGateway": true, "ipam": dual()}))
}

pub(super) fn other_network() -> Value {
    let ipam = json!({"type": "host-local", "subnet": "10.8.0.0/24"});
    bridge(json!({"name": "other", "bridge": "br1", "isDefaultGateway": true, "ipam": ipam}))
}

pub(super) fn reaches(from: &Namespace, to: &Namespace, address: &str) -> bool {
    exchange(Transport::Tcp, from, (to, ip(address)), LONG).is_ok()
}

pub(super) fn is_kept_from(from: &Namespace, to: &Namespace, address: &str) -> bool {
    exchange(Transport::Tcp, from, (to, ip(address)), SHORT).is_err()
}

#[test]
fn a_container_reaches_the_world_and_is_answered() {
    each(|_, node| {
        if !closed(node) {
            return;
        }
        let (remote, pod) = (remote(node), node.container());
        let added = attach(node, &network(), json!({}), &pod);
        assert!(reaches(pod.namespace(), &remote, "192.0.2.2"));
        assert!(reaches(pod.namespace(), &remote, "2001:db8::2"));
        assert!(is_kept_from(&remote, pod.namespace(), "10.7.0.2"), "only answers come in");
        // The administrator's chain comes first.
        on(node, "iptables", &["-A", "CNI-ADMIN", "-s", "10.7.0.2", "-j", "DROP"]);
        assert!(is_kept_from(pod.namespace(), &remote, "192.0.2.2"));
        on(node, "iptables", &["-F", "CNI-ADMIN"]);
        added.del().ok();
        assert!(is_kept_from(pod.namespace(), &remote, "192.0.2.2"));
        assert!(is_kept_from(pod.namespace(), &remote, "2001:db8::2"));
    });
}

#[test]
fn same_bridge_keeps_the_containers_of_other_bridges_away() {
    each(|_, node| {
        testns::needs!(super::has_iptables());
        let (one, two, other) = (node.container(), node.container(), node.container());
        let policy = json!({"ingressPolicy": "same-bridge"});
        let remote = remote(node);
        attach(node, &network(), policy.clone(), &one);
        attach(node, &network(), policy.clone(), &two);
        let with_name = |mut policy: Value| {
            policy["name"] = json!("other");
            policy
        };
        attach(node, &other_network(), with_name(policy), &other);
        assert!(reaches(one.namespace(), two.namespace(), "10.7.0.3"));
        assert!(is_kept_from(other.namespace(), one.namespace(), "10.7.0.2"));
        assert!(is_kept_from(one.namespace(), other.namespace(), "10.8.0.2"));
        assert!(reaches(one.namespace(), &remote, "192.0.2.2"));
        assert!(reaches(other.namespace(), &remote, "192.0.2.2"));
    });
}

/// The same without a policy: the test above would fail.
#[test]
fn an_open_network_is_reached_from_other_bridges() {
    each(|_, node| {
        let (one, other) = (node.container(), node.container());
        attach(node, &network(), json!({}), &one);
        attach(node, &other_network(), json!({"name": "other"}), &other);
        assert!(reaches(other.namespace(), one.namespace(), "10.7.0.2"));
    });
}
