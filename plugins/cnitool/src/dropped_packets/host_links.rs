//! The node's links that carry an attachment's packets: up, and in their places.

use std::net::IpAddr;

use bandwidth::ifb;
use ipnetwork::IpNetwork;
use libcni::NetworkConf;
use libcni::cni_spec::NetworkName;
use netops::Family;
use netops::link::{Kind, Link, PortFault};

use super::default_route::is_global;
use super::way_to_container::{Bridge, Carrier, sets};
use super::{Cause, Findings, Level, Reason, Sight};
use crate::node_networks::{Attachment, HostLink, Maker, Network};
use crate::shell_words::{sysctl, word};

impl Sight<'_> {
    pub(super) fn links_of(
        &self,
        network: &Network,
        attachment: &Attachment,
        carrier: &Carrier,
        findings: &mut Findings,
    ) {
        for link in &attachment.links {
            findings.to.push(format!("link {} leads into the container", link.name));
            if !link.up {
                let mut reason = down(&link.name);
                reason.remedy.extend(routes_lost_with(&link.name, attachment, carrier));
                findings.reasons.push(reason);
            }
        }
        // What the container sends passes the ifb of its limit.
        let own = NetworkName::parse(&network.name).map(|name| ifb::names(&attachment.id.to(&name)));
        let shapers = own.iter().flatten().filter_map(|name| self.host.find(name));
        findings.reasons.extend(shapers.filter(|link| !link.up).map(|link| down(&link.name)));
        let made = attachment.result.interfaces.iter().filter(|link| link.sandbox.is_empty()).map(|link| &link.name);
        let is_shaper = |name: &&String| own.iter().flatten().any(|own| own == *name);
        findings.reasons.extend(made.filter(is_shaper).filter(|name| self.host.find(name).is_none()).map(|name| {
            let why = format!("link {name}, by which its limit works, is gone: what the container sends is dropped");
            let what = "links by which limits of containers work are gone: what these send is dropped";
            let is_own = attachment.maker == Maker::ThisSuite;
            let remedy = is_own.then(|| format!("cnitool repair {}", network.name));
            Reason::new(Cause::LinkGone, Level::Error, why).shared(what).mended_by(remedy)
        }));
        // Nothing but its network's file says that the container was on a bridge.
        if attachment.conf.is_none() && network.plugins.iter().any(|plugin| on_node::plugin_of(plugin) == "bridge") {
            let loose = attachment.links.iter().filter(|link| link.master.is_none());
            findings.reasons.extend(loose.map(|link| {
                let why = format!("link {} is no port of a bridge, and its network is one of plugin bridge", link.name);
                let what = "links of living containers, which the cache does not have, are no ports of a bridge";
                let remedy = ["Start the container anew.".to_owned()];
                Reason::new(Cause::LinkDown, Level::Error, why).shared(what).mended_by(remedy)
            }));
        }
        match carrier {
            Carrier::Routed(Some(bridge)) => {
                let gateways: Vec<IpNetwork> = gateways(attachment).collect();
                self.bridge(attachment, bridge, &gateways, findings);
            }
            Carrier::Switched(bridge) => {
                self.bridge(attachment, bridge, &[], findings);
                let way = self.link_out(Family::V4).map(|way| (Family::V4, way));
                let way = way.or_else(|| self.link_out(Family::V6).map(|way| (Family::V6, way)));
                let way = way.filter(|(_, (link, _))| link.name == bridge.name);
                findings.reasons.extend(way.and_then(|(family, (link, _))| self.without_uplink(family, link)));
            }
            Carrier::Routed(None) => {
                // The veth of a pair without bridge has its gateways alone.
                let gateways: Vec<IpNetwork> = gateways(attachment).map(|net| IpNetwork::from(net.ip())).collect();
                for link in &attachment.links {
                    findings.reasons.extend(link.master.as_ref().map(|master| {
                        let why = format!(
                            "link {} is a port of {master}, and the node routes packets to it by no bridge",
                            link.name
                        );
                        let remedy = [format!("ip link set {} nomaster", word(&link.name))];
                        Reason::new(Cause::LinkDown, Level::Error, why).mended_by(remedy)
                    }));
                    let routes = routes_lost_with(&link.name, attachment, carrier);
                    self.gateways(&gateways, &link.name, &routes, findings);
                }
            }
            Carrier::Stacked { master: Some(master), kind } if kind != "vlan" || attachment.links.is_empty() => {
                match self.host.find(master) {
                    Some(link) if !link.up => findings.reasons.push(down(master)),
                    Some(link) if !link.carrier => {
                        let what = format!("link {master} has no carrier: its other end is down, or no cable is in it");
                        let remedy = ["Connect it, or set its other end up.".to_owned()];
                        findings.reasons.push(Reason::new(Cause::LinkDown, Level::Warning, what).mended_by(remedy));
                    }
                    Some(_) => {}
                    None => findings.reasons.push(self.without_master(attachment, master, kind)),
                }
            }
            Carrier::Stacked { .. } | Carrier::Unknown => {}
        }
        if carrier.is_routed() {
            self.width(attachment, carrier, findings);
        }
    }

    /// No link has the master's name: it is gone, or it was renamed, and the container's link is still on it.
    fn without_master(&self, attachment: &Attachment, master: &str, kind: &str) -> Reason {
        let renamed = super::container_interface::parent(attachment).and_then(|index| self.host.at(index));
        if let Some(renamed) = renamed.filter(|link| link.name != master) {
            let what =
                format!("link {master}, which the container's {kind} is stacked on, is called {} now", renamed.name);
            let remedy = format!(
                "Set key master to {}, or give the link its old name: the next ADD looks for {master}.",
                renamed.name
            );
            return Reason::new(Cause::LinkGone, Level::Warning, what).mended_by([remedy]);
        }
        let what = format!("link {master}, which the container's {kind} is stacked on, is gone");
        let remedy =
            format!("Bring link {master} back, or set key master to another one; then start the container anew.");
        Reason::new(Cause::LinkGone, Level::Error, what).mended_by([remedy])
    }

    fn bridge(&self, attachment: &Attachment, bridge: &Bridge, gateways: &[IpNetwork], findings: &mut Findings) {
        let name = &bridge.name;
        let enslave = |link: &HostLink| {
            let hairpin = if bridge.has_hairpin {
                format!("; ip link set {} type bridge_slave hairpin on", word(&link.name))
            } else {
                String::new()
            };
            format!("ip link set {} master {}{hairpin}", word(&link.name), word(name))
        };
        let Some(found) = self.host.find(name) else {
            let gateways = gateways.iter().filter(|_| bridge.router == *name);
            let mac = self.mac_at_add(name).map_or(String::new(), |mac| format!(" address {mac}"));
            let made = word(name);
            let mut remedy = vec![format!("ip link add {made}{mac} type bridge"), format!("ip link set {made} up")];
            remedy.extend(gateways.map(|net| format!("ip address add {net} dev {made}")));
            remedy.extend(attachment.links.iter().map(enslave));
            if bridge.router == *name
                && attachment.addresses.iter().any(IpAddr::is_ipv4)
                && !attachment.asked.is_empty()
            {
                let key = format!("net.ipv4.conf.{}.route_localnet", bridge.router.replace('.', "/"));
                remedy.push(sysctl(&key, "1"));
            }
            let what = format!("bridge {name} is gone");
            findings.reasons.push(Reason::new(Cause::LinkGone, Level::Error, what).mended_by(remedy));
            return;
        };
        if !found.up {
            findings.reasons.push(down(name));
        }
        findings.reasons.extend(bridge.was.as_ref().map(|was| renamed(was, name)));
        for link in attachment.links.iter().filter(|link| link.master.as_ref() != Some(name)) {
            let why = format!("link {} is no port of bridge {name}", link.name);
            let reason = Reason::new(Cause::LinkDown, Level::Error, why);
            let what = format!("links of living containers are no ports of bridge {name}");
            // Both bridges have the gateway's address where an ADD has met a renamed one.
            let others = link
                .master
                .iter()
                .flat_map(|master| self.host.addresses_of(master).iter().zip([master].into_iter().cycle()));
            let others = others.filter(|(own, _)| gateways.contains(own));
            let remedy = [enslave(link)]
                .into_iter()
                .chain(others.map(|(own, master)| format!("ip address del {own} dev {}", word(master))));
            findings.reasons.push(reason.shared(what).mended_by(remedy));
        }
        for link in attachment.links.iter().filter(|_| found.up).filter_map(|link| self.host.find(&link.name)) {
            findings.reasons.extend(of_port(attachment, bridge, link));
        }
        if !gateways.is_empty() && bridge.router == *name {
            findings.reasons.extend(self.other_mac(found));
        }
        self.gateways(gateways, &bridge.router, &[], findings);
    }

    /// Living containers on one bridge with one Ethernet address: the bridge sends their packets to either.
    pub(super) fn same_mac(&self, attachment: &Attachment, carrier: &Carrier, findings: &mut Findings) {
        let (Some(bridge), at_add) = (carrier.bridge(), mac_of(attachment)) else { return };
        // A process in the container may have set another one since.
        let Some(mac) = findings.mac.or(at_add.and_then(|mac| mac.parse().ok())) else { return };
        let text = mac.to_string();
        let has_it = |other: &Attachment| super::container_interface::mac(other).is_none_or(|now| now == mac);
        if let Some(found) = self.host.find(&bridge.name).filter(|found| found.mac == Some(mac)) {
            let why = format!("bridge {} itself has Ethernet address {mac} of the container", found.name);
            let what = format!("a container has Ethernet address {mac} of its bridge {} itself", found.name);
            let reason = Reason::new(Cause::Duplicate, Level::Error, why).shared(what);
            findings.reasons.push(reason.mended_by([own_mac(attachment, at_add, &text)]));
        }
        let others = self.macs.get(&*text).into_iter().flatten().filter(|(_, other)| other.id != attachment.id);
        for (of, other) in others.filter(|(_, other)| has_it(other)) {
            if Carrier::of(self.host, of, other).bridge().is_some_and(|its| its.name == bridge.name) {
                let why = format!("{} on bridge {} has Ethernet address {mac}, too", other.full_name(), bridge.name);
                let what = format!("several living containers on bridge {} have Ethernet address {mac}", bridge.name);
                let remedy = [own_mac(attachment, at_add, &text)];
                let reason = Reason::new(Cause::Duplicate, Level::Error, why).shared(what);
                findings.reasons.push(reason.mended_by(remedy));
            }
        }
    }

    /// The node or another attachment with an address of this one, where both are in one network of links.
    pub(super) fn duplicates(
        &self,
        network: &Network,
        attachment: &Attachment,
        carrier: &Carrier,
        findings: &mut Findings,
    ) {
        if matches!(carrier, Carrier::Unknown) {
            return;
        }
        for address in attachment.addresses.iter().filter(|address| !address.is_loopback()) {
            if let Some(link) = self.host.owner(*address).filter(|link| self.answers_on(carrier, link)) {
                let what = format!("the node has address {address}, too, on link {}", link.name);
                findings.reasons.push(Reason::new(Cause::Duplicate, Level::Error, what));
            }
            for (of, other) in self.other_holders((network, attachment, carrier), *address) {
                let why = format!("{} in network {} has {address}, too", other.full_name(), of.name);
                let what = format!("several living containers have address {address}");
                let remedy = [other_address((network, attachment), (of, other)).to_owned()];
                let reason = Reason::new(Cause::Duplicate, Level::Error, why).shared(what);
                findings.reasons.push(reason.mended_by(remedy));
            }
        }
    }

    /// Whether a container's neighbours find the node by an address of this link. The node answers for those of `lo` and of dummy
    /// links wherever it has an address.
    fn answers_on(&self, carrier: &Carrier, link: &Link) -> bool {
        let Carrier::Switched(bridge) = carrier else { return true };
        let Some(found) = self.host.find(&bridge.router) else { return false };
        let is_anywhere = link.loopback || link.kind == Kind::Dummy;
        let has_own = || self.host.addresses_of(&found.name).iter().any(|own| is_global(own.ip()));
        link.index == found.index || link.master == Some(found.index) || is_anywhere && has_own()
    }
}

