//! Objects that the containers of a node share, and that DEL leaves on purpose.

use testns::Node;

/// The lines of a snapshot that DEL leaves on purpose: the bridge with its gateway address, forwarding, the store of
/// host-local without reservations, tables of the packet filter without anything of a container.
pub fn stays(line: &str) -> bool {
    is_bridge(line) || is_forwarding(line) || is_empty_store(line) || is_shared_nft(line.trim_start_matches("+ "))
}

/// The packet filter's rules of containers.
pub fn nft_for_containers(node: &Node) -> Vec<String> {
    let mut lines = node.host().nft();
    lines.retain(|line| !is_shared_nft(line));
    lines
}

/// Tables, the base chains, and the masquerade rules that lead to the chains of containers. Of shared rules all but elements.
fn is_shared_nft(line: &str) -> bool {
    let Some(object) = line.strip_prefix("nft ") else { return false };
    if object.contains("cni_shared") {
        return !object.starts_with("element");
    }
    let is_masquerade = object.contains("\"cni_plugins_masquerade\"");
    match object.split(' ').next() {
        Some("table") => true,
        Some("chain") => object.to_lowercase().contains("routing\"") || is_masquerade,
        Some("rule") => is_masquerade && object.contains("2=\"postrouting\""),
        _ => false,
    }
}

fn is_bridge(line: &str) -> bool {
    line.contains("link br0 ") || line.contains(" on br0 ") || line.contains(" dev br0 ") || line.contains("/br0/")
}

/// `ip_forward` and `conf/all/forwarding` also set the other sysctls of that meaning, and a router ignores redirects.
fn is_forwarding(line: &str) -> bool {
    let keys = ["ip_forward = ", "/forwarding = ", "conf/all/accept_redirects = "];
    line.contains("sysctl net/ipv") && keys.iter().any(|key| line.contains(key))
}

fn is_empty_store(line: &str) -> bool {
    let names = ["/lock ", "/last_reserved_ip."];
    line.starts_with("+ folder /var/lib/cni/networks")
        || line.contains(" /run/cni")
        || (line.contains("file /var/lib/cni/networks/net/") && names.iter().any(|name| line.contains(name)))
}
