//! Routes, subnets and MTUs that a plugin's parser accepts, and with which ADD fails or no packet passes.

use std::net::IpAddr;

use cni_spec::json::{self, parse_ip};
use interface::conf::IPV6_MTU_MIN;
use ipnetwork::IpNetwork;
use serde_json::Value;

use crate::validate::finding::{Level, Notes, join};
use crate::validate::folder::{is_set, list, ranges, subnet, text};
use crate::validate::gateway::network;

/// Checks an interface plugin whose addresses host-local or static gives.
pub(crate) fn check(base: &str, plugin: &str, value: &Value, notes: &mut Notes<'_>) {
    let Some(ipam) = json::member(value, "ipam") else { return };
    for (index, route) in list(ipam, "routes").iter().enumerate() {
        families(&join(base, &format!("ipam.routes[{index}].gw")), route, notes);
    }
    let is_pool = text(ipam, "type") == "host-local";
    let subnets: Vec<(String, IpNetwork)> = match text(ipam, "type") {
        "host-local" => ranges(value)
            .into_iter()
            .filter_map(|(path, range)| Some((join(&path, "subnet"), subnet(range)?)))
            .collect(),
        "static" => list(ipam, "addresses")
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| {
                Some((format!("ipam.addresses[{index}].address"), text(entry, "address").parse().ok()?))
            })
            .collect(),
        _ => return,
    };
    for (key, subnet) in &subnets {
        let key = join(base, key);
        // A dummy link's addresses are for the container itself.
        if plugin != "dummy" {
            special(&key, *subnet, notes);
        }
        if is_pool && is_link_local(*subnet) {
            link_local(&key, (plugin, value), *subnet, notes);
        }
    }
    mtu(base, value, &subnets, notes);
}

/// A route of one family over a gateway of the other: no plugin makes one.
fn families(key: &str, route: &Value, notes: &mut Notes<'_>) {
    let Ok(dst) = text(route, "dst").parse::<IpNetwork>() else { return };
    let Ok(gw) = parse_ip(text(route, "gw")) else { return };
    if dst.is_ipv4() != gw.is_ipv4() {
        let family = if dst.is_ipv4() { "IPv4" } else { "IPv6" };
        notes
            .value(Level::Error, key, format!("route {dst} and next hop {gw} are of different families: ADD fails"))
            .help = format!("Write an {family} address, or leave out gw: the route then has the subnet's gateway.");
    }
}

/// Addresses of loopback and of multicast.
fn special(key: &str, subnet: IpNetwork, notes: &mut Notes<'_>) {
    const HELP: &str = "Write addresses for hosts, such as those of 10.1.0.0/24 or fd00:1::/64.";
    let subnet = network(subnet);
    let (is_loopback, is_multicast) = (subnet.network().is_loopback(), subnet.network().is_multicast());
    let (level, text) = match (subnet, is_loopback, is_multicast) {
        (IpNetwork::V6(_), true, _) => (Level::Error, format!("{subnet} is of loopback addresses: ADD fails")),
        (IpNetwork::V6(_), _, true) => (Level::Error, format!("{subnet} is of multicast addresses: ADD fails")),
        (IpNetwork::V4(_), true, _) => {
            (Level::Warning, format!("{subnet} is of loopback addresses, and no packet with one passes a link"))
        }
        (IpNetwork::V4(_), _, true) => {
            (Level::Warning, format!("{subnet} is of multicast addresses, and no packet passes that is from one"))
        }
        _ => return,
    };
    notes.value(level, key, text).help = HELP.to_owned();
}

/// Addresses of one link only (RFC 4291, section 2.5.6): each link has some of its own, and no router forwards them.
fn link_local(key: &str, (plugin, value): (&str, &Value), subnet: IpNetwork, notes: &mut Notes<'_>) {
    const HELP: &str = "Write another subnet, such as fd00:1::/64.";
    let is_gateway = is_set(value, "isGateway") || is_set(value, "isDefaultGateway");
    // The kernel gives each link an address of fe80::/64.
    let has_own = "fe80::/64".parse().is_ok_and(|own: IpNetwork| own.contains(subnet.network()));
    let (level, text) = match plugin == "bridge" && is_gateway && has_own && !is_set(value, "forceAddress") {
        true => (
            Level::Error,
            format!("subnet {subnet} is of link-local addresses, of which the bridge has one already: ADD fails"),
        ),
        false => (Level::Warning, format!("subnet {subnet} is of link-local addresses, which no router forwards")),
    };
    notes.value(level, key, text).help = HELP.to_owned();
}

fn is_link_local(subnet: IpNetwork) -> bool {
    matches!(subnet.network(), IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// An MTU with which the kernel takes IPv6 off the interface.
fn mtu(base: &str, value: &Value, subnets: &[(String, IpNetwork)], notes: &mut Notes<'_>) {
    let bytes = json::member(value, "mtu").and_then(Value::as_u64);
    let Some(bytes) = bytes.filter(|bytes| (1..IPV6_MTU_MIN.into()).contains(bytes)) else { return };
    let Some((_, subnet)) = subnets.iter().find(|(_, subnet)| subnet.is_ipv6() && !is_link_local(*subnet)) else {
        return;
    };
    let text = format!("mtu {bytes} is below {IPV6_MTU_MIN}, which IPv6 needs, and {subnet} is of IPv6: ADD fails");
    notes.value(Level::Error, &join(base, "mtu"), text).help =
        format!("Write {IPV6_MTU_MIN} or more, or take the IPv6 addresses from the network.");
}
