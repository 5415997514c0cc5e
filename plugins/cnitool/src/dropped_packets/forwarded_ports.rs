//! Ports of the node that lead to an attachment, and its masquerade.

use std::collections::BTreeMap;
use std::net::IpAddr;

use chained::Attached;
use libcni::NetworkConf;
use libcni::inventory::Life;
use netops::Family;
use netops::listening_sockets::{self, Listener};

use super::way_to_container::{Carrier, sets};
use super::{Cause, Findings, Level, Reason, Sight};
use crate::node_networks::{Asked, Attachment, Forward, Maker, Network, Protocol, View};
use crate::shell_words;

/// An attachment that has a port, with the node's address that packets are sent to; `None`: any.
type Wanted<'a> = (&'a Network, &'a Attachment, Option<IpAddr>);

/// The ports of the node that living attachments asked for or have.
pub(super) struct Ports<'a> {
    /// The forwarded ports, by protocol and port.
    wanted: BTreeMap<(u8, u16), Vec<Wanted<'a>>>,
    /// The processes that listen on such a port.
    taken: BTreeMap<(u8, u16), Vec<(IpAddr, String)>>,
}

impl<'a> Ports<'a> {
    pub(super) fn of(view: &'a View, listeners: &[Listener]) -> Self {
        let mut wanted: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for network in &view.networks {
            for attachment in network.attachments.iter().filter(|attachment| attachment.life == Life::Lives) {
                let forwarded = attachment.ports.iter().filter(|forward| !forward.is_conditional);
                let forwarded = forwarded.map(|forward| (forward.protocol, forward.port, forward.address));
                let asked = asked(attachment).map(|it| (it.protocol, it.port, it.address));
                for (protocol, port, address) in forwarded.chain(asked) {
                    wanted.entry((protocol as u8, port)).or_default().push((network, attachment, address));
                }
            }
        }
        let is_wanted = |listener: &&Listener| {
            !listener.address.is_loopback() && wanted.contains_key(&(protocol(listener) as u8, listener.port))
        };
        let found: Vec<&Listener> = listeners.iter().filter(is_wanted).collect();
        let mut taken: BTreeMap<_, Vec<_>> = BTreeMap::new();
        if !found.is_empty() {
            for (listener, process) in found.iter().zip(listening_sockets::processes(&found)) {
                if process.as_deref().is_some_and(portmap::forwards::is_holder) {
                    continue;
                }
                let process = process.map_or("a process".to_owned(), |process| format!("process {process}"));
                taken.entry((protocol(listener) as u8, listener.port)).or_default().push((listener.address, process));
            }
        }
        Self { wanted, taken }
    }
}

fn protocol(listener: &Listener) -> Protocol {
    if listener.is_udp { Protocol::Udp } else { Protocol::Tcp }
}

/// Whether all packets to the ports that were asked for are forwarded: a plugin takes the capability, without conditions.
fn forwards_all(attachment: &Attachment) -> bool {
    let plugins = attachment.conf.iter().flat_map(|conf| &conf.plugins);
    let mut takers = plugins.filter(|plugin| {
        on_node::plugin_of(plugin.plugin_type.as_str()) == "portmap"
            && plugin.find("capabilities").is_some_and(|text| text.contains("\"portMappings\""))
    });
    takers.any(|plugin| plugin.find("conditionsV4").is_none() && plugin.find("conditionsV6").is_none())
}

/// The addresses that ADD forwarded ports to, as far as it is known which those are.
fn targets(attachment: &Attachment) -> Vec<IpAddr> {
    if attachment.result.ips.is_empty() {
        return attachment.addresses.clone();
    }
    let attached = Attached::new(attachment.result.clone(), &attachment.id.ifname, None);
    portmap::forwards::targets(&attached).map(|address| address.ip()).collect()
}

/// The ports that ADD has forwarded, each for an address of its family.
fn asked(attachment: &Attachment) -> impl Iterator<Item = &Asked> {
    let targets = if forwards_all(attachment) { targets(attachment) } else { Vec::new() };
    let is_of = |asked: &Asked, own: &IpAddr| asked.address.is_none_or(|of| own.is_ipv4() == of.is_ipv4());
    attachment.asked.iter().filter(move |asked| targets.iter().any(|own| is_of(asked, own)))
}

/// Whether a packet can be for both.
fn meet(one: Option<IpAddr>, other: Option<IpAddr>) -> bool {
    one.zip(other).is_none_or(|(one, other)| one == other)
}

impl Attachment {
    /// Whether the node has a rule that masquerades packets of a family.
    pub(super) fn is_masqueraded(&self, family: Family) -> bool {
        self.rules.iter().filter(|rule| rule.contains("masquerade")).any(|rule| {
            let address = rule.rsplit_once("masquerade of ").and_then(|(_, address)| address.parse::<IpAddr>().ok());
            address.is_none_or(|address| Family::from(address) == family)
        })
    }
}

