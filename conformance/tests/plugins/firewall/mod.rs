//! firewall: rules that let a container's packets pass, and policies that keep others' away.

mod faults;
mod firewalld;
mod native;
mod packets;
mod rules;

use crate::configs::{Attached, with};
use crate::subjects::skip;
use serde_json::{Value, json};
use std::process::Command;
use testns::{Attachment, Node};

/// firewall on network `net`; `own` adds keys or replaces them.
fn config(own: Value) -> Value {
    with(json!({"cniVersion": "1.0.0", "name": "net", "type": "firewall", "backend": "iptables"}), own)
}

/// A result of plugin bridge, as far as firewall looks at it.
fn made_up(bridge: &str, addresses: &[&str]) -> Value {
    let ips: Vec<Value> = addresses.iter().map(|address| json!({"address": address, "interface": 1})).collect();
    json!({"cniVersion": "1.0.0", "interfaces": [{"name": bridge}, {"name": "eth0", "sandbox": "there"}], "ips": ips})
}

#[track_caller]
fn add<'a>(node: &'a Node, config: Value, attachment: impl Into<Attachment>, previous: Value) -> Attached<'a> {
    Attached::add(node, &with(config, json!({"prevResult": previous})), attachment)
}

fn has_iptables() -> bool {
    let has = Command::new("iptables-save").arg("-V").output().is_ok();
    if !has {
        skip("iptables is not installed");
    }
    has
}

fn on(node: &Node, program: &str, args: &[&str]) -> String {
    let output = node.host().enter(|| Command::new(program).args(args).output()).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Table `filter` of both families, without counters and comments.
fn saved(node: &Node) -> String {
    let text = on(node, "iptables-save", &["-t", "filter"]) + &on(node, "ip6tables-save", &["-t", "filter"]);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(" [0:0]").next().unwrap_or(line).to_owned() + "\n").collect()
}

/// The rules that name an address.
fn accepting(node: &Node) -> Vec<String> {
    saved(node)
        .lines()
        .filter(|line| line.starts_with("-A CNI-FORWARD -"))
        .filter(|line| !line.contains("-j CNI-ADMIN"))
        .map(str::to_owned)
        .collect()
}

/// The rules about a bridge.
fn isolating(node: &Node, bridge: &str) -> Vec<String> {
    saved(node).lines().filter(|line| line.contains(&format!("o {bridge} "))).map(str::to_owned).collect()
}
