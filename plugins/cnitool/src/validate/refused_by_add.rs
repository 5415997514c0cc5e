//! Addresses, routes and chains of plugins that each parser accepts by itself, and with which ADD fails on any node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use cni_spec::json;
use interface::container::refuse_host_bits;
use ipnetwork::IpNetwork;
use serde_json::Value;

use crate::parsed_network::{Network, Plugin, Pool, text};
use crate::validate::finding::{Level, Notes, join};

/// Plugins whose interface has no end on the node.
const WITHOUT_HOST_END: [&str; 5] = ["dummy", "ipvlan", "macvlan", "tap", "vlan"];

/// `RT_SCOPE_LINK` of include/uapi/linux/rtnetlink.h: routes of this scope and of smaller ones have no next hop.
const SCOPE_LINK: u64 = 253;

/// Chains that iptables' table filter has of its own.
const BUILT_IN_CHAINS: [&str; 3] = ["INPUT", "FORWARD", "OUTPUT"];

/// Checks an interface plugin whose addresses host-local or static gives. `has_more`: a runtime may give other addresses.
pub(crate) fn check(plugin: &Plugin, has_more: bool, notes: &mut Notes<'_>) {
    let Some(pools) = plugin.pools() else { return };
    host_bits(plugin, notes);
    routes_twice(plugin, notes);
    empty_ranges(plugin, notes);
    if has_more {
        return;
    }
    scopes(plugin, pools, notes);
    let requested = requested(plugin);
    match &*plugin.ipam {
        "static" if requested.is_empty() => static_addresses(plugin, notes),
        "host-local" => outside_of_ranges(plugin, &requested, notes),
        _ => (),
    }
}

/// An element of `ipam.routes`, and the path of one of its keys.
fn route_key(plugin: &Plugin, index: usize, key: &str) -> String {
    join(&plugin.base, &format!("ipam.routes[{index}].{key}"))
}

fn host_bits(plugin: &Plugin, notes: &mut Notes<'_>) {
    for (index, route) in plugin.routes.iter().enumerate() {
        if let Some(Err(error)) = route.dst.map(refuse_host_bits) {
            notes.value(Level::Error, &route_key(plugin, index, "dst"), error.msg).help = error.details;
        }
    }
}

