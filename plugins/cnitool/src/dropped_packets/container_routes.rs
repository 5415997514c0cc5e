//! The container's ways to other networks: its routes out, by which link and gateway they lead, and with which address.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netops::addr::Address;
use netops::link::{self, Kind as LinkKind, Link};
use netops::route::{self, Route};
use netops::{Family, neighbour};

use super::Level;
use super::container_interface::Inside;
use super::gateways::fixed_mac;
use super::host_routes::{is_global, outside};
use super::routing::{Cause, Leading, Routing};
use super::rows::{At, Evidence, of, rows};
use super::way_to_container::{Carrier, is_by_design};
use crate::doctor::{Step, advice};
use crate::node_networks::Attachment;
use crate::shell_words::word;

rows! {
    ContainerSide Error refused: "in the container, {0} refuses {1}";
    ContainerSide Error without_way: "the container has no {0} route out of its own network";
    ContainerSide Error gateway_elsewhere: "in the container, what is for its gateway {0} leads to its link {1}, {2}";
    ContainerSide Error fixed_gateway: "the container has {0} as the fixed Ethernet address of its gateway {1}, which has another one"
        help "nsenter --net={2} ip neigh del {1} dev {3}";
    ContainerSide Error other_gateway: "the container's {0} route out leads by {1}, and ADD gave it {2}";
    ContainerSide Error other_source: "the container's {0} packets to other networks have source {1}, and the node's route to it does not lead to {2}";
    ContainerSide Warning other_link: "the container's {0} route out leads by its link {1}, which no attachment in the cache made, and not by {2}";
    NoWayOut Error gateway_on_master: "the container's {0} route out leads by {1}, the node's address on {2}, which a {3} on {2} does not reach"
        advice "Set key gateway to a router of the network of {2}, and start the container anew.";
    ContainerSide Warning led_astray: "in the container, {0} is the subnet of link {1}, {2}"
        advice "Give link {1} in the container another subnet than {0}.";
}

/// Kinds of links by which a process in the container leads its packets elsewhere on purpose.
const TUNNELS: [&str; 10] = ["wireguard", "ipip", "ip6tnl", "gre", "ip6gre", "sit", "vti", "vti6", "xfrm", "vxlan"];

/// The container's way to other networks by a family.
type Way<'a> = (&'a Inside, Family, Option<&'a Route>);

