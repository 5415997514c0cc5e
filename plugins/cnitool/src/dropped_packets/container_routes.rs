//! The container's ways to other networks: its routes out, by which link and gateway they lead, and with which address.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netops::addr::Address;
use netops::link::{self, Kind, Link};
use netops::route::{self, MAIN_TABLE, Route};
use netops::{Family, Kernel, neighbour};

use super::default_route::is_global;
use super::host_routes::{outside, words};
use super::routes_that_refuse::{self, Refusal};
use super::way_to_container::{Carrier, is_by_design, sets};
use super::{Cause, Findings, Level, Reason, Sight};
use crate::node_networks::Attachment;
use crate::shell_words::word;

/// Kinds of links by which a process in the container leads its packets elsewhere on purpose.
const TUNNELS: [&str; 10] = ["wireguard", "ipip", "ip6tnl", "gre", "ip6gre", "sit", "vti", "vti6", "xfrm", "vxlan"];

impl Sight<'_> {
    pub(super) fn ways_inside(
        &self,
        attachment: &Attachment,
        carrier: &Carrier,
        (kernel, link, held): (&Kernel, &Link, &[Address]),
        findings: &mut Findings,
    ) {
        let has = |to: &IpAddr| attachment.addresses.iter().any(|address| address.is_ipv4() == to.is_ipv4());
        for to in Family::BOTH.map(outside).iter().filter(|to| has(to)) {
            let (family, is_ipv4) = (Family::from(*to), to.is_ipv4());
            let found = match route::lookup(kernel, *to) {
                Ok(found) => found,
                Err(_) if has_way_out(attachment, carrier, is_ipv4) => {
                    findings.reasons.push(without_way(attachment, carrier, (kernel, link), *to));
                    continue;
                }
                Err(_) => {
                    findings.from.push(format!("in the container, {family} leads to its own network only"));
                    continue;
                }
            };
            let by = found.gateway.map_or("directly".to_owned(), |gateway| format!("by {gateway}"));
            findings.reasons.extend(self.gateway_elsewhere(attachment, carrier, (kernel, link), is_ipv4));
            let is_own = found.link == Some(link.index);
            let on = if is_own { link.name.as_str() } else { "another interface" };
            findings.from.push(format!("in the container, {family} leads out {by} on {on}"));
            if !carrier.is_routed() {
                let by = found.gateway.filter(|_| is_own);
                findings.reasons.extend(by.and_then(|by| self.gateway_on_master(attachment, carrier, by)));
                continue;
            }
            if is_own {
                let other = self.other_gateway(attachment, (kernel, link), &found, is_ipv4);
                let source = || self.other_source(attachment, carrier, (link, held), &found);
                findings.reasons.extend(other.or_else(source));
                findings.reasons.extend(refused_gateway(attachment, kernel, is_ipv4));
                let (routes, refusing) = route::list_main(kernel, family).unwrap_or_default();
                findings.reasons.extend(self.refused_others(attachment, refusing));
                findings.reasons.extend(self.led_astray(attachment, (kernel, link), family, &routes));
            } else if has_way_out(attachment, carrier, is_ipv4) {
                findings.reasons.extend(self.other_link(attachment, (kernel, link), &found, *to));
            }
        }
    }

    /// The route out leads by a link that was made in the container and is no tunnel.
    fn other_link(
        &self,
        attachment: &Attachment,
        (kernel, link): (&Kernel, &Link),
        out: &Route,
        to: IpAddr,
    ) -> Option<Reason> {
        let other = link::find_index(kernel, out.link?).ok().flatten()?;
        let is_tunnel = matches!(other.kind, Kind::Tun(_)) || TUNNELS.contains(&other.kind.name());
        if is_tunnel || self.is_attached(attachment, &other) {
            return None;
        }
        let (family, name) = (Family::from(to), &other.name);
        let why = format!(
            "the container's {family} route out leads by its link {name}, which no attachment in the cache made, and not by {}",
            link.name
        );
        let routes = route::list(kernel, Some(other.index), Some(MAIN_TABLE), family).unwrap_or_default();
        let ip = format!("nsenter --net={} ip", word(&attachment.netns));
        // Two halves take the place of a default route.
        let is_out = |route: &&Route| route.dst.prefix() <= 1 || route.dst.contains(to);
        let remedy: Vec<String> = routes
            .iter()
            .filter(is_out)
            .map(|route| format!("{ip} route del {} dev {}", words(route), word(name)))
            .collect();
        let remedy = if remedy.is_empty() {
            vec![format!(
                "Remove the rule of routing or the route in the container that leads there: see {ip} route get {to}."
            )]
        } else {
            remedy
        };
        Some(Reason::new(Cause::Inside, Level::Warning, why).mended_by(remedy))
    }

    /// A rule of routing leads packets to the gateway elsewhere, as one of a VPN may do: what the node sends gets no answer.
    fn gateway_elsewhere(
        &self,
        attachment: &Attachment,
        carrier: &Carrier,
        (kernel, link): (&Kernel, &Link),
        is_ipv4: bool,
    ) -> Option<Reason> {
        let gateway = gateways(attachment, is_ipv4).next().filter(|_| carrier.is_routed())?;
        let index = route::lookup(kernel, gateway).ok()?.link.filter(|index| *index != link.index)?;
        let other = link::find_index(kernel, index).ok().flatten()?;
        if other.loopback || self.is_attached(attachment, &other) {
            return None;
        }
        let ip = format!("nsenter --net={} ip", word(&attachment.netns));
        let net = attachment.result.ips.iter().map(|ip| ip.address).find(|net| net.contains(gateway));
        let to = (gateway, net.unwrap_or(gateway.into()));
        let (by, remedy) = routes_that_refuse::find_before_main(kernel, &ip, to, index)?;
        let why = format!("in the container, what is for its gateway {gateway} leads to its link {}, {by}", other.name);
        Some(Reason::new(Cause::Inside, Level::Error, why).mended_by([remedy]))
    }

    /// Packets leave the container with an address that the node does not route to it, so no answer finds the way back.
    fn other_source(
        &self,
        attachment: &Attachment,
        carrier: &Carrier,
        (link, held): (&Link, &[Address]),
        out: &Route,
    ) -> Option<Reason> {
        let source = out.source.filter(|source| !attachment.addresses.contains(source))?;
        // An address that is missing or not used yet is no source.
        let is_used =
            |own: &&Address| !own.dad_failed && !own.tentative && attachment.addresses.contains(&own.net.ip());
        let own = held.iter().filter(is_used).map(|own| own.net.ip()).find(|own| own.is_ipv4() == source.is_ipv4())?;
        let entry = carrier.bridge().map(|bridge| bridge.router.as_str());
        let entry = entry.or(attachment.links.first().map(|link| link.name.as_str()))?;
        let back = route::lookup(self.host.kernel.as_ref()?, source).ok().and_then(|back| back.link);
        if self.name_of(back) == entry {
            return None;
        }
        let family = Family::from(source);
        let why = format!(
            "the container's {family} packets to other networks have source {source}, and the node's route to it does not lead to {entry}"
        );
        let via = out.gateway.map_or(String::new(), |gateway| format!(" via {gateway}"));
        let name = word(link.name.as_str());
        let remedy =
            format!("nsenter --net={} ip route replace default{via} dev {name} src {own}", word(&attachment.netns));
        Some(Reason::new(Cause::Inside, Level::Error, why).mended_by([remedy]))
    }

    /// The container's route out, by its interface, leads by a gateway that is neither ADD's nor the node's. A router of
    /// the link that answers is its network's affair.
    fn other_gateway(
        &self,
        attachment: &Attachment,
        (kernel, link): (&Kernel, &Link),
        out: &Route,
        is_ipv4: bool,
    ) -> Option<Reason> {
        let is_link_local = |by: IpAddr| matches!(by, IpAddr::V6(by) if by.is_unicast_link_local());
        let given = gateways(attachment, is_ipv4).next()?;
        // A kernel that looks up no neighbour does not say that there is none.
        let is_known = |by| neighbour::find(kernel, link, by).map_or(true, |found| found.is_some());
        let is_right = |by: IpAddr| {
            let of_node = self.host.owner(by).is_some();
            of_node || is_link_local(by) && is_known(by) || gateways(attachment, is_ipv4).any(|given| given == by)
        };
        if out.gateway.is_some_and(is_right) {
            return None;
        }
        let family = if is_ipv4 { Family::V4 } else { Family::V6 };
        let by = out.gateway.map_or("no gateway".to_owned(), |by| by.to_string());
        let why = format!("the container's {family} route out leads by {by}, and ADD gave it {given}");
        let routes = route::list(kernel, Some(link.index), Some(MAIN_TABLE), family).unwrap_or_default();
        let leads_there = |route: &&Route| route.gateway == out.gateway && route.dst.contains(outside(family));
        let ip = format!("nsenter --net={} ip", word(&attachment.netns));
        let wrong = routes.iter().filter(leads_there);
        let remedy = wrong.map(|route| format!("{ip} route del {} dev {}", words(route), word(&link.name)));
        let remedy = remedy.chain([format!("{ip} route replace default via {given} dev {}", word(&link.name))]);
        Some(Reason::new(Cause::Inside, Level::Error, why).mended_by(remedy))
    }
}

