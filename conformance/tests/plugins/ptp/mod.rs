//! ptp: a link between node and pod, and the node routes.

mod packets;

use crate::prelude::*;
use crate::veth_plugins::{Tamper, check_fails_after, has_set_address};

/// Network `net` of plugin ptp, with addresses of 10.7.0.0/24; `own` adds keys or replaces them.
pub(crate) fn ptp(own: Value) -> Value {
    with(json!({"cniVersion": "1.0.0", "name": "net", "type": "ptp", "ipam": v4()}), own)
}

/// The config of plugin static with these addresses, each with its gateway.
fn fixed(addresses: &[(&str, &str)]) -> Value {
    let entry = |(address, gateway): &(&str, &str)| json!({"address": address, "gateway": gateway});
    json!({"type": "static", "addresses": addresses.iter().map(entry).collect::<Vec<_>>()})
}

/// Routes of the main table, and addresses, as lines without what differs from one ADD to the next.
fn state(node: &Node, pod: &testns::Container) -> Vec<String> {
    let veth = node.host().links().into_iter().find(|link| link.kind == "veth").expect("a host veth").name;
    let mut lines = Vec::new();
    for (place, namespace) in [("node", node.host()), ("pod", pod.namespace())] {
        let routes = namespace.routes().into_iter().filter(|route| route.table == 254 && !route.to.starts_with("fe80"));
        lines.extend(routes.map(|route| format!("{place} {route:?}").replace(&veth, "VETH")));
        for link in [&*veth, "eth0"] {
            let all = namespace.global_addresses(link).into_iter();
            lines.extend(all.map(|address| format!("{place} {address} on {link}").replace(&veth, "VETH")));
        }
    }
    lines.sort();
    lines
}

const SEEN_BY_OURS: [(&str, Tamper); 7] = [
    ("the route to the gateway is gone", |_, pod, _| pod.delete_route("10.7.0.1/32")),
    ("the gateway's IPv4 address is gone", |node, _, veth| node.host().delete_address(veth, "10.7.0.1/32")),
    ("the gateway's IPv6 address is gone", |node, _, veth| node.host().delete_address(veth, "fd07::1/128")),
    ("the node's IPv4 route is gone", |node, _, _| node.host().delete_route("10.7.0.2/32")),
    ("the node's IPv6 route is gone", |node, _, _| node.host().delete_route("fd07::2/128")),
    ("the host's end is down", |node, _, veth| node.host().set_down(veth)),
    ("the masquerade is gone", |node, _, _| node.host().flush_nft()),
];

/// What the result does not show is compared by ours alone.
#[test]
fn check_fails_when_what_the_result_does_not_show_is_missing() {
    let routes = json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]);
    let config = ptp(json!({"ipMasq": true, "ipam": with(dual(), json!({"routes": routes}))}));
    check_fails_after(&config, &SEEN_BY_OURS);
}

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
