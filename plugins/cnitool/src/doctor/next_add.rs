//! What the next ADD of a network would meet on the node: links, addresses, routes and settings, by the configuration.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::dropped_packets::host_routes::outside;
use crate::dropped_packets::{Sight, is_global};
use crate::node_networks::{Attachment, Origin};
use crate::shell_words::{self, word};
use host_local::inventory::may_give;
use ipnetwork::IpNetwork;
use libcni::NetworkConf;
use libcni::inventory::Life;
use netops::link::{Kind as LinkKind, Link};
use netops::route::{self, Route};
use netops::sysctl::{self, NoIpv6};
use netops::{Family, Kernel};

use crate::doctor::{Finding, Kind, Level, Object, Step, Subject, advice, tool};
use crate::parsed_network::{Network, Plugin, text};

/// The MTU of a new veth or bridge whose network names none: `ETH_DATA_LEN` of linux/if_ether.h.
const MTU_BYTES: u64 = 1500;

pub(crate) fn look(sight: &Sight<'_>, kernel: &Kernel, networks: &[Network], findings: &mut Vec<Finding>) {
    let taken = Taken::all(sight);
    for network in networks {
        findings.extend(addresses_to_give(sight, &taken, network));
        for router in network.called().iter().filter(|plugin| plugin.is_router()) {
            let next = Next { sight, networks, network: &network.conf, router, gateways: router.gateways() };
            next.gateway(findings);
            next.route(findings);
            next.taken(findings);
            next.ipv6(findings);
            next.mtu(kernel, findings);
        }
    }
}

/// The next ADD of a plugin that routes packets of its containers.
struct Next<'a> {
    sight: &'a Sight<'a>,
    networks: &'a [Network],
    network: &'a NetworkConf,
    router: &'a Plugin,
    gateways: Vec<IpNetwork>,
}

