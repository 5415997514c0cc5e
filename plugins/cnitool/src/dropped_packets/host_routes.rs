//! The node's routes to an attachment and from it, and the settings by which the kernel forwards packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netops::link::Link;
use netops::route::Route;
use netops::{Family, rule, sysctl};

use super::Sight;
use super::routing::{Cause, Leading, Routing, words};
use super::rows::{At, Evidence, name, of, rows};
use super::way_to_container::{Carrier, is_by_design};
use crate::doctor::{Step, Unread, advice};
use crate::shell_words::word;

rows! {
    RouteElsewhere Error led_elsewhere: "the node's route to {0} leads to {1}, which is not the container's{2}"
        all "the node's route to containers of {4} leads to {1} and not to {3}{2}";
    // The kernel drops packets whose way back is another link than the one that they come by (RFC 3704).
    ReversePath Error forged: "{0} is 1 (strict), and the way back to what comes by {1} is {2}: the kernel drops it as forged"
        help "sysctl -w {0}=2";
    RouteElsewhere Error refused_to: "the node's {0} refuses packets to {1}"
        all "the node's {0} refuses packets to containers of {2}";
    RouteElsewhere Error unrouted: "the node has no route to {0}: {2}"
        all "the node has no route to containers of {1}";
    RouteElsewhere Error refused_from: "the node's {0} refuses packets from containers to other networks";
    RouteElsewhere Error led_back: "the node's routing leads {0} packets of containers by {1} to other networks to {2}, {3}"
        advice "Remove the rule that leads them there, or mend its table of routes: see ip rule, and ip route get {4} from {5} iif {1}.";
    ReversePath Warning other_ways_in: "{0} is 1 (strict), and the way back to other networks is {1}: packets from there to ports of the node that come by {2} are dropped as forged"
        help "sysctl -w {0}=2";
    ForwardingOff Error not_forwarding: "{0} is 0: the node passes on no packets between it and other networks"
        help "sysctl -w {0}=1";
}

/// An address of the internet that no network of an organisation has, so the route to it is the way out: those of AS112
/// (RFC 7534). Nothing is sent there.
pub(crate) fn outside(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(192, 175, 48, 1).into(),
        Family::V6 => Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 1).into(),
    }
}

/// Whether an address is of use beyond its link.
pub(crate) fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_link_local() && !address.is_loopback(),
        IpAddr::V6(address) => !address.is_unicast_link_local() && !address.is_loopback(),
    }
}

impl Sight<'_> {
    /// The value of a setting, read once; `None`: it cannot be read, or the kernel does not have it.
    pub(super) fn setting(&self, parts: &[&str]) -> Option<String> {
        let read = || sysctl::Key::new(parts).and_then(|key| sysctl::find(&key)).ok().flatten();
        self.settings.borrow_mut().entry(parts.join("/")).or_insert_with(read).clone()
    }

    /// The node's rules of routing that refuse some packets: those of which the kernel is not asked.
    pub(super) fn refusing_rules(&self) -> Vec<String> {
        let Some(kernel) = &self.host.kernel else { return Vec::new() };
        let rules = rule::list_both(kernel).unwrap_or_default();
        let some = rules.iter().filter(|rule| rule.refuses.is_some() && rule.is_narrower);
        some.map(|rule| format!("rule of routing {}, which refuses some packets (ip rule)", rule.priority)).collect()
    }

    pub(super) fn name_of(&self, index: Option<u32>) -> &str {
        index.and_then(|index| self.host.at(index)).map_or("an unknown link", |link| &link.name)
    }

    pub(super) fn routing(&self) -> Option<Routing<'_>> {
        Some(Routing { kernel: self.host.kernel.as_ref()?, ip: "ip".to_owned() })
    }

    /// The link that packets leave the node by, and the largest packet that its route takes.
    pub(super) fn link_out(&self, family: Family) -> Option<(&Link, u32)> {
        let found = self.out(family)?;
        let link = self.host.at(found.link?)?;
        Some((link, found.mtu_bytes.map_or(link.mtu_bytes, |mtu| mtu.min(link.mtu_bytes))))
    }
}