impl Sight<'_> {
    pub(super) fn ports_of(&self, attachment: &Attachment, findings: &mut Findings) {
        for forward in attachment.ports.iter().filter(|forward| forward.is_entered) {
            findings.to.push(format!("{} is forwarded to {}", forward.host_port(), forward.to));
            let why = forward.lost.as_ref().map(|lost| format!("{}: {lost}", forward.host_port()));
            let reason =
                |why| Reason::new(Cause::PortGone, Level::Warning, why).shared("a rule that all ports share is gone");
            findings.reasons.extend(why.map(reason));
        }
        let targets = targets(attachment);
        let is_known = self.host.unread_forwards.is_none();
        let asked = || asked(attachment).filter(|_| is_known);
        for asked in asked() {
            let gone = asked.address.filter(|own| !own.is_loopback() && self.host.owner(*own).is_none());
            if let Some(address) = gone {
                let what = format!("{} of the node leads nowhere: no link has {address}", asked.name());
                let remedy =
                    [format!("Give the node address {address} again, or start the container anew with another one.")];
                findings.reasons.push(Reason::new(Cause::PortGone, Level::Error, what).mended_by(remedy));
                continue;
            }
            let has = |is_ipv4: bool| targets.iter().any(|own| own.is_ipv4() == is_ipv4);
            let is_wanted =
                |is_ipv4: &bool| has(*is_ipv4) && asked.address.is_none_or(|address| address.is_ipv4() == *is_ipv4);
            let is_met = |is_ipv4: bool| {
                let mut forwards = attachment.ports.iter().filter(|forward| forward.to.is_ipv4() == is_ipv4);
                forwards.any(|forward| asked.is_met_by(forward))
            };
            let wanted: Vec<bool> = [true, false].into_iter().filter(is_wanted).collect();
            let missing: Vec<bool> = wanted.iter().copied().filter(|is_ipv4| !is_met(*is_ipv4)).collect();
            let over = match missing.as_slice() {
                [] => continue,
                [is_ipv4] if wanted.len() > 1 => {
                    if *is_ipv4 {
                        " over IPv4"
                    } else {
                        " over IPv6"
                    }
                }
                _ => "",
            };
            let name = asked.name();
            let why = format!("{name} of the node does not lead to it{over}: the rule that ADD made is gone");
            let what = format!("no rule forwards {name} of the node{over}, which a living container asked for");
            findings.reasons.push(Reason::new(Cause::PortGone, Level::Error, why).shared(what));
        }
        let forwarded = attachment.ports.iter().filter(|forward| !forward.is_conditional).map(|forward| Asked {
            protocol: forward.protocol,
            address: forward.address,
            port: forward.port,
        });
        let mut ports: Vec<Asked> = asked().cloned().chain(forwarded).collect();
        ports.sort_by_key(|port| (port.protocol as u8, port.port, port.address));
        ports.dedup();
        for port in ports {
            self.contested(attachment, &port, findings);
        }
    }

    /// Packets to 127.0.0.1 leave the node's loopback link only if the link to the container lets them.
    pub(super) fn localnet(&self, attachment: &Attachment, carrier: &Carrier, findings: &mut Findings) {
        let sets_snat_off = |conf: &NetworkConf| {
            conf.plugins.iter().any(|plugin| {
                on_node::plugin_of(plugin.plugin_type.as_str()) == "portmap" && plugin.find("snat") == Some("false")
            })
        };
        let is_v4 =
            |forward: &Forward| forward.to.is_ipv4() && forward.address.is_none_or(|address| address.is_loopback());
        let Some(port) = attachment.ports.iter().find(|forward| is_v4(forward)) else { return };
        let own = attachment.links.first().map(|link| link.name.as_str());
        let Some(link) = carrier.bridge().map(|bridge| bridge.router.as_str()).or(own) else { return };
        // A plugin of another project may forward such packets otherwise.
        if attachment.maker != Maker::ThisSuite || attachment.conf.as_ref().is_none_or(sets_snat_off) {
            return;
        }
        if self.setting(&["ipv4", "conf", "all", "route_localnet"]).as_deref() != Some("1")
            && self.setting(&["ipv4", "conf", link, "route_localnet"]).as_deref() == Some("0")
        {
            let key = format!("net.ipv4.conf.{}.route_localnet", link.replace('.', "/"));
            let why = format!("{key} is 0: {} does not answer at 127.0.0.1", port.host_port());
            let what = format!("{key} is 0: ports of the node do not lead to containers from 127.0.0.1");
            let remedy = [shell_words::sysctl(&key, "1")];
            findings.reasons.push(Reason::new(Cause::PortGone, Level::Warning, why).shared(what).mended_by(remedy));
        }
    }

    fn contested(&self, attachment: &Attachment, port: &Asked, findings: &mut Findings) {
        let key = (port.protocol as u8, port.port);
        let mut others = self.ports.wanted.get(&key).into_iter().flatten();
        let is_other = |(_, other, address): &&Wanted<'_>| {
            other.id.container_id != attachment.id.container_id && meet(*address, port.address)
        };
        if let Some((network, other, _)) = others.find(is_other) {
            let (name, of) = (port.name(), &network.name);
            let why = format!("{} in network {of} asked for {name} of the node, too", other.full_name());
            let what = format!("several living containers asked for {name} of the node");
            findings.reasons.push(Reason::new(Cause::PortTwice, Level::Error, why).shared(what));
        } else if let Some(first) = self.first_forward(attachment, port) {
            let (name, to) = (port.name(), first.to);
            let why = format!("an earlier rule in the chains of ports forwards {name} of the node to {to}");
            let remedy = ["Remove that rule: see iptables-save -t nat, or nft list table ip cni_hostport.".to_owned()];
            findings.reasons.push(Reason::new(Cause::PortTwice, Level::Error, why).mended_by(remedy));
        }
        let is_before = |other: &&Forward| {
            let is_main = other.address.is_none_or(|address| self.host.is_main(address) || port.address.is_some());
            other.protocol == port.protocol && other.port == port.port && meet(other.address, port.address) && is_main
        };
        let mut others = self.host.other_forwards.iter().filter(is_before);
        if let Some(other) = others.find(|other| !attachment.addresses.contains(&other.to.ip())) {
            let (name, to) = (port.name(), other.to);
            let why = format!("an earlier rule of another program forwards {name} of the node to {to}");
            findings.reasons.push(Reason::new(Cause::PortTwice, Level::Error, why));
        }
        for (address, process) in self.ports.taken.get(&key).into_iter().flatten() {
            let address = Some(*address).filter(|address| !address.is_unspecified());
            if meet(address, port.address) {
                let what = format!("{process} of the node listens on {}, which leads to a container", port.name());
                findings.reasons.push(Reason::new(Cause::PortTaken, Level::Warning, what));
            }
        }
    }

    /// The forward to another address that packets to the port meet first.
    fn first_forward(&self, attachment: &Attachment, port: &Asked) -> Option<&Forward> {
        let is_for_it = |forward: &&Forward| {
            (forward.protocol, forward.port) == (port.protocol, port.port)
                && forward.is_entered
                && !forward.is_conditional
                && meet(forward.address, port.address)
        };
        let is_own = |forward: &Forward| attachment.addresses.contains(&forward.to.ip());
        Family::BOTH.into_iter().find_map(|family| {
            let mut of_family =
                self.host.forwards.iter().filter(|forward| Family::from(forward.to.ip()) == family).filter(is_for_it);
            let first = of_family.next().filter(|first| !is_own(first))?;
            of_family.any(is_own).then_some(first)
        })
    }

    /// Without an entry in the cache, the network's file says whether there is one: it may have been another at ADD.
    pub(super) fn masquerade(&self, network: &Network, attachment: &Attachment, findings: &mut Findings) {
        findings.from.extend(attachment.rules.iter().cloned());
        let is_wanted = attachment.conf.as_ref().map_or(network.masquerades, |conf| sets(conf, "ipMasq"));
        if !is_wanted {
            return;
        }
        let level = if attachment.conf.is_some() { Level::Error } else { Level::Warning };
        let has = |family: &Family| attachment.addresses.iter().any(|address| Family::from(*address) == *family);
        let of = || Family::BOTH.into_iter().filter(has);
        let lost: Vec<Family> = of().filter(|family| !attachment.is_masqueraded(*family)).collect();
        let Some(family) = lost.first() else { return };
        let packets = if of().count() > lost.len() { format!("{family} packets") } else { "packets".to_owned() };
        let no_rule = "the network has ipMasq, and no rule masquerades";
        let why = format!("{no_rule} its {packets}: no answer from outside finds the way back");
        let what = format!("{no_rule} {packets} of living containers");
        findings.reasons.push(Reason::new(Cause::Masquerade, level, why).shared(what));
    }
}

#[cfg(test)]
mod tests {
    use libcni::cni_spec::{AddResult, Interface, Ip};

    use super::targets;
    use crate::node_networks::sample_for_tests::attachment;

    #[test]
    fn addresses_of_the_nodes_side_are_forwarded_to_by_no_port() {
        let mut web = attachment("web", "10.7.0.2");
        assert_eq!(targets(&web), web.addresses, "without a result");
        let interface = |name: &str, sandbox: &str| Interface {
            name: name.to_owned(),
            sandbox: sandbox.to_owned(),
            ..Interface::default()
        };
        let ip = |interface| Ip { interface, address: "10.7.0.2/24".parse().unwrap(), gateway: None };
        for (interface_of, expected) in [(Some(0), 0), (Some(1), 1), (None, 1)] {
            let interfaces = vec![interface("eth0", ""), interface("eth0", "/run/netns/web")];
            web.result = AddResult { interfaces, ips: vec![ip(interface_of)], ..AddResult::default() };
            assert_eq!(targets(&web).len(), expected, "{interface_of:?}");
        }
    }
}