impl Next<'_> {
    fn finding(&self, kind: Kind, level: Level, what: String) -> Finding {
        kind.finding(level, Some(&self.network.name), what)
    }

    fn addresses_of(&self, link: &Link) -> &[IpNetwork] {
        self.sight.host.addresses_of(&link.name)
    }

    /// A bridge with an IPv4 address that is no gateway of the network: ADD refuses it.
    fn gateway(&self, findings: &mut Vec<Finding>) {
        let link = self.router.link.as_deref().and_then(|name| self.sight.host.find(name));
        let wanted: Vec<&IpNetwork> = self.gateways.iter().filter(|gateway| gateway.is_ipv4()).collect();
        let Some(link) = link.filter(|_| !self.router.is_set("forceAddress") && !wanted.is_empty()) else { return };
        let of_ipv4 = || self.addresses_of(link).iter().filter(|own| own.is_ipv4());
        if of_ipv4().next().is_none()
            || of_ipv4().any(|own| wanted.contains(&own))
            || findings.iter().any(|finding| finding.is_of(Kind::GatewayAddress, &Object::Link(link.name.clone())))
        {
            return;
        }
        let (name, network) = (word(&link.name), &self.network.name);
        let has = of_ipv4().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let gateways = wanted.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
        let what =
            format!("bridge {} has address {has}, and the network's gateway is {gateways}: ADD refuses it", link.name);
        // With another prefix length: the new one comes first, so no container loses its way in between.
        let other_length = of_ipv4().find_map(|own| Some((own, wanted.iter().find(|net| net.ip() == own.ip())?)));
        let user = of_ipv4().find_map(|own| self.container_by(own.ip()));
        let why_kept = self.why_kept(link);
        let remedy: Vec<Step> = match self.has_ports(link) {
            _ if let Some((own, net)) = other_length.filter(|_| why_kept.is_none()) => {
                [format!("ip address add {net} dev {name}"), format!("ip address del {own} dev {name}")]
                    .map(Step::from)
                    .into()
            }
            _ if let Some(container) = user => vec![advice(format!(
                "Give the network its old gateway again, which {container} has, or start its containers anew once all have ended."
            ))],
            _ if let Some(why) = why_kept => {
                let fits = |own: &&IpNetwork| {
                    wanted.iter().any(|net| own.network() == net.network() && own.prefix() == net.prefix())
                };
                let gateway = of_ipv4().find(fits).map_or(String::new(), |own| format!(", or gateway {}", own.ip()));
                vec![advice(format!(
                    "Give network {network} another key bridge{gateway}: {name} {why}. Key forceAddress would take {has} from {name}, with its routes."
                ))]
            }
            _ if of_ipv4().any(|own| self.is_gateway_of_others(own)) => vec![advice(format!(
                "Give network {network} another key bridge: {name} is the gateway of other containers."
            ))],
            true => of_ipv4().map(|own| format!("ip address del {own} dev {name}").into()).collect(),
            false => vec![format!("ip link delete {name}").into()],
        };
        findings.push(self.finding(Kind::GatewayAddress, Level::Error, what).steps(remedy));
    }

    fn has_ports(&self, link: &Link) -> bool {
        self.sight.ports(link).next().is_some()
    }

    /// Why the addresses of a bridge are not taken from it: the node reaches others by it.
    fn why_kept(&self, link: &Link) -> Option<String> {
        let leads_out =
            |route: &&Route| route.link == Some(link.index) && (route.gateway.is_some() || route.dst.prefix() == 0);
        if let Some(route) = self.sight.routes.iter().find(leads_out) {
            return Some(match route.dst.prefix() {
                0 => "has the node's default route".to_owned(),
                _ => format!("has the node's route to {}", route.dst),
            });
        }
        let port = self.sight.ports(link).find(|port| !self.sight.is_own(port) && port.peer_netns_id.is_none())?;
        Some(format!("has port {}, which is no container's", port.name))
    }

    /// Whether the address is the gateway of another network by its configuration, or of its containers.
    fn is_gateway_of_others(&self, own: &IpNetwork) -> bool {
        let others = self.networks.iter().filter(|other| other.conf.name != self.network.name);
        let mut plugins = others.flat_map(Network::called);
        plugins.any(|plugin| plugin.is_router() && plugin.gateways().contains(own))
            || self.has_living(own, |name| *name != self.network.name)
    }

    /// Whether a container that may live has an address of this network.
    fn has_living(&self, own: &IpNetwork, is_it: impl Fn(&str) -> bool) -> bool {
        let networks = self.sight.view.networks.iter().filter(|network| is_it(&network.name));
        let mut all = networks.flat_map(|network| &network.attachments);
        all.any(|it| it.life != Life::Gone && it.addresses.iter().any(|address| own.contains(*address)))
    }

    fn in_view(&self) -> Option<&crate::node_networks::Network> {
        self.sight.view.networks.iter().find(|it| it.name == *self.network.name)
    }

    /// A living container of the network that ADD gave this gateway.
    fn container_by(&self, gateway: IpAddr) -> Option<String> {
        let has = |attachment: &&Attachment| {
            attachment.life == Life::Lives && attachment.result.ips.iter().any(|ip| ip.gateway == Some(gateway))
        };
        self.in_view()?.attachments.iter().find(has).map(Attachment::full_name)
    }

    /// An address of the network's ranges that a living container of another network has, on the same bridge: the network's store
    /// does not know it.
    fn taken(&self, findings: &mut Vec<Finding>) {
        let Some(own) = self.in_view() else { return };
        let is_in_range =
            |address: &IpAddr| own.ranges.iter().any(|range| (range.first..=range.last).contains(address));
        let is_held = |address: &IpAddr| own.attachments.iter().any(|it| it.addresses.contains(address));
        let bridge = &self.router.link;
        let is_there = |it: &&Attachment| {
            it.life == Life::Lives && it.links.iter().any(|link| link.master.is_some() && link.master == *bridge)
        };
        for other in self.sight.view.networks.iter().filter(|it| it.name != own.name) {
            let living = other.attachments.iter().filter(is_there);
            let mut taken = living.flat_map(|it| it.addresses.iter().map(move |address| (address, it)));
            let found = taken.find(|(address, _)| is_in_range(address) && !is_held(address));
            let Some((address, attachment)) = found else { continue };
            let (holder, name) = (attachment.full_name(), &other.name);
            let what =
                format!("the next ADD may give {address}, which {holder} in network {name} has on the same bridge");
            let give = match &other.origin {
                Origin::File(_) => "Give one of the networks another range.".to_owned(),
                _ => format!("Give the network its old name {name} again, or end the containers of that one."),
            };
            let finding = self.finding(Kind::DuplicateAddress, Level::Warning, what).help(advice(give));
            findings.push(Finding { subject: Some(Subject::of(other, attachment)), ..finding });
        }
    }

    fn is_of_containers(&self, link: &Link) -> bool {
        self.router.link.as_deref() == Some(&*link.name) || self.sight.is_own(link)
    }

    /// A route to the network's subnet, or to a part of it, over another link: the kernel prefers it to the bridge's own, or may.
    fn route(&self, findings: &mut Vec<Finding>) {
        let is_known = |finding: &Finding| {
            finding.kind == Kind::RouteElsewhere && finding.network.as_deref() == Some(&*self.network.name)
        };
        if findings.iter().any(is_known) {
            return;
        }
        let warning = |what| self.finding(Kind::RouteElsewhere, Level::Warning, what);
        let subnets: Vec<IpNetwork> =
            self.gateways.iter().filter_map(|net| IpNetwork::new(net.network(), net.prefix()).ok()).collect();
        let holds = |net: &IpNetwork, dst: &IpNetwork| {
            net.is_ipv4() == dst.is_ipv4() && dst.prefix() >= net.prefix() && net.contains(dst.network())
        };
        let is_within = |dst: &IpNetwork| subnets.iter().any(|net| holds(net, dst));
        // The node does not reach hosts of another link's network whose addresses are in both.
        for link in self.sight.host.links.iter().filter(|link| !self.is_of_containers(link)) {
            for own in self.addresses_of(link) {
                let wider = subnets.iter().find(|net| own.prefix() < net.prefix() && holds(own, net));
                findings.extend(wider.map(|net| {
                    let (of, name) = (format!("{}/{}", own.network(), own.prefix()), &link.name);
                    warning(format!("subnet {net} is within {of}, the network of link {name}"))
                        .help(advice(other_subnet(link, own)))
                }));
            }
        }
        let is_single = |dst: &IpNetwork| dst.prefix() == if dst.is_ipv4() { 32 } else { 128 };
        // Where each container has a route of its own, one for more addresses is for what no container has.
        let is_met = |dst: &IpNetwork| is_within(dst) && (self.router.link.is_some() || is_single(dst));
        findings.extend(self.sight.refusing.iter().filter(|(_, dst)| is_met(dst)).map(|(kind, dst)| {
            warning(format!("route {kind} {dst} refuses packets to addresses that the network gives to containers"))
                .help(format!("ip route del {kind} {dst}"))
        }));
        for route in self.sight.routes.iter().filter(|route| route.dst.prefix() > 0 && is_within(&route.dst)) {
            let link = route.link.and_then(|index| self.sight.host.at(index));
            let Some(link) = link.filter(|link| !self.is_of_containers(link)) else { continue };
            // A container's own route, by the end of its pair on the node.
            let is_of_pair = is_single(&route.dst) && link.kind == LinkKind::Veth && link.peer_netns_id.is_some();
            let renamed = Object::Link(link.name.clone());
            if is_of_pair || findings.iter().any(|finding| finding.is_of(Kind::LinkGone, &renamed)) {
                continue;
            }
            let via = route.gateway.map_or(String::new(), |gateway| format!(" via {gateway}"));
            let (dst, name) = (route.dst, &link.name);
            let own = self.addresses_of(link).iter().find(|own| own.network() == dst.network());
            // A bridge that no port, no route and no container needs, as docker0 without containers.
            let is_idle = |own: &IpNetwork| {
                link.kind.is_bridge()
                    && !self.has_ports(link)
                    && self.why_kept(link).is_none()
                    && !self.is_gateway_of_others(own)
                    && !self.has_living(own, |_| true)
            };
            let steps: Vec<Step> = match own.filter(|_| route.gateway.is_none()) {
                Some(own) if is_idle(own) => vec![
                    advice(other_subnet(link, own) + " If nothing uses it:"),
                    format!("ip address del {own} dev {}", word(name)).into(),
                ],
                Some(own) => vec![advice(other_subnet(link, own))],
                None => vec![format!("ip route del {dst}{via} dev {}", word(name)).into()],
            };
            let what = format!("route {dst}{via} dev {name} leads to addresses that the network gives to containers");
            findings.push(warning(what).steps(steps));
        }
    }

    fn ipv6(&self, findings: &mut Vec<Finding>) {
        if !self.gateways.iter().any(IpNetwork::is_ipv6) {
            return;
        }
        let link = self.router.link.as_deref().unwrap_or("default");
        let (why, remedy): (String, Step) = match sysctl::find_ipv6_refusal(link) {
            Ok(Some(NoIpv6::Kernel)) => (
                "the kernel runs without IPv6".to_owned(),
                advice("Boot the node without ipv6.disable=1, or take the IPv6 addresses from the network."),
            ),
            Ok(Some(NoIpv6::Disabled(key))) => {
                // STATUS of the network gives the same reason, without a command.
                let name = self.network.network_name().ok();
                let same = name.and_then(|name| interface::status::without_ipv6(&name, link));
                findings.retain(|finding| same.is_none() || finding.answer != same);
                (format!("{key} is 1"), shell_words::sysctl(&key.name(), "0").into())
            }
            Ok(None) => return,
            Err(error) => return findings.push(Kind::unseen(Some(&self.network.name), "IPv6 of the node", &error)),
        };
        let what = format!("the network has IPv6 addresses, and {why}");
        findings.push(self.finding(Kind::Ipv6Disabled, Level::Error, what).help(remedy));
    }

    /// Of a network without containers: the MTU that the next one gets.
    fn mtu(&self, kernel: &Kernel, findings: &mut Vec<Finding>) {
        if self.in_view().is_some_and(|own| own.attachments.iter().any(|it| it.life == Life::Lives)) {
            return;
        }
        let destinations = self.router.routes.iter().filter_map(|route| route.dst);
        let defaults: Vec<IpNetwork> = destinations.filter(|dst| dst.prefix() == 0).collect();
        let is_default = self.router.is_set("isDefaultGateway");
        // What stays on its network may be larger.
        let leads_out = |to: &IpAddr| is_default || defaults.iter().any(|dst| dst.is_ipv4() == to.is_ipv4());
        let has = |to: &IpAddr| self.gateways.iter().any(|net| net.is_ipv4() == to.is_ipv4());
        let outside = Family::BOTH.map(outside).into_iter().filter(|to| has(to) && leads_out(to));
        let links = outside.filter_map(|to| self.sight.host.at(route::lookup(kernel, to).ok()?.link?));
        let Some(narrow) = links.min_by_key(|link| link.mtu_bytes) else { return };
        let key = self.router.mtu_bytes;
        let asked = key.unwrap_or(MTU_BYTES);
        if asked > u64::from(narrow.mtu_bytes) {
            let of = if key.is_some() { "mtu is" } else { "the network sets no mtu, so that of containers is" };
            let what = format!("{of} {asked}, and that of {}, the way out, {}", narrow.name, narrow.mtu_bytes);
            let set = advice(format!("Set mtu to {} or less.", narrow.mtu_bytes));
            findings.push(self.finding(Kind::Mtu, Level::Warning, what).help(set));
        }
    }
}