impl At<'_> {
    /// Lists the addresses to which the node's route leads, with the link, where that is another one than the container's.
    fn elsewhere(&self) -> impl Iterator<Item = (IpAddr, &str)> {
        let entries = self.entries();
        let found = self.routes.iter().filter_map(|(address, route)| Some((*address, route.as_ref().ok()?)));
        let named = found.map(|(address, route)| (address, self.sight.name_of(route.link)));
        named.filter(move |(_, link)| !entries.is_empty() && !entries.contains(link))
    }

    fn led_elsewhere(&self) -> Vec<Evidence> {
        let evidence = |(address, link): (IpAddr, &str)| {
            let entry = self.entry().unwrap_or_default();
            let (by, remedy) = self.why_elsewhere(address, link);
            of([&address, &link, &by, &entry, &self.network.name]).and(remedy)
        };
        self.elsewhere().map(evidence).collect()
    }

    /// What leads packets to the address elsewhere, and what mends that.
    fn why_elsewhere(&self, address: IpAddr, link: &str) -> (String, Vec<Step>) {
        let net = self.attachment.result.ips.iter().map(|ip| ip.address).find(|net| net.ip() == address);
        let entry = self.entry().and_then(|entry| self.sight.host.find(entry));
        let is_own = |route: &Route| route.link == entry.map(|link| link.index) && route.dst.contains(address);
        let leading = self.sight.routing().map(|routing| routing.leading(address, net.unwrap_or(address.into())));
        match leading {
            Some(Leading::Route(route)) => {
                let own = self.sight.host.addresses_of(link);
                let is_of_link = own.iter().any(|own| own.network() == route.dst.network());
                let remedy = match route.dst.prefix() {
                    _ if is_of_link && route.gateway.is_none() => Some(advice(format!(
                        "Give one of the networks another subnet: {} is that of link {link}, too.",
                        route.dst
                    ))),
                    0 => self.new_route(address).map(Step::from),
                    _ => Some(format!("ip route del {} dev {}", words(&route), word(link)).into()),
                };
                (format!(", by route {}", words(&route)), remedy.into_iter().collect())
            }
            Some(Leading::Rule(cause)) if self.sight.routes.iter().any(is_own) => {
                (format!(", {}", cause.what), cause.remedy)
            }
            _ => {
                let what = "the rule of routing, or the route of another kind or table, that leads there";
                let see = format!("see ip route get {address}, ip rule, and ip route show table all.");
                let by = ", by a rule of routing or a route of another table".to_owned();
                (by, vec![advice(format!("Remove {what}: {see}"))])
            }
        }
    }

    fn is_strict(&self, link: &str) -> bool {
        let values =
            ["all", link].into_iter().filter_map(|name| self.sight.setting(&["ipv4", "conf", name, "rp_filter"]));
        values.max().as_deref() == Some("1")
    }

    fn forged(&self) -> Vec<Evidence> {
        let entry = self.entry().unwrap_or_default();
        let found = self.elsewhere().filter(|(address, _)| address.is_ipv4() && self.is_strict(entry));
        found.map(|(_, link)| of([&name(&["ipv4", "conf", entry, "rp_filter"]), &entry, &link])).collect()
    }

    /// Lists the addresses to which the kernel finds no route, with the rule or route that refuses packets to them.
    fn lost(&self) -> impl Iterator<Item = (IpAddr, &netops::error::OpError, Option<Cause>)> {
        let lost = self.routes.iter().filter_map(|(address, route)| Some((*address, route.as_ref().err()?)));
        lost.filter(|_| self.entry().is_some()).map(|(address, error)| {
            (address, error, self.sight.routing().and_then(|routing| routing.refusal(None, address)))
        })
    }

    fn refused_to(&self) -> Vec<Evidence> {
        let refused = self.lost().filter_map(|(address, _, refused)| Some((address, refused?)));
        refused.map(|(address, by)| of([&by.what, &address, &self.network.name]).and(by.remedy)).collect()
    }

    fn unrouted(&self) -> Vec<Evidence> {
        let unrouted = self.lost().filter(|(.., refused)| refused.is_none());
        unrouted
            .map(|(address, error, _)| of([&address, &self.network.name, error]).and(self.new_route(address)))
            .collect()
    }

    /// The command that gives the node its route again: with the bridge's own address, or of the attachment alone.
    fn new_route(&self, address: IpAddr) -> Option<String> {
        let entry = self.entry()?;
        let ip = self.attachment.result.ips.iter().find(|ip| ip.address.ip() == address);
        let own = ip.and_then(|ip| ip.gateway.map(|gateway| (ip.address, gateway)));
        let is_bridge = self.sight.host.find(entry).is_some_and(|link| link.kind.is_bridge());
        Some(match own.filter(|_| is_bridge) {
            Some((net, gateway)) => {
                format!("ip route replace {}/{} dev {} src {gateway}", net.network(), net.prefix(), word(entry))
            }
            None => format!("ip route replace {address} dev {}", word(entry)),
        })
    }

    /// The kernel's routes for what the container sends to other networks, where the node has one itself and forwards packets.
    fn forwarded(&self) -> impl Iterator<Item = (IpAddr, &Link, &netops::error::Result<Route>)> {
        let entry = self.entry().and_then(|entry| self.sight.host.find(entry)).filter(|link| link.up);
        entry.into_iter().flat_map(move |link| {
            let look = || {
                let Some(kernel) = &self.sight.host.kernel else { return Vec::new() };
                let elsewhere: Vec<IpAddr> = self.elsewhere().map(|(address, _)| address).collect();
                let is_open = |family| self.sight.out(family).is_some() && !self.forwards_nothing(family, &link.name);
                let led = self.routes.iter().filter(|(from, route)| route.is_ok() && !elsewhere.contains(from));
                let open = led.map(|(from, _)| *from).filter(|from| is_open(Family::from(*from)));
                let found = |from| netops::route::lookup_forwarded(kernel, from, link, outside(Family::from(from)));
                open.map(|from| (from, found(from))).collect()
            };
            self.forwarded.get_or_init(look).iter().map(move |(from, found)| (*from, link, found))
        })
    }

    fn refused_from(&self) -> Vec<Evidence> {
        let refused = self.forwarded().filter(|(.., found)| found.is_err());
        let evidence = |(from, link, _): (IpAddr, &Link, _)| {
            let (routing, to) = (self.sight.routing()?, outside(Family::from(from)));
            let unnamed = || routing.unnamed_refusal(&format!("{to} from {from} iif {}", word(&link.name)));
            let by = routing.named_refusal(Some(from), to).unwrap_or_else(unnamed);
            Some(of([&by.what]).and(by.remedy))
        };
        refused.filter_map(evidence).collect()
    }

    /// A rule of routing or another table leads packets of containers, and not the node's own, to a link that cannot carry them to
    /// other networks.
    fn led_back(&self) -> Vec<Evidence> {
        let evidence = |(from, entry, found): (IpAddr, &Link, &netops::error::Result<Route>)| {
            let (family, link) = (Family::from(from), self.sight.host.at(found.as_ref().ok()?.link?)?);
            let is_way_out = self.sight.link_out(family).is_some_and(|(out, _)| out.index == link.index);
            let why = match () {
                () if is_way_out => return None,
                () if self.sight.way_to_containers(family, link).is_some() => "where no other networks are",
                () if self.sight.way_without_carrier(family, link).is_some() => "which has no carrier",
                () => return None,
            };
            Some(of([&family, &entry.name, &link.name, &why, &outside(family), &from]))
        };
        self.forwarded().filter_map(evidence).collect()
    }

    /// Whether a setting, which is a reason by itself, keeps the node from forwarding what comes by a link.
    fn forwards_nothing(&self, family: Family, link: &str) -> bool {
        match family {
            Family::V4 => self.is(&["ipv4", "ip_forward"], "0") || self.is(&["ipv4", "conf", link, "forwarding"], "0"),
            Family::V6 => self.is(&["ipv6", "conf", "all", "forwarding"], "0"),
        }
    }

    /// Packets of other hosts to ports of the node come by any link that has a default route of its own; the answers leave by
    /// the best of them, so a strict filter drops the packets of the others.
    fn other_ways_in(&self) -> Vec<Evidence> {
        let is_asked = self.routed().any(|family| family == Family::V4) && !self.attachment.ports.is_empty();
        let Some((best, _)) = self.sight.link_out(Family::V4).filter(|_| is_asked) else { return Vec::new() };
        let is_default = |route: &&Route| route.dst.prefix() == 0 && route.dst.is_ipv4();
        let defaults = self.sight.routes.iter().filter(is_default);
        let links =
            defaults.filter_map(|route| self.sight.host.at(route.link?)).filter(|link| link.index != best.index);
        let links = links.filter(|link| self.is_strict(&link.name));
        links.map(|link| of([&name(&["ipv4", "conf", &link.name, "rp_filter"]), &best.name, &link.name])).collect()
    }

    fn not_forwarding(&self) -> Vec<Evidence> {
        self.routed().filter_map(|family| self.forwarding_off(family)).map(|key| of([&key]).on_setting(&key)).collect()
    }

    /// The first setting by which the node forwards nothing of a family. In IPv6 the setting of all links alone counts.
    fn forwarding_off(&self, family: Family) -> Option<String> {
        if family == Family::V6 {
            let key = ["ipv6", "conf", "all", "forwarding"];
            return Some(name(&key)).filter(|_| self.is(&key, "0"));
        }
        if self.is(&["ipv4", "ip_forward"], "0") {
            return Some(name(&["ipv4", "ip_forward"]));
        }
        let entries = match self.carrier.bridge() {
            Some(bridge) => vec![bridge.router.as_str()],
            None => self.attachment.links.iter().map(|link| link.name.as_str()).collect(),
        };
        let links = entries.into_iter().chain(self.sight.link_out(family).map(|(link, _)| link.name.as_str()));
        let mut keys = links.map(|link| ["ipv4", "conf", link, "forwarding"]);
        keys.find(|key| self.is(key, "0")).map(|key| name(&key))
    }

    /// The hops of packets to the attachment, in their order, and what of them is not known.
    pub(super) fn hops(&self) -> (Vec<String>, Option<Unread>) {
        let mut hops: Vec<String> = Vec::new();
        for forward in self.attachment.ports.iter().filter(|forward| forward.is_entered) {
            hops.push(format!("{} is forwarded to {}", forward.host_port(), forward.to));
        }
        let mut unseen = None;
        match &self.carrier {
            Carrier::Stacked { kind, master } => {
                let on = master.as_ref().map_or(String::new(), |master| format!(" on {master}"));
                hops.push(format!("{kind}{on}: the node forwards nothing between it and other networks"));
                let by_design =
                    format!("the node itself does not reach it, nor it the node: so a {kind} is made, by design");
                hops.extend(is_by_design(kind).then_some(by_design));
            }
            Carrier::Switched(bridge) => {
                hops.push(format!("bridge {} has no gateway: the node routes nothing to it", bridge.name));
            }
            Carrier::Routed(_) if self.entry().is_some() => {
                let found = self.routes.iter().filter_map(|(address, route)| Some((address, route.as_ref().ok()?)));
                hops.extend(found.map(|(address, route)| {
                    let via = route.gateway.map_or(String::new(), |gateway| format!(" by {gateway}"));
                    format!("the node's route to {address} leads{via} to {}", self.sight.name_of(route.link))
                }));
            }
            Carrier::Routed(_) | Carrier::Unknown => {
                unseen = Some(Unread::told("the node's way to the container", "it has no link on the host").expected());
            }
        }
        hops.extend(self.attachment.links.iter().map(|link| format!("link {} leads into the container", link.name)));
        (hops, unseen)
    }
}
