//! The container's side: its interface, addresses and route out, from inside its namespace.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netops::Family;
use netops::link::{self, Kind, Link, Mac};
use netops::route::{self, MAIN_TABLE, Route};
use netops::{Kernel, Netns, addr};

use super::carrier::{Carrier, sets};
use super::refusals::{self, Refusal};
use super::routes::{outside, words};
use super::{Cause, Findings, Level, Reason, Sight};
use crate::shell::{self, word};
use crate::view::{Attachment, Network};

/// The faults of the container's side, or the reason why it cannot be read.
enum Inside {
    Unseen(String),
    Missing(String),
}

impl Sight<'_> {
    /// Addresses of other living attachments that a process in the container has given its interface.
    fn taken(&self, of: (&Network, &Attachment, &Carrier), link: &Link, addresses: &[IpAddr], findings: &mut Findings) {
        let (_, attachment, _) = of;
        for address in addresses.iter().filter(|address| !attachment.addresses.contains(address)) {
            for (network, other) in self.other_holders(of, *address) {
                let (name, owner) = (&link.name, other.full_name());
                let why = format!(
                    "{name} in the container has {address}, too, which {owner} got in network {}",
                    network.name
                );
                let what = format!("a container has given itself {address}, which another container has");
                let remedy = format!(
                    "nsenter --net={} ip address flush to {address} dev {}",
                    word(&attachment.netns),
                    word(name)
                );
                let reason = Reason::new(Cause::Duplicate, Level::Error, why).shared(what);
                findings.reasons.push(reason.mended_by([remedy]));
            }
        }
    }

    /// Why an interface without any IPv6 address cannot have one, with the command that lets it. Not even an address of the
    /// link: IPv6 is off, or the MTU is below what it needs (`IPV6_MIN_MTU` of linux/ipv6.h).
    fn ipv6_again(&self, attachment: &Attachment, link: &Link) -> Option<(String, String)> {
        const IPV6_MIN_MTU: u32 = 1280;
        let enter = format!("nsenter --net={}", word(&attachment.netns));
        let name = &link.name;
        if !link.up {
            return None;
        }
        if link.mtu_bytes < IPV6_MIN_MTU {
            let own = attachment.links.iter().filter_map(|link| self.host.find(&link.name)).map(|link| link.mtu_bytes);
            let mtu = own.max().unwrap_or(1500).max(IPV6_MIN_MTU);
            let why = format!("its MTU is {}, and IPv6 needs {IPV6_MIN_MTU}", link.mtu_bytes);
            return Some((why, format!("{enter} ip link set {} mtu {mtu}", word(name))));
        }
        let key = format!("net.ipv6.conf.{}.disable_ipv6", name.replace('.', "/"));
        Some(("IPv6 is disabled there".to_owned(), format!("{enter} {}", shell::sysctl(&key, "0"))))
    }

    /// The container's route out, by its interface, leads by a gateway that is neither ADD's nor the node's. One that
    /// advertises itself is its network's affair.
    fn other_gateway(
        &self,
        attachment: &Attachment,
        (kernel, link): (&Kernel, &Link),
        out: &Route,
        is_ipv4: bool,
    ) -> Option<Reason> {
        let is_link_local = |by: IpAddr| matches!(by, IpAddr::V6(by) if by.is_unicast_link_local());
        let given = gateways(attachment, is_ipv4).next()?;
        let is_right = |by: IpAddr| {
            let of_node = self.host.owner(by).is_some();
            of_node || is_link_local(by) || gateways(attachment, is_ipv4).any(|given| given == by)
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

    pub(super) fn inside(
        &self,
        network: &Network,
        attachment: &Attachment,
        carrier: &Carrier,
        findings: &mut Findings,
    ) {
        let (kernel, link, nets) = match look(attachment) {
            Ok(found) => found,
            Err(Inside::Missing(what)) => {
                let why = format!("the container has no {what}");
                // Without the link that it was stacked on, ADD fails.
                let is_of_master =
                    |reason: &&Reason| reason.cause == Cause::LinkGone && matches!(carrier, Carrier::Stacked { .. });
                let of_master = findings.reasons.iter().find(is_of_master).map(|reason| reason.remedy.clone());
                let remedy = of_master.unwrap_or_else(|| vec!["Start the container anew.".to_owned()]);
                findings.reasons.push(Reason::new(Cause::Inside, Level::Error, why).mended_by(remedy));
                return;
            }
            Err(Inside::Unseen(why)) => {
                findings.unseen.push(format!("the container's side: {why}"));
                return;
            }
        };
        let addresses: Vec<IpAddr> = nets.iter().map(|net| net.ip()).collect();
        findings.mac = link.mac;
        if attachment.links.is_empty() && link.kind == Kind::Veth && carrier.is_pair() {
            let why = format!("the host's end of {} in the container is not on the node", link.name);
            let remedy = ["Start the container anew.".to_owned()];
            findings.reasons.push(Reason::new(Cause::LinkDown, Level::Error, why).mended_by(remedy));
            return;
        }
        let enter = format!("nsenter --net={} ip", word(&attachment.netns));
        let missing = |findings: &mut Findings, why: String, remedy: Option<String>| {
            findings.reasons.push(Reason::new(Cause::Inside, Level::Error, why).mended_by(remedy));
        };
        if !link.up {
            missing(
                findings,
                format!("{} is down in the container", link.name),
                Some(format!("{enter} link set {} up", word(&link.name))),
            );
        }
        self.narrow_end(attachment, &link, findings);
        let is_missing = |address: &&IpAddr| !addresses.contains(address);
        if attachment.addresses.iter().any(|address| is_missing(&address))
            && let Some(guest) = find_guest(&kernel, &link)
        {
            findings
                .unseen
                .push(format!("the container's side: {} is {guest}, which may have its addresses", link.name));
            return;
        }
        let has_ipv6 = addresses.iter().any(IpAddr::is_ipv6);
        let mut first = self.ipv6_again(attachment, &link).filter(|_| !has_ipv6);
        for address in attachment.addresses.iter().filter(is_missing) {
            let net = attachment.result.ips.iter().map(|ip| ip.address).find(|net| net.ip() == *address);
            let why = match &first {
                Some((why, _)) if address.is_ipv6() => format!(": {why}"),
                _ => String::new(),
            };
            let first = if address.is_ipv6() { first.take() } else { None };
            let remedy = net.map(|net| format!("{enter} address add {net} dev {}", word(&link.name)));
            let remedy = first.map(|(_, command)| command).into_iter().chain(remedy);
            let why = format!("{} in the container does not have {address}{why}", link.name);
            findings.reasons.push(Reason::new(Cause::Inside, Level::Error, why).mended_by(remedy));
        }
        findings.reasons.extend(other_prefixes(attachment, &link, &nets));
        self.taken((network, attachment, carrier), &link, &addresses, findings);
        self.neighbours_inside(attachment, carrier, (&kernel, &link), findings);
        for outside in Family::BOTH.map(outside) {
            if !attachment.addresses.iter().any(|address| address.is_ipv4() == outside.is_ipv4()) {
                continue;
            }
            let family = if outside.is_ipv4() { "IPv4" } else { "IPv6" };
            match route::lookup(&kernel, outside) {
                Ok(found) => {
                    let by = found.gateway.map_or("directly".to_owned(), |gateway| format!("by {gateway}"));
                    let own = if found.link == Some(link.index) { link.name.as_str() } else { "another interface" };
                    findings.from.push(format!("in the container, {family} leads out {by} on {own}"));
                    if found.link == Some(link.index) && carrier.is_routed() {
                        findings.reasons.extend(self.other_gateway(
                            attachment,
                            (&kernel, &link),
                            &found,
                            outside.is_ipv4(),
                        ));
                        findings.reasons.extend(refused_gateway(attachment, &kernel, outside.is_ipv4()));
                    }
                }
                Err(_) if has_way_out(attachment, carrier, outside.is_ipv4()) => {
                    findings.reasons.push(without_way(attachment, carrier, (&kernel, &link), outside));
                }
                Err(_) => findings.from.push(format!("in the container, {family} leads to its own network only")),
            }
        }
    }
}

/// The addresses that have another prefix length than ADD gave them: with it the container takes others for its neighbours.
fn other_prefixes(attachment: &Attachment, link: &Link, nets: &[IpNetwork]) -> Vec<Reason> {
    let ip = format!("nsenter --net={} ip", word(&attachment.netns));
    let name = word(&link.name);
    let given = attachment.result.ips.iter().map(|ip| ip.address).filter(|given| !nets.contains(given));
    let pairs = given.filter_map(|given| Some((given, nets.iter().find(|net| net.ip() == given.ip())?)));
    let reason = |(given, has): (IpNetwork, &IpNetwork)| {
        let why = format!("{} in the container has {has}, and ADD gave it {given}", link.name);
        let (add, del) = (format!("{ip} address add {given} dev {name}"), format!("{ip} address del {has} dev {name}"));
        // IPv4 loses its routes with the last address, and IPv6 has an address once.
        let remedy = if given.is_ipv4() { [add, del] } else { [del, add] };
        Reason::new(Cause::Inside, Level::Error, why).mended_by(remedy)
    };
    pairs.map(reason).collect()
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
    if let Some(Refusal { what, remedy }) = refusals::find(kernel, &ip, own, outside) {
        let why = format!("in the container, {what} refuses {family} packets to other networks");
        return Reason::new(Cause::Inside, Level::Error, why).mended_by([remedy]);
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
    let Refusal { what, remedy } = refusals::find(kernel, &ip, None, gateway)?;
    let why = format!("in the container, {what} refuses packets to its gateway {gateway}");
    Some(Reason::new(Cause::Inside, Level::Error, why).mended_by([remedy]))
}

/// The Ethernet address that the container's interface has now; `None`: its namespace cannot be read.
pub(super) fn mac(attachment: &Attachment) -> Option<Mac> {
    look(attachment).ok().and_then(|(_, link, _)| link.mac)
}

/// The index, among the node's links, of the link that the container's own is stacked on.
pub(super) fn parent(attachment: &Attachment) -> Option<u32> {
    let (_, link, _) = look(attachment).ok()?;
    link.peer.filter(|_| link.peer_netns_id.is_some())
}

/// The largest packet that the container's interface sends.
pub(super) fn mtu_bytes(attachment: &Attachment) -> Option<u32> {
    look(attachment).ok().map(|(_, link, _)| link.mtu_bytes)
}

fn look(attachment: &Attachment) -> Result<(Kernel, Link, Vec<IpNetwork>), Inside> {
    let unseen = |error: &dyn fmt::Display| Inside::Unseen(error.to_string());
    if attachment.netns.is_empty() {
        return Err(Inside::Unseen("no path to its namespace is known".to_owned()));
    }
    let netns = Netns::open(&attachment.netns).map_err(|error| unseen(&error))?;
    let kernel = Kernel::in_netns(&netns).map_err(|error| unseen(&error))?;
    let name = attachment.id.ifname.as_str();
    let link = link::find(&kernel, name).map_err(|error| unseen(&error))?;
    let link = link.ok_or_else(|| Inside::Missing(format!("interface {name}")))?;
    let addresses = addr::list(&kernel, &link).map_err(|error| unseen(&error))?;
    Ok((kernel, link, addresses.iter().map(|address| address.net).collect()))
}

/// The way by which a virtual machine takes the container's interface, if one does: its guest then has the addresses.
fn find_guest(kernel: &Kernel, link: &Link) -> Option<String> {
    let links = link::list(kernel, None).ok()?;
    let takes = |other: &&Link| match &other.kind {
        Kind::Bridge(_) => link.master == Some(other.index),
        Kind::Tun(_) => true,
        kind => kind.name() == "macvtap" && other.peer == Some(link.index) && other.peer_netns_id.is_none(),
    };
    let other = links.iter().find(takes)?;
    Some(match &other.kind {
        Kind::Bridge(_) => format!("a port of bridge {} in the container", other.name),
        kind => format!("beside {} {} of a virtual machine", kind.name(), other.name),
    })
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
