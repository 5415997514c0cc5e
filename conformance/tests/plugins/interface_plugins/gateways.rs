//! Gateways that no address of the interface has in its prefix, as hosters give them with single addresses: the link leads to
//! the gateway.

use super::{InterfacePlugin, each_interface_plugin};
use crate::prelude::*;
use testns::Route;

fn single(addresses: &[(&str, &str)]) -> Value {
    let entry = |(address, gateway): &(&str, &str)| json!({"address": address, "gateway": gateway});
    let addresses: Vec<Value> = addresses.iter().map(entry).collect();
    json!({"type": "static", "addresses": addresses, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]})
}

/// The way that the container has to `to`: the gateway of a route, `None` for the link itself.
#[track_caller]
fn way(pod: &Container, to: &str) -> Option<std::net::IpAddr> {
    let routes = pod.namespace().routes();
    let is_it = |route: &&Route| route.to == to && route.table == 254;
    let route = routes.iter().find(is_it).unwrap_or_else(|| panic!("no route to {to}: {routes:#?}"));
    assert_eq!(route.hops[0].link, "eth0");
    route.hops[0].via
}

fn the_link_leads_to_a_gateway_outside_the_prefix(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(1);
    let pod = node.container();
    let ipam = single(&[("203.0.113.5/32", "172.31.1.1"), ("2001:db8:5::5/128", "2001:db8:ffff::1")]);
    let attached = Attached::add(&node, &kind.config(0, json!({"ipam": ipam})), &pod);
    assert_eq!(way(&pod, "172.31.1.1/32"), None);
    assert_eq!(way(&pod, "0.0.0.0/0"), Some(ip("172.31.1.1")));
    assert_eq!(way(&pod, "2001:db8:ffff::1/128"), None);
    assert_eq!(way(&pod, "::/0"), Some(ip("2001:db8:ffff::1")));
    attached.check().ok();
    pod.namespace().delete_route("172.31.1.1/32");
    attached.check().fails_with(107);
    attached.del().ok();
    node.assert_as_before_except(|line| kind.stays(line));
}

/// Link-local gateways are on the link already; a gateway of a route in the address's own network, too.
fn the_link_leads_to_each_gateway_once(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(1);
    let pod = node.container();
    let mut ipam = single(&[("203.0.113.5/32", "172.31.1.1"), ("2001:db8:5::5/64", "fe80::1")]);
    ipam["routes"] = json!([
        {"dst": "172.31.1.1/32"},
        {"dst": "0.0.0.0/0"},
        {"dst": "198.51.100.0/24", "gw": "172.31.1.1"},
        {"dst": "198.51.101.0/24", "gw": "172.31.1.2"},
        {"dst": "::/0"},
        {"dst": "2001:db8:9::/48", "gw": "2001:db8:5::1"},
    ]);
    let attached = Attached::add(&node, &kind.config(0, json!({"ipam": ipam})), &pod);
    let to_one = |route: &Route| route.table == 254 && (route.to.ends_with("/32") || route.to.ends_with("/128"));
    let routes = pod.namespace().routes();
    let singles: Vec<&str> = routes.iter().filter(|route| to_one(route)).map(|route| route.to.as_str()).collect();
    assert_eq!(singles, ["172.31.1.1/32", "172.31.1.2/32"], "{routes:#?}");
    assert_eq!(way(&pod, "::/0"), Some(ip("fe80::1")));
    attached.check().ok();
}

each_interface_plugin! {
    macvlan: MACVLAN, ipvlan: IPVLAN, vlan: VLAN, host_device: HOST_DEVICE, tap: TAP, dummy: DUMMY;
    (the_link_leads_to_a_gateway_outside_the_prefix the_link_leads_to_each_gateway_once)
}

/// As the gateway the bridge has another network than the container: the node has a route to that container, which ends with it.
#[test]
fn the_node_reaches_a_container_whose_gateway_is_outside_the_prefix() {
    let node = node();
    let ipam = single(&[("203.0.113.5/32", "172.31.1.1"), ("2001:db8:5::5/128", "2001:db8:ffff::1")]);
    let config = bridge(json!({"cniVersion": "1.1.0", "isGateway": true, "ipam": ipam}));
    let to_pod = || {
        let routes = node.host().routes().into_iter();
        let all = routes.filter(|route| route.table == 254 && route.hops[0].link == "br0").map(|route| route.to);
        all.filter(|to| to.starts_with("203.") || to.starts_with("2001:db8:5:")).collect::<Vec<_>>()
    };
    for end in ["DEL", "DEL without prevResult", "GC"] {
        let pod = node.container();
        let attached = Attached::add(&node, &config, &pod);
        assert_eq!(to_pod(), ["203.0.113.5/32", "2001:db8:5::5/128"], "{end}");
        node.host().ping(ip("203.0.113.5"));
        pod.namespace().ping(ip("172.31.1.1"));
        attached.check().ok();
        match end {
            "DEL" => drop(attached.del().ok()),
            "GC" => {
                let none = crate::configs::with(config.clone(), json!({"cni.dev/valid-attachments": []}));
                node.call(Verb::Gc, &none, Attachment::none()).ok();
            }
            _ => drop(node.call(Verb::Del, &config, &pod).ok()),
        }
        assert_eq!(to_pod(), [""; 0], "{end}");
    }
}

/// As a switch the bridge leads to the hoster's router.
#[test]
fn a_bridges_port_leads_to_a_gateway_outside_the_prefix() {
    let (node, pod) = node_with_pod();
    let ipam = single(&[("203.0.113.5/32", "172.31.1.1"), ("2001:db8:5::5/128", "fe80::1")]);
    let attached = Attached::add(&node, &bridge(json!({"ipam": ipam})), &pod);
    assert_eq!(way(&pod, "172.31.1.1/32"), None);
    assert_eq!(way(&pod, "0.0.0.0/0"), Some(ip("172.31.1.1")));
    assert_eq!(way(&pod, "::/0"), Some(ip("fe80::1")));
    attached.check_and_del();
}
