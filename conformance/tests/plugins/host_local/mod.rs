//! host-local: the reference's store and order of allocation, and our additional keys.

mod additional_keys;
mod allocation;
mod config;
mod gc;
mod requested;
mod status;
mod store;

use crate::configs::{addresses, host_local};
use serde_json::Value;
use testns::{Attachment, Node, Verb};

const FOLDER: &str = "/var/lib/cni/networks/net";

/// A container of that ID for host-local, which never opens the namespace.
fn pod(id: &str) -> Attachment {
    Attachment { container_id: id.to_owned(), netns: "/run/netns/absent".to_owned(), ifname: "eth0".to_owned() }
}

/// The addresses that ADD returns, or its error text.
fn add(node: &Node, ipam: &Value, id: &str) -> Result<Vec<String>, String> {
    add_with(node, &host_local(ipam.clone()), pod(id))
}

fn add_with(node: &Node, config: &Value, attachment: Attachment) -> Result<Vec<String>, String> {
    let reply = node.call(Verb::Add, config, attachment);
    if reply.output.code() == 0 { Ok(addresses(&reply.ok())) } else { Err(reply.fails().msg) }
}

fn del(node: &Node, ipam: &Value, id: &str) {
    node.call(Verb::Del, host_local(ipam.clone()), pod(id)).ok();
}

/// The reservations of network `net`: address and content.
fn reservations() -> Vec<(String, String)> {
    let entries = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let named = entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    let addresses = named.filter(|(name, _)| name.parse::<std::net::IpAddr>().is_ok());
    let mut all: Vec<_> = addresses.map(|(name, path)| (name, std::fs::read_to_string(path).unwrap())).collect();
    all.sort();
    all
}