impl<'a> Sight<'a> {
    /// The other living attachments that ADD gave the address, and whose packets may meet those of this one.
    pub(super) fn other_holders<'s>(
        &'s self,
        (network, attachment, carrier): (&'s Network, &'s Attachment, &'s Carrier),
        address: IpAddr,
    ) -> impl Iterator<Item = &'s (&'a Network, &'a Attachment)> {
        let segment = carrier.segment(self.host);
        let is_switched = matches!(carrier, Carrier::Switched(_));
        self.holders.get(&address).into_iter().flatten().filter(move |(of, other)| {
            // Multus' network and the one that it called have one interface.
            let is_it = other.id == attachment.id;
            let its = Carrier::of(self.host, of, other);
            let share_segment = segment.is_some() && segment == its.segment(self.host);
            let is_of_network = of.name == network.name && !is_switched;
            !is_it && (share_segment || is_of_network || carrier.is_routed() && its.is_routed())
        })
    }
}

/// How one of two attachments gets another address than the one that both have.
fn other_address((network, one): (&Network, &Attachment), (of, other): (&Network, &Attachment)) -> &'static str {
    let is_static = |conf: &NetworkConf| {
        on_node::Requests::of(conf).ipams().any(|ipam| on_node::plugin_of(ipam.as_str()) == "static")
    };
    match [one, other].iter().filter_map(|it| it.conf.as_ref()).any(is_static) {
        true => {
            "Plugin static gives what the network's file or the container's own settings name: name another address for all but one of the containers there, and start them anew."
        }
        false if network.name != of.name => "Give one of the networks another range, and start its containers anew.",
        false => {
            "Start all but one of the containers anew: they get other addresses, if their settings do not name this one."
        }
    }
}

