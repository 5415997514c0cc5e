//! Calls of firewall with a made-up result, and its rules on a node.

use crate::configs::with;
use serde_json::{Value, json};
use testns::Node;

pub fn config(own: Value) -> Value {
    with(json!({"cniVersion": "1.0.0", "name": "net", "type": "firewall", "backend": "iptables"}), own)
}

/// A result of plugin bridge, as far as firewall looks at it.
pub fn made_up(bridge: &str, addresses: &[&str]) -> Value {
    let ips: Vec<Value> = addresses.iter().map(|address| json!({"address": address, "interface": 1})).collect();
    json!({"cniVersion": "1.0.0", "interfaces": [{"name": bridge}, {"name": "eth0", "sandbox": "there"}], "ips": ips})
}

/// Table `filter` of both families, without counters and comments.
pub fn saved(node: &Node) -> String {
    crate::iptables::saved(node, "filter")
}

pub fn accepting(node: &Node) -> Vec<String> {
    saved(node)
        .lines()
        .filter(|line| line.starts_with("-A CNI-FORWARD -"))
        .filter(|line| !line.contains("-j CNI-ADMIN"))
        .map(str::to_owned)
        .collect()
}

pub fn isolating(node: &Node, bridge: &str) -> Vec<String> {
    saved(node).lines().filter(|line| line.contains(&format!("o {bridge} "))).map(str::to_owned).collect()
}
