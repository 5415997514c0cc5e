//! What the next ADD of a network would meet on the node: links, addresses, routes and settings, by the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::dropped_packets::host_routes::outside;
use crate::node_networks::{Attachment, Origin, View};
use crate::shell_words::{self, word};
use interface::alias;
use ipnetwork::IpNetwork;
use libcni::NetworkConf;
use libcni::inventory::Life;
use netops::link::{Kind as LinkKind, Link};
use netops::route::{self, Route};
use netops::sysctl::{self, NoIpv6};
use netops::{Family, Kernel, addr};

use crate::doctor::{Finding, Kind, Level, Object, Step, Subject, advice};
use crate::parsed_network::{Network, Plugin};

/// The MTU of a new veth or bridge whose network names none: `ETH_DATA_LEN` of linux/if_ether.h.
const MTU_BYTES: u64 = 1500;

/// What the node has.
struct Node<'a> {
    kernel: &'a Kernel,
    links: &'a [Link],
    addresses: BTreeMap<u32, Vec<IpNetwork>>,
    routes: Vec<Route>,
    /// Routes that refuse packets: kind and destination.
    refusing: Vec<(&'static str, IpNetwork)>,
    view: &'a View,
    /// The node's ends of containers' links.
    ends: BTreeSet<&'a str>,
}

/// A plugin that routes packets of its containers, with its gateways.
type Routed<'a> = (&'a Plugin, &'a [IpNetwork]);

pub(crate) fn look(
    kernel: &Kernel,
    links: &[Link],
    networks: &[Network],
    view: &View,
    findings: &mut Vec<Finding>,
) -> netops::error::Result<()> {
    let mut addresses: BTreeMap<u32, Vec<IpNetwork>> = BTreeMap::new();
    for (index, address) in addr::list_all(kernel, None)? {
        addresses.entry(index).or_default().push(address);
    }
    let [of_ipv4, of_ipv6] = Family::BOTH.map(|family| route::list_main(kernel, family));
    let ((ipv4, refusing), (ipv6, more)) = (of_ipv4?, of_ipv6?);
    let (routes, refusing) = ([ipv4, ipv6].concat(), [refusing, more].concat());
    let attachments = view.networks.iter().flat_map(|network| &network.attachments);
    let ends = attachments.flat_map(|attachment| &attachment.links).map(|link| link.name.as_str()).collect();
    let node = Node { kernel, links, addresses, routes, refusing, view, ends };
    for network in networks {
        let routers = network.called().iter().filter(|plugin| plugin.is_router());
        let is_used = |own: &IpNetwork| is_used(own, network, networks, view);
        let Network { conf: network, .. } = network;
        for router in routers {
            let gateways = router.gateways();
            node.gateway(network, (router, &gateways), &is_used, findings);
            let is_any_used = |own: &IpNetwork| is_used(own) || node.has_living(own);
            node.route(network, (router, &gateways), &is_any_used, findings);
            node.taken(network, router, findings);
            node.ipv6(network, (router, &gateways), findings);
            let is_of = |it: &&crate::node_networks::Network| it.name == *network.name;
            let attachments = view.networks.iter().filter(is_of).flat_map(|network| &network.attachments);
            if !attachments.into_iter().any(|attachment| attachment.life == Life::Lives) {
                node.mtu(network, (router, &gateways), findings);
            }
        }
    }
    Ok(())
}