fn other_subnet(link: &Link, own: &IpNetwork) -> String {
    format!("Give the network another subnet: link {} has address {own}.", link.name)
}

/// An address that a station has already: the node, or the next hop of its default route.
struct Taken<'a> {
    link: &'a Link,
    owner: String,
    /// Whether the node answers for it wherever it has an address.
    is_anywhere: bool,
}

impl<'a> Taken<'a> {
    fn all(sight: &Sight<'a>) -> BTreeMap<IpAddr, Self> {
        let host = sight.host;
        let hops = sight.routes.iter().filter(|route| route.dst.prefix() == 0).filter_map(|route| {
            let link = host.at(route.link?)?;
            let owner = format!("is the next hop of the node's default route by {}", link.name);
            Some((route.gateway.filter(|hop| is_global(*hop))?, Self { link, owner, is_anywhere: false }))
        });
        let own = host.links.iter().flat_map(|link| {
            let is_anywhere = link.loopback || link.kind == LinkKind::Dummy;
            let owner = format!("the node has on link {}", link.name);
            let addresses = host.addresses_of(&link.name).iter().map(IpNetwork::ip).filter(|own| is_global(*own));
            addresses.map(move |address| (address, Self { link, owner: owner.clone(), is_anywhere }))
        });
        hops.chain(own).collect()
    }

