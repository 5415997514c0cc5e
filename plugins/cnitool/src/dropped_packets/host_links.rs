//! The node's links that carry an attachment's packets: up, and in their places.

use bandwidth::ifb;
use libcni::cni_spec::NetworkName;
use netops::link::{Link, Port, PortFault};

use super::container_interface::Looked;
use super::rows::{At, Evidence, name, of, rows};
use super::way_to_container::Carrier;
use crate::doctor::tool;
use crate::node_networks::{HostLink, Maker};
use crate::shell_words::{sysctl, word};

rows! {
    LinkDown Error down: "link {0} is down"
        help "ip link set {0} up";
    LinkGone Error lost_shapers: "link {0}, by which its limit works, is gone: what the container sends is dropped"
        all "links by which limits of containers work are gone: what these send is dropped";
    // Nothing but its network's file says that the container was on a bridge.
    LinkDown Error loose: "link {0} is no port of a bridge, and its network is one of plugin bridge"
        all "links of living containers, which the cache does not have, are no ports of a bridge"
        advice "Start the container anew.";
    LinkDown Error enslaved: "link {0} is a port of {1}, and the node routes packets to it by no bridge"
        help "ip link set {0} nomaster";
    LinkDown Warning without_carrier: "{0} has no carrier: its other end is down, or no cable is in it"
        advice "Connect it, or set its other end up.";
    LinkGone Warning without_master(true): "link {0}, which the container's {1} is stacked on, is called {2} now"
        advice "Set key master to {2}, or give the link its old name: the next ADD looks for {0}.";
    LinkGone Error without_master(false): "link {0}, which the container's {1} is stacked on, is gone"
        advice "Bring link {0} back, or set key master to another one; then start the container anew.";
    LinkGone Error without_bridge: "bridge {0} is gone";
    // Its ports work, and the next ADD makes a second one.
    LinkGone Warning renamed: "bridge {0} is called {1} now, and the next ADD makes another one";
    LinkDown Error on_no_bridge: "link {0} is no port of bridge {1}"
        all "links of living containers are no ports of bridge {1}";
    LinkDown Error faulty(PortFault::Blocks): "link {0} is a blocked or disabled port of its bridge"
        help "ip link set {0} type bridge_slave state 3";
    LinkDown Warning faulty(PortFault::Waits): "link {0} is a port that passes on nothing yet: its bridge waits for the spanning tree (forward_delay)"
        help "ip link set {1} type bridge stp_state 0; ip link set {0} type bridge_slave state 3";
    LinkDown Error faulty(PortFault::Deaf): "link {0} is a port that neither learns Ethernet addresses nor gets frames for unknown ones"
        help "ip link set {0} type bridge_slave learning on flood on";
    LinkDown Error faulty(PortFault::Locked): "link {0} is a locked port: it takes frames only from stations that an administrator has entered"
        help "ip link set {0} type bridge_slave locked off";
    LinkDown Error faulty(PortFault::NoBroadcast): "link {0} is a port that gets no broadcasts: no station finds the container's Ethernet address"
        help "ip link set {0} type bridge_slave bcast_flood on";
    LinkDown Warning faulty(PortFault::NoMulticast): "link {0} is a port that gets no multicasts to unknown groups, as neighbour discovery of IPv6 sends them"
        help "ip link set {0} type bridge_slave mcast_flood on";
    LinkDown Warning isolated: "link {0} is an isolated port, and its network does not set portIsolation: isolated containers do not reach each other"
        help "ip link set {0} type bridge_slave isolated off";
    LinkDown Warning without_hairpin: "link {0} has no hairpin, and its network sets hairpinMode: the container does not reach itself by its own port or service"
        help "ip link set {0} type bridge_slave hairpin on";
}

