//! bridge: pods on a Linux bridge.

mod attachments;
mod check;
mod del;
mod dynamic;
mod gateway;
mod keys;
mod layer2;
mod neighbours;
mod pods;
mod removal;
mod result;
mod service;
mod vlan;

use crate::subjects::Who;

/// What DEL leaves on purpose, as line of a snapshot: the bridge with its gateway address, forwarding, the store of
/// host-local without reservations, what iptables makes on first use and never takes away.
pub(crate) fn stays(line: &str) -> bool {
    is_bridge(line) || is_forwarding(line) || is_empty_store(line) || is_iptables_base(line)
}

/// Tables `nat` and their chain `POSTROUTING`, which let everything pass.
pub(crate) fn is_iptables_base(line: &str) -> bool {
    let nft = line.trim_start_matches("+ ").trim_start_matches("nft ");
    let is_table = ["table ip 1=\"nat\" ", "table ip6 1=\"nat\" "].iter().any(|start| nft.starts_with(start));
    let chain = ["chain ip 1=\"nat\" 3=\"POSTROUTING\" ", "chain ip6 1=\"nat\" 3=\"POSTROUTING\" "];
    is_table || chain.iter().any(|start| nft.starts_with(start)) && nft.contains(" 5=00000001 ")
}

/// [`stays`], and of the reference its nft tables without anything of a container in them.
pub(crate) fn left_by(who: Who) -> impl Fn(&str) -> bool {
    move |line| stays(line) || (!who.is_ours() && is_empty_table(line))
}

fn is_empty_table(line: &str) -> bool {
    let nft = line.strip_prefix("+ nft ").unwrap_or_default();
    nft.starts_with("table ") || (nft.starts_with("chain ") && nft.to_lowercase().contains("routing"))
}

fn is_bridge(line: &str) -> bool {
    line.contains("link br0 ") || line.contains(" on br0 ") || line.contains(" dev br0 ") || line.contains("/br0/")
}

/// `ip_forward` and `conf/all/forwarding` set the others of the same meaning, and a router takes no redirects.
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
