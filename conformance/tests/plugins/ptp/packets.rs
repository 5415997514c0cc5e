//! Packets: to the gateway, to other pods, outside.

use super::{fixed, ptp, state};
use crate::bridge::stays;
use crate::prelude::*;
use conformance::subjects::machine_outside;
use std::time::Duration;
use testns::{Transport, exchange};

#[test]
fn addresses_and_routes_are_the_references() {
    let routes = json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}, {"dst": "10.9.0.0/16", "gw": "10.7.0.9"}]);
    for ipam in [
        v4(),
        with(dual(), json!({"routes": routes})),
        fixed(&[("10.7.0.4/31", "10.7.0.5"), ("fd07::4/127", "fd07::5")]),
        fixed(&[("10.7.0.4/24", "10.7.0.1"), ("10.8.0.4/24", "10.8.0.1"), ("fd07::4/128", "fd07::5")]),
        fixed(&[("10.7.0.4/24", "10.7.0.1"), ("10.7.0.5/24", "10.7.0.2")]),
    ] {
        same(|node| {
            let pod = node.container();
            let attached = Attached::add(node, &ptp(json!({"ipam": ipam})), &pod);
            let state = state(node, &pod);
            attached.check_and_del();
            state
        });
    }
}

/// Two addresses of a subnet have one gateway; a single IPv4 address has no subnet. The reference fails with both, and leaves
/// the veth.
#[test]
fn addresses_of_one_subnet_and_single_ones_work() {
    for (all, to) in [
        (fixed(&[("10.7.0.4/24", "10.7.0.1"), ("10.7.0.5/24", "10.7.0.1")]), "10.7.0.1"),
        (fixed(&[("10.7.0.4/32", "169.254.1.1"), ("10.7.0.5/32", "169.254.1.1")]), "169.254.1.1"),
    ] {
        each(|who, node| {
            let ipam = with(all.clone(), json!({"routes": [{"dst": "0.0.0.0/0"}]}));
            let (config, pod) = (ptp(json!({"ipam": ipam})), node.container());
            if !who.is_ours() {
                node.call(testns::Verb::Add, &config, &pod).fails();
                return;
            }
            let attached = Attached::add(node, &config, &pod);
            attached.check().ok();
            pod.namespace().ping(ip(to));
            for own in ["10.7.0.4", "10.7.0.5"] {
                node.host().ping(ip(own));
            }
            attached.del().ok();
            node.assert_as_before_except(stays);
        });
    }
}

/// Two addresses are a subnet: the container's and the gateway's. Several subnets of a family each have their own gateway.
#[test]
fn the_smallest_subnets_and_several_of_a_family_have_packets() {
    for all in [
        fixed(&[("10.7.0.4/31", "10.7.0.5"), ("fd07::4/127", "fd07::5")]),
        fixed(&[("fd07::4/64", "fd07::1"), ("fd08::4/64", "fd08::1")]),
        fixed(&[("10.7.0.4/24", "10.7.0.1"), ("10.8.0.4/24", "10.8.0.1"), ("fd07::4/64", "fd07::1")]),
    ] {
        let (node, pod) = node_with_pod();
        let attached = Attached::add(&node, &ptp(json!({"cniVersion": "1.1.0", "ipMasq": true, "ipam": all})), &pod);
        for entry in all["addresses"].as_array().unwrap() {
            let text = |key: &str| entry[key].as_str().unwrap().split('/').next().unwrap();
            pod.namespace().ping(ip(text("gateway")));
            node.host().ping(ip(text("address")));
        }
        attached.check_and_del();
        node.assert_as_before_except(stays);
    }
}

#[test]
fn outside_a_pod_shows_the_nodes_address() {
    const LONG: Duration = Duration::from_secs(10);
    each(|who, node| {
        let remote = machine_outside(node);
        let routes = json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]);
        for backend in ["iptables", "nftables"] {
            let own =
                json!({"ipMasq": true, "ipMasqBackend": backend, "ipam": with(dual(), json!({"routes": routes}))});
            let pod = node.container();
            let attached = Attached::add(node, &ptp(own), &pod);
            for (there, here) in [("192.0.2.2", "192.0.2.1"), ("2001:db8::2", "2001:db8::1")] {
                let seen = exchange(Transport::Tcp, pod.namespace(), (&remote, ip(there)), LONG);
                assert_eq!(seen.expect("an answer from outside").ip(), ip(here), "{backend}");
            }
            attached.check().ok();
            if !who.is_ours() && backend == "nftables" {
                // The reference also looks for rules of iptables.
                assert!(attached.del().fails().msg.contains("does not exist"));
            }
            attached.del().ok();
            assert!(node.host().nft().iter().all(|line| !line.contains(pod.id())), "{backend}");
        }
    });
}
