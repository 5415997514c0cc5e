//! Routing of a namespace: which of its rules and routes make the kernel answer as it does.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netops::route::{self, MAIN_TABLE, Route};
use netops::rule::{self, Listed};
use netops::{Family, Kernel};

use crate::doctor::{Step, advice};

/// The routing of a namespace, and the command that acts on it.
pub(super) struct Routing<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) ip: String,
}

/// A rule or a route by which packets do not arrive.
pub(super) struct Cause {
    /// The rule or route, in the words of `ip`.
    pub(super) what: String,
    pub(super) remedy: Vec<Step>,
}

/// The entry by which packets go.
pub(super) enum Leading {
    /// An entry of the main table.
    Route(Route),
    /// A rule of routing with another table, and the command by which the main table decides on a network before it: what else the rule
    /// leads there stays so.
    Rule(Cause),
    Unknown,
}

impl Routing<'_> {
    fn option(family: Family) -> &'static str {
        if family == Family::V6 { " -6" } else { "" }
    }

    /// Finds what refuses packets to an address, from one or from any. `None`: no route leads there.
    pub(super) fn refusal(&self, from: Option<IpAddr>, to: IpAddr) -> Option<Cause> {
        let is_led = || {
            let (routes, _) = route::list_table(self.kernel, MAIN_TABLE, Family::from(to)).unwrap_or_default();
            routes.iter().any(|route| route.dst.contains(to))
        };
        let named = self.named_refusal(from, to);
        named.or_else(|| is_led().then(|| self.unnamed_refusal(&to.to_string())))
    }

    /// The rule or route that refuses packets to an address, if it is not one for some packets alone.
    pub(super) fn named_refusal(&self, from: Option<IpAddr>, to: IpAddr) -> Option<Cause> {
        let family = Family::from(to);
        let has = |net: Option<IpNetwork>, address: Option<IpAddr>| {
            net.is_none_or(|net| address.is_some_and(|address| net.contains(address)))
        };
        let is_met = |rule: &&Listed| !rule.is_conditional && has(rule.source, from) && has(rule.destination, Some(to));
        let rules = rule::list(self.kernel, family).unwrap_or_default();
        rules.iter().filter(is_met).find_map(|rule| match (rule.refuses, rule.table) {
            (Some(kind), _) => Some(self.refusing_rule(family, rule, kind)),
            (None, Some(table)) => self.refusing_route(table, to),
            (None, None) => None,
        })
    }

    fn refusing_rule(&self, family: Family, rule: &Listed, kind: &str) -> Cause {
        let end = |word: &str, net: Option<IpNetwork>| net.map_or(String::new(), |net| format!("{word} {net} "));
        let words = format!("{}{}{kind}", end("from", rule.source), end("to", rule.destination));
        let remedy = format!("{}{} rule del {words} pref {}", self.ip, Self::option(family), rule.priority);
        Cause { what: format!("rule {words}"), remedy: vec![remedy.into()] }
    }

    fn refusing_route(&self, table: u32, to: IpAddr) -> Option<Cause> {
        let family = Family::from(to);
        let (routes, refusing) = route::list_table(self.kernel, table, family).unwrap_or_default();
        // The kernel has one of its own, unreachable default of IPv6, which counts where there is no other.
        let may_be_made = family == Family::V6 && !routes.iter().any(|route| route.dst.prefix() == 0);
        let is_made = |(kind, dst): &&route::Refusing| may_be_made && dst.prefix() == 0 && *kind == "unreachable";
        let refusing = || refusing.iter().filter(|it| !is_made(it));
        let longest = refusing().filter(|(_, dst)| dst.contains(to)).max_by_key(|(_, dst)| dst.prefix())?;
        // Two halves take the place of a default route.
        let is_half = |(_, dst): &&route::Refusing| longest.1.prefix() <= 1 && dst.prefix() <= 1;
        let (ip, option) = (&self.ip, Self::option(family));
        let (of, name) = match table {
            MAIN_TABLE => (String::new(), String::new()),
            _ => (format!(" of table {table}"), format!(" table {table}")),
        };
        let removed = refusing().filter(|it| *it == longest || is_half(it));
        let remedy = removed.map(|(kind, dst)| format!("{ip}{option} route del {kind} {}{name}", destination(*dst)));
        let (kind, dst) = longest;
        let what = format!("route {kind} {}{of}", destination(*dst));
        Some(Cause { what, remedy: remedy.map(Step::from).collect() })
    }

    /// A rule for some packets, of which it is not known which refuses those: `to` says of which in the words of `ip route get`.
    pub(super) fn unnamed_refusal(&self, to: &str) -> Cause {
        let ip = &self.ip;
        let remedy = advice(format!("Remove the rule that refuses them: see {ip} rule, and {ip} route get {to}."));
        Cause { what: "routing".to_owned(), remedy: vec![remedy] }
    }

    /// Finds what leads packets to an address of a network.
    pub(super) fn leading(&self, to: IpAddr, net: IpNetwork) -> Leading {
        let (family, Ok(entry)) = (Family::from(to), route::lookup_entry(self.kernel, to)) else {
            return Leading::Unknown;
        };
        let Some(table) = entry.table.filter(|table| *table != MAIN_TABLE) else { return Leading::Route(entry) };
        let rules = rule::list(self.kernel, family).unwrap_or_default();
        let leads = |rule: &&Listed| {
            rule.table == Some(table) && rule.priority > 1 && rule.destination.is_none_or(|net| net.contains(to))
        };
        let Some(rule) = rules.iter().filter(leads).min_by_key(|rule| (rule.is_conditional, rule.priority)) else {
            return Leading::Unknown;
        };
        let (ip, option, priority) = (&self.ip, Self::option(family), rule.priority);
        let net = format!("{}/{}", net.network(), net.prefix());
        let remedy = format!("{ip}{option} rule add pref {} to {net} lookup main", priority - 1);
        let what = format!("by rule of routing {priority} and table {table}");
        Leading::Rule(Cause { what, remedy: vec![remedy.into()] })
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

fn destination(dst: IpNetwork) -> String {
    if dst.prefix() == 0 { "default".to_owned() } else { dst.to_string() }
}
