//! Routes, subnets and MTUs that a plugin's parser accepts, and with which ADD fails or no packet passes.

use std::net::IpAddr;

use interface::conf::{IPV4_MTU_MIN, IPV6_MTU_MIN};
use ipnetwork::IpNetwork;

use crate::parsed_network::{Plugin, Pool, Route};
use crate::validate::finding::{Level, Notes, join};

/// Checks an interface plugin whose addresses host-local or static gives.
pub(crate) fn check(plugin: &Plugin, notes: &mut Notes<'_>) {
    for (index, route) in plugin.routes.iter().enumerate() {
        families(&join(&plugin.base, &format!("ipam.routes[{index}].gw")), route, notes);
    }
    let Some(pools) = plugin.pools() else { return };
    let is_range = plugin.ipam == "host-local";
    for pool in pools {
        let key = join(&plugin.base, &join(&pool.path, if is_range { "subnet" } else { "address" }));
        // A dummy link's addresses are for the container itself.
        if plugin.plugin_type != "dummy" {
            special(&key, pool.subnet(), notes);
        }
        if is_range && is_link_local(pool.subnet()) {
            link_local(&key, plugin, pool.subnet(), notes);
        }
    }
    mtu(plugin, pools, notes);
    gateways_of_one_set(plugin, notes);
}

/// Subnets of one range set, of which the bridge would have to have each gateway in turn: it takes one of IPv4 only.
fn gateways_of_one_set(plugin: &Plugin, notes: &mut Notes<'_>) {
    let Some(bridge) = plugin.bridge.as_deref().filter(|_| plugin.is_gateway && !plugin.is_set("forceAddress")) else {
        return;
    };
    let set_of = |pool: &Pool| pool.path.rsplit_once('[').map(|(set, _)| set.to_owned());
    let gateway = |pool: &Pool| (pool.taken, pool.net.prefix());
    for set in plugin.ranges.chunk_by(|one, next| set_of(one) == set_of(next)) {
        let [first, others @ ..] = set else { continue };
        let differs = |other: &&Pool| other.net.is_ipv4() && gateway(other) != gateway(first);
        let Some(other) = others.iter().find(differs) else { continue };
        let (subnet, key) = (other.subnet(), join(&plugin.base, &join(&other.path, "subnet")));
        let text = format!(
            "bridge {bridge} would be the gateway of {} and of {subnet}: ADD fails for addresses of {subnet}, as the bridge has the other gateway",
            first.subnet()
        );
        notes.value(Level::Warning, &key, text).help =
            "Write one larger subnet, or give the second one a network and a bridge of its own.".to_owned();
    }
}

/// A route of one family over a gateway of the other: no plugin makes one.
fn families(key: &str, route: &Route, notes: &mut Notes<'_>) {
    let Route { dst: Some(dst), gw: Some(gw), .. } = route else { return };
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
fn link_local(key: &str, plugin: &Plugin, subnet: IpNetwork, notes: &mut Notes<'_>) {
    const HELP: &str = "Write another subnet, such as fd00:1::/64.";
    // The kernel gives each link an address of fe80::/64.
    let has_own = "fe80::/64".parse().is_ok_and(|own: IpNetwork| own.contains(subnet.network()));
    let takes_own = plugin.bridge.is_some() && plugin.is_gateway && has_own;
    let (level, text) = match takes_own && !plugin.is_set("forceAddress") {
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

/// An MTU with which the kernel takes a family off the interface.
pub(crate) fn mtu(plugin: &Plugin, pools: &[Pool], notes: &mut Notes<'_>) {
    let Some(bytes) = plugin.mtu_bytes else { return };
    let least = |pool: &Pool| {
        let (family, least) = if pool.net.is_ipv6() { ("IPv6", IPV6_MTU_MIN) } else { ("IPv4", IPV4_MTU_MIN) };
        (bytes < least.into() && !is_link_local(pool.net)).then_some((pool.net, family, least))
    };
    let Some((subnet, family, least)) = pools.iter().find_map(least) else { return };
    let text = format!("mtu {bytes} is below {least}, which {family} needs, and {subnet} is of {family}: ADD fails");
    notes.value(Level::Error, &join(&plugin.base, "mtu"), text).help =
        format!("Write {least} or more, or take the {family} addresses from the network.");
}