impl Sight<'_> {
    /// The route out leads by an address of the very link that the container's is stacked on: no frame passes between the two.
    /// With mode vepa a switch can send frames back, and an ipvlan of layer 3 sends none.
    fn gateway_on_master(&self, attachment: &Attachment, carrier: &Carrier, by: IpAddr) -> Option<Reason> {
        let Carrier::Stacked { kind, master: Some(master) } = carrier else { return None };
        let modes = attachment.conf.iter().flat_map(|conf| &conf.plugins).filter_map(|plugin| plugin.find("mode"));
        let is_other = modes.map(|mode| mode.trim_matches('"')).any(|mode| ["vepa", "l3", "l3s"].contains(&mode));
        if !is_by_design(kind) || is_other || self.host.owner(by)?.name != *master {
            return None;
        }
        let family = Family::from(by);
        let why = format!(
            "the container's {family} route out leads by {by}, the node's address on {master}, which a {kind} on {master} does not reach"
        );
        let remedy = [format!("Set key gateway to a router of the network of {master}, and start the container anew.")];
        Some(Reason::new(Cause::WayOut, Level::Error, why).mended_by(remedy))
    }

    /// Whether a link in the container is one that an attachment made, or may have.
    fn is_attached(&self, attachment: &Attachment, link: &Link) -> bool {
        let mut all = self.view.networks.iter().flat_map(|network| &network.attachments);
        let is_of_it =
            |its: &Attachment| its.id.container_id == attachment.id.container_id || its.netns == attachment.netns;
        // The other end of a second interface is on the node, or it is stacked on a link there.
        let is_of_node = link.peer_netns_id.is_some() || link.parent_device.is_some();
        is_of_node || all.any(|its| is_of_it(its) && its.id.ifname.as_str() == link.name)
    }

    /// A link that was made in the container has a subnet within that of the network.
    fn led_astray(
        &self,
        attachment: &Attachment,
        (kernel, link): (&Kernel, &Link),
        family: Family,
        routes: &[Route],
    ) -> Option<Reason> {
        let is_elsewhere = |route: &&Route| route.link.is_some_and(|index| index != link.index);
        let elsewhere: Vec<&Route> = routes.iter().filter(is_elsewhere).collect();
        if elsewhere.is_empty() {
            return None;
        }
        let nets = || attachment.result.ips.iter().map(|ip| ip.address);
        let out = self.link_out(family).map(|(out, _)| self.host.addresses_of(&out.name)).unwrap_or_default();
        let has_node = |dst: &IpNetwork| {
            let mut own = out.iter().filter(|own| is_global(own.ip()));
            dst.prefix() > 1 && own.any(|own| dst.contains(own.ip()))
        };
        let is_within = |dst: &IpNetwork| {
            nets().any(|net| {
                net.is_ipv4() == dst.is_ipv4() && net.prefix() <= dst.prefix() && net.contains(dst.network())
            })
        };
        let is_in_way = |dst: &IpNetwork| is_within(dst) || has_node(dst);
        let (route, other) = elsewhere.into_iter().filter(|route| is_in_way(&route.dst)).find_map(|route| {
            let other = link::find_index(kernel, route.link?).ok().flatten()?;
            (!self.is_attached(attachment, &other)).then_some((route, other))
        })?;
        let (dst, name) = (route.dst, &other.name);
        let lost = match is_within(&dst) {
            true => "and part of the network's: other containers there are not reached",
            false => "and the node's address is in it: the node is not reached by that",
        };
        let why = format!("in the container, {dst} is the subnet of link {name}, {lost}");
        let remedy = [format!("Give link {name} in the container another subnet than {dst}.")];
        Some(Reason::new(Cause::Inside, Level::Warning, why).mended_by(remedy))
    }

    /// The container's routes that refuse packets to other containers.
    fn refused_others(&self, attachment: &Attachment, refusing: Vec<(&str, IpNetwork)>) -> Vec<Reason> {
        let ip = format!("nsenter --net={} ip", word(&attachment.netns));
        let reason = |(kind, dst): (&str, IpNetwork)| {
            let is_in = |address: &&IpAddr| dst.contains(**address) && !attachment.addresses.contains(address);
            let (_, of) = self.holders.iter().find(|(address, _)| is_in(address))?;
            let (_, other) = of.first()?;
            let why = format!("in the container, route {kind} {dst} refuses packets to {}", other.full_name());
            let remedy = [format!("{ip} route del {kind} {dst}")];
            Some(Reason::new(Cause::Inside, Level::Warning, why).mended_by(remedy))
        };
        refusing.into_iter().filter(|(_, dst)| dst.prefix() > 0).filter_map(reason).collect()
    }
}