impl At<'_> {
    fn down(&self) -> Vec<Evidence> {
        let own = self.ends().map(|link| (link, self.routes_lost_with(&link.name)));
        // What the container sends passes the ifb of its limit.
        let shapers = self.shapers().into_iter().filter_map(|name| self.sight.host.find(&name));
        let others =
            shapers.chain(self.bridge().map(|(_, link)| link)).chain(self.master().and_then(|(.., link)| link));
        let all = own.chain(others.map(|link| (link, Vec::new())));
        all.filter(|(link, _)| !link.up).map(|(link, routes)| of([&link.name]).and(routes)).collect()
    }

    /// Commands for the routes to single addresses: the veth of a pair without bridge has one for each, which the kernel removes
    /// with its last address, or when it goes down, and does not make again.
    pub(super) fn routes_lost_with(&self, link: &str) -> Vec<String> {
        let addresses = self.attachment.addresses.iter().filter(|_| matches!(self.carrier, Carrier::Routed(None)));
        addresses.map(|address| format!("ip route replace {address} dev {}", word(link))).collect()
    }

    fn shapers(&self) -> Vec<String> {
        let network = NetworkName::parse(&self.network.name).ok();
        network.into_iter().flat_map(|network| ifb::names(&self.attachment.id.to(&network))).collect()
    }

    fn lost_shapers(&self) -> Vec<Evidence> {
        let own = self.shapers();
        let repair = (self.attachment.maker == Maker::ThisSuite).then(|| tool(["repair", &self.network.name]));
        let made =
            self.attachment.result.interfaces.iter().filter(|link| link.sandbox.is_empty()).map(|link| &link.name);
        let lost = made.filter(|name| own.contains(name) && self.sight.host.find(name).is_none());
        lost.map(|name| of([name]).and(repair.clone())).collect()
    }

    fn loose(&self) -> Vec<Evidence> {
        let is_bridged = || self.network.plugins.iter().any(|plugin| on_node::plugin_of(plugin) == "bridge");
        let links = self.attachment.links.iter().filter(|_| self.attachment.conf.is_none() && is_bridged());
        links.filter(|link| link.master.is_none()).map(|link| of([&link.name])).collect()
    }

    fn enslaved(&self) -> Vec<Evidence> {
        let links = self.attachment.links.iter().filter(|_| matches!(self.carrier, Carrier::Routed(None)));
        links.filter_map(|link| Some(of([&link.name, link.master.as_ref()?]))).collect()
    }

    /// The plugin and the link that the container's is stacked on, if the network names one.
    fn master(&self) -> Option<(&str, &str, Option<&Link>)> {
        match &self.carrier {
            Carrier::Stacked { master: Some(master), kind } if kind != "vlan" || self.attachment.links.is_empty() => {
                Some((kind, master, self.sight.host.find(master)))
            }
            _ => None,
        }
    }

    fn without_carrier(&self) -> Vec<Evidence> {
        let master = self.master().and_then(|(.., link)| link).filter(|link| link.up && !link.carrier);
        let is_taken = matches!(self.carrier, Carrier::Stacked { master: None, .. });
        let own = self.inside().map(|inside| &inside.link).filter(|link| is_taken && link.up && !link.carrier);
        let own = own.filter(|link| link.kind != netops::link::Kind::Dummy);
        let words = master.map(|link| format!("link {}", link.name));
        words.into_iter().chain(own.map(|link| format!("{} in the container", link.name))).map(|it| of([&it])).collect()
    }

    /// No link has the master's name: it is gone, or it was renamed, and the container's link is still on it.
    fn without_master(&self, is_renamed: bool) -> Vec<Evidence> {
        let Some((kind, master, None)) = self.master() else { return Vec::new() };
        let own = self.looked.link().filter(|link| link.peer_netns_id.is_some());
        let now = own.and_then(|link| self.sight.host.at(link.peer?)).filter(|link| link.name != master);
        match now {
            Some(link) if is_renamed => vec![of([&master, &kind, &link.name]).on_link(&link.name)],
            None if !is_renamed => vec![of([&master, &kind])],
            _ => Vec::new(),
        }
    }

    fn enslave(&self, link: &HostLink, bridge: &str, has_hairpin: bool) -> String {
        let hairpin = format!("; ip link set {} type bridge_slave hairpin on", word(&link.name));
        let hairpin = if has_hairpin { hairpin } else { String::new() };
        format!("ip link set {} master {}{hairpin}", word(&link.name), word(bridge))
    }

    fn without_bridge(&self) -> Vec<Evidence> {
        let Some(bridge) = self.carrier.bridge().filter(|_| self.bridge().is_none()) else { return Vec::new() };
        let (made, is_router) = (word(&bridge.name), bridge.router == bridge.name && self.carrier.is_routed());
        let mac = self.sight.mac_at_add(&bridge.name).map_or(String::new(), |mac| format!(" address {mac}"));
        let mut remedy = vec![format!("ip link add {made}{mac} type bridge"), format!("ip link set {made} up")];
        let gateways = self.gateways().into_iter().filter(|_| is_router);
        remedy.extend(gateways.map(|net| format!("ip address add {net} dev {made}")));
        remedy.extend(self.attachment.links.iter().map(|link| self.enslave(link, &bridge.name, bridge.has_hairpin)));
        if is_router && self.has(netops::Family::V4) && !self.attachment.asked.is_empty() {
            remedy.push(sysctl(&name(&["ipv4", "conf", &bridge.router, "route_localnet"]), "1"));
        }
        vec![of([&bridge.name]).and(remedy)]
    }

    fn renamed(&self) -> Vec<Evidence> {
        let renamed = self.bridge().and_then(|(bridge, _)| Some((bridge.was.as_ref()?, &bridge.name)));
        renamed.into_iter().map(|(was, now)| of([was, now]).and([rename(now, was)]).on_link(now)).collect()
    }

    fn on_no_bridge(&self) -> Vec<Evidence> {
        let Some((bridge, _)) = self.bridge() else { return Vec::new() };
        let gateways = self.gateways();
        let links = self.attachment.links.iter().filter(|link| link.master.as_ref() != Some(&bridge.name));
        let evidence = |link: &HostLink| {
            let remedy = self.enslave(link, &bridge.name, bridge.has_hairpin);
            // Both bridges have the gateway's address where an ADD has met a renamed one.
            let others = link.master.iter().flat_map(|master| {
                let own = self.sight.host.addresses_of(master).iter().filter(|own| gateways.contains(own));
                own.map(|own| format!("ip address del {own} dev {}", word(master))).collect::<Vec<_>>()
            });
            of([&link.name, &bridge.name]).and([remedy]).and(others)
        };
        links.map(evidence).collect()
    }

    fn faulty(&self, fault: PortFault) -> Vec<Evidence> {
        self.ports(|link, _| link.port_fault == Some(fault))
    }

    fn isolated(&self) -> Vec<Evidence> {
        let is_meant = self.attachment.conf.is_none() || self.sets("portIsolation");
        self.ports(|link, port| link.port_fault.is_none() && port.isolated && !is_meant)
    }

    fn without_hairpin(&self) -> Vec<Evidence> {
        let is_wanted = self.carrier.bridge().is_some_and(|bridge| bridge.has_hairpin);
        self.ports(|link, port| link.port_fault.is_none() && !port.hairpin && is_wanted)
    }

    /// The ports of its bridge that are so.
    fn ports(&self, is_so: impl Fn(&Link, Port) -> bool) -> Vec<Evidence> {
        let Some((bridge, _)) = self.bridge().filter(|(_, link)| link.up) else { return Vec::new() };
        let ports = self.ends().filter(|link| link.oper_up && link.port.is_some_and(|port| is_so(link, port)));
        ports.map(|link| of([&link.name, &bridge.name])).collect()
    }
}

/// The command that renames a link. Kernels before 6.2 rename no link that is up.
pub(crate) fn rename(now: &str, then: &str) -> String {
    let (now, then) = (word(now), word(then));
    let rename = format!("ip link set {now} name {then}");
    format!("{rename} || (ip link set {now} down && {rename} && ip link set {then} up)")
}

impl Looked {
    /// The container's interface, if it could be read.
    pub(super) fn link(&self) -> Option<&Link> {
        match self {
            Self::At(inside) | Self::Stopped(inside) => Some(&inside.link),
            _ => None,
        }
    }
}
