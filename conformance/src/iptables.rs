//! The rules of a node as the programs of iptables show them.

use crate::subjects::skip;
use std::process::Command;
use testns::Node;

/// Whether the programs of iptables are here; if not, prints that the test is skipped.
pub fn has_iptables() -> bool {
    let has = Command::new("iptables-save").arg("-V").output().is_ok();
    if !has {
        skip("iptables is not installed");
    }
    has
}

/// A program's output on a node.
pub fn on(node: &Node, program: &str, args: &[&str]) -> String {
    let output = node.host().enter(|| Command::new(program).args(args).output()).expect("run a program");
    String::from_utf8(output.stdout).expect("text")
}

/// A table of both families, without counters and comments.
pub fn saved(node: &Node, table: &str) -> String {
    let text = on(node, "iptables-save", &["-t", table]) + &on(node, "ip6tables-save", &["-t", table]);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(" [0:0]").next().unwrap_or(line).to_owned() + "\n").collect()
}
