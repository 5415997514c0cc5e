//! The node's way out to other networks: a default route, by a link that has an address, a carrier, and other networks behind it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netops::link::{Kind as LinkKind, Link, PortFault};
use netops::{Family, neighbour};

use super::gateways::is_mute;
use super::host_routes::{is_global, outside};
use super::rows::{At, name};
use super::{Level, Reason, Sight};
use crate::doctor::{Kind, Remedy, Step, advice};
use crate::shell_words::word;

impl Sight<'_> {
    fn addresses(&self, link: &Link) -> impl Iterator<Item = &IpNetwork> {
        self.host.addresses_of(&link.name).iter().filter(|own| is_global(own.ip()))
    }

    /// Whether a link has an address of the node that is no gateway of containers.
    fn has_nodes_address(&self, link: &Link) -> bool {
        self.addresses(link).any(|own| !self.is_gateway(own.ip()))
    }

    pub(crate) fn ports(&self, bridge: &Link) -> impl Iterator<Item = &Link> {
        let index = bridge.index;
        self.host.links.iter().filter(move |link| link.master == Some(index))
    }

    /// Whether a link is the node's end of a container's.
    pub(crate) fn is_own(&self, link: &Link) -> bool {
        self.own_links.contains(&*link.name)
    }

    /// The node's links that are there for containers: their own, their bridges, and those that they are stacked on.
    fn links_of_containers(&self) -> BTreeSet<&str> {
        let bridges = self.attachments().flat_map(|it| &it.links).filter_map(|link| link.master.as_deref());
        let plugins = self.attachments().flat_map(|it| &it.conf).flat_map(|conf| &conf.plugins);
        let masters = plugins.filter_map(|plugin| plugin.find("master")).map(|text| text.trim_matches('"'));
        self.own_links.iter().copied().chain(bridges).chain(masters).collect()
    }

    /// Whether other networks may be behind a link: it passes on what it gets, and is not there for containers.
    fn may_lead_out(&self, link: &Link) -> bool {
        let has_address = self.has_nodes_address(link);
        // A VLAN of a network's bridge, or what is stacked on it in another way.
        let is_on_bridge = || {
            let shared: BTreeSet<&str> =
                self.view.networks.iter().flat_map(|network| &network.links).map(|it| it.name.as_str()).collect();
            let parent = link.peer.filter(|_| link.peer_netns_id.is_none()).and_then(|index| self.host.at(index));
            parent.is_some_and(|parent| parent.kind.is_bridge() && shared.contains(&*parent.name))
        };
        let is_of_containers =
            self.is_own(link) || !has_address && (self.links_of_containers().contains(&*link.name) || is_on_bridge());
        let may_pass = match &link.kind {
            LinkKind::Ifb | LinkKind::Dummy | LinkKind::Vrf(_) => false,
            // A port that leads to no container or virtual machine.
            LinkKind::Bridge(_) => {
                has_address && self.ports(link).any(|port| !matches!(port.kind, LinkKind::Veth | LinkKind::Tun(_)))
            }
            // Tunnels stand beside the way out; the kernel makes some of itself.
            LinkKind::Other(kind) => match kind.as_str() {
                "bond" | "team" => true,
                "vxlan" | "geneve" => false,
                _ => has_address,
            },
            _ => true,
        };
        !link.loopback && link.master.is_none() && may_pass && !is_of_containers
    }

    /// The remedy for a node that has a link to other networks, and no default route of either family.
    fn without_any_way(&self) -> Option<(Level, String)> {
        let links: Vec<&Link> = self.host.links.iter().filter(|link| self.may_lead_out(link)).collect();
        // A link that was set down keeps its addresses, and others may have lost their route alone.
        let rank = |link: &&&Link| {
            let rank = match (self.has_nodes_address(link), link.up, link.carrier) {
                (true, false, _) => 0,
                (true, true, true) => 1,
                (true, true, false) => 2,
                (false, true, true) => 3,
                (false, ..) => 4,
            };
            (rank, matches!(link.kind, LinkKind::Veth | LinkKind::Tun(_) | LinkKind::Other(_)))
        };
        let link = *links.iter().min_by_key(rank)?;
        let (name, has_address) = (&link.name, self.has_nodes_address(link));
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

    /// The way out is a link on which only containers are, or the node's own.
    pub(super) fn way_to_containers(&self, family: Family, out: &Link) -> Option<Reason> {
        let mut ports = self.ports(out).peekable();
        let is_of_containers =
            self.is_own(out) || out.kind.is_bridge() && ports.peek().is_some() && ports.all(|port| self.is_own(port));
        if !out.loopback && !is_of_containers {
            return None;
        }
        let name = &out.name;
        let what = format!("the node's {family} route out leads to {name}, where no other networks are");
        let remedy =
            [advice(format!("Give the node its default route of {family} by another link than {name} again."))];
        Some(Kind::NoWayOut.finding(Level::Warning, None, what).steps(remedy))
    }

    /// The way out has no address of the family, and no other link that is not for containers: packets leave with an address to
    /// which no answer comes.
    fn way_without_address(&self, family: Family, out: &Link) -> Option<Reason> {
        let has = |link: &Link| self.addresses(link).any(|own| Family::from(own.ip()) == family);
        if has(out) {
            return None;
        }
        let of_containers = self.links_of_containers();
        if self.host.links.iter().any(|link| !of_containers.contains(&*link.name) && has(link)) {
            return None;
        }
        let name = &out.name;
        let what =
            format!("link {name}, the way out in {family}, has no {family} address, nor has another link of the node");
        let remedy = [advice(format!("Give link {name} its addresses and routes again."))];
        Some(Kind::NoWayOut.finding(Level::Warning, None, what).steps(remedy))
    }

    /// The node has no route out. Where nothing says that it is meant to have one, there is no remedy.
    fn without_way(&self, family: Family) -> Reason {
        let reason = |level, what: String| Kind::NoWayOut.finding(level, None, what);
        if let Some(found) = self.routing().and_then(|routing| routing.refusal(None, outside(family))) {
            let what = format!("the node's {} refuses {family} packets to other networks", found.what);
            return reason(Level::Warning, what).steps(found.remedy);
        }
        let of_family = |dst: &IpNetwork| Family::from(dst.ip()) == family;
        let why = format!("the node has no {family} route out: packets reach its own networks only");
        let other = if family == Family::V4 { Family::V6 } else { Family::V4 };
        let Some((link, _)) = self.link_out(other) else {
            let (level, remedy) = self.without_any_way().map(|(level, text)| (level, advice(text))).unzip();
            let reason = reason(level.unwrap_or(Level::Note), "the node has no route out".to_owned());
            return reason.shown_by([why]).steps(remedy);
        };
        if let Some(reason) = self.way_without_address(other, link) {
            return reason;
        }
        let link_name = &link.name;
        // Nodes may have unique local addresses for each other alone.
        let is_local = |own: &IpNetwork| matches!(own.ip(), IpAddr::V6(own) if own.is_unique_local());
        if let Some(is_local) = self.addresses(link).filter(|own| of_family(own)).map(is_local).min() {
            let level = if is_local { Level::Note } else { Level::Warning };
            let what = format!(
                "the node has no {family} route out, and an {family} address on {link_name}, its way out in {other}"
            );
            let remedy = format!(
                "Give the node a default route of {family} by {link_name}, if containers have to reach other networks by it."
            );
            return reason(level, what).steps([advice(remedy)]);
        }
        let key = ["ipv6", "conf", link_name, "disable_ipv6"];
        if family == Family::V6 && self.setting(&key).as_deref() == Some("1") {
            let key = name(&key);
            let remedy = format!(
                "Set {key} to 0, and give {link_name} its IPv6 address and default route, if containers have to reach other networks by IPv6."
            );
            return reason(Level::Note, format!("the node has no IPv6 route out, and {key} is 1"))
                .steps([advice(remedy)]);
        }
        reason(Level::Note, why)
    }

    /// The way out, which cannot carry packets: its cable or other end is off, or each port of the bridge is, or it asks for no
    /// Ethernet address.
    pub(super) fn way_without_carrier(&self, family: Family, link: &Link) -> Option<Reason> {
        let name = &link.name;
        let bridge = link.master.and_then(|index| self.host.at(index)).filter(|master| master.kind.is_bridge());
        if let Some(bridge) = bridge {
            return Some(self.way_on_port(family, link, bridge));
        }
        let (level, kind) = (Level::Warning, Kind::LinkDown);
        if link.up && is_mute(link) {
            let what = format!("link {name}, the way out, neither asks nor answers for Ethernet addresses (NOARP)");
            return Some(kind.finding(level, None, what).steps([format!("ip link set {} arp on", word(name))]));
        }
        let (why, remedy) = match link.kind.is_bridge() {
            _ if !link.up || link.carrier => return None,
            true => ("no port of the bridge has one", "Give the bridge its port again, or set the port up."),
            false => ("its other end is down, or no cable is in it", "Connect it, or set its other end up."),
        };
        let what = format!("link {name}, the way out, has no carrier: {why}");
        Some(kind.finding(level, None, what).steps([advice(remedy)]))
    }

    /// The way out is a port of a bridge. Where that has the node's addresses, the node has moved to it, and its routes have not.
    fn way_on_port(&self, family: Family, link: &Link, bridge: &Link) -> Reason {
        let name = &link.name;
        if !self.has_nodes_address(bridge) {
            let bridge = &bridge.name;
            let what = format!(
                "link {name}, the way out, is a port of bridge {bridge}: nothing reaches the addresses of {name}"
            );
            let remedy = [format!("ip link set {} nomaster", word(name))];
            return Kind::LinkDown.finding(Level::Error, None, what).steps(remedy);
        }
        let option = if family == Family::V6 { " -6" } else { "" };
        let has = |link: &Link| self.addresses(link).any(|own| Family::from(own.ip()) == family);
        let has_of_node =
            self.addresses(bridge).any(|own| Family::from(own.ip()) == family && !self.is_gateway(own.ip()));
        let bridge = &bridge.name;
        let remedy = match (has_of_node, has(link)) {
            (true, _) => advice(format!("Give the node its {family} default route by {bridge} instead of {name}.")),
            (false, true) => {
                advice(format!("Give {bridge} the {family} addresses and the {family} default route of {name}."))
            }
            (false, false) => format!("ip{option} route del default dev {}", word(name)).into(),
        };
        let what =
            format!("link {name}, the {family} way out, is a port of bridge {bridge}, which has the node's addresses");
        Kind::NoWayOut.finding(Level::Warning, None, what).steps([remedy])
    }

    /// No port of the bridge leads to other networks. Where virtual machines or containers of others are on it, one of them may be
    /// the router: then the node has to have asked for the next hop in vain.
    pub(super) fn without_uplink(&self, family: Family, bridge: &Link) -> Option<Reason> {
        if !bridge.kind.is_bridge() || !bridge.up || !bridge.carrier {
            return None;
        }
        let others = || self.ports(bridge).filter(|port| !self.is_own(port));
        let passes = |port: &&Link| {
            let is_shut = matches!(port.port_fault, Some(PortFault::Blocks | PortFault::Waits));
            port.up && port.carrier && !is_shut
        };
        let may_be_guest = |port: &Link| matches!(port.kind, LinkKind::Veth | LinkKind::Tun(_));
        let has_guest = others().any(|port| passes(&port));
        if !others().filter(passes).all(may_be_guest) || has_guest && !self.is_hop_unresolved(family, bridge) {
            return None;
        }
        let name = &bridge.name;
        let (why, remedy) = match others().find(|port| !passes(port)) {
            Some(port) => {
                let (why, step) = why_lost(port);
                (why, vec![step])
            }
            None if self.ports(bridge).next().is_none() => return None,
            None => (
                "none of its ports leads to other networks, or the next hop does not answer there".to_owned(),
                vec![advice(format!("Give {name} its port to other networks again (ip link set LINK master {name})."))],
            ),
        };
        let what = format!("bridge {name}, the {family} way out, has lost its port to other networks: {why}");
        Some(Kind::LinkDown.finding(Level::Warning, None, what).steps(remedy))
    }

    /// Whether the node has asked for the next hop of its way out by the link, and none has answered.
    fn is_hop_unresolved(&self, family: Family, link: &Link) -> bool {
        let hop = self.host.kernel.as_ref().zip(self.out(family).and_then(|way| way.gateway));
        hop.is_some_and(|(kernel, hop)| neighbour::is_unresolved(kernel, link, hop).unwrap_or_default())
    }
}

