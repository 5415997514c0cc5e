//! The node's way out to other networks: a default route, by a link that has an address, a carrier, and other networks behind it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netops::Family;
use netops::link::{Kind, Link};
use netops::route;

use super::container_routes::has_way_out;
use super::host_routes::outside;
use super::neighbours::is_mute;
use super::way_to_container::Carrier;
use super::{Cause, Findings, Level, Reason, Sight};
use crate::node_networks::Attachment;
use crate::shell_words::word;

impl Sight<'_> {
    /// The link that packets leave the node by, and the largest packet that its route takes.
    pub(super) fn link_out(&self, family: Family) -> Option<(&Link, u32)> {
        let found = route::lookup(self.host.kernel.as_ref()?, outside(family)).ok()?;
        let link = self.host.at(found.link?)?;
        Some((link, found.mtu_bytes.map_or(link.mtu_bytes, |mtu| mtu.min(link.mtu_bytes))))
    }

    /// The remedy for a node that has a link to other networks, and no default route of either family.
    fn without_any_way(&self) -> Option<(Level, String)> {
        let links: Vec<&Link> = self.host.links.iter().filter(|link| self.may_lead_out(link)).collect();
        let link = *links.iter().min_by_key(|link| self.rank_as_way_out(link))?;
        let name = &link.name;
        let has_address = self.has_nodes_address(link);
        let has_lost_addresses = link.up && link.carrier && !links.iter().any(|link| self.has_nodes_address(link));
        let level = if !link.up && has_address || has_lost_addresses { Level::Warning } else { Level::Note };
        let first = match (link.up, has_address) {
            (true, true) => "Give".to_owned(),
            (true, false) => format!("Give link {name} its address, and"),
            (false, _) => format!("Set link {name} up, and give"),
        };
        let remedy = format!("{first} the node a default route by {name}, if containers have to reach other networks.");
        Some((level, remedy))
    }

    /// Whether a link has an address of the node that is no gateway of containers.
    fn has_nodes_address(&self, link: &Link) -> bool {
        let is_of_node = |own: &IpNetwork| is_global(own.ip()) && !self.is_gateway(own.ip());
        self.host.addresses_of(&link.name).iter().any(is_of_node)
    }

    /// Whether other networks may be behind a link: it passes on what it gets, and is not there for containers.
    fn may_lead_out(&self, link: &Link) -> bool {
        let has_address = self.has_nodes_address(link);
        let is_of_containers = self.own_links.contains(&*link.name)
            || !has_address
                && (self.links_of_containers().contains(&*link.name) || self.is_on_bridge_of_containers(link));
        let may_pass = match &link.kind {
            Kind::Ifb | Kind::Dummy | Kind::Vrf(_) => false,
            Kind::Bridge(_) => has_address && self.has_port_of_node(link),
            // Tunnels stand beside the way out; the kernel makes some of itself.
            Kind::Other(kind) => match kind.as_str() {
                "bond" | "team" => true,
                "vxlan" | "geneve" => false,
                _ => has_address,
            },
            _ => true,
        };
        !link.loopback && link.master.is_none() && may_pass && !is_of_containers
    }

    /// Whether a link is a VLAN of a network's bridge, or stacked on it in another way.
    fn is_on_bridge_of_containers(&self, link: &Link) -> bool {
        let is_bridge = |parent: &Link| {
            let of_networks = self.view.networks.iter().flat_map(|network| &network.links);
            parent.kind.is_bridge() && of_networks.map(|shared| &shared.name).any(|name| *name == parent.name)
        };
        link.peer_netns_id.is_none() && link.peer.and_then(|index| self.host.at(index)).is_some_and(is_bridge)
    }

    /// Whether a bridge has a port that leads to no container or virtual machine.
    fn has_port_of_node(&self, bridge: &Link) -> bool {
        let mut ports = self.host.links.iter().filter(|link| link.master == Some(bridge.index));
        ports.any(|port| !matches!(port.kind, Kind::Veth | Kind::Tun(_)))
    }

    /// The likeliest way out is the least: a link that was set down keeps its addresses, and others may have lost their route alone.
    fn rank_as_way_out(&self, link: &Link) -> (u8, bool) {
        let rank = match (self.has_nodes_address(link), link.up, link.carrier) {
            (true, false, _) => 0,
            (true, true, true) => 1,
            (true, true, false) => 2,
            (false, true, true) => 3,
            (false, ..) => 4,
        };
        (rank, matches!(link.kind, Kind::Veth | Kind::Tun(_) | Kind::Other(_)))
    }

    /// The node's links that are there for containers: their own, their bridges, and those that they are stacked on.
    fn links_of_containers(&self) -> BTreeSet<&str> {
        let attachments = || self.view.networks.iter().flat_map(|network| &network.attachments);
        let bridges = attachments().flat_map(|attachment| &attachment.links).filter_map(|link| link.master.as_deref());
        let plugins = attachments().flat_map(|attachment| &attachment.conf).flat_map(|conf| &conf.plugins);
        let masters = plugins.filter_map(|plugin| plugin.find("master")).map(|text| text.trim_matches('"'));
        self.own_links.iter().copied().chain(bridges).chain(masters).collect()
    }

    /// The way out is a link on which only containers are, or the node's own.
    pub(super) fn way_to_containers(&self, family: Family, out: &Link) -> Option<Reason> {
        let is_own = |link: &Link| self.own_links.contains(&*link.name);
        let mut ports = self.host.links.iter().filter(|link| link.master == Some(out.index)).peekable();
        let is_of_containers = is_own(out) || out.kind.is_bridge() && ports.peek().is_some() && ports.all(is_own);
        if !out.loopback && !is_of_containers {
            return None;
        }
        let name = &out.name;
        let what = format!("the node's {family} route out leads to {name}, where no other networks are");
        let remedy = [format!("Give the node its default route of {family} by another link than {name} again.")];
        Some(Reason::new(Cause::WayOut, Level::Warning, what).mended_by(remedy))
    }

    /// The way out has no address of the family, and no other link that is not for containers: packets leave with an address to
    /// which no answer comes.
    fn way_without_address(&self, family: Family, out: &Link) -> Option<Reason> {
        let has = |link: &Link| {
            let own = self.host.addresses_of(&link.name);
            own.iter().any(|own| Family::from(own.ip()) == family && is_global(own.ip()))
        };
        if has(out) {
            return None;
        }
        let of_containers = self.links_of_containers();
        let is_apart = |link: &&Link| !of_containers.contains(&*link.name);
        if self.host.links.iter().filter(is_apart).any(has) {
            return None;
        }
        let what = format!(
            "link {}, the way out in {family}, has no {family} address, nor has another link of the node",
            out.name
        );
        let remedy = [format!("Give link {} its addresses and routes again.", out.name)];
        Some(Reason::new(Cause::WayOut, Level::Warning, what).mended_by(remedy))
    }

    /// The node has no route out. Where nothing says that it is meant to have one, there is no remedy.
    fn without_way(&self, family: Family) -> Reason {
        let of_family = |dst: &IpNetwork| Family::from(dst.ip()) == family;
        let has_default = self.routes.iter().any(|route| route.dst.prefix() == 0 && of_family(&route.dst));
        // The kernel itself has an unreachable default route of IPv6, which counts where there is no other.
        let is_made = |kind: &str, dst: &IpNetwork| {
            dst.prefix() > 0 || family == Family::V4 || kind != "unreachable" || has_default
        };
        // Two halves take the place of a default route.
        let refuses = |dst: &IpNetwork| of_family(dst) && (dst.prefix() <= 1 || dst.contains(outside(family)));
        let refusing = || self.refusing.iter().filter(|(kind, dst)| refuses(dst) && is_made(kind, dst));
        if let Some((kind, dst)) = refusing().max_by_key(|(_, dst)| (dst.contains(outside(family)), dst.prefix())) {
            let words = |dst: &IpNetwork| if dst.prefix() == 0 { "default".to_owned() } else { dst.to_string() };
            let what = format!("the node's route {kind} {} refuses {family} packets to other networks", words(dst));
            let option = if family == Family::V6 { " -6" } else { "" };
            let remedy = refusing().map(|(kind, dst)| format!("ip{option} route del {kind} {}", words(dst)));
            return Reason::new(Cause::WayOut, Level::Warning, what).mended_by(remedy);
        }
        if has_default {
            let what = format!("a rule of routing, or another table, refuses {family} packets to other networks");
            let remedy = [format!("Remove it: see ip rule, and ip route get {}.", outside(family))];
            return Reason::new(Cause::WayOut, Level::Warning, what).mended_by(remedy);
        }
        let why = format!("the node has no {family} route out: packets reach its own networks only");
        let other = if family == Family::V4 { Family::V6 } else { Family::V4 };
        let Some((link, _)) = self.link_out(other) else {
            let (level, remedy) = self.without_any_way().unzip();
            let reason = Reason::new(Cause::WayOut, level.unwrap_or(Level::Note), why);
            return reason.shared("the node has no route out").mended_by(remedy);
        };
        if let Some(reason) = self.way_without_address(other, link) {
            return reason;
        }
        let name = &link.name;
        let is_of_family = |own: &&IpNetwork| Family::from(own.ip()) == family && is_global(own.ip());
        // Nodes may have unique local addresses for each other alone.
        let is_local = |own: &IpNetwork| matches!(own.ip(), IpAddr::V6(own) if own.is_unique_local());
        let own = self.host.addresses_of(name).iter().filter(is_of_family);
        if let Some(is_local) = own.map(is_local).min() {
            let level = if is_local { Level::Note } else { Level::Warning };
            let what = format!(
                "the node has no {family} route out, and an {family} address on {name}, its way out in {other}"
            );
            let remedy = [format!(
                "Give the node a default route of {family} by {name}, if containers have to reach other networks by it."
            )];
            return Reason::new(Cause::WayOut, level, what).mended_by(remedy);
        }
        let is_off = self.setting(&["ipv6", "conf", name, "disable_ipv6"]).as_deref() == Some("1");
        if family == Family::V6 && is_off {
            let key = format!("net.ipv6.conf.{}.disable_ipv6", name.replace('.', "/"));
            let what = format!("the node has no IPv6 route out, and {key} is 1");
            let remedy = [format!(
                "Set {key} to 0, and give {name} its IPv6 address and default route, if containers have to reach other networks by IPv6."
            )];
            return Reason::new(Cause::WayOut, Level::Note, what).mended_by(remedy);
        }
        Reason::new(Cause::WayOut, Level::Note, why)
    }

    /// The way out, which cannot carry packets: its cable or other end is off, or each port of the bridge is, or it asks for no
    /// Ethernet address.
    pub(super) fn way_without_carrier(&self, family: Family, link: &Link) -> Option<Reason> {
        let bridge = link.master.and_then(|index| self.host.at(index)).filter(|master| master.kind.is_bridge());
        if let Some(bridge) = bridge {
            let is_of_node = |own: &&IpNetwork| is_global(own.ip()) && !self.is_gateway(own.ip());
            let own: Vec<_> = self.host.addresses_of(&bridge.name).iter().filter(is_of_node).collect();
            let (name, bridge) = (&link.name, &bridge.name);
            // The node has moved to the bridge, and its routes have not.
            if !own.is_empty() {
                let what = format!(
                    "link {name}, the {family} way out, is a port of bridge {bridge}, which has the node's addresses"
                );
                let option = if family == Family::V6 { " -6" } else { "" };
                let has = |own: &IpNetwork| Family::from(own.ip()) == family && is_global(own.ip());
                let remedy = match (own.iter().any(|own| has(own)), self.host.addresses_of(name).iter().any(has)) {
                    (true, _) => format!("Give the node its {family} default route by {bridge} instead of {name}."),
                    (false, true) => {
                        format!("Give {bridge} the {family} addresses and the {family} default route of {name}.")
                    }
                    (false, false) => format!("ip{option} route del default dev {}", word(name)),
                };
                return Some(Reason::new(Cause::WayOut, Level::Warning, what).mended_by([remedy]));
            }
            let what = format!(
                "link {name}, the way out, is a port of bridge {bridge}: nothing reaches the addresses of {name}"
            );
            let remedy = [format!("ip link set {} nomaster", word(name))];
            return Some(Reason::new(Cause::LinkDown, Level::Error, what).mended_by(remedy));
        }
        if link.up && is_mute(link) {
            let name = &link.name;
            let what = format!("link {name}, the way out, neither asks nor answers for Ethernet addresses (NOARP)");
            let remedy = [format!("ip link set {} arp on", word(name))];
            return Some(Reason::new(Cause::LinkDown, Level::Warning, what).mended_by(remedy));
        }
        let (why, remedy) = match link.kind.is_bridge() {
            _ if !link.up || link.carrier => return None,
            true => ("no port of the bridge has one", "Give the bridge its port again, or set the port up."),
            false => ("its other end is down, or no cable is in it", "Connect it, or set its other end up."),
        };
        let what = format!("link {}, the way out, has no carrier: {why}", link.name);
        Some(Reason::new(Cause::LinkDown, Level::Warning, what).mended_by([remedy.to_owned()]))
    }

    pub(super) fn way_out(&self, family: Family, attachment: &Attachment, carrier: &Carrier, findings: &mut Findings) {
        let Some(kernel) = &self.host.kernel else { return };
        match route::lookup(kernel, outside(family)) {
            Ok(found) => {
                let link = self.name_of(found.link);
                let via = found.gateway.map_or(String::new(), |gateway| format!(" by {gateway}"));
                findings.from.push(format!("the node's {family} route out leads{via} to {link}"));
                let Some(link) = self.host.find(link) else { return };
                let reason = self.way_without_carrier(family, link);
                let reason = reason.or_else(|| self.way_to_containers(family, link));
                let reason = reason.or_else(|| self.without_uplink(family, link));
                let reason = reason.or_else(|| self.way_without_address(family, link));
                // Both families may lead out by one link.
                findings.reasons.extend(reason.filter(|reason| !findings.reasons.contains(reason)));
            }
            Err(_) => {
                let mut reason = self.without_way(family);
                // ADD gave it no way out either.
                if !has_way_out(attachment, carrier, family == Family::V4) {
                    reason.remedy.clear();
                }
                findings.reasons.push(reason);
            }
        }
    }
}

/// Whether an address is of use beyond its link.
pub(crate) fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_link_local() && !address.is_loopback(),
        IpAddr::V6(address) => !address.is_unicast_link_local() && !address.is_loopback(),
    }
}
