//! Gateways and next hops that no address of the container has in its subnet.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::parsed_network::{Plugin, Pool, Route};
use crate::validate::finding::{Level, Notes, join};

/// `RT_SCOPE_LINK` of include/uapi/linux/rtnetlink.h.
const SCOPE_LINK: u64 = 253;

/// Checks the gateways and routes of an interface plugin whose addresses host-local or static gives.
pub(crate) fn check(plugin: &Plugin, notes: &mut Notes<'_>) {
    let Some(pools) = plugin.pools() else { return };
    edges(plugin, notes);
    for pool in pools {
        gateway(plugin, pool, pools, notes);
    }
    for (index, route) in plugin.routes.iter().enumerate() {
        let key = join(&plugin.base, &format!("ipam.routes[{index}].gw"));
        let Some(hop) = route.gw else { continue };
        next_hop(&key, hop, plugin, pools, notes);
    }
}

/// Addresses that no host can have: the subnet's own, and that of all hosts of it.
fn edges(plugin: &Plugin, notes: &mut Notes<'_>) {
    for range in &plugin.ranges {
        let IpNetwork::V4(net) = range.net else { continue };
        if net.prefix() >= 31 {
            continue;
        }
        for (key, value, edge, whose) in [
            ("rangeStart", range.start, net.network(), "subnet's own"),
            ("rangeEnd", range.end, net.broadcast(), "subnet's broadcast"),
            ("gateway", range.gateway, net.network(), "subnet's own"),
            ("gateway", range.gateway, net.broadcast(), "subnet's broadcast"),
        ] {
            if value == Some(IpAddr::V4(edge)) {
                let key = join(&plugin.base, &join(&range.path, key));
                notes.value(Level::Warning, &key, format!("{edge} is the {whose} address, and no host's")).help =
                    format!("Write an address between {} and {}.", net.network(), net.broadcast());
            }
        }
    }
}

/// A gateway outside of its subnet. Plugins make a route to it over the interface, as hosters' single addresses need one; for
/// ptp every gateway is such a one.
fn gateway(plugin: &Plugin, pool: &Pool, pools: &[Pool], notes: &mut Notes<'_>) {
    let Some(gateway) = pool.gateway else { return };
    let (key, subnet) = (join(&plugin.base, &join(&pool.path, "gateway")), pool.subnet());
    let is_ptp = plugin.plugin_type == "ptp";
    if gateway.is_ipv4() != subnet.is_ipv4() {
        let level = if is_ptp || plugin.is_gateway { Level::Error } else { Level::Warning };
        notes.value(level, &key, format!("gateway {gateway} and subnet {subnet} are of different families")).help =
            format!("Write an address of {subnet}.");
        return;
    }
    let is_on_purpose = is_ptp || is_single(subnet) || is_of_link(gateway);
    if is_on_purpose || is_reached(gateway, plugin, pools) {
        return;
    }
    notes.value(Level::Warning, &key, format!("gateway {gateway} is outside of subnet {subnet}")).help = format!(
        "ADD makes a route to it over the interface, and it answers only if it is on that link. Write an address of {subnet}, or a larger subnet."
    );
}

/// A route's next hop that is no gateway, which the kernel takes only if it reaches it over the link.
fn next_hop(key: &str, hop: IpAddr, plugin: &Plugin, pools: &[Pool], notes: &mut Notes<'_>) {
    let has_broadcast = |pool: &&Pool| matches!((pool.net, hop), (IpNetwork::V4(net), IpAddr::V4(hop)) if net.prefix() < 31 && net.broadcast() == hop);
    if let Some(pool) = pools.iter().find(has_broadcast) {
        let subnet = pool.subnet();
        notes
            .value(Level::Error, key, format!("next hop {hop} is the broadcast address of {subnet}: ADD fails"))
            .help = format!(
            "Write the address of a router in {subnet}, or leave out gw: the route then has the subnet's gateway."
        );
        return;
    }
    let of_family = || pools.iter().filter(|pool| pool.net.is_ipv4() == hop.is_ipv4());
    let is_gateway = pools.iter().any(|pool| pool.gateway.or(pool.taken) == Some(hop));
    let is_linked = hop.is_unspecified() || matches!(hop, IpAddr::V6(ip) if ip.is_unicast_link_local());
    if is_gateway || is_linked || of_family().all(|pool| is_single(pool.net)) || is_reached(hop, plugin, pools) {
        return;
    }
    let subnets: Vec<String> = of_family().map(|pool| pool.subnet().to_string()).collect();
    let subnets = subnets.join(", ");
    notes.value(Level::Error, key, format!("next hop {hop} is outside of {subnets}: ADD fails")).help =
        format!("Write a gateway that is in {subnets}, or leave out gw: the route then has the subnet's gateway.");
}

/// Whether the container reaches it over the link: by an address, or by a route without a next hop.
fn is_reached(gateway: IpAddr, plugin: &Plugin, pools: &[Pool]) -> bool {
    let is_direct =
        |route: &Route| route.scope == Some(SCOPE_LINK) && route.dst.is_some_and(|dst| dst.contains(gateway));
    pools.iter().any(|pool| pool.net.contains(gateway)) || plugin.routes.iter().any(is_direct)
}

fn is_single(subnet: IpNetwork) -> bool {
    subnet.prefix() == if subnet.is_ipv4() { 32 } else { 128 }
}

/// True for an address of every link (RFC 3927, RFC 4291), or none.
fn is_of_link(gateway: IpAddr) -> bool {
    gateway.is_unspecified()
        || match gateway {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        }
}
