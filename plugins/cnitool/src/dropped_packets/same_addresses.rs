//! Addresses, of IP and of Ethernet, that two of a network have.

use std::net::IpAddr;

use libcni::NetworkConf;
use netops::link::{Kind as LinkKind, Link};

use super::container_interface::Inside;
use super::host_routes::is_global;
use super::rows::{At, Evidence, of, rows};
use super::way_to_container::Carrier;
use crate::doctor::{Step, advice};
use crate::node_networks::{Attachment, Network};
use crate::shell_words::word;

rows! {
    DuplicateAddress Error of_node: "the node has address {0}, too, on link {1}";
    DuplicateAddress Error of_others: "{0} in network {1} has {2}, too"
        all "several living containers have address {2}";
    // A process in the container has given its interface the address.
    DuplicateAddress Error taken_from_node: "{0} in the container has {1}, too, which the node has on link {3}"
        all "a container has given itself {1}, which the node has"
        help "nsenter --net={2} ip address flush to {1} dev {0}";
    DuplicateAddress Error taken_from_others: "{0} in the container has {1}, too, which {3} got in network {4}"
        all "a container has given itself {1}, which another container has"
        help "nsenter --net={2} ip address flush to {1} dev {0}";
    // The bridge sends the packets of both to either.
    DuplicateAddress Error mac_of_bridge: "bridge {0} itself has Ethernet address {1} of the container"
        all "a container has Ethernet address {1} of its bridge {0} itself";
    DuplicateAddress Error mac_of_others: "{2} on bridge {0} has Ethernet address {1}, too"
        all "several living containers on bridge {0} have Ethernet address {1}";
}

impl At<'_> {
    /// Lists the attachment's addresses, where it is known which packets meet them.
    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let is_known = !matches!(self.carrier, Carrier::Unknown);
        self.attachment.addresses.iter().copied().filter(move |address| is_known && !address.is_loopback())
    }

    fn of_node(&self) -> Vec<Evidence> {
        let owner = |address| Some((address, self.sight.host.owner(address).filter(|link| self.is_answered_by(link))?));
        self.addresses().filter_map(owner).map(|(address, link)| of([&address, &link.name])).collect()
    }

    /// Whether a container's neighbours find the node by an address of this link. The node answers for those of `lo` and of dummy
    /// links wherever it has an address.
    fn is_answered_by(&self, link: &Link) -> bool {
        let Carrier::Switched(bridge) = &self.carrier else { return true };
        let Some(found) = self.sight.host.find(&bridge.router) else { return false };
        let is_anywhere = link.loopback || link.kind == LinkKind::Dummy;
        let has_own = || self.sight.host.addresses_of(&found.name).iter().any(|own| is_global(own.ip()));
        link.index == found.index || link.master == Some(found.index) || is_anywhere && has_own()
    }

    /// The other living attachments that ADD gave the address, and whose packets may meet those of this one.
    fn other_holders(&self, address: IpAddr) -> impl Iterator<Item = &(&Network, &Attachment)> {
        let segment = self.carrier.segment(self.sight.host);
        let is_switched = matches!(self.carrier, Carrier::Switched(_));
        self.sight.holders.get(&address).into_iter().flatten().filter(move |(of, other)| {
            // Multus' network and the one that it called have one interface.
            let is_it = other.id == self.attachment.id;
            let its = Carrier::of(self.sight.host, of, other);
            let share_segment = segment.is_some() && segment == its.segment(self.sight.host);
            let is_of_network = of.name == self.network.name && !is_switched;
            !is_it && (share_segment || is_of_network || self.carrier.is_routed() && its.is_routed())
        })
    }

    fn of_others(&self) -> Vec<Evidence> {
        let all = self.addresses().flat_map(|address| self.other_holders(address).map(move |holder| (address, holder)));
        let evidence = |(address, (network, other)): (IpAddr, &(&Network, &Attachment))| {
            let remedy = advice(other_address((self.network, self.attachment), (network, other)));
            of([&other.full_name(), &network.name, &address]).and([remedy])
        };
        all.map(evidence).collect()
    }

    /// The addresses of its interface that ADD did not give it, with its name and namespace.
    fn taken(&self) -> impl Iterator<Item = (&Inside, IpAddr)> {
        let of = |inside| self.looked_addresses(inside).map(move |address| (inside, address));
        self.inside().into_iter().flat_map(of)
    }

    fn looked_addresses<'s>(&'s self, inside: &'s Inside) -> impl Iterator<Item = IpAddr> + 's {
        let held = inside.held.iter().map(|own| own.net.ip());
        held.filter(|address| !self.attachment.addresses.contains(address))
    }

    fn taken_from_node(&self) -> Vec<Evidence> {
        let owned = self.taken().filter(|(_, address)| is_global(*address));
        let owned = owned.filter_map(|(inside, address)| Some((inside, address, self.sight.host.owner(address)?)));
        let netns = &self.attachment.netns;
        owned.map(|(inside, address, node)| of([&inside.link.name, &address, netns, &node.name])).collect()
    }

    fn taken_from_others(&self) -> Vec<Evidence> {
        let netns = &self.attachment.netns;
        let evidence = |(inside, address): (&Inside, IpAddr)| {
            let name = &inside.link.name;
            let words = |(network, other): &(&Network, &Attachment)| {
                of([name, &address, netns, &other.full_name(), &network.name])
            };
            self.other_holders(address).map(words).collect::<Vec<_>>()
        };
        self.taken().flat_map(evidence).collect()
    }

    /// The bridge, and the Ethernet address that the container's interface has now. A process in it may have set another one since ADD.
    fn mac_on_bridge(&self) -> Option<(&str, netops::link::Mac)> {
        let now = self.looked.link().and_then(|link| link.mac);
        let mac = now.or_else(|| super::mac_of(self.attachment)?.parse().ok())?;
        Some((&self.carrier.bridge()?.name, mac))
    }

    fn mac_of_bridge(&self) -> Vec<Evidence> {
        let Some((bridge, mac)) = self.mac_on_bridge() else { return Vec::new() };
        let has_it = self.sight.host.find(bridge).is_some_and(|found| found.mac == Some(mac));
        has_it.then(|| of([&bridge, &mac]).and([self.own_mac(&mac.to_string())])).into_iter().collect()
    }

    fn mac_of_others(&self) -> Vec<Evidence> {
        let Some((bridge, mac)) = self.mac_on_bridge() else { return Vec::new() };
        let text = mac.to_string();
        let others = self.sight.macs.get(&*text).into_iter().flatten().filter(|(_, it)| it.id != self.attachment.id);
        let has_it = |it: &Attachment| Inside::of(it).is_none_or(|inside| inside.link.mac == Some(mac));
        let is_on_it = |of: &Network, it: &Attachment| {
            Carrier::of(self.sight.host, of, it).bridge().is_some_and(|its| its.name == bridge)
        };
        let others = others.filter(|(of, it)| has_it(it) && is_on_it(of, it));
        others.map(|(_, it)| of([&bridge, &mac, &it.full_name()]).and([self.own_mac(&text)])).collect()
    }

    /// The command that gives the container's interface the Ethernet address of its ADD again, if it has another one.
    fn own_mac(&self, has: &str) -> Step {
        let netns = &self.attachment.netns;
        match super::mac_of(self.attachment).filter(|own| *own != has && !netns.is_empty()) {
            None => advice("Start all but one of the containers anew with an Ethernet address of its own."),
            Some(own) => {
                let ifname = word(self.attachment.id.ifname.as_str());
                format!("nsenter --net={} ip link set {ifname} address {}", word(netns), word(own)).into()
            }
        }
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