/// Why a container has no route out, with the commands that give it one.
fn without_way(
    attachment: &Attachment,
    carrier: &Carrier,
    (kernel, link): (&Kernel, &Link),
    outside: IpAddr,
) -> Reason {
    let ip = format!("nsenter --net={} ip", word(&attachment.netns));
    let family = Family::from(outside);
    let own = attachment.addresses.iter().copied().find(|own| Family::from(*own) == family);
    if let Some(Refusal { what, remedy }) = routes_that_refuse::find(kernel, &ip, own, outside) {
        let why = format!("in the container, {what} refuses {family} packets to other networks");
        return Reason::new(Cause::Inside, Level::Error, why).mended_by([remedy]);
    }
    let listed = route::list(kernel, Some(link.index), Some(MAIN_TABLE), family).unwrap_or_default();
    if listed.iter().any(|route| route.dst.prefix() == 0) {
        let why =
            format!("a rule of routing or another table in the container refuses {family} packets to other networks");
        let remedy = [format!("Remove it: see {ip} rule, and {ip} route show table all.")];
        return Reason::new(Cause::Inside, Level::Error, why).mended_by(remedy);
    }
    let why = format!("the container has no {family} route out of its own network");
    let name = word(&link.name);
    let remedy = gateways(attachment, outside.is_ipv4()).next().map(|gateway| {
        // Without a route to the gateway the kernel refuses one by it.
        let is_reached = route::lookup(kernel, gateway).is_ok_and(|found| found.link == Some(link.index));
        let near = attachment.result.ips.iter().map(|ip| ip.address).find(|net| net.contains(gateway));
        let near = near.filter(|_| carrier.bridge().is_some());
        let near = near.map_or(gateway.to_string(), |net| format!("{}/{}", net.network(), net.prefix()));
        let near = Some(format!("{ip} route replace {near} dev {name}")).filter(|_| !is_reached);
        near.into_iter().chain([format!("{ip} route add default via {gateway} dev {name}")])
    });
    Reason::new(Cause::Inside, Level::Error, why).mended_by(remedy.into_iter().flatten())
}