impl Node<'_> {
    fn find(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    fn addresses_of(&self, link: &Link) -> &[IpNetwork] {
        self.addresses.get(&link.index).map_or(&[], Vec::as_slice)
    }

    /// A bridge with an IPv4 address that is no gateway of the network: ADD refuses it.
    fn gateway(
        &self,
        network: &NetworkConf,
        (router, gateways): Routed<'_>,
        is_used: &dyn Fn(&IpNetwork) -> bool,
        findings: &mut Vec<Finding>,
    ) {
        let link = router.link.as_deref().and_then(|name| self.find(name));
        let forces = router.is_set("forceAddress");
        let wanted_nets: Vec<&IpNetwork> = gateways.iter().filter(|gateway| gateway.is_ipv4()).collect();
        let wanted = &wanted_nets;
        let Some(link) = link.filter(|_| !forces && !wanted.is_empty()) else { return };
        let of_ipv4 = || self.addresses_of(link).iter().filter(|own| own.is_ipv4());
        if of_ipv4().next().is_none() || of_ipv4().any(|own| wanted.contains(&own)) {
            return;
        }
        let name = &link.name;
        if findings.iter().any(|finding| finding.is_of(Kind::GatewayAddress, &Object::Link(name.clone()))) {
            return;
        }
        let has: Vec<String> = of_ipv4().map(ToString::to_string).collect();
        let wanted = wanted.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
        let what = format!(
            "bridge {name} has address {}, and the network's gateway is {wanted}: ADD refuses it",
            has.join(", ")
        );
        let name = word(name);
        // With another prefix length: the new one comes first, so no container loses its way in between.
        let other_length = of_ipv4().find_map(|own| Some((own, wanted_nets.iter().find(|net| net.ip() == own.ip())?)));
        let user = of_ipv4().find_map(|own| self.container_by(own.ip(), &network.name));
        let why_kept = self.why_kept(link);
        let remedy = match self.has_ports(link) {
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
                    wanted_nets.iter().any(|net| own.network() == net.network() && own.prefix() == net.prefix())
                };
                let gateway = of_ipv4().find(fits).map_or(String::new(), |own| format!(", or gateway {}", own.ip()));
                vec![advice(format!(
                    "Give network {} another key bridge{gateway}: {name} {why}. Key forceAddress would take {} from {name}, with its routes.",
                    network.name,
                    has.join(", ")
                ))]
            }
            _ if of_ipv4().any(is_used) => vec![advice(format!(
                "Give network {} another key bridge: {name} is the gateway of other containers.",
                network.name
            ))],
            true => has.iter().map(|own| format!("ip address del {own} dev {name}").into()).collect(),
            false => vec![format!("ip link delete {name}").into()],
        };
        findings.push(Kind::GatewayAddress.finding(Level::Error, Some(&network.name), what).steps(remedy));
    }

    fn has_ports(&self, link: &Link) -> bool {
        self.links.iter().any(|port| port.master == Some(link.index))
    }

    /// Why the addresses of a bridge are not taken from it: the node reaches others by it.
    fn why_kept(&self, link: &Link) -> Option<String> {
        let leads_out =
            |route: &&Route| route.link == Some(link.index) && (route.gateway.is_some() || route.dst.prefix() == 0);
        if let Some(route) = self.routes.iter().find(leads_out) {
            return Some(match route.dst.prefix() {
                0 => "has the node's default route".to_owned(),
                _ => format!("has the node's route to {}", route.dst),
            });
        }
        let is_of_container =
            |port: &Link| self.ends.contains(&*port.name) || alias::is_marked(port) || port.peer_netns_id.is_some();
        let port = self.links.iter().find(|port| port.master == Some(link.index) && !is_of_container(port))?;
        Some(format!("has port {}, which is no container's", port.name))
    }

    /// Whether a container that may live has an address of this network.
    fn has_living(&self, own: &IpNetwork) -> bool {
        let mut all = self.view.networks.iter().flat_map(|network| &network.attachments);
        all.any(|it| it.life != Life::Gone && it.addresses.iter().any(|address| own.contains(*address)))
    }

    /// A living container of the network that ADD gave this gateway.
    fn container_by(&self, gateway: IpAddr, network: &str) -> Option<String> {
        let mut of_it = self.view.networks.iter().filter(|it| it.name == network).flat_map(|it| &it.attachments);
        let has = |attachment: &&Attachment| {
            attachment.life == Life::Lives && attachment.result.ips.iter().any(|ip| ip.gateway == Some(gateway))
        };
        of_it.find(has).map(Attachment::full_name)
    }

    /// An address of the network's ranges that a living container of another network has, on the same bridge: the network's store
    /// does not know it.
    fn taken(&self, network: &NetworkConf, router: &Plugin, findings: &mut Vec<Finding>) {
        let Some(own) = self.view.networks.iter().find(|it| it.name == *network.name) else { return };
        let is_in_range =
            |address: &IpAddr| own.ranges.iter().any(|range| (range.first..=range.last).contains(address));
        let is_held = |address: &IpAddr| own.attachments.iter().any(|it| it.addresses.contains(address));
        let is_there = |it: &&Attachment| {
            it.life == Life::Lives && it.links.iter().any(|link| link.master.is_some() && link.master == router.link)
        };
        for other in self.view.networks.iter().filter(|it| it.name != *network.name) {
            let living = other.attachments.iter().filter(is_there);
            let mut taken = living.flat_map(|it| it.addresses.iter().map(move |address| (address, it)));
            let found = taken.find(|(address, _)| is_in_range(address) && !is_held(address));
            let Some((address, attachment)) = found else { continue };
            let what = format!(
                "the next ADD may give {address}, which {} in network {} has on the same bridge",
                attachment.full_name(),
                other.name
            );
            let give = match &other.origin {
                Origin::File(_) => "Give one of the networks another range.".to_owned(),
                _ => format!("Give the network its old name {} again, or end the containers of that one.", other.name),
            };
            let finding = Kind::DuplicateAddress.finding(Level::Warning, Some(&network.name), what).help(advice(give));
            findings.push(Finding { subject: Some(Subject::of(other, attachment)), ..finding });
        }
    }

    /// A route to the network's subnet, or to a part of it, over another link: the kernel prefers it to the bridge's own, or may.
    fn route(
        &self,
        network: &NetworkConf,
        (router, gateways): Routed<'_>,
        is_used: &dyn Fn(&IpNetwork) -> bool,
        findings: &mut Vec<Finding>,
    ) {
        let is_known = |finding: &&Finding| {
            finding.kind == Kind::RouteElsewhere && finding.network.as_deref() == Some(&*network.name)
        };
        if findings.iter().find(is_known).is_some() {
            return;
        }
        let subnets: Vec<IpNetwork> =
            gateways.iter().filter_map(|net| IpNetwork::new(net.network(), net.prefix()).ok()).collect();
        let is_of_containers = |link: &Link| {
            let is_bridge = router.link.as_deref().is_some_and(|name| name == link.name);
            is_bridge || self.ends.contains(&*link.name) || alias::is_marked(link)
        };
        let is_within = |dst: &IpNetwork| {
            subnets.iter().any(|net| {
                net.is_ipv4() == dst.is_ipv4() && dst.prefix() >= net.prefix() && net.contains(dst.network())
            })
        };
        self.within_others(network, &subnets, &is_of_containers, findings);
        let is_single = |dst: &IpNetwork| dst.prefix() == if dst.is_ipv4() { 32 } else { 128 };
        // A container's own route, by the end of its pair on the node.
        let is_of_pair = |route: &Route| {
            let link = route.link.and_then(|index| self.links.iter().find(|link| link.index == index));
            is_single(&route.dst)
                && link.is_some_and(|link| link.kind == LinkKind::Veth && link.peer_netns_id.is_some())
        };
        let in_way = |route: &&Route| route.dst.prefix() > 0 && is_within(&route.dst) && !is_of_pair(route);
        // Where each container has a route of its own, one for more addresses is for what no container has.
        let is_met = |dst: &IpNetwork| is_within(dst) && (router.link.is_some() || is_single(dst));
        for (kind, dst) in self.refusing.iter().filter(|(_, dst)| is_met(dst)) {
            let what = format!("route {kind} {dst} refuses packets to addresses that the network gives to containers");
            let finding = Kind::RouteElsewhere.finding(Level::Warning, Some(&network.name), what);
            findings.push(finding.help(format!("ip route del {kind} {dst}")));
        }
        for route in self.routes.iter().filter(in_way) {
            let link = route.link.and_then(|index| self.links.iter().find(|link| link.index == index));
            let Some(link) = link.filter(|link| !is_of_containers(link)) else { continue };
            let via = route.gateway.map_or(String::new(), |gateway| format!(" via {gateway}"));
            let (dst, name) = (route.dst, &link.name);
            if findings.iter().any(|finding| finding.is_of(Kind::LinkGone, &Object::Link(name.clone()))) {
                continue;
            }
            let what = format!("route {dst}{via} dev {name} leads to addresses that the network gives to containers");
            let own = self.addresses_of(link).iter().find(|own| own.network() == dst.network());
            // A bridge that no port, no route and no container needs, as docker0 without containers.
            let is_idle = |own: &&IpNetwork| {
                matches!(link.kind, LinkKind::Bridge(_))
                    && !self.has_ports(link)
                    && self.why_kept(link).is_none()
                    && !is_used(own)
            };
            let other = |own| format!("Give the network another subnet: link {name} has address {own}.");
            let steps: Vec<Step> = match own.filter(|_| route.gateway.is_none()) {
                Some(own) if is_idle(&own) => vec![
                    advice(other(own) + " If nothing uses it:"),
                    format!("ip address del {own} dev {}", word(name)).into(),
                ],
                Some(own) => vec![advice(other(own))],
                None => vec![format!("ip route del {dst}{via} dev {}", word(name)).into()],
            };
            findings.push(Kind::RouteElsewhere.finding(Level::Warning, Some(&network.name), what).steps(steps));
        }
    }

    /// A subnet within the network of another link: the node does not reach hosts there whose addresses are in both.
    fn within_others(
        &self,
        network: &NetworkConf,
        subnets: &[IpNetwork],
        is_of_containers: &dyn Fn(&Link) -> bool,
        findings: &mut Vec<Finding>,
    ) {
        for link in self.links.iter().filter(|link| !is_of_containers(link)) {
            for own in self.addresses_of(link) {
                let is_within = |net: &&IpNetwork| {
                    net.is_ipv4() == own.is_ipv4() && own.prefix() < net.prefix() && own.contains(net.network())
                };
                let Some(net) = subnets.iter().find(is_within) else { continue };
                let name = &link.name;
                let what =
                    format!("subnet {net} is within {}/{}, the network of link {name}", own.network(), own.prefix());
                let finding = Kind::RouteElsewhere.finding(Level::Warning, Some(&network.name), what);
                let other = format!("Give the network another subnet: link {name} has address {own}.");
                findings.push(finding.help(advice(other)));
            }
        }
    }

    fn ipv6(&self, network: &NetworkConf, (router, gateways): Routed<'_>, findings: &mut Vec<Finding>) {
        if !gateways.iter().any(IpNetwork::is_ipv6) {
            return;
        }
        let link = router.link.as_deref().unwrap_or("default");
        let (what, remedy): (String, Step) = match sysctl::find_ipv6_refusal(link) {
            Ok(Some(NoIpv6::Kernel)) => (
                "the network has IPv6 addresses, and the kernel runs without IPv6".to_owned(),
                advice("Boot the node without ipv6.disable=1, or take the IPv6 addresses from the network."),
            ),
            Ok(Some(NoIpv6::Disabled(key))) => {
                // STATUS of the network gives the same reason, without a command.
                let name = network.network_name().ok();
                let same = name.and_then(|name| interface::status::without_ipv6(&name, link));
                findings.retain(|finding| same.is_none() || finding.answer != same);
                (
                    format!("the network has IPv6 addresses, and {key} is 1"),
                    shell_words::sysctl(&key.name(), "0").into(),
                )
            }
            Ok(None) => return,
            Err(error) => return findings.push(Kind::unseen(Some(&network.name), "IPv6 of the node", &error)),
        };
        findings.push(Kind::Ipv6Disabled.finding(Level::Error, Some(&network.name), what).help(remedy));
    }

    /// Of a network without containers: the MTU that the next one gets.
    fn mtu(&self, network: &NetworkConf, (router, gateways): Routed<'_>, findings: &mut Vec<Finding>) {
        let destinations = router.routes.iter().filter_map(|route| route.dst);
        let defaults: Vec<IpNetwork> = destinations.filter(|dst| dst.prefix() == 0).collect();
        let is_default = router.is_set("isDefaultGateway");
        // What stays on its network may be larger.
        let leads_out = |to: &IpAddr| is_default || defaults.iter().any(|dst| dst.is_ipv4() == to.is_ipv4());
        let has = |to: &IpAddr| gateways.iter().any(|net| net.is_ipv4() == to.is_ipv4());
        let outside = Family::BOTH.map(outside).into_iter().filter(|to| has(to) && leads_out(to));
        let links = outside.filter_map(|to| route::lookup(self.kernel, to).ok()?.link);
        let links = links.filter_map(|index| self.links.iter().find(|link| link.index == index));
        let Some(narrow) = links.min_by_key(|link| link.mtu_bytes) else { return };
        let key = router.mtu_bytes;
        let asked = key.unwrap_or(MTU_BYTES);
        if asked > u64::from(narrow.mtu_bytes) {
            let of = if key.is_some() { "mtu is" } else { "the network sets no mtu, so that of containers is" };
            let what = format!("{of} {asked}, and that of {}, the way out, {}", narrow.name, narrow.mtu_bytes);
            let set = advice(format!("Set mtu to {} or less.", narrow.mtu_bytes));
            findings.push(Kind::Mtu.finding(Level::Warning, Some(&network.name), what).help(set));
        }
    }
}

/// Whether the address is the gateway of another network by its configuration, or of containers.
fn is_used(own: &IpNetwork, network: &Network, networks: &[Network], view: &View) -> bool {
    let others = networks.iter().filter(|other| other.conf.name != network.conf.name);
    let is_configured =
        others.flat_map(Network::called).any(|plugin| plugin.is_router() && plugin.gateways().contains(own));
    let all =
        view.networks.iter().filter(|other| other.name != *network.conf.name).flat_map(|other| &other.attachments);
    let present = all.filter(|attachment| attachment.life != Life::Gone);
    is_configured || present.flat_map(|attachment| &attachment.addresses).any(|address| own.contains(*address))
}
