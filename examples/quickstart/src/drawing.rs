//! A small drawing of the node: what is plugged into what, with addresses.

use libcni::cni_spec::AddResult;
use std::fmt::Write;
use testns::{Link, Namespace};

/// Draws each bridge of `host`, its ports, and the pods at their other ends.
pub(crate) fn draw(host: &Namespace, pods: &[(&str, &AddResult)]) -> String {
    let links = host.links();
    let mut text = String::new();
    for bridge in links.iter().filter(|link| link.kind == "bridge") {
        line(&mut text, &format!("  host: {}   {}", bridge.name, host.global_addresses(&bridge.name).join("  ")));
        let ports: Vec<&Link> = links.iter().filter(|link| link.master.as_deref() == Some(&bridge.name)).collect();
        for (number, port) in ports.iter().enumerate() {
            let branch = if number + 1 == ports.len() { "└" } else { "├" };
            line(&mut text, &format!("        {branch}── {} ─── {}", port.name, other_end(port, pods)));
        }
    }
    text
}

fn other_end(port: &Link, pods: &[(&str, &AddResult)]) -> String {
    let of_port = |result: &AddResult| result.interfaces.iter().any(|entry| entry.name == port.name);
    let Some((name, result)) = pods.iter().find(|(_, result)| of_port(result)) else { return "?".to_owned() };
    let inside = result.interfaces.iter().find(|entry| !entry.sandbox.is_empty());
    let addresses: Vec<String> = result.ips.iter().map(|ip| ip.address.to_string()).collect();
    format!("{name}: {}   {}", inside.map_or("?", |entry| &entry.name), addresses.join("  "))
}

fn line(text: &mut String, words: &str) {
    // Writing to a String cannot fail.
    writeln!(text, "{words}").ok();
}
