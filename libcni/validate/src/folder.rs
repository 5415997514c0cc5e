//! Networks of one node that do not fit together.

use std::collections::BTreeMap;

use cni_spec::json;
use ipnetwork::IpNetwork;
use serde_json::Value;

use crate::finding::{Finding, Level, Notes, join};
use crate::network::base;
use crate::{Network, Report};

pub(crate) fn compare(report: &Report) -> Vec<Finding> {
    let mut notes: BTreeMap<usize, Notes<'_>> = BTreeMap::new();
    for (later, network) in report.networks.iter().enumerate() {
        let notes =
            notes.entry(network.file).or_insert_with(|| Notes::new(network.file, &report.sources[network.file]));
        for earlier in &report.networks[..later] {
            let other = &report.sources[earlier.file].name;
            if earlier.conf.name == network.conf.name {
                let text = format!("network {} is in {other}, too, which is found first", network.conf.name);
                notes.value(Level::Warning, "name", text).help = "Runtimes never use this file.".to_owned();
                continue;
            }
            bridges(report, (earlier, network), other, notes);
            pools(report, (earlier, network), other, notes);
        }
    }
    notes.into_values().flat_map(Notes::into_findings).collect()
}

/// A plugin of a network: the path of its object, and the object.
fn plugins<'a>(report: &'a Report, network: &'a Network) -> impl Iterator<Item = (String, Value)> + 'a {
    (0..network.conf.plugins.len()).filter_map(|index| {
        let value = json::parse(&network.conf.plugin_conf(index)?).ok()?;
        Some((base(&report.sources[network.file], index), value))
    })
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    json::member(value, key).and_then(Value::as_str).unwrap_or_default()
}

fn is_set(value: &Value, key: &str) -> bool {
    json::member(value, key).and_then(Value::as_bool).unwrap_or_default()
}

/// The subnets that an address plugin gives out, and their paths in the plugin's object.
fn subnets(value: &Value) -> Vec<(String, IpNetwork)> {
    let Some(ipam) = json::member(value, "ipam") else { return Vec::new() };
    let subnet = |range: &Value| -> Option<IpNetwork> {
        let subnet: IpNetwork = text(range, "subnet").parse().ok()?;
        IpNetwork::new(subnet.network(), subnet.prefix()).ok()
    };
    let mut found: Vec<(String, IpNetwork)> =
        subnet(ipam).map(|subnet| ("ipam.subnet".to_owned(), subnet)).into_iter().collect();
    let sets = json::member(ipam, "ranges").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (outer, set) in sets.iter().enumerate() {
        let set = set.as_array().map(Vec::as_slice).unwrap_or_default();
        found.extend(
            set.iter()
                .enumerate()
                .filter_map(|(inner, range)| Some((format!("ipam.ranges[{outer}][{inner}].subnet"), subnet(range)?))),
        );
    }
    found
}

fn overlap(one: IpNetwork, other: IpNetwork) -> bool {
    one.contains(other.ip()) || other.contains(one.ip())
}

/// The first ADD gives the bridge its address; that of another network with another one is refused.
fn bridges(report: &Report, (earlier, later): (&Network, &Network), other: &str, notes: &mut Notes<'_>) {
    let name = |value: &Value| match text(value, "bridge") {
        "" => "cni0".to_owned(),
        name => name.to_owned(),
    };
    let routers = |network| {
        plugins(report, network).filter(|(_, value)| {
            let is_gateway = is_set(value, "isGateway") || is_set(value, "isDefaultGateway");
            text(value, "type") == "bridge" && is_gateway && !is_set(value, "forceAddress")
        })
    };
    for (_, first) in routers(earlier) {
        for (base, second) in routers(later).filter(|(_, second)| name(second) == name(&first)) {
            let of_first = subnets(&first);
            let differs = subnets(&second).into_iter().find(|(_, subnet)| {
                let of_family = |(_, one): &&(String, IpNetwork)| one.is_ipv4() == subnet.is_ipv4();
                of_first.iter().find(of_family).is_some_and(|(_, one)| one != subnet)
            });
            if let Some((_, subnet)) = differs {
                let bridge = name(&second);
                let message =
                    format!("bridge {bridge} would be the gateway of {subnet}, and of other subnets in {other}");
                notes.value(Level::Warning, &join(&base, "bridge"), message).help =
                    format!("Give network {} a bridge of its own: ADD of the later one fails.", later.conf.name);
            }
        }
    }
}

/// Each network has reservations of its own, so two that give out the same addresses give one to two containers.
fn pools(report: &Report, (earlier, later): (&Network, &Network), other: &str, notes: &mut Notes<'_>) {
    let all = |network| {
        plugins(report, network)
            .filter(|(_, value)| json::member(value, "ipam").is_some_and(|ipam| text(ipam, "type") == "host-local"))
    };
    for (_, first) in all(earlier) {
        for (base, second) in all(later) {
            for (key, subnet) in subnets(&second) {
                if let Some((_, taken)) = subnets(&first).into_iter().find(|(_, taken)| overlap(*taken, subnet)) {
                    let message = format!("{subnet} overlaps {taken} of network {} in {other}", earlier.conf.name);
                    notes.value(Level::Warning, &join(&base, &key), message).help =
                        "Each network reserves addresses for itself: two containers may get the same one.".to_owned();
                }
            }
        }
    }
}
