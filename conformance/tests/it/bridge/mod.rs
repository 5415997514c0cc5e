//! bridge: pods on a Linux bridge.

mod attachments;
mod check;
mod del;
mod dynamic;
mod gateway;
mod keys;
mod layer2;
mod pods;
mod result;
mod service;
mod vlan;

use crate::subjects::Who;
use testns::{Namespace, Route};

/// What DEL leaves on purpose, as line of a snapshot: the bridge with its gateway address, forwarding, the store of
/// host-local without reservations.
pub(crate) fn stays(line: &str) -> bool {
    is_bridge(line) || is_forwarding(line) || is_empty_store(line)
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
    let names = ["/lock ", "/last_reserved_ip.", "/.index "];
    line.starts_with("+ folder /var/lib/cni/networks")
        || (line.contains("file /var/lib/cni/networks/net/") && names.iter().any(|name| line.contains(name)))
}

/// Waits until a link is up and the kernel has done what it does when it gets round to it: a link-local address, and for
/// each IPv6 address its route and, on a router, the anycast route of its subnet (RFC 4291, 2.6.1), which comes last.
pub(crate) fn wait_until_settled(namespace: &Namespace, link: &str) {
    const LOCAL: u8 = 2; // RTN_LOCAL, linux/rtnetlink.h
    const ANYCAST: u8 = 4; // RTN_ANYCAST
    namespace.wait_for("a link to be up", |namespace| namespace.link(link).state == "up");
    let is_router = namespace.sysctl(&format!("net/ipv6/conf/{link}/forwarding")) == "1";
    let last = if is_router { ANYCAST } else { LOCAL };
    namespace.wait_for("the routes of a link's addresses", |namespace| {
        let addresses = namespace.addresses().into_iter();
        let addresses: Vec<_> = addresses.filter(|address| address.link == link && address.ip.is_ipv6()).collect();
        let is_on_link = |route: &&Route| route.kind == last && route.hops.iter().any(|hop| hop.link == link);
        let routes = namespace.routes().iter().filter(is_on_link).count();
        addresses.iter().any(|address| address.scope == 253) && routes >= addresses.len()
    });
}