/// Routes that differ in nothing, of which the kernel takes one.
fn routes_twice(plugin: &Plugin, notes: &mut Notes<'_>) {
    let ipam = json::member(&plugin.object, "ipam").unwrap_or(&Value::Null);
    let written = json::member(ipam, "routes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    // The kernel takes 0 for its default.
    let number = |route: &Value, key| json::member(route, key).and_then(Value::as_u64).filter(|number| *number > 0);
    let main = |table: Option<u64>| table.unwrap_or(u64::from(netops::route::MAIN_TABLE));
    let mut seen = Vec::new();
    for (index, (route, object)) in plugin.routes.iter().zip(written).enumerate() {
        let Some(dst) = route.dst else { continue };
        let numbers = ["mtu", "advmss", "priority", "scope"].map(|key| number(object, key));
        let one = (dst.network(), dst.prefix(), route.gw, main(number(object, "table")), numbers);
        if seen.contains(&one) {
            let text = format!("route {dst} is in the list twice: ADD fails");
            notes.value(Level::Error, &route_key(plugin, index, "dst"), text).help = "Remove one of both.".to_owned();
        }
        seen.push(one);
    }
}

/// An IPv4 route of a scope without next hops, which gets one: its own, or the gateway of the addresses.
fn scopes(plugin: &Plugin, pools: &[Pool], notes: &mut Notes<'_>) {
    let gateway = pools.iter().filter(|pool| pool.net.is_ipv4()).find_map(|pool| pool.gateway.or(pool.taken));
    for (index, route) in plugin.routes.iter().enumerate() {
        let (Some(dst @ IpNetwork::V4(_)), Some(scope)) = (route.dst, route.scope) else { continue };
        let hop = route.gw.or(gateway).filter(|hop| !hop.is_unspecified());
        if let Some(hop) = hop.filter(|_| (SCOPE_LINK..=u64::from(u8::MAX)).contains(&scope)) {
            let text = format!("route {dst} of scope {scope} has next hop {hop}, which the kernel refuses: ADD fails");
            notes.value(Level::Error, &route_key(plugin, index, "scope"), text).help =
                "Remove scope: a route by a next hop has scope 0.".to_owned();
        }
    }
}

/// Sets of ranges that have gateways alone.
fn empty_ranges(plugin: &Plugin, notes: &mut Notes<'_>) {
    let mut sets: BTreeMap<&str, Vec<&Pool>> = BTreeMap::new();
    for pool in &plugin.ranges {
        let set = pool.path.rsplit_once('[').map_or(&*pool.path, |(set, _)| set);
        sets.entry(set).or_default().push(pool);
    }
    let is_gateway = |pool: &&Pool| pool.start.is_some() && pool.start == pool.end && pool.taken == pool.start;
    for (set, pools) in sets.into_iter().filter(|(_, pools)| pools.iter().all(is_gateway)) {
        let gateways: Vec<String> = pools.iter().filter_map(|pool| pool.taken).map(|ip| ip.to_string()).collect();
        let text =
            format!("the range has its gateway {} alone, which no container gets: ADD fails", gateways.join(", "));
        let key = if set == "ipam" { "ipam.rangeEnd".to_owned() } else { format!("{set}[0].rangeEnd") };
        notes.value(Level::Error, &join(&plugin.base, &key), text).help =
            "Write a larger range, or another gateway.".to_owned();
    }
}

/// The addresses that the file itself asks for.
fn requested(plugin: &Plugin) -> Vec<&str> {
    let ips = ["args", "cni", "ips"].into_iter().try_fold(&plugin.object, json::member);
    ips.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

fn outside_of_ranges(plugin: &Plugin, requested: &[&str], notes: &mut Notes<'_>) {
    for (index, ip) in requested.iter().enumerate() {
        let Ok(address) = json::parse_ip(ip.split('/').next().unwrap_or_default()) else { continue };
        let is_within = |pool: &Pool| {
            let is_bounded =
                pool.start.is_none_or(|start| start <= address) && pool.end.is_none_or(|end| address <= end);
            pool.net.contains(address) && is_bounded
        };
        if !plugin.ranges.is_empty() && !plugin.ranges.iter().any(is_within) {
            let key = join(&plugin.base, &format!("args.cni.ips[{index}]"));
            notes.value(Level::Error, &key, format!("address {address} is in no range of ipam: ADD fails")).help =
                "Write an address of a range, or remove it: the container then gets a free one.".to_owned();
        }
    }
}

/// The addresses of static, to which `CNI_ARGS` alone may add.
fn static_addresses(plugin: &Plugin, notes: &mut Notes<'_>) {
    let ipam = json::member(&plugin.object, "ipam").unwrap_or(&Value::Null);
    if json::member(ipam, "addresses").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let key = if json::member(ipam, "addresses").is_some() { "ipam.addresses" } else { "ipam" };
        notes
            .value(
                Level::Warning,
                &join(&plugin.base, key),
                "static has no addresses: ADD fails unless CNI_ARGS has IP",
            )
            .help = "Write an address with prefix length, or add \"capabilities\": {\"ips\": true}.".to_owned();
    }
    let mut seen: Vec<(IpAddr, Option<u8>)> = Vec::new();
    for pool in &plugin.addresses {
        // The kernel takes an IPv4 address with another prefix length for another one.
        let one = (pool.net.ip(), pool.net.is_ipv4().then_some(pool.net.prefix()));
        if seen.contains(&one) {
            let key = join(&plugin.base, &format!("{}.address", pool.path));
            notes.value(Level::Error, &key, format!("address {} is in the list twice: ADD fails", pool.net)).help =
                "Remove one of both.".to_owned();
        }
        seen.push(one);
        if plugin.plugin_type == "ptp" && pool.gateway.is_none() {
            let text =
                format!("address {} has no gateway, which ptp needs: ADD fails unless CNI_ARGS has it", pool.net);
            notes.value(Level::Warning, &join(&plugin.base, &pool.path), text).help =
                "Add key gateway: the address of the node's end.".to_owned();
        }
    }
}

/// Checks the chained plugins of a list against the interface that an earlier plugin of the suite makes.
pub(crate) fn chained(network: &Network, notes: &mut Notes<'_>) {
    let Some((maker, others)) = network.plugins.split_first() else { return };
    for plugin in others {
        match &*plugin.plugin_type {
            "bandwidth" if WITHOUT_HOST_END.contains(&&*maker.plugin_type) => bandwidth(plugin, maker, notes),
            "firewall" => admin_chain(plugin, notes),
            "tuning" => super::unusable_values::mtu(plugin, maker.pools().unwrap_or_default(), notes),
            _ => (),
        }
    }
}

/// Limits are set on the host's end of the interface.
fn bandwidth(plugin: &Plugin, maker: &Plugin, notes: &mut Notes<'_>) {
    let has_limit = |key| json::member(&plugin.object, key).and_then(Value::as_u64).is_some_and(|rate| rate > 0);
    let is_limited = ["ingressRate", "egressRate"].into_iter().any(has_limit);
    let (level, when) = if is_limited { (Level::Error, "") } else { (Level::Warning, " when a runtime gives a limit") };
    let maker = &maker.plugin_type;
    let text = format!("an interface of {maker} has no end on the host, which bandwidth needs: ADD fails{when}");
    notes.value(level, &join(&plugin.base, "type"), text).help = "Remove bandwidth, or use bridge or ptp.".to_owned();
}

/// A chain of iptables' own, to which no rule can jump.
fn admin_chain(plugin: &Plugin, notes: &mut Notes<'_>) {
    const KEY: &str = "iptablesAdminChainName";
    let chain = text(&plugin.object, KEY);
    if BUILT_IN_CHAINS.contains(&chain) && text(&plugin.object, "backend") != "firewalld" {
        let text = format!("chain {chain} is iptables' own, and no rule can jump to it: ADD fails with iptables");
        notes.value(Level::Error, &join(&plugin.base, KEY), text).help =
            "Write a name of your own, such as CNI-ADMIN.".to_owned();
    }
}
