//! Networks of one node that do not fit together.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use libcni::conflist;

use crate::parsed_network::{self, Network, Plugin};
use crate::validate::Report;
use crate::validate::finding::{Finding, Level, Notes, join};

pub(crate) fn compare(report: &Report) -> Vec<Finding> {
    let all: Vec<Facts<'_>> = report.networks.iter().map(Facts::of).collect();
    let mut found = Vec::new();
    for (place, later) in all.iter().enumerate().skip(1) {
        let mut notes = Notes::new(later.network.file, &report.sources);
        for earlier in &all[..place] {
            let other = &report.sources[earlier.network.file].name;
            if earlier.network.conf.name == later.network.conf.name {
                let text = format!("network {} is in {other}, too, which is found first", later.network.conf.name);
                let own = &report.sources[later.network.file].name;
                notes.value(Level::Warning, "name", text).help = hidden(other, own);
                continue;
            }
            bridges((earlier, later), other, &mut notes);
            pools((earlier, later), other, &mut notes);
        }
        found.extend(notes.into_findings());
    }
    found
}

/// The finding for a file whose network an earlier file has. Some programs find lists by name before other files.
fn hidden(earlier: &str, later: &str) -> String {
    let is_list = |name: &str| conflist::is_list(name.as_ref());
    match (is_list(earlier), is_list(later)) {
        (false, true) => format!(
            "containerd, CRI-O and kubelets use {earlier}; podman and the reference's cnitool use this file. Remove one."
        ),
        _ => "Runtimes never use this file.".to_owned(),
    }
}

/// A network, and what of it other networks may be in conflict with, read once.
struct Facts<'a> {
    network: &'a Network,
    routers: Vec<Router<'a>>,
    pools: Vec<Pool<'a>>,
}

/// A range of addresses that host-local gives out.
struct Pool<'a> {
    /// The path of the key `subnet`.
    key: String,
    subnet: IpNetwork,
    /// The first and the last address.
    span: (IpAddr, IpAddr),
    /// The bridge that alone carries these addresses, as the node routes none of them.
    switched_by: Option<&'a str>,
}

impl<'a> Pool<'a> {
    /// Without bounds of its own a range is taken to be the whole subnet.
    fn of(base: &str, range: &parsed_network::Pool, switched_by: Option<&'a str>) -> Self {
        let subnet = range.subnet();
        let span = (range.start.unwrap_or(subnet.network()), range.end.unwrap_or(subnet.broadcast()));
        Self { key: join(base, &join(&range.path, "subnet")), subnet, span, switched_by }
    }

    /// Whether two containers may get one address, and meet.
    fn meets(&self, other: &Self) -> bool {
        let is_apart =
            self.switched_by.is_some() && other.switched_by.is_some() && self.switched_by != other.switched_by;
        !is_apart && self.span.0 <= other.span.1 && other.span.0 <= self.span.1
    }
}

/// A bridge plugin that gives its bridge addresses.
struct Router<'a> {
    /// The path of its object.
    base: &'a str,
    bridge: &'a str,
    subnets: Vec<IpNetwork>,
}

impl<'a> Facts<'a> {
    fn of(network: &'a Network) -> Self {
        let mut facts = Self { network, routers: Vec::new(), pools: Vec::new() };
        for plugin in &network.plugins {
            let Plugin { base, bridge, is_gateway, ranges, .. } = plugin;
            if plugin.ipam == "host-local" {
                let switched_by = bridge.as_deref().filter(|_| !is_gateway);
                facts.pools.extend(ranges.iter().map(|range| Pool::of(base, range, switched_by)));
            }
            if let Some(bridge) = bridge.as_deref().filter(|_| *is_gateway && !plugin.is_set("forceAddress")) {
                let subnets = ranges.iter().map(parsed_network::Pool::subnet).collect();
                facts.routers.push(Router { base, bridge, subnets });
            }
        }
        facts
    }
}

/// The first ADD gives the bridge its address; that of another network with another one is refused.
fn bridges((earlier, later): (&Facts<'_>, &Facts<'_>), other: &str, notes: &mut Notes<'_>) {
    for Router { base, bridge, subnets } in &later.routers {
        let differs = |subnet: &&IpNetwork| {
            let is_other = |first: &Router<'_>| {
                let of_family = first.subnets.iter().find(|one| one.is_ipv4() == subnet.is_ipv4());
                first.bridge == *bridge && of_family.is_some_and(|one| one != *subnet)
            };
            earlier.routers.iter().any(is_other)
        };
        if let Some(subnet) = subnets.iter().find(differs) {
            let message = format!("bridge {bridge} would be the gateway of {subnet}, and of other subnets in {other}");
            notes.value(Level::Warning, &join(base, "bridge"), message).help =
                format!("Give network {} a bridge of its own: ADD of the later one fails.", later.network.conf.name);
        }
    }
}

/// Each network has reservations of its own, so two that give out the same addresses give one to two containers.
fn pools((earlier, later): (&Facts<'_>, &Facts<'_>), other: &str, notes: &mut Notes<'_>) {
    for pool in &later.pools {
        if let Some(taken) = earlier.pools.iter().find(|taken| pool.meets(taken)) {
            let (subnet, taken) = (pool.subnet, taken.subnet);
            let message = format!("{subnet} overlaps {taken} of network {} in {other}", earlier.network.conf.name);
            notes.value(Level::Warning, &pool.key, message).help =
                "Each network reserves addresses for itself: two containers may get the same one.".to_owned();
        }
    }
}
