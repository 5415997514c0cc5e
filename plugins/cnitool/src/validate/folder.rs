//! Networks of one node that do not fit together.

use std::net::IpAddr;

use cni_spec::json;
use host_local::range::{Range, RawRange};
use ipnetwork::IpNetwork;
use libcni::conflist;
use serde_json::Value;

use crate::validate::finding::{Finding, Level, Notes, join};
use crate::validate::network::base;
use crate::validate::{Network, Report};

pub(crate) fn compare(report: &Report) -> Vec<Finding> {
    let all: Vec<Facts<'_>> = report.networks.iter().map(|network| Facts::of(report, network)).collect();
    let mut found = Vec::new();
    for (place, later) in all.iter().enumerate().skip(1) {
        let mut notes = Notes::new(later.network.file, &report.sources[later.network.file]);
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
    routers: Vec<Router>,
    pools: Vec<Pool>,
}

/// A range of addresses that host-local gives out.
struct Pool {
    /// The path of the key `subnet`.
    key: String,
    subnet: IpNetwork,
    /// The first and the last address.
    span: (IpAddr, IpAddr),
    /// The bridge that alone carries these addresses, as the node routes none of them.
    switched_by: Option<String>,
}

impl Pool {
    /// Without bounds of its own a range is taken to be the whole subnet.
    fn of(base: &str, (path, range): (String, &Value), switched_by: Option<&String>) -> Option<Self> {
        let subnet = subnet(range)?;
        let bound = |key: &str, whole: IpAddr| text(range, key).parse().unwrap_or(whole);
        Some(Self {
            key: join(base, &join(&path, "subnet")),
            subnet,
            span: (bound("rangeStart", subnet.network()), bound("rangeEnd", subnet.broadcast())),
            switched_by: switched_by.cloned(),
        })
    }

    /// Whether two containers may get one address, and meet.
    fn meets(&self, other: &Pool) -> bool {
        let is_apart =
            self.switched_by.is_some() && other.switched_by.is_some() && self.switched_by != other.switched_by;
        !is_apart && self.span.0 <= other.span.1 && other.span.0 <= self.span.1
    }
}

/// A bridge plugin that gives its bridge addresses.
struct Router {
    /// The path of its object.
    base: String,
    bridge: String,
    subnets: Vec<IpNetwork>,
}

impl<'a> Facts<'a> {
    fn of(report: &Report, network: &'a Network) -> Self {
        let mut facts = Self { network, routers: Vec::new(), pools: Vec::new() };
        for (base, value) in plugins(report, network) {
            let subnets = ranges(&value).into_iter().filter_map(|(_, range)| subnet(range)).collect();
            let is_gateway = is_set(&value, "isGateway") || is_set(&value, "isDefaultGateway");
            let bridge = (text(&value, "type") == "bridge")
                .then(|| Some(text(&value, "bridge")).filter(|name| !name.is_empty()).unwrap_or("cni0").to_owned());
            if json::member(&value, "ipam").is_some_and(|ipam| text(ipam, "type") == "host-local") {
                let switched_by = bridge.as_ref().filter(|_| !is_gateway);
                facts.pools.extend(ranges(&value).into_iter().filter_map(|range| Pool::of(&base, range, switched_by)));
            }
            if let Some(bridge) = bridge.filter(|_| is_gateway && !is_set(&value, "forceAddress")) {
                facts.routers.push(Router { base, bridge, subnets });
            }
        }
        facts
    }
}

/// A plugin of a network: the path of its object, and the object.
fn plugins<'a>(report: &'a Report, network: &'a Network) -> impl Iterator<Item = (String, Value)> + 'a {
    (0..network.conf.plugins.len()).filter_map(|index| {
        let value = json::parse(&network.conf.plugin_conf(index)?).ok()?;
        Some((base(&report.sources[network.file], index), value))
    })
}

pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    json::member(value, key).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn is_set(value: &Value, key: &str) -> bool {
    json::member(value, key).and_then(Value::as_bool).unwrap_or_default()
}

/// The objects that describe ranges of addresses, and their paths in the plugin's object.
pub(crate) fn ranges(value: &Value) -> Vec<(String, &Value)> {
    let Some(ipam) = json::member(value, "ipam") else { return Vec::new() };
    let mut found = vec![("ipam".to_owned(), ipam)];
    for (outer, set) in list(ipam, "ranges").iter().enumerate() {
        let set = set.as_array().map(Vec::as_slice).unwrap_or_default().iter().enumerate();
        found.extend(set.map(|(inner, range)| (format!("ipam.ranges[{outer}][{inner}]"), range)));
    }
    found
}

/// The subnet of a range.
pub(crate) fn subnet(range: &Value) -> Option<IpNetwork> {
    let subnet: IpNetwork = text(range, "subnet").parse().ok()?;
    IpNetwork::new(subnet.network(), subnet.prefix()).ok()
}

/// A range as host-local reads it; `None`: it refuses the range, or the object has none.
pub(crate) fn configured(range: &Value) -> Option<Range> {
    let address = |key| json::parse_ip(text(range, key)).ok();
    let subnet = text(range, "subnet").parse().ok()?;
    let (start, end, gateway) = (address("rangeStart"), address("rangeEnd"), address("gateway"));
    Range::new(&RawRange { subnet: Some(subnet), start, end, gateway }).ok()
}

/// The elements of a list; none if the key has no list.
pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    json::member(value, key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The first ADD gives the bridge its address; that of another network with another one is refused.
fn bridges((earlier, later): (&Facts<'_>, &Facts<'_>), other: &str, notes: &mut Notes<'_>) {
    for Router { base, bridge, subnets } in &later.routers {
        let differs = |subnet: &&IpNetwork| {
            let is_other = |first: &Router| {
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