/// Commands for the routes to single addresses: the veth of a pair without bridge has one for each, which the kernel removes
/// with its last address, or when it goes down, and does not make again.
fn routes_lost_with(link: &str, attachment: &Attachment, carrier: &Carrier) -> Vec<String> {
    match carrier {
        Carrier::Routed(None) => attachment
            .addresses
            .iter()
            .map(|address| format!("ip route replace {address} dev {}", word(link)))
            .collect(),
        _ => Vec::new(),
    }
}

/// Settings of a bridge's port that keep frames from the container, and that its network does not ask for.
fn of_port(attachment: &Attachment, bridge: &Bridge, link: &Link) -> Option<Reason> {
    let port = link.port.filter(|_| link.oper_up)?;
    let wants_isolation = attachment.conf.as_ref().is_none_or(|conf| sets(conf, "portIsolation"));
    let name = word(&link.name);
    let reason = |level, why: &str, remedy: String| {
        let why = format!("link {} {why}", link.name);
        Some(Reason::new(Cause::LinkDown, level, why).mended_by([remedy]))
    };
    let slave = |setting: &str| format!("ip link set {name} type bridge_slave {setting}");
    match link.port_fault {
        Some(PortFault::Blocks) => {
            return reason(Level::Error, "is a blocked or disabled port of its bridge", slave("state 3"));
        }
        Some(PortFault::Waits) => {
            let why = "is a port that passes on nothing yet: its bridge waits for the spanning tree (forward_delay)";
            let off = format!("ip link set {} type bridge stp_state 0", word(&bridge.name));
            return reason(Level::Warning, why, format!("{off}; {}", slave("state 3")));
        }
        Some(PortFault::Deaf) => {
            let why = "is a port that neither learns Ethernet addresses nor gets frames for unknown ones";
            return reason(Level::Error, why, slave("learning on flood on"));
        }
        Some(PortFault::Locked) => {
            let why = "is a locked port: it takes frames only from stations that an administrator has entered";
            return reason(Level::Error, why, slave("locked off"));
        }
        Some(PortFault::NoBroadcast) => {
            let why = "is a port that gets no broadcasts: no station finds the container's Ethernet address";
            return reason(Level::Error, why, slave("bcast_flood on"));
        }
        Some(PortFault::NoMulticast) => {
            let why = "is a port that gets no multicasts to unknown groups, as neighbour discovery of IPv6 sends them";
            return reason(Level::Warning, why, slave("mcast_flood on"));
        }
        None => {}
    }
    match port {
        _ if port.isolated && !wants_isolation => reason(
            Level::Warning,
            "is an isolated port, and its network does not set portIsolation: isolated containers do not reach each other",
            format!("ip link set {name} type bridge_slave isolated off"),
        ),
        _ if !port.hairpin && bridge.has_hairpin => reason(
            Level::Warning,
            "has no hairpin, and its network sets hairpinMode: the container does not reach itself by its own port or service",
            format!("ip link set {name} type bridge_slave hairpin on"),
        ),
        _ => None,
    }
}

