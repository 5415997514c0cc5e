//! Gateway addresses, default routes and forwarding.

use super::stays;
use crate::prelude::*;
use nix::errno::Errno;
use testns::trace::{Fate, Syscall};

fn gateways(node: &Node) -> Vec<String> {
    node.host().global_addresses("br0")
}

fn default_routes(pod: &Container) -> Vec<String> {
    let routes = pod.namespace().routes();
    let defaults = routes.iter().filter(|route| route.to.ends_with("/0") && route.table == 254);
    let via = |route: &testns::Route| route.hops[0].via.map_or_else(|| "none".to_owned(), |via| via.to_string());
    defaults.map(|route| format!("{} via {}", route.to, via(route))).collect()
}

/// isGateway: the gateways of the addresses are on the bridge, and forwarding is on for their families only. Without it the
/// bridge has no address and the node does not forward.
#[test]
fn is_gateway_sets_addresses_and_forwarding_of_the_families_present() {
    for (is_gateway, ipam, expected, forwarding) in [
        (false, dual(), vec![], ("0", "0")),
        (true, v4(), vec!["10.7.0.1/24"], ("1", "0")),
        (true, v6(), vec!["fd07::1/64"], ("0", "1")),
        (true, dual(), vec!["10.7.0.1/24", "fd07::1/64"], ("1", "1")),
    ] {
        each(|_, node| {
            let pod = node.container();
            Attached::add(node, &bridge(json!({"isGateway": is_gateway, "ipam": ipam})), &pod);
            assert_eq!(gateways(node), expected);
            let host = node.host();
            let is = (host.sysctl("net/ipv4/ip_forward"), host.sysctl("net/ipv6/conf/all/forwarding"));
            assert_eq!((is.0.as_str(), is.1.as_str()), forwarding);
            assert_eq!(default_routes(&pod), [""; 0]);
        });
    }
}

#[test]
fn a_missing_gateway_is_the_networks_first_address() {
    each(|_, node| {
        install_probe(node);
        for (address, expected) in [("10.7.0.77/24", "10.7.0.1/24"), ("fd07::77/64", "fd07::1/64")] {
            let ipam = json!({"type": "probe-ipam", "address": address, "log": node.work_dir().join("log")});
            let pod = node.container();
            let attached = Attached::add(node, &bridge(json!({"isGateway": true, "ipam": ipam})), &pod);
            assert!(gateways(node).contains(&expected.to_owned()), "{:?}", gateways(node));
            assert_eq!(
                format!("{}/x", attached.result["ips"][0]["gateway"]),
                format!("\"{}\"/x", expected.split('/').next().unwrap())
            );
        }
    });
}

fn with_routes(routes: Value) -> Value {
    bridge(json!({"isDefaultGateway": true, "ipam": with(v4(), json!({"routes": routes}))}))
}

/// A default route of the IPAM result without gateway counts as the route of isDefaultGateway; the reference fails on
/// it.
#[test]
fn a_default_route_of_ipam_without_a_gateway_is_treated_as_there() {
    each(|who, node| {
        let (pod, config) = (node.container(), with_routes(json!([{"dst": "0.0.0.0/0"}])));
        if !who.is_ours() {
            let failure = node.call(Verb::Add, &config, &pod).fails();
            assert!(failure.msg.contains("file exists"), "{failure:?}");
            return;
        }
        let attached = Attached::add(node, &config, &pod);
        assert_eq!(default_routes(&pod), ["0.0.0.0/0 via 10.7.0.1"]);
        attached.check().ok();
    });
}

/// The node refuses to forward packets when the gateway is there: other containers of the network may already use the gateway.
#[test]
fn a_gateway_stays_for_other_containers_of_its_network() {
    let is_forwarding = |call: &Syscall| {
        // musl opens files by the older of the two calls, whose path is the first argument.
        let path = match call.name().as_str() {
            "open" => call.path(0),
            "openat" => call.path(1),
            _ => None,
        };
        path.is_some_and(|path| path.ends_with("ip_forward")).then_some(Errno::EROFS)
    };
    for (network, left) in [("net", vec!["10.7.0.1/24"]), ("other", vec![])] {
        let node = node();
        let older = layer2(json!({"name": network}));
        let attached = Attached::add(&node, &older, &node.container());
        let call = Call::new(Verb::Add, bridge(json!({"isGateway": true})), &node.container());
        let traced =
            call.try_traced(&node, Some((1, Fate::FailWhere(is_forwarding)))).expect("no call takes that long");
        let failure = traced.reply.fails();
        assert!(failure.details.contains("gateways of br0 put back"), "{failure:?}");
        assert_eq!(gateways(&node), left);
        attached.check().ok();
    }
}

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