/// Why a port passes on nothing, with the remedy.
fn why_lost(port: &Link) -> (String, Step) {
    let name = word(&port.name);
    match () {
        () if !port.up => (format!("{} is down", port.name), format!("ip link set {name} up").into()),
        () if !port.carrier => (
            format!("{} has no carrier, as its other end is down, or no cable is in it", port.name),
            advice("Connect it, or set its other end up."),
        ),
        () => (
            format!("{} is a port that passes on nothing", port.name),
            format!("ip link set {name} type bridge_slave state 3").into(),
        ),
    }
}

impl At<'_> {
    /// Names what is wrong with the node's ways out that the attachment needs.
    pub(super) fn ways_out(&self) -> impl Iterator<Item = Reason> {
        let sight = self.sight;
        let of_family = |family| match sight.out(family) {
            Some(way) => {
                let link = sight.host.at(way.link?)?;
                let reason = sight.way_without_carrier(family, link).or_else(|| sight.way_to_containers(family, link));
                reason
                    .or_else(|| sight.without_uplink(family, link))
                    .or_else(|| sight.way_without_address(family, link))
            }
            None => {
                let mut reason = sight.without_way(family);
                // ADD gave it no way out either.
                if !self.has_way_out(family) {
                    reason.remedy = Remedy::default();
                }
                Some(reason)
            }
        };
        self.routed().filter_map(of_family).chain(self.bridged_way_out())
    }

    /// The way out of a network that the node does not route, if its bridge is the node's.
    fn bridged_way_out(&self) -> Option<Reason> {
        let (_, bridge) = self.bridge().filter(|_| !self.carrier.is_routed())?;
        let mut ways = Family::BOTH.into_iter().filter_map(|family| Some((family, self.sight.link_out(family)?.0)));
        let (family, link) = ways.next()?;
        if link.index == bridge.index { self.sight.without_uplink(family, link) } else { None }
    }
}
