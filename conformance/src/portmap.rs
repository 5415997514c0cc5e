//! Calls of portmap with a made-up result, and its rules on a node.

use crate::configs::with;
use serde_json::{Value, json};
use testns::Node;

pub fn mapping(host: u16, container: u16, protocol: &str) -> Value {
    json!({"hostPort": host, "containerPort": container, "protocol": protocol})
}

pub fn config(mappings: &[Value], own: Value) -> Value {
    let base = json!({"cniVersion": "1.0.0", "name": "net", "type": "portmap",
        "runtimeConfig": {"portMappings": mappings}});
    with(base, own)
}

/// A result that says as much as portmap looks at.
pub fn made_up(ifname: &str, addresses: &[&str]) -> Value {
    let ips: Vec<Value> = addresses.iter().map(|address| json!({"address": address, "interface": 0})).collect();
    json!({"cniVersion": "1.0.0", "interfaces": [{"name": ifname, "sandbox": "there"}], "ips": ips})
}

/// Table `nat` of both families, without counters and comments.
pub fn saved(node: &Node) -> String {
    crate::iptables::saved(node, "nat")
}

pub fn forwarding(node: &Node) -> Vec<String> {
    saved(node).lines().filter(|line| line.contains("CNI-DN-")).map(str::to_owned).collect()
}
