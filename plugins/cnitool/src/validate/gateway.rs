//! Gateways and next hops that no address of the container has in its subnet.

use std::net::IpAddr;

use cni_spec::json::{self, parse_ip};
use ipnetwork::IpNetwork;
use serde_json::Value;

use crate::validate::finding::{Level, Notes, join};
use crate::validate::folder::{configured, is_set, list, ranges, subnet, text};

/// `RT_SCOPE_LINK` of include/uapi/linux/rtnetlink.h.
const SCOPE_LINK: u64 = 253;

/// Addresses that a container gets, or one of them.
struct Pool {
    subnet: IpNetwork,
    gateway: Option<IpAddr>,
    /// The path of key `gateway`; `None`: the gateway is that of a range without the key.
    key: Option<String>,
}

/// Checks the gateways and routes of an interface plugin whose addresses host-local or static gives.
pub(crate) fn check(base: &str, plugin: &str, value: &Value, notes: &mut Notes<'_>) {
    let Some(ipam) = json::member(value, "ipam") else { return };
    let pools = match text(ipam, "type") {
        "host-local" => of_host_local(value),
        "static" => of_static(ipam),
        _ => return,
    };
    let routes = list(ipam, "routes");
    edges(base, value, notes);
    for pool in &pools {
        gateway(base, plugin, value, (pool, &pools, routes), notes);
    }
    for (index, route) in routes.iter().enumerate() {
        let key = join(base, &format!("ipam.routes[{index}].gw"));
        let Ok(hop) = parse_ip(text(route, "gw")) else { continue };
        next_hop(&key, hop, &pools, routes, notes);
    }
}

/// Addresses that no host can have: the subnet's own, and that of all hosts of it.
fn edges(base: &str, value: &Value, notes: &mut Notes<'_>) {
    for (path, range) in ranges(value) {
        let Some(IpNetwork::V4(net)) = subnet(range).filter(|net| net.prefix() < 31) else { continue };
        for (key, edge, whose) in [
            ("rangeStart", net.network(), "subnet's own"),
            ("rangeEnd", net.broadcast(), "subnet's broadcast"),
            ("gateway", net.network(), "subnet's own"),
            ("gateway", net.broadcast(), "subnet's broadcast"),
        ] {
            if parse_ip(text(range, key)) == Ok(IpAddr::V4(edge)) {
                let key = join(base, &join(&path, key));
                notes.value(Level::Warning, &key, format!("{edge} is the {whose} address, and no host's")).help =
                    format!("Write an address between {} and {}.", net.network(), net.broadcast());
            }
        }
    }
}

fn of_host_local(value: &Value) -> Vec<Pool> {
    let pool = |(path, range): (String, &Value)| {
        let subnet = subnet(range)?;
        let written = parse_ip(text(range, "gateway")).ok();
        let key = written.map(|_| join(&path, "gateway"));
        let own = || Some(configured(range)?.gateway.ip());
        Some(Pool { subnet, gateway: written.or_else(own), key })
    };
    ranges(value).into_iter().filter_map(pool).collect()
}

fn of_static(ipam: &Value) -> Vec<Pool> {
    let pool = |(index, entry): (usize, &Value)| {
        let subnet = text(entry, "address").parse().ok()?;
        let gateway = parse_ip(text(entry, "gateway")).ok();
        Some(Pool { subnet, gateway, key: gateway.map(|_| format!("ipam.addresses[{index}].gateway")) })
    };
    list(ipam, "addresses").iter().enumerate().filter_map(pool).collect()
}

/// A gateway outside of its subnet. Plugins make a route to it over the interface, as hosters' single addresses need one; for
/// ptp every gateway is such a one.
fn gateway(
    base: &str,
    plugin: &str,
    value: &Value,
    (pool, pools, routes): (&Pool, &[Pool], &[Value]),
    notes: &mut Notes<'_>,
) {
    let (Some(gateway), Some(key)) = (pool.gateway, &pool.key) else { return };
    let (key, subnet) = (join(base, key), network(pool.subnet));
    if gateway.is_ipv4() != subnet.is_ipv4() {
        let is_used = plugin == "ptp" || is_set(value, "isGateway") || is_set(value, "isDefaultGateway");
        let level = if is_used { Level::Error } else { Level::Warning };
        notes.value(level, &key, format!("gateway {gateway} and subnet {subnet} are of different families")).help =
            format!("Write an address of {subnet}.");
        return;
    }
    let is_on_purpose = plugin == "ptp" || is_single(pool.subnet) || is_of_link(gateway);
    if is_on_purpose || is_reached(gateway, pools, routes) {
        return;
    }
    notes.value(Level::Warning, &key, format!("gateway {gateway} is outside of subnet {subnet}")).help = format!(
        "ADD makes a route to it over the interface, and it answers only if it is on that link. Write an address of {subnet}, or a larger subnet."
    );
}

/// A route's next hop that is no gateway, which the kernel takes only if it reaches it over the link.
fn next_hop(key: &str, hop: IpAddr, pools: &[Pool], routes: &[Value], notes: &mut Notes<'_>) {
    let of_family = || pools.iter().filter(|pool| pool.subnet.is_ipv4() == hop.is_ipv4());
    let is_gateway = pools.iter().any(|pool| pool.gateway == Some(hop));
    let is_linked = hop.is_unspecified() || matches!(hop, IpAddr::V6(ip) if ip.is_unicast_link_local());
    if is_gateway || is_linked || of_family().all(|pool| is_single(pool.subnet)) || is_reached(hop, pools, routes) {
        return;
    }
    let subnets: Vec<String> = of_family().map(|pool| network(pool.subnet).to_string()).collect();
    let subnets = subnets.join(", ");
    notes.value(Level::Error, key, format!("next hop {hop} is outside of {subnets}: ADD fails")).help =
        format!("Write a gateway that is in {subnets}, or leave out gw: the route then has the subnet's gateway.");
}

/// Whether the container reaches it over the link: by an address, or by a route without a next hop.
fn is_reached(gateway: IpAddr, pools: &[Pool], routes: &[Value]) -> bool {
    let is_direct = |route: &Value| {
        let scope = json::member(route, "scope").and_then(Value::as_u64);
        let dst: Option<IpNetwork> = text(route, "dst").parse().ok();
        scope == Some(SCOPE_LINK) && dst.is_some_and(|dst| dst.contains(gateway))
    };
    pools.iter().any(|pool| network(pool.subnet).contains(gateway)) || routes.iter().any(is_direct)
}

pub(crate) fn network(subnet: IpNetwork) -> IpNetwork {
    IpNetwork::new(subnet.network(), subnet.prefix()).unwrap_or(subnet)
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
