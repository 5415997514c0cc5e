//! The node's routes to an attachment and out, and the settings by which the kernel forwards packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netops::Family;
use netops::error::OpError;
use netops::route::{self, Route};
use netops::rule;
use netops::sysctl;

use super::routes_that_refuse::{self, Refusal};
use super::way_to_container::{Bridge, Carrier, is_by_design};
use super::{Cause, Findings, Level, Reason, Sight};
use crate::node_networks::{Attachment, Network};
use crate::shell_words::{self, word};

/// An address of the internet that no network of an organisation has, so the route to it is the way out: those of AS112
/// (RFC 7534). Nothing is sent there.
pub(crate) fn outside(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(192, 175, 48, 1).into(),
        Family::V6 => Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 1).into(),
    }
}

/// A route in the words of `ip route`, as far as they tell it from others.
pub(super) fn words(route: &Route) -> String {
    let via = route.gateway.map_or(String::new(), |gateway| format!(" via {gateway}"));
    let metric = route.metric.filter(|metric| *metric > 0).map_or(String::new(), |metric| format!(" metric {metric}"));
    if route.dst.prefix() == 0 { format!("default{via}{metric}") } else { format!("{}{via}{metric}", route.dst) }
}

impl Sight<'_> {
    /// The value of a setting, read once; `None`: it cannot be read, or the kernel does not have it.
    pub(super) fn setting(&self, parts: &[&str]) -> Option<String> {
        let read = || sysctl::Key::new(parts).and_then(|key| sysctl::find(&key)).ok().flatten();
        self.settings.borrow_mut().entry(parts.join("/")).or_insert_with(read).clone()
    }

    pub(super) fn routes_of(
        &self,
        network: &Network,
        attachment: &Attachment,
        carrier: &Carrier,
        findings: &mut Findings,
    ) {
        match carrier {
            Carrier::Stacked { kind, master } => {
                let on = master.as_ref().map_or(String::new(), |master| format!(" on {master}"));
                findings.to.push(format!("{kind}{on}: the node forwards nothing between it and other networks"));
                if is_by_design(kind) {
                    findings.to.push(format!(
                        "the node itself does not reach it, nor it the node: so a {kind} is made, by design"
                    ));
                }
            }
            Carrier::Switched(bridge) => {
                findings.to.push(format!("bridge {} has no gateway: the node routes nothing to it", bridge.name));
            }
            Carrier::Routed(bridge) => {
                // An address that the node has, too, is a reason of its own.
                let is_others = |address: &&IpAddr| !address.is_loopback() && self.host.owner(**address).is_none();
                for address in attachment.addresses.iter().filter(is_others) {
                    self.route_to(*address, network, attachment, bridge.as_ref(), findings);
                }
            }
            Carrier::Unknown => {
                findings.unseen.push("the node's way to the container: it has no link on the host".to_owned());
            }
        }
    }

    /// The node's route to an address has to lead to the attachment's link, or to the link that has the gateways.
    fn route_to(
        &self,
        address: IpAddr,
        network: &Network,
        attachment: &Attachment,
        bridge: Option<&Bridge>,
        findings: &mut Findings,
    ) {
        let Some(kernel) = &self.host.kernel else { return };
        let links: Vec<&str> = match bridge {
            Some(bridge) => vec![&bridge.router, &bridge.name],
            None => attachment.links.iter().map(|link| link.master.as_deref().unwrap_or(&link.name)).collect(),
        };
        let Some(entry) = links.first() else {
            findings
                .unseen
                .push("whether the node's route leads to the container: it has no link on the host".to_owned());
            return;
        };
        let found = match route::lookup(kernel, address) {
            Ok(found) => found,
            Err(error) => {
                findings.reasons.push(self.without_route(address, network, (attachment, entry), &error));
                return;
            }
        };
        let link = self.name_of(found.link);
        let via = found.gateway.map_or(String::new(), |gateway| format!(" by {gateway}"));
        findings.to.push(format!("the node's route to {address} leads{via} to {link}"));
        if links.contains(&link) {
            self.refused(address, entry, findings);
            return;
        }
        let in_table = self.in_main_table(address, found.link);
        let net = attachment.result.ips.iter().map(|ip| ip.address).find(|net| net.ip() == address);
        let entry_index = self.host.find(entry).map(|link| link.index);
        let before_main = found
            .link
            .filter(|_| in_table.is_none() && self.in_main_table(address, entry_index).is_some())
            .and_then(|link| {
                routes_that_refuse::find_before_main(kernel, "ip", (address, net.unwrap_or(address.into())), link)
            });
        let (rule, main_first) = before_main.unzip();
        let remedy = match in_table {
            None if main_first.is_some() => main_first.into_iter().collect(),
            Some(route) if self.is_own_network(route) => {
                vec![format!("Give one of the networks another subnet: {} is that of link {link}, too.", route.dst)]
            }
            Some(route) if route.dst.prefix() > 0 => {
                vec![format!("ip route del {} dev {}", words(route), word(link))]
            }
            Some(_) => self.new_route(address, attachment, entry),
            None => {
                let what = "the rule of routing, or the route of another kind or table, that leads there";
                vec![format!("Remove {what}: see ip route get {address}, ip rule, and ip route show table all.")]
            }
        };
        let by = match (in_table, rule) {
            (Some(route), _) => format!(", by route {}", words(route)),
            (None, Some(rule)) => format!(", {rule}"),
            (None, None) => ", by a rule of routing or a route of another table".to_owned(),
        };
        let why = format!("the node's route to {address} leads to {link}, which is not the container's{by}");
        let what = format!("the node's route to containers of {} leads to {link} and not to {entry}{by}", network.name);
        findings.reasons.push(Reason::new(Cause::Route, Level::Error, why).shared(what).mended_by(remedy));
        self.reverse_path(address, entry, link, findings);
    }

    /// The node's rules of routing that refuse some packets: those of which the kernel is not asked.
    pub(super) fn refusing_rules(&self) -> Vec<String> {
        let Some(kernel) = &self.host.kernel else { return Vec::new() };
        let rules = rule::list_both(kernel).unwrap_or_default();
        let some = rules.iter().filter(|rule| rule.refuses.is_some() && rule.is_narrower);
        some.map(|rule| format!("rule of routing {}, which refuses some packets (ip rule)", rule.priority)).collect()
    }

    /// The kernel finds no route: a route refuses the address, or there is none.
    fn without_route(
        &self,
        address: IpAddr,
        network: &Network,
        (attachment, entry): (&Attachment, &str),
        error: &OpError,
    ) -> Reason {
        let refusal =
            self.host.kernel.as_ref().and_then(|kernel| routes_that_refuse::find(kernel, "ip", None, address));
        if let Some(Refusal { what, remedy }) = refusal {
            let why = format!("the node's {what} refuses packets to {address}");
            let what = format!("the node's {what} refuses packets to containers of {}", network.name);
            return Reason::new(Cause::Route, Level::Error, why).shared(what).mended_by([remedy]);
        }
        let entry_index = self.host.find(entry).map(|link| link.index);
        if self.in_main_table(address, entry_index).is_some() {
            let by = "a rule of routing, or a route of another table, refuses packets";
            let why = format!("{by} to {address}: {error}");
            let what = format!("{by} to containers of {}", network.name);
            let remedy = [format!("Remove it: see ip rule, and ip route get {address}.")];
            return Reason::new(Cause::Route, Level::Error, why).shared(what).mended_by(remedy);
        }
        let why = format!("the node has no route to {address}: {error}");
        let what = format!("the node has no route to containers of {}", network.name);
        Reason::new(Cause::Route, Level::Error, why).shared(what).mended_by(self.new_route(address, attachment, entry))
    }

    /// A rule of routing or a filter refuses what the container sends, though the node itself has a route out.
    fn refused(&self, address: IpAddr, entry: &str, findings: &mut Findings) {
        let outside = outside(address.into());
        let (Some(kernel), Some(link)) = (&self.host.kernel, self.host.find(entry).filter(|link| link.up)) else {
            return;
        };
        if route::lookup(kernel, outside).is_err() || self.forwards_nothing(address.into(), entry) {
            return;
        }
        let see = format!("see ip rule, and ip route get {outside} from {address} iif {}", word(entry));
        let error = match route::lookup_forwarded(kernel, address, link, outside) {
            Ok(found) => {
                findings.reasons.extend(self.led_back(address.into(), entry, found.link, &see));
                return;
            }
            Err(error) => error,
        };
        if let Some(Refusal { what, remedy }) = routes_that_refuse::find(kernel, "ip", Some(address), outside) {
            let what = format!("the node's {what} refuses packets from containers to other networks");
            findings.reasons.push(Reason::new(Cause::Refused, Level::Error, what).mended_by([remedy]));
            return;
        }
        let why = format!("the node's routing refuses packets from {address} to other networks: {error}");
        let what = format!("the node's routing refuses packets of containers by {entry} to other networks");
        let remedy = [format!("Remove the rule that refuses them: {see}.")];
        findings.reasons.push(Reason::new(Cause::Refused, Level::Error, why).shared(what).mended_by(remedy));
    }

    /// A rule of routing or another table leads packets of containers, and not the node's own, to a link that cannot carry them to
    /// other networks.
    fn led_back(&self, family: Family, entry: &str, link: Option<u32>, see: &str) -> Option<Reason> {
        let link = self.host.at(link?)?;
        if self.link_out(family).is_some_and(|(out, _)| out.index == link.index) {
            return None;
        }
        let why = match () {
            () if self.way_to_containers(family, link).is_some() => "where no other networks are",
            () if self.way_without_carrier(family, link).is_some() => "which has no carrier",
            () => return None,
        };
        let what = format!(
            "the node's routing leads {family} packets of containers by {entry} to other networks to {}, {why}",
            link.name
        );
        let remedy = [format!("Remove the rule that leads them there, or mend its table of routes: {see}.")];
        Some(Reason::new(Cause::Refused, Level::Error, what).mended_by(remedy))
    }

    /// Whether a setting, which is a reason by itself, keeps the node from forwarding what comes by a link.
    fn forwards_nothing(&self, family: Family, link: &str) -> bool {
        let is_off = |key: &[&str]| self.setting(key).is_some_and(|value| value == "0");
        match family {
            Family::V4 => is_off(&["ipv4", "ip_forward"]) || is_off(&["ipv4", "conf", link, "forwarding"]),
            Family::V6 => is_off(&["ipv6", "conf", "all", "forwarding"]),
        }
    }

    /// Packets of other hosts to ports of the node come by any link that has a default route of its own; the answers leave by
    /// the best of them, so a strict filter drops the packets of the others.
    pub(super) fn other_ways_in(&self, attachment: &Attachment, findings: &mut Findings) {
        let Some((best, _)) = self.link_out(Family::V4) else { return };
        if attachment.ports.is_empty() {
            return;
        }
        let defaults = self.routes.iter().filter(|route| route.dst.prefix() == 0 && route.dst.is_ipv4());
        for link in defaults.filter_map(|route| self.host.at(route.link?)).filter(|link| link.index != best.index) {
            let value =
                ["all", &link.name].iter().filter_map(|name| self.setting(&["ipv4", "conf", name, "rp_filter"])).max();
            if value.as_deref() == Some("1") {
                let key = format!("net.ipv4.conf.{}.rp_filter", link.name.replace('.', "/"));
                let what = format!(
                    "{key} is 1 (strict), and the way back to other networks is {}: packets from there to ports of the node that come by {} are dropped as forged",
                    best.name, link.name
                );
                let remedy = [shell_words::sysctl(&key, "2")];
                findings.reasons.push(Reason::new(Cause::ReversePath, Level::Warning, what).mended_by(remedy));
            }
        }
    }

    /// The kernel drops packets whose way back is another link than the one that they come by (RFC 3704).
    fn reverse_path(&self, address: IpAddr, entry: &str, link: &str, findings: &mut Findings) {
        let is_strict = |name: &str| self.setting(&["ipv4", "conf", name, "rp_filter"]);
        let value = ["all", entry].iter().filter_map(|name| is_strict(name)).max();
        if address.is_ipv4() && value.as_deref() == Some("1") {
            let key = format!("net.ipv4.conf.{}.rp_filter", entry.replace('.', "/"));
            let what = format!(
                "{key} is 1 (strict), and the way back to what comes by {entry} is {link}: the kernel drops it as forged"
            );
            let remedy = [shell_words::sysctl(&key, "2")];
            findings.reasons.push(Reason::new(Cause::ReversePath, Level::Error, what).mended_by(remedy));
        }
    }

    /// Commands that give the node its route again: with the bridge's own address, or of the attachment alone.
    fn new_route(&self, address: IpAddr, attachment: &Attachment, entry: &str) -> Vec<String> {
        let ip = attachment.result.ips.iter().find(|ip| ip.address.ip() == address);
        let own = ip.and_then(|ip| ip.gateway.map(|gateway| (ip.address, gateway)));
        let is_bridge = self.host.find(entry).is_some_and(|link| link.kind.is_bridge());
        let command = match own.filter(|_| is_bridge) {
            Some((net, gateway)) => {
                format!("ip route replace {}/{} dev {} src {gateway}", net.network(), net.prefix(), word(entry))
            }
            None => format!("ip route replace {address} dev {}", word(entry)),
        };
        vec![command]
    }

    /// The route of the main table that the kernel prefers for an address, if it leads to the link. Of equal ones it takes
    /// the one that came first.
    fn in_main_table(&self, address: IpAddr, link: Option<u32>) -> Option<&Route> {
        let fits = |route: &&Route| route.dst.is_ipv4() == address.is_ipv4() && route.dst.contains(address);
        let order = |route: &Route| (route.dst.prefix(), std::cmp::Reverse(route.metric.unwrap_or(0)));
        let best = self.routes.iter().filter(fits).map(order).max()?;
        self.routes.iter().filter(fits).find(|route| order(route) == best && route.link == link)
    }

    /// Whether a route is that of an address which its link has.
    fn is_own_network(&self, route: &Route) -> bool {
        let own = self.host.addresses_of(self.name_of(route.link));
        route.gateway.is_none() && own.iter().any(|own| own.network() == route.dst.network())
    }

    pub(super) fn name_of(&self, index: Option<u32>) -> &str {
        index.and_then(|index| self.host.at(index)).map_or("an unknown link", |link| &link.name)
    }

    pub(super) fn forwarding(
        &self,
        family: Family,
        attachment: &Attachment,
        carrier: &Carrier,
        findings: &mut Findings,
    ) {
        let mut keys = vec![if family == Family::V6 {
            vec!["ipv6", "conf", "all", "forwarding"]
        } else {
            vec!["ipv4", "ip_forward"]
        }];
        // In IPv6 the setting of all links alone counts.
        let router = carrier.bridge().map(|bridge| bridge.router.as_str()).filter(|_| family == Family::V4);
        keys.extend(router.map(|router| vec!["ipv4", "conf", router, "forwarding"]));
        let pairs = attachment.links.iter().filter(|_| carrier.bridge().is_none() && family == Family::V4);
        keys.extend(pairs.map(|link| vec!["ipv4", "conf", &link.name, "forwarding"]));
        let out = self.link_out(family).filter(|_| family == Family::V4);
        keys.extend(out.map(|(link, _)| vec!["ipv4", "conf", &link.name, "forwarding"]));
        let off = keys.iter().find(|key| self.setting(key).is_some_and(|value| value == "0"));
        if let Some(key) = off {
            let name = format!("net.{}", key.iter().map(|part| part.replace('.', "/")).collect::<Vec<_>>().join("."));
            let why = format!("{name} is 0: the node passes on no packets between it and other networks");
            let remedy = [shell_words::sysctl(&name, "1")];
            findings.reasons.push(Reason::new(Cause::Forwarding, Level::Error, why).mended_by(remedy));
        }
    }
}
