//! Ports of the node that lead to an attachment, and its masquerade.

use std::collections::BTreeMap;
use std::net::IpAddr;

use chained::Attached;
use libcni::inventory::Life;
use netops::Family;
use netops::listening_sockets::{self, Listener};

use super::Level::{Error, Warning};
use super::rows::{At, Evidence, name, of, rows};
use crate::node_networks::{Asked, Attachment, Forward, Maker, Network, Protocol, View};

rows! {
    PortGone Warning lost_in_part: "{0}: {1}"
        all "a rule that all ports share is gone";
    PortGone Error of_lost_address: "{0} of the node leads nowhere: no link has {1}"
        advice "Give the node address {1} again, or start the container anew with another one.";
    PortGone Error without_rule: "{0} of the node does not lead to it{1}: the rule that ADD made is gone"
        all "no rule forwards {0} of the node{1}, which a living container asked for";
    // Packets to 127.0.0.1 leave the node's loopback link only if the link to the container lets them.
    PortGone Warning closed_to_loopback: "{0} is 0: {1} does not answer at 127.0.0.1"
        all "{0} is 0: ports of the node do not lead to containers from 127.0.0.1"
        help "sysctl -w {0}=1";
    PortTwice Error asked_by_others: "{1} in network {2} asked for {0} of the node, too"
        all "several living containers asked for {0} of the node";
    PortTaken Warning taken_by_processes: "{1} of the node listens on {0}, which leads to a container";
    MasqueradeGone Error without_masquerade: "the network has ipMasq, and no rule masquerades its {0}: no answer from outside finds the way back"
        all "the network has ipMasq, and no rule masquerades {0} of living containers";
}

/// An attachment that has a port, with the node's address that packets are sent to; `None`: any.
type Wanted<'a> = (&'a Network, &'a Attachment, Option<IpAddr>);

/// The address on which a process listens, and its name; `None`: any address.
type Taker = (Option<IpAddr>, String);

/// The ports of the node that living attachments asked for or have.
pub(super) struct Ports<'a> {
    wanted: BTreeMap<(u8, u16), Vec<Wanted<'a>>>,
    /// The processes that listen on such a port.
    taken: BTreeMap<(u8, u16), Vec<Taker>>,
}

impl<'a> Ports<'a> {
    pub(super) fn of(view: &'a View, listeners: &[Listener]) -> Self {
        let (mut wanted, mut taken): (BTreeMap<_, Vec<_>>, BTreeMap<_, Vec<_>>) = Default::default();
        for network in &view.networks {
            for attachment in network.attachments.iter().filter(|attachment| attachment.life == Life::Lives) {
                for Asked { protocol, port, address } in ports(attachment) {
                    wanted.entry((protocol as u8, port)).or_default().push((network, attachment, address));
                }
            }
        }
        let key = |it: &Listener| (if it.is_udp { Protocol::Udp } else { Protocol::Tcp } as u8, it.port);
        let is_wanted = |it: &&Listener| !it.address.is_loopback() && wanted.contains_key(&key(it));
        let found: Vec<&Listener> = listeners.iter().filter(is_wanted).collect();
        let processes = if found.is_empty() { Vec::new() } else { listening_sockets::processes(&found) };
        for (listener, process) in found.iter().zip(processes) {
            if !process.as_deref().is_some_and(portmap::forwards::is_holder) {
                let process = process.map_or("a process".to_owned(), |process| format!("process {process}"));
                let address = Some(listener.address).filter(|address| !address.is_unspecified());
                taken.entry(key(listener)).or_default().push((address, process));
            }
        }
        Self { wanted, taken }
    }
}

/// The addresses that ADD forwarded ports to, as far as it is known which those are: a plugin takes the capability, without
/// conditions.
fn targets(attachment: &Attachment) -> Vec<IpAddr> {
    let plugins = attachment.conf.iter().flat_map(|conf| &conf.plugins);
    let mut takers = plugins.filter(|plugin| {
        on_node::plugin_of(plugin.plugin_type.as_str()) == "portmap"
            && plugin.find("capabilities").is_some_and(|text| text.contains("\"portMappings\""))
    });
    if !takers.any(|plugin| plugin.find("conditionsV4").is_none() && plugin.find("conditionsV6").is_none()) {
        return Vec::new();
    }
    if attachment.result.ips.is_empty() {
        return attachment.addresses.clone();
    }
    let attached = Attached::new(attachment.result.clone(), &attachment.id.ifname, None);
    portmap::forwards::targets(&attached).map(|address| address.ip()).collect()
}

/// Whether ADD has forwarded a port for an address of the family.
fn is_for(asked: &Asked, is_ipv4: bool, targets: &[IpAddr]) -> bool {
    asked.address.is_none_or(|of| of.is_ipv4() == is_ipv4) && targets.iter().any(|own| own.is_ipv4() == is_ipv4)
}

/// The ports that ADD has forwarded, and those that the node forwards to it.
fn ports(attachment: &Attachment) -> Vec<Asked> {
    let targets = targets(attachment);
    let asked = attachment.asked.iter().filter(|it| [true, false].iter().any(|is| is_for(it, *is, &targets))).cloned();
    let forwarded = attachment.ports.iter().filter(|forward| !forward.is_conditional);
    let forwarded = forwarded.map(|it| Asked { protocol: it.protocol, address: it.address, port: it.port });
    let mut ports: Vec<Asked> = asked.chain(forwarded).collect();
    ports.sort_by_key(|port| (port.protocol as u8, port.port, port.address));
    ports.dedup();
    ports
}

/// Whether a packet can be for both.
fn meet(one: Option<IpAddr>, other: Option<IpAddr>) -> bool {
    one.zip(other).is_none_or(|(one, other)| one == other)
}

