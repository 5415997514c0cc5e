//! ptp: a link between node and pod, and the node routes.

mod check;
mod packets;
mod result;

use crate::configs::{v4, with};
use serde_json::{Value, json};
use testns::Node;

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
