//! The node's links that carry an attachment's packets: up, in their places, with the gateway's addresses.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netops::link::{Link, Mac};

use super::carrier::{Bridge, Carrier, sets};
use super::{Cause, Findings, Level, Reason, Sight};
use crate::shell::{sysctl, word};
use crate::view::{Attachment, HostLink, Network};

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
        // Nothing but its network's file says that the container was on a bridge.
        if attachment.conf.is_none() && network.plugins.iter().any(|plugin| plugin == "bridge") {
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
            Carrier::Switched(bridge) => self.bridge(attachment, bridge, &[], findings),
            Carrier::Routed(None) => {
                // The veth of a pair without bridge has its gateways alone.
                let gateways: Vec<IpNetwork> = gateways(attachment).map(|net| IpNetwork::from(net.ip())).collect();
                for link in &attachment.links {
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
        let renamed = super::inside::parent(attachment).and_then(|index| self.host.at(index));
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

    /// A bridge with another Ethernet address than each living container knows: they find it anew after a minute or so.
    fn other_mac(&self, bridge: &Link) -> Option<Reason> {
        let all = self.view.networks.iter().flat_map(|network| &network.attachments);
        let is_of_it =
            |attachment: &&Attachment| attachment.links.iter().any(|link| link.master.as_ref() == Some(&bridge.name));
        let known = |attachment: &Attachment| mac_of_host(attachment, &bridge.name);
        let mut of_it = all.filter(is_of_it).peekable();
        let has_other = of_it.peek().is_some()
            && of_it.all(|attachment| known(attachment).is_some_and(|mac| Some(mac) != bridge.mac));
        let (wanted, found) = (self.mac_at_add(&bridge.name).filter(|_| has_other)?, bridge.mac?);
        let name = &bridge.name;
        let what = format!("bridge {name} has Ethernet address {found}, and containers know it by {wanted}");
        let remedy = [format!("ip link set {} address {wanted}", word(name))];
        Some(Reason::new(Cause::Gateway, Level::Warning, what).mended_by(remedy))
    }

    /// The Ethernet address that a link of the node had when the latest attachment was added: CHECK compares it, and
    /// containers know it.
    fn mac_at_add(&self, name: &str) -> Option<Mac> {
        let mut all: Vec<&Attachment> = self.view.networks.iter().flat_map(|network| &network.attachments).collect();
        all.sort_by_key(|attachment| attachment.since);
        all.into_iter().rev().find_map(|attachment| mac_of_host(attachment, name))
    }

    /// The link that has the gateways has each of them. The commands of `lost` make the routes that the kernel removes with one.
    fn gateways(&self, gateways: &[IpNetwork], router: &str, lost: &[String], findings: &mut Findings) {
        self.answers_arp(gateways, router, findings);
        for gateway in gateways.iter().filter(|gateway| self.host.refuses(router, gateway.ip())) {
            let what = format!(
                "link {router} does not use the gateway's address {gateway} (dadfailed): another on it had the address"
            );
            let remedy = [
                format!("ip address del {gateway} dev {}", word(router)),
                format!("ip address add {gateway} dev {} nodad", word(router)),
            ];
            let reason = Reason::new(Cause::Gateway, Level::Error, what).mended_by(remedy);
            findings.reasons.push(reason.mended_by(lost.iter().cloned()));
        }
        let has = |net: &IpNetwork| self.host.addresses_of(router).iter().any(|own| own.ip() == net.ip());
        for gateway in gateways.iter().filter(|gateway| !has(gateway)) {
            let others: Vec<String> = self.in_the_way(router, gateway.ip()).map(ToString::to_string).collect();
            let instead =
                if others.is_empty() { String::new() } else { format!(", and has {} instead", others.join(", ")) };
            let what = format!("link {router} does not have the gateway's address {gateway}{instead}");
            let replaced = others.iter().map(|other| format!("ip address del {other} dev {}", word(router)));
            let wider = self.host.find(router).filter(|link| gateway.is_ipv6() && link.mtu_bytes < 1280);
            // The kernel takes the addresses of IPv6 from a link that is narrower than `IPV6_MIN_MTU` (linux/ipv6.h).
            let wider = wider.map(|_| format!("ip link set {} mtu 1500", word(router)));
            let remedy = wider.into_iter().chain(replaced);
            let remedy =
                remedy.chain([format!("ip address add {gateway} dev {}", word(router))]).chain(lost.iter().cloned());
            findings.reasons.push(Reason::new(Cause::Gateway, Level::Error, what).mended_by(remedy));
        }
    }

    /// The node answers when containers ask for the gateway's Ethernet address. 8 is the value that answers no request
    /// (Documentation/networking/ip-sysctl.rst), and the larger one of `all` and the link counts.
    fn answers_arp(&self, gateways: &[IpNetwork], router: &str, findings: &mut Findings) {
        let is_silent = |name: &str| self.setting(&["ipv4", "conf", name, "arp_ignore"]).as_deref() == Some("8");
        let has_gateway = gateways.iter().any(IpNetwork::is_ipv4);
        for name in ["all", router].into_iter().filter(|name| has_gateway && is_silent(name)) {
            let key = format!("net.ipv4.conf.{}.arp_ignore", name.replace('.', "/"));
            let what = format!("{key} is 8: the node does not tell containers the gateway's Ethernet address");
            let remedy = [sysctl(&key, "0")];
            findings.reasons.push(Reason::new(Cause::Gateway, Level::Error, what).mended_by(remedy));
        }
    }

    /// The addresses of the gateways' link that are no gateway of an attachment, which a new ADD takes for a conflict.
    fn in_the_way(&self, router: &str, gateway: IpAddr) -> impl Iterator<Item = &IpNetwork> {
        let is_used = |own: &IpNetwork| {
            let all = self.view.networks.iter().flat_map(|network| &network.attachments);
            all.flat_map(|attachment| &attachment.result.ips).any(|ip| ip.gateway == Some(own.ip()))
        };
        let is_of_family = move |own: &&IpNetwork| own.is_ipv4() && gateway.is_ipv4();
        self.host.addresses_of(router).iter().filter(is_of_family).filter(move |own| !is_used(own))
    }

    /// Living containers on one bridge with one Ethernet address: the bridge sends their packets to either.
    pub(super) fn same_mac(&self, attachment: &Attachment, carrier: &Carrier, findings: &mut Findings) {
        let (Some(bridge), at_add) = (carrier.bridge(), mac_of(attachment)) else { return };
        // A process in the container may have set another one since.
        let Some(mac) = findings.mac.or(at_add.and_then(|mac| mac.parse().ok())) else { return };
        let text = mac.to_string();
        let has_it = |other: &Attachment| super::inside::mac(other).is_none_or(|now| now == mac);
        let others = self.macs.get(&*text).into_iter().flatten().filter(|(_, other)| other.id != attachment.id);
        for (of, other) in others.filter(|(_, other)| has_it(other)) {
            if Carrier::of(self.host, of, other).bridge().is_some_and(|its| its.name == bridge.name) {
                let why = format!("{} on bridge {} has Ethernet address {mac}, too", other.full_name(), bridge.name);
                let what = format!("several living containers on bridge {} have Ethernet address {mac}", bridge.name);
                let own = at_add.filter(|own| **own != *text && !attachment.netns.is_empty());
                let remedy = [own.map_or_else(
                    || "Start all but one of the containers anew with an Ethernet address of its own.".to_owned(),
                    |own| {
                        let (netns, ifname) = (word(&attachment.netns), word(attachment.id.ifname.as_str()));
                        format!("nsenter --net={netns} ip link set {ifname} address {}", word(own))
                    },
                )];
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
        if matches!(carrier, Carrier::Switched(_) | Carrier::Unknown) {
            return;
        }
        for address in attachment.addresses.iter().filter(|address| !address.is_loopback()) {
            if let Some(link) = self.host.owner(*address) {
                let what = format!("the node has address {address}, too, on link {}", link.name);
                findings.reasons.push(Reason::new(Cause::Duplicate, Level::Error, what));
            }
            for (of, other) in self.other_holders((network, attachment, carrier), *address) {
                let why = format!("{} in network {} has {address}, too", other.full_name(), of.name);
                let what = format!("several living containers have address {address}");
                let remedy = ["Start all but one of the containers anew: they get other addresses.".to_owned()];
                let reason = Reason::new(Cause::Duplicate, Level::Error, why).shared(what);
                findings.reasons.push(reason.mended_by(remedy));
            }
        }
    }
}

impl<'a> Sight<'a> {
    /// The other living attachments that ADD gave the address, and whose packets may meet those of this one.
    pub(super) fn other_holders<'s>(
        &'s self,
        (network, attachment, carrier): (&'s Network, &'s Attachment, &'s Carrier),
        address: IpAddr,
    ) -> impl Iterator<Item = &'s (&'a Network, &'a Attachment)> {
        self.holders.get(&address).into_iter().flatten().filter(move |(of, other)| {
            // Multus' network and the one that it called have one interface.
            let is_it = other.id == attachment.id;
            let meets = of.name == network.name || Carrier::of(self.host, of, other).is_routed();
            !is_it && meets && (of.name == network.name || carrier.is_routed())
        })
    }
}

/// The Ethernet address of a link of the node at the ADD of an attachment.
pub(super) fn mac_of_host(attachment: &Attachment, name: &str) -> Option<Mac> {
    let mut links = attachment.result.interfaces.iter();
    links.find(|link| link.name == name && link.sandbox.is_empty()).and_then(|link| link.mac.parse().ok())
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
    match port {
        _ if link.port_blocks => reason(
            Level::Error,
            "is a blocked or disabled port of its bridge",
            format!("ip link set {name} type bridge_slave state 3"),
        ),
        _ if link.port_is_deaf => reason(
            Level::Error,
            "is a port that neither learns Ethernet addresses nor gets frames for unknown ones",
            format!("ip link set {name} type bridge_slave learning on flood on"),
        ),
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

fn down(link: &str) -> Reason {
    let remedy = [format!("ip link set {} up", word(link))];
    Reason::new(Cause::LinkDown, Level::Error, format!("link {link} is down")).mended_by(remedy)
}

/// A bridge that has another name than at ADD: its ports work, and the next ADD makes a second one. Kernels before 6.2 rename
/// no link that is up.
fn renamed(was: &str, name: &str) -> Reason {
    let (now, then) = (word(name), word(was));
    let rename = format!("ip link set {now} name {then}");
    let remedy = format!("{rename} || (ip link set {now} down && {rename} && ip link set {then} up)");
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