    /// Whether a plugin's containers exchange frames or packets with the station.
    fn meets(&self, sight: &Sight<'_>, plugin: &Plugin) -> bool {
        if plugin.is_router() {
            // An address of the network's own bridge is a finding about its gateway.
            return plugin.link.as_deref() != Some(self.link.name.as_str());
        }
        let name = match plugin.plugin_type.as_str() {
            "bridge" => plugin.link.as_deref().unwrap_or_default(),
            "macvlan" | "ipvlan" => text(&plugin.object, "master"),
            _ => return false,
        };
        let Some(link) = sight.host.find(name) else { return false };
        let bridge = |link: &Link| link.master.unwrap_or(link.index);
        let has_own = || sight.host.addresses_of(name).iter().any(|own| is_global(own.ip()));
        bridge(link) == bridge(self.link) || self.is_anywhere && has_own()
    }
}

/// Addresses that host-local may give to the next container, and that a station has.
fn addresses_to_give(sight: &Sight<'_>, taken: &BTreeMap<IpAddr, Taken<'_>>, network: &Network) -> Vec<Finding> {
    let has = |net: IpNetwork, address: IpAddr| net.is_ipv4() == address.is_ipv4() && net.contains(address);
    let name = &network.conf.name;
    let mut found = Vec::new();
    for plugin in network.called().iter().filter(|plugin| plugin.ipam == "host-local") {
        let Some(object) = plugin.conf_object() else { continue };
        let in_range = taken.iter().filter(|(address, _)| plugin.ranges.iter().any(|range| has(range.net, **address)));
        let met = in_range.filter(|(address, of)| of.meets(sight, plugin) && may_give(&object, **address) == Ok(true));
        found.extend(met.map(|(address, of)| {
            let what = format!("the next ADD may give {address}, which {}", of.owner);
            let reserve = tool(["ipam", "reserve", name, &address.to_string()]);
            Kind::DuplicateAddress.finding(Level::Warning, Some(name), what).help(reserve)
        }));
    }
    found
}
