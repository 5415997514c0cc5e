//! Rules of routing: refusals, where a kernel finds no route, by one or by a route of its main table; and those that lead past it.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netops::route::MAIN_TABLE;
use netops::rule::{self, Listed};
use netops::{Family, Kernel, route};

/// A rule or a route that refuses packets.
pub(super) struct Refusal {
    /// The rule or route, in the words of `ip`.
    pub(super) what: String,
    /// The command that removes it.
    pub(super) remedy: String,
}

/// The rule or route that refuses packets to an address, from one or from any. `ip` is the command that acts on the kernel's namespace.
pub(super) fn find(kernel: &Kernel, ip: &str, from: Option<IpAddr>, to: IpAddr) -> Option<Refusal> {
    let family = Family::from(to);
    let option = if family == Family::V6 { " -6" } else { "" };
    let has = |net: Option<IpNetwork>, address: Option<IpAddr>| {
        net.is_none_or(|net| address.is_some_and(|address| net.contains(address)))
    };
    let is_met = |rule: &&Listed| !rule.is_conditional && has(rule.source, from) && has(rule.destination, Some(to));
    let rules = rule::list(kernel, family).unwrap_or_default();
    if let Some((rule, kind)) = rules.iter().filter(is_met).find_map(|rule| Some((rule, rule.refuses?))) {
        let end = |word: &str, net: Option<IpNetwork>| net.map_or(String::new(), |net| format!("{word} {net} "));
        let words = format!("{}{}{kind}", end("from", rule.source), end("to", rule.destination));
        let remedy = format!("{ip}{option} rule del {words} pref {}", rule.priority);
        return Some(Refusal { what: format!("rule {words}"), remedy });
    }
    let refusing = route::list_refusing(kernel, family).unwrap_or_default();
    // The kernel has one of its own, unreachable default of IPv6, which counts where nothing else leads there.
    let is_made = |(kind, dst): &(&str, IpNetwork)| dst.prefix() > 0 || family == Family::V4 || *kind != "unreachable";
    let longest = refusing.into_iter().filter(is_made).filter(|(_, dst)| dst.contains(to));
    let (kind, dst) = longest.max_by_key(|(_, dst)| dst.prefix())?;
    let dst = if dst.prefix() == 0 { "default".to_owned() } else { dst.to_string() };
    Some(Refusal { what: format!("route {kind} {dst}"), remedy: format!("{ip}{option} route del {kind} {dst}") })
}

/// The rule of routing by whose table packets to a network's address leave by a link, in words, and the command by which the main table
/// decides on that network before it: what else the rule leads there stays so. `ip` is the command that acts on the kernel's namespace.
pub(super) fn find_before_main(
    kernel: &Kernel,
    ip: &str,
    (to, net): (IpAddr, IpNetwork),
    link: u32,
) -> Option<(String, String)> {
    let family = Family::from(to);
    let leads = |table: u32| {
        let routes = route::list(kernel, Some(link), Some(table), family).unwrap_or_default();
        routes.iter().any(|route| route.dst.contains(to))
    };
    let rules = rule::list(kernel, family).unwrap_or_default();
    // The first rule is that of the table of local addresses.
    let may_lead = |rule: &&Listed| rule.priority > 1 && rule.destination.is_none_or(|net| net.contains(to));
    let (rule, table) = rules
        .iter()
        .filter(may_lead)
        .map_while(|rule| Some(rule).filter(|rule| rule.table != Some(MAIN_TABLE)))
        .find_map(|rule| Some((rule, rule.table.filter(|table| leads(*table))?)))?;
    let (priority, option) = (rule.priority, if family == Family::V6 { " -6" } else { "" });
    let net = format!("{}/{}", net.network(), net.prefix());
    let remedy = format!("{ip}{option} rule add pref {} to {net} lookup main", priority - 1);
    Some((format!("by rule of routing {priority} and table {table}"), remedy))
}
