//! Routing of a namespace, as far as the kernel does not say which of its rules and routes it was that decided.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netops::route::{self, MAIN_TABLE, Route};
use netops::rule::{self, Listed};
use netops::{Family, Kernel};

/// The routing of a namespace, and the command that acts on it.
pub(super) struct Routing<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) ip: String,
}

/// A rule or a route that refuses packets.
pub(super) struct Refusal {
    /// The rule or route, in the words of `ip`.
    pub(super) what: String,
    pub(super) remedy: String,
}

impl Routing<'_> {
    fn option(family: Family) -> &'static str {
        if family == Family::V6 { " -6" } else { "" }
    }

    /// The rule or route that refuses packets to an address, from one or from any.
    pub(super) fn refusal(&self, from: Option<IpAddr>, to: IpAddr) -> Option<Refusal> {
        let (ip, family) = (&self.ip, Family::from(to));
        let option = Self::option(family);
        let has = |net: Option<IpNetwork>, address: Option<IpAddr>| {
            net.is_none_or(|net| address.is_some_and(|address| net.contains(address)))
        };
        let is_met = |rule: &&Listed| !rule.is_conditional && has(rule.source, from) && has(rule.destination, Some(to));
        let rules = rule::list(self.kernel, family).unwrap_or_default();
        if let Some((rule, kind)) = rules.iter().filter(is_met).find_map(|rule| Some((rule, rule.refuses?))) {
            let end = |word: &str, net: Option<IpNetwork>| net.map_or(String::new(), |net| format!("{word} {net} "));
            let words = format!("{}{}{kind}", end("from", rule.source), end("to", rule.destination));
            let remedy = format!("{ip}{option} rule del {words} pref {}", rule.priority);
            return Some(Refusal { what: format!("rule {words}"), remedy });
        }
        let (_, refusing) = route::list_main(self.kernel, family).unwrap_or_default();
        // The kernel has one of its own, unreachable default of IPv6, which counts where nothing else leads there.
        let is_made =
            |(kind, dst): &(&str, IpNetwork)| dst.prefix() > 0 || family == Family::V4 || *kind != "unreachable";
        let longest = refusing.into_iter().filter(is_made).filter(|(_, dst)| dst.contains(to));
        let (kind, dst) = longest.max_by_key(|(_, dst)| dst.prefix())?;
        let dst = destination(dst);
        Some(Refusal { what: format!("route {kind} {dst}"), remedy: format!("{ip}{option} route del {kind} {dst}") })
    }

    /// The rule of routing by whose table packets to a network's address leave by a link, in words, and the command by which the main
    /// table decides on that network before it: what else the rule leads there stays so.
    pub(super) fn before_main(&self, (to, net): (IpAddr, IpNetwork), link: u32) -> Option<(String, String)> {
        let family = Family::from(to);
        let leads = |table: u32| {
            let routes = route::list(self.kernel, Some(link), Some(table), family).unwrap_or_default();
            routes.iter().any(|route| route.dst.contains(to))
        };
        let rules = rule::list(self.kernel, family).unwrap_or_default();
        // The first rule is that of the table of local addresses.
        let may_lead = |rule: &&Listed| rule.priority > 1 && rule.destination.is_none_or(|net| net.contains(to));
        let before = rules.iter().filter(may_lead).take_while(|rule| rule.table != Some(MAIN_TABLE));
        let mut found = before.filter_map(|rule| Some((rule.priority, rule.table.filter(|table| leads(*table))?)));
        let (priority, table) = found.next()?;
        let (ip, option, net) = (&self.ip, Self::option(family), format!("{}/{}", net.network(), net.prefix()));
        let remedy = format!("{ip}{option} rule add pref {} to {net} lookup main", priority - 1);
        Some((format!("by rule of routing {priority} and table {table}"), remedy))
    }

    /// Commands that remove the routes by a link that are so.
    pub(super) fn without(&self, link: (u32, &str), family: Family, is_so: impl Fn(&Route) -> bool) -> Vec<String> {
        let routes = route::list(self.kernel, Some(link.0), Some(MAIN_TABLE), family).unwrap_or_default();
        let command = |route: &Route| format!("{} route del {} dev {}", self.ip, words(route), link.1);
        routes.iter().filter(|route| is_so(route)).map(command).collect()
    }
}

/// A route in the words of `ip route`, as far as they tell it from others.
pub(super) fn words(route: &Route) -> String {
    let via = route.gateway.map_or(String::new(), |gateway| format!(" via {gateway}"));
    let metric = route.metric.filter(|metric| *metric > 0).map_or(String::new(), |metric| format!(" metric {metric}"));
    format!("{}{via}{metric}", destination(route.dst))
}

pub(super) fn destination(dst: IpNetwork) -> String {
    if dst.prefix() == 0 { "default".to_owned() } else { dst.to_string() }
}