impl At<'_> {
    fn ways(&self) -> impl Iterator<Item = Way<'_>> {
        let families = Family::BOTH.into_iter().filter(|family| self.has(*family));
        families.filter_map(|family| {
            let inside = self.inside()?;
            Some((inside, family, inside.way(family)))
        })
    }

    /// The ways by the attachment's own interface, where the node routes.
    fn own_ways(&self) -> impl Iterator<Item = (&Inside, Family, &Route)> {
        let ways = self.ways().filter(|_| self.carrier.is_routed());
        ways.filter_map(|(inside, family, way)| {
            Some((inside, family, way.filter(|it| it.link == Some(inside.link.index))?))
        })
    }

    /// The families by which ADD gave the container a way out that it has not, with what refuses its packets.
    fn lost_ways(&self) -> impl Iterator<Item = (&Inside, Family, Option<Cause>)> {
        let lost = self.ways().filter(|(_, family, way)| way.is_none() && self.has_way_out(*family));
        lost.map(|(inside, family, _)| {
            let own = self.attachment.addresses.iter().copied().find(|own| Family::from(*own) == family);
            (inside, family, inside.routing().refusal(own, outside(family)))
        })
    }

    /// Packets to other networks, to the gateway, or to other containers.
    fn refused(&self) -> Vec<Evidence> {
        let beyond = self.lost_ways().filter_map(|(_, family, refused)| {
            let by = refused?;
            Some(of([&by.what, &format!("{family} packets to other networks")]).and(by.remedy))
        });
        let near = self.own_ways().flat_map(|(inside, family, _)| {
            let gateway = self.given(family).next().filter(|it| route::lookup(&inside.kernel, *it).is_err());
            let refused = |to, what: String| {
                let found = inside.routing().refusal(None, to)?;
                Some(of([&found.what, &what]).and(found.remedy))
            };
            let gateway = gateway.and_then(|it| refused(it, format!("packets to its gateway {it}")));
            let (_, refusing) = inside.table(family);
            let others = refusing.iter().filter(|(_, dst)| dst.prefix() > 0).filter_map(move |(_, dst)| {
                let is_in = |it: &&IpAddr| dst.contains(**it) && !self.attachment.addresses.contains(it);
                let (address, holders) = self.sight.holders.iter().find(|(address, _)| is_in(address))?;
                let what = format!("packets to {}", holders.first()?.1.full_name());
                Some(refused(*address, what)?.at(Level::Warning))
            });
            gateway.into_iter().chain(others).collect::<Vec<_>>()
        });
        beyond.chain(near).collect()
    }

    fn without_way(&self) -> Vec<Evidence> {
        let evidence = |(inside, family, _): (&Inside, Family, _)| {
            let name = word(&inside.link.name);
            let remedy = self.given(family).next().map(|gateway| {
                // Without a route to the gateway the kernel refuses one by it.
                let found = route::lookup(&inside.kernel, gateway);
                let is_reached = found.is_ok_and(|found| found.link == Some(inside.link.index));
                let near = self.attachment.result.ips.iter().map(|ip| ip.address).find(|net| net.contains(gateway));
                let near = near.filter(|_| self.carrier.bridge().is_some());
                let near = near.map_or(gateway.to_string(), |net| format!("{}/{}", net.network(), net.prefix()));
                let near = (!is_reached).then(|| inside.ip(&format!("route replace {near} dev {name}")));
                near.into_iter().chain([inside.ip(&format!("route add default via {gateway} dev {name}"))])
            });
            of([&family]).and(remedy.into_iter().flatten())
        };
        self.lost_ways().filter(|(.., refused)| refused.is_none()).map(evidence).collect()
    }

    /// A rule of routing leads packets to the gateway elsewhere, as one of a VPN may do: what the node sends gets no answer.
    fn gateway_elsewhere(&self) -> Vec<Evidence> {
        let ways = self.ways().filter(|(.., way)| way.is_some() && self.carrier.is_routed());
        let evidence = |(inside, family, _): Way<'_>| {
            let gateway = self.given(family).next()?;
            let index =
                route::lookup(&inside.kernel, gateway).ok()?.link.filter(|index| *index != inside.link.index)?;
            let other = link::find_index(&inside.kernel, index).ok().flatten()?;
            if other.loopback || self.is_attached(&other) {
                return None;
            }
            let net = self.attachment.result.ips.iter().map(|ip| ip.address).find(|net| net.contains(gateway));
            match inside.routing().leading(gateway, net.unwrap_or(gateway.into())) {
                Leading::Rule(by) => Some(of([&gateway, &other.name, &by.what]).and(by.remedy)),
                Leading::Route(_) | Leading::Unknown => None,
            }
        };
        ways.filter_map(evidence).collect()
    }

    fn fixed_gateway(&self) -> Vec<Evidence> {
        let routers: Vec<_> = match self.carrier.bridge() {
            Some(bridge) => self.sight.host.find(&bridge.router).into_iter().filter_map(|link| link.mac).collect(),
            None => self.ends().filter_map(|link| link.mac).collect(),
        };
        let Some(inside) = self.inside().filter(|_| !routers.is_empty()) else { return Vec::new() };
        let mut given: Vec<IpAddr> = super::rows::given(self.attachment).collect();
        given.sort();
        given.dedup();
        let fixed = given.iter().filter_map(|it| Some((it, fixed_mac(&inside.kernel, &inside.link, *it)?)));
        let fixed = fixed.filter(|(_, mac)| !routers.contains(mac));
        fixed.map(|(gateway, mac)| of([&mac, gateway, &self.attachment.netns, &inside.link.name])).collect()
    }

    /// Whether the route out leads by a gateway that is neither ADD's nor the node's. A router of the link that answers is its
    /// network's affair.
    fn has_other_gateway(&self, inside: &Inside, family: Family, out: &Route) -> bool {
        let is_link_local = |by: IpAddr| matches!(by, IpAddr::V6(by) if by.is_unicast_link_local());
        // A kernel that looks up no neighbour does not say that there is none.
        let is_known = |by| neighbour::find(&inside.kernel, &inside.link, by).map_or(true, |found| found.is_some());
        let is_right = |by: IpAddr| {
            let of_node = self.sight.host.owner(by).is_some();
            of_node || is_link_local(by) && is_known(by) || self.given(family).any(|given| given == by)
        };
        self.given(family).next().is_some() && !out.gateway.is_some_and(is_right)
    }

    fn other_gateway(&self) -> Vec<Evidence> {
        let evidence = |(inside, family, out): (&Inside, Family, &Route)| {
            let given = self.given(family).next().filter(|_| self.has_other_gateway(inside, family, out))?;
            let by = out.gateway.map_or("no gateway".to_owned(), |by| by.to_string());
            let name = word(&inside.link.name);
            let leads_there = |route: &Route| route.gateway == out.gateway && route.dst.contains(outside(family));
            let wrong = inside.routing().without((inside.link.index, &name), family, leads_there);
            let right = inside.ip(&format!("route replace default via {given} dev {name}"));
            Some(of([&family, &by, &given]).and(wrong).and([right]))
        };
        self.own_ways().filter_map(evidence).collect()
    }

    /// Packets leave the container with an address that the node does not route to it, so no answer finds the way back.
    fn other_source(&self) -> Vec<Evidence> {
        let own = &self.attachment.addresses;
        let evidence = |(inside, family, out): (&Inside, Family, &Route)| {
            let source = out.source.filter(|source| !own.contains(source))?;
            // An address that is missing or not used yet is no source.
            let is_used = |held: &&Address| !held.dad_failed && !held.tentative && own.contains(&held.net.ip());
            let mut used = inside.held.iter().filter(is_used).map(|held| held.net.ip());
            let right = used.find(|own| Family::from(*own) == family)?;
            let entry = match self.carrier.bridge() {
                Some(bridge) => &bridge.router,
                None => &self.attachment.links.first()?.name,
            };
            let back = route::lookup(self.sight.host.kernel.as_ref()?, source).ok().and_then(|back| back.link);
            if self.has_other_gateway(inside, family, out) || self.sight.name_of(back) == entry {
                return None;
            }
            let via = out.gateway.map_or(String::new(), |gateway| format!(" via {gateway}"));
            let name = word(&inside.link.name);
            let remedy = inside.ip(&format!("route replace default{via} dev {name} src {right}"));
            Some(of([&family, &source, entry]).and([remedy]))
        };
        self.own_ways().filter_map(evidence).collect()
    }

    /// The route out leads by a link that was made in the container and is no tunnel.
    fn other_link(&self) -> Vec<Evidence> {
        let ways = self.ways().filter(|(_, family, _)| self.carrier.is_routed() && self.has_way_out(*family));
        let evidence = |(inside, family, way): Way<'_>| {
            let index = way?.link.filter(|index| *index != inside.link.index)?;
            let other = link::find_index(&inside.kernel, index).ok().flatten()?;
            let is_tunnel = matches!(other.kind, LinkKind::Tun(_)) || TUNNELS.contains(&other.kind.name());
            if is_tunnel || self.is_attached(&other) {
                return None;
            }
            let (to, name) = (outside(family), word(&other.name));
            // Two halves take the place of a default route.
            let is_out = |route: &Route| route.dst.prefix() <= 1 || route.dst.contains(to);
            let without = inside.routing().without((index, &name), family, is_out);
            let mut remedy: Vec<Step> = without.into_iter().map(Step::from).collect();
            if remedy.is_empty() {
                let see = inside.ip(&format!("route get {to}"));
                remedy.push(advice(format!(
                    "Remove the rule of routing or the route in the container that leads there: see {see}."
                )));
            }
            Some(of([&family, &other.name, &inside.link.name]).and(remedy))
        };
        ways.filter_map(evidence).collect()
    }

    /// The route out leads by an address of the very link that the container's is stacked on: no frame passes between the two.
    /// With mode vepa a switch can send frames back, and an ipvlan of layer 3 sends none.
    fn gateway_on_master(&self) -> Vec<Evidence> {
        let Carrier::Stacked { kind, master: Some(master) } = &self.carrier else { return Vec::new() };
        let mut modes = self.attachment.conf.iter().flat_map(|conf| &conf.plugins).filter_map(|it| it.find("mode"));
        if !is_by_design(kind) || modes.any(|mode| ["vepa", "l3", "l3s"].contains(&mode.trim_matches('"'))) {
            return Vec::new();
        }
        let own = self.ways().filter_map(|(inside, family, way)| {
            let by = way.filter(|way| way.link == Some(inside.link.index))?.gateway?;
            Some((family, by)).filter(|_| self.sight.host.owner(by).is_some_and(|link| link.name == *master))
        });
        own.map(|(family, by)| of([&family, &by, master, kind])).collect()
    }

    /// Whether a link in the container is one that an attachment made, or may have.
    fn is_attached(&self, link: &Link) -> bool {
        let own = self.attachment;
        let is_of_it = |its: &Attachment| its.id.container_id == own.id.container_id || its.netns == own.netns;
        // The other end of a second interface is on the node, or it is stacked on a link there.
        let is_of_node = link.peer_netns_id.is_some() || link.parent_device.is_some();
        is_of_node || self.sight.attachments().any(|its| is_of_it(its) && its.id.ifname.as_str() == link.name)
    }

    /// A link that was made in the container has a subnet within that of the network, or with the node's address.
    fn led_astray(&self) -> Vec<Evidence> {
        let evidence = |(inside, family, _): (&Inside, Family, &Route)| {
            let (routes, _) = inside.table(family);
            let out =
                self.sight.link_out(family).map(|(out, _)| self.sight.host.addresses_of(&out.name)).unwrap_or_default();
            let has_node = |dst: &IpNetwork| {
                dst.prefix() > 1 && out.iter().any(|own| is_global(own.ip()) && dst.contains(own.ip()))
            };
            let is_within = |dst: &IpNetwork| {
                let mut nets = self.attachment.result.ips.iter().map(|ip| ip.address);
                nets.any(|net| {
                    net.is_ipv4() == dst.is_ipv4() && net.prefix() <= dst.prefix() && net.contains(dst.network())
                })
            };
            let others = routes.iter().filter(|route| route.link.is_some_and(|index| index != inside.link.index));
            let mut in_way = others.filter(|route| is_within(&route.dst) || has_node(&route.dst)).filter_map(|route| {
                let other = link::find_index(&inside.kernel, route.link?).ok().flatten()?;
                (!self.is_attached(&other)).then_some((route.dst, other.name))
            });
            let (dst, name) = in_way.next()?;
            let lost = match is_within(&dst) {
                true => "and part of the network's: other containers there are not reached",
                false => "and the node's address is in it: the node is not reached by that",
            };
            Some(of([&dst, &name, &lost]))
        };
        self.own_ways().filter_map(evidence).collect()
    }

    /// The hops of packets from the attachment, in their order.
    pub(super) fn hops_from(&self) -> Vec<String> {
        let hop = |(inside, family, way): Way<'_>| {
            let Some(way) = way else {
                let is_own = !self.has_way_out(family);
                return is_own.then(|| format!("in the container, {family} leads to its own network only"));
            };
            let by = way.gateway.map_or("directly".to_owned(), |gateway| format!("by {gateway}"));
            let is_own = way.link == Some(inside.link.index);
            let on = if is_own { inside.link.name.as_str() } else { "another interface" };
            Some(format!("in the container, {family} leads out {by} on {on}"))
        };
        let rules = self.attachment.rules.iter().filter(|_| self.network.is_read).map(ToString::to_string);
        let out = self.routed().filter_map(|family| {
            let way = self.sight.out(family)?;
            let via = way.gateway.map_or(String::new(), |gateway| format!(" by {gateway}"));
            Some(format!("the node's {family} route out leads{via} to {}", self.sight.name_of(way.link)))
        });
        self.ways().filter_map(hop).chain(rules).chain(out).collect()
    }
}

impl Inside {
    fn routing(&self) -> Routing<'_> {
        Routing { kernel: &self.kernel, ip: self.program() }
    }
}