/// The command that gives a container's interface the Ethernet address of its ADD again, if it has another one.
fn own_mac(attachment: &Attachment, at_add: Option<&str>, has: &str) -> String {
    let own = at_add.filter(|own| *own != has && !attachment.netns.is_empty());
    own.map_or_else(
        || "Start all but one of the containers anew with an Ethernet address of its own.".to_owned(),
        |own| {
            let (netns, ifname) = (word(&attachment.netns), word(attachment.id.ifname.as_str()));
            format!("nsenter --net={netns} ip link set {ifname} address {}", word(own))
        },
    )
}

fn down(link: &str) -> Reason {
    let remedy = [format!("ip link set {} up", word(link))];
    Reason::new(Cause::LinkDown, Level::Error, format!("link {link} is down")).mended_by(remedy)
}

/// The command that renames a link. Kernels before 6.2 rename no link that is up.
pub(super) fn rename(now: &str, then: &str) -> String {
    let (now, then) = (word(now), word(then));
    let rename = format!("ip link set {now} name {then}");
    format!("{rename} || (ip link set {now} down && {rename} && ip link set {then} up)")
}

/// A bridge that has another name than at ADD: its ports work, and the next ADD makes a second one.
fn renamed(was: &str, name: &str) -> Reason {
    let remedy = rename(name, was);
    let what = format!("bridge {was} is called {name} now, and the next ADD makes another one");
    Reason::new(Cause::LinkGone, Level::Warning, what).mended_by([remedy])
}

/// The gateways of an attachment's addresses, with the addresses' prefix lengths.
fn gateways(attachment: &Attachment) -> impl Iterator<Item = IpNetwork> + '_ {
    let of = |ip: &libcni::cni_spec::Ip| {
        let gateway = ip.gateway.filter(|gateway| gateway.is_ipv4() == ip.address.is_ipv4())?;
        IpNetwork::new(gateway, ip.address.prefix()).ok()
    };
    attachment.result.ips.iter().filter_map(of)
}

/// The Ethernet address of the container's interface, by the result of ADD.
pub(super) fn mac_of(attachment: &Attachment) -> Option<&str> {
    let is_own = |link: &&libcni::cni_spec::Interface| {
        !link.sandbox.is_empty() && link.name == attachment.id.ifname.as_str() && !link.mac.is_empty()
    };
    attachment.result.interfaces.iter().find(is_own).map(|link| link.mac.as_str())
}
