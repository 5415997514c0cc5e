//! The result of ADD, compared with the kernel's state.

use crate::prelude::*;

/// SPEC 5, 1.1.0: the form of 1.0.0 with the links' MTU, which the reference leaves out.
#[test]
fn the_newest_form_has_the_mtu() {
    each(|who, node| {
        let mtu = |version: &str| {
            let attached = Attached::add(node, &bridge(json!({"cniVersion": version})), &node.container());
            let interfaces = attached.result["interfaces"].as_array().unwrap().clone();
            interfaces.iter().map(|interface| interface.get("mtu").and_then(Value::as_u64)).collect::<Vec<_>>()
        };
        assert_eq!(mtu("1.1.0"), [who.is_ours().then_some(1500); 3]);
        assert_eq!(mtu("1.0.0"), [None; 3]);
        assert_eq!(mtu("0.4.0"), [None; 3]);
    });
}

/// A destination with host bits is refused for IPv4 and masked for IPv6, as the kernel does.
#[test]
fn a_route_with_host_bits_is_an_error_in_ipv4() {
    each(|who, node| {
        let config = |dst: &str| bridge(json!({"ipam": with(dual(), json!({"routes": [{"dst": dst}]}))}));
        let failure = node.call(Verb::Add, config("203.0.113.7/24"), &node.container()).fails();
        if who.is_ours() {
            assert_eq!(failure.code, 110);
            assert_eq!(failure.msg, "cannot use route to 203.0.113.7/24: its destination is an address, not a prefix");
            assert!(failure.details.contains("Write 203.0.113.0/24, or 203.0.113.7/32 for"), "{failure:?}");
        } else {
            assert!(failure.msg.contains("invalid argument"), "{failure:?}");
        }
        let pod = node.container();
        let attached = Attached::add(node, &config("fd09::7/48"), &pod);
        assert_eq!(attached.result["routes"], json!([{"dst": "fd09::7/48"}]));
        assert!(pod.namespace().routes().iter().any(|route| route.to == "fd09::/48"));
    });
}

/// A duplicate route is an error, also where one route with and one without a next hop mean the same.
#[test]
fn a_route_that_comes_twice_is_an_error() {
    for routes in [
        json!([{"dst": "10.9.0.0/16"}, {"dst": "10.9.0.0/16"}]),
        json!([{"dst": "10.9.0.0/16", "gw": "10.7.0.1"}, {"dst": "10.9.0.0/16"}]),
        json!([{"dst": "fd09::/48"}, {"dst": "fd09::/48"}]),
    ] {
        each(|_, node| {
            let config = bridge(json!({"ipam": with(dual(), json!({"routes": routes}))}));
            let failure = node.call(Verb::Add, config, &node.container()).fails();
            assert!(failure.msg.contains("route") && failure.msg.contains("file exists"), "{failure:?}");
        });
    }
}

#[test]
fn routes_to_one_destination_by_several_next_hops_are_all_set() {
    each(|_, node| {
        let routes = json!([{"dst": "10.9.0.0/16", "gw": "10.7.0.8"}, {"dst": "10.9.0.0/16", "gw": "10.7.0.9"}]);
        let pod = node.container();
        Attached::add(node, &bridge(json!({"ipam": with(dual(), json!({"routes": routes}))})), &pod);
        let all = pod.namespace().routes();
        assert_eq!(all.iter().filter(|route| route.to == "10.9.0.0/16").count(), 2, "{all:#?}");
    });
}

/// Each earlier attachment adds an interface and an address to the result; the work may grow in proportion, but no
/// faster.
#[test]
fn a_prev_result_of_twenty_thousand_interfaces_is_processed_in_linear_time() {
    let node = node();
    let entries = 0..20_000_u32;
    let interfaces: Vec<Value> = entries
        .clone()
        .map(|n| json!({"name": format!("if{n}"), "mac": "0a:00:00:00:00:09", "sandbox": "/n"}))
        .collect();
    let address = |n: u32| format!("10.{}.{}.{}/8", n >> 16, n >> 8 & 255, n & 255);
    let ips: Vec<Value> = entries.map(|n| json!({"interface": n, "address": address(n)})).collect();
    let prev = json!({"cniVersion": "1.0.0", "interfaces": interfaces, "ips": ips});
    let pod = node.container();
    let attached = Attached::add(&node, &bridge(json!({"isGateway": true, "prevResult": prev})), &pod);
    assert_eq!(attached.result["interfaces"].as_array().map(Vec::len), Some(20_003));
    let seconds = |reply: testns::Reply| {
        drop(reply.ok());
        reply.output.elapsed.as_secs_f64()
    };
    let add = node.call(Verb::Add, &attached.config, pod.attachment_as("net1"));
    // Searching all of them for each one takes a minute.
    for seconds in [seconds(add), seconds(attached.check()), seconds(attached.del())] {
        assert!(seconds < 15.0, "{seconds} s");
    }
}

/// Chained after loopback, as in nomad's bridge network, bridge reports its own interface only: a plugin that takes the
/// first address of the result, as portmap does, gets one that reaches the container.
#[test]
fn the_result_of_bridge_leaves_out_loopback() {
    same(|node| {
        let pod = node.container();
        let lo = json!({"cniVersion": "1.0.0", "name": "net", "type": "loopback"});
        let earlier = node.call(Verb::Add, lo, &pod).ok();
        assert_eq!(earlier["ips"][0]["address"], "127.0.0.1/8");
        let mut result = Attached::add(node, &bridge(json!({"prevResult": earlier})), &pod).result;
        drop_empty_dns(&mut result);
        normalised(&result)
    });
}