/// The rule or route that refuses packets to the gateway of the container's route out.
fn refused_gateway(attachment: &Attachment, kernel: &Kernel, is_ipv4: bool) -> Option<Reason> {
    let gateway = gateways(attachment, is_ipv4).next()?;
    if route::lookup(kernel, gateway).is_ok() {
        return None;
    }
    let ip = format!("nsenter --net={} ip", word(&attachment.netns));
    let Refusal { what, remedy } = routes_that_refuse::find(kernel, &ip, None, gateway)?;
    let why = format!("in the container, {what} refuses packets to its gateway {gateway}");
    Some(Reason::new(Cause::Inside, Level::Error, why).mended_by([remedy]))
}

/// The gateways that ADD gave the container.
pub(super) fn gateways(attachment: &Attachment, is_ipv4: bool) -> impl Iterator<Item = IpAddr> + '_ {
    let result = &attachment.result;
    let of_routes = result.routes.iter().filter(|route| route.dst.prefix() == 0).filter_map(|route| route.gw);
    of_routes.chain(result.ips.iter().filter_map(|ip| ip.gateway)).filter(move |gateway| gateway.is_ipv4() == is_ipv4)
}

/// Whether ADD gave the container a default route of the family. Without its result, a routed network does.
pub(super) fn has_way_out(attachment: &Attachment, carrier: &Carrier, is_ipv4: bool) -> bool {
    let result = &attachment.result;
    if result.ips.is_empty() {
        return carrier.is_routed();
    }
    let is_default = |route: &libcni::cni_spec::Route| route.dst.prefix() == 0 && route.dst.is_ipv4() == is_ipv4;
    let has_gateway = || result.ips.iter().any(|ip| ip.gateway.is_some_and(|gateway| gateway.is_ipv4() == is_ipv4));
    result.routes.iter().any(is_default)
        || attachment.conf.as_ref().is_some_and(|conf| sets(conf, "isDefaultGateway")) && has_gateway()
}