impl At<'_> {
    fn lost_in_part(&self) -> Vec<Evidence> {
        let entered = self.attachment.ports.iter().filter(|forward| forward.is_entered);
        entered.filter_map(|forward| Some(of([&forward.host_port(), forward.lost.as_ref()?]))).collect()
    }

    /// The ports that it asked for; whether the node still has the address that they are of.
    fn asked(&self, is_there: bool) -> impl Iterator<Item = &Asked> {
        let is_lost = |own: IpAddr| !own.is_loopback() && self.sight.host.owner(own).is_none();
        let asked = self.attachment.asked.iter().filter(|_| self.sight.host.unread_forwards.is_none());
        asked.filter(move |asked| asked.address.is_some_and(is_lost) != is_there)
    }

    fn of_lost_address(&self) -> Vec<Evidence> {
        let asked = self.asked(false).filter(|_| !targets(self.attachment).is_empty());
        asked.filter_map(|asked| Some(of([&asked.name(), &asked.address?]))).collect()
    }

    fn without_rule(&self) -> Vec<Evidence> {
        let targets = targets(self.attachment);
        let evidence = |asked: &Asked| {
            let is_met = |is_ipv4: bool| {
                let mut forwards = self.attachment.ports.iter().filter(|it| it.to.is_ipv4() == is_ipv4);
                forwards.any(|forward| asked.is_met_by(forward))
            };
            let wanted: Vec<bool> = [true, false].into_iter().filter(|is| is_for(asked, *is, &targets)).collect();
            let missing: Vec<bool> = wanted.iter().copied().filter(|is_ipv4| !is_met(*is_ipv4)).collect();
            let over = match missing.as_slice() {
                [] => return None,
                [is_ipv4] if wanted.len() > 1 => {
                    if *is_ipv4 {
                        " over IPv4"
                    } else {
                        " over IPv6"
                    }
                }
                _ => "",
            };
            Some(of([&asked.name(), &over]))
        };
        self.asked(true).filter_map(evidence).collect()
    }

    fn closed_to_loopback(&self) -> Vec<Evidence> {
        let is_portmap = |it: &&libcni::PluginObject| on_node::plugin_of(it.plugin_type.as_str()) == "portmap";
        let has_snat = |conf: &libcni::NetworkConf| {
            conf.plugins.iter().filter(is_portmap).all(|it| it.find("snat") != Some("false"))
        };
        let is_v4 = |it: &&Forward| it.to.is_ipv4() && it.address.is_none_or(|address| address.is_loopback());
        let port = self.attachment.ports.iter().find(is_v4).filter(|_| self.routed().any(|it| it == Family::V4));
        // A plugin of another project may forward such packets otherwise.
        let is_own = self.attachment.maker == Maker::ThisSuite && self.attachment.conf.as_ref().is_some_and(has_snat);
        let own = || self.attachment.links.first().map(|link| link.name.as_str());
        let link = self.carrier.bridge().map(|bridge| bridge.router.as_str()).or_else(own).filter(|_| is_own);
        let Some((port, link)) = port.zip(link) else { return Vec::new() };
        let [all, key] = ["all", link].map(|name| ["ipv4", "conf", name, "route_localnet"]);
        let is_closed = !self.is(&all, "1") && self.is(&key, "0");
        is_closed.then(|| of([&name(&key), &port.host_port()])).into_iter().collect()
    }

    fn asked_by_others(&self) -> Vec<Evidence> {
        let other = |port: &Asked| {
            let mut all = self.sight.ports.wanted.get(&(port.protocol as u8, port.port)).into_iter().flatten();
            let own = &self.attachment.id.container_id;
            all.find(|(_, it, address)| it.id.container_id != *own && meet(*address, port.address))
        };
        let twice = ports(self.attachment).into_iter().filter_map(|port| Some((other(&port)?, port.name())));
        twice.map(|((network, other, _), port)| of([&port, &other.full_name(), &network.name])).collect()
    }

    fn taken_by_processes(&self) -> Vec<Evidence> {
        let evidence = |port: Asked| {
            let all = self.sight.ports.taken.get(&(port.protocol as u8, port.port)).into_iter().flatten();
            let met = all.filter(|(address, _)| meet(*address, port.address));
            met.map(|(_, process)| of([&port.name(), process])).collect::<Vec<_>>()
        };
        ports(self.attachment).into_iter().flat_map(evidence).collect()
    }

    /// Without an entry in the cache, the network's file says whether there is one: it may have been another at ADD.
    fn without_masquerade(&self) -> Vec<Evidence> {
        let conf = self.attachment.conf.as_ref();
        let is_wanted = if conf.is_some() { self.sets("ipMasq") } else { self.network.masquerades };
        let of_families = Family::BOTH.into_iter().filter(|family| self.has(*family));
        let (has, lost): (Vec<Family>, Vec<Family>) =
            of_families.partition(|family| self.attachment.is_masqueraded(*family));
        let Some(family) = lost.first().filter(|_| is_wanted && self.network.is_read) else { return Vec::new() };
        let packets = if has.is_empty() { "packets".to_owned() } else { format!("{family} packets") };
        vec![of([&packets]).at(if conf.is_some() { Error } else { Warning })]
    }
}

impl Attachment {
    /// Whether the node has a rule that masquerades packets of a family.
    fn is_masqueraded(&self, family: Family) -> bool {
        let masquerades = self.rules.iter().filter(|rule| rule.masquerades_by.is_some());
        masquerades.map(|rule| rule.address).any(|of| of.is_none_or(|address| Family::from(address) == family))
    }
}
