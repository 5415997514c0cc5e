//! The sbr plugin: source-based routing. Packets from each address of the interface are routed by a table of their own, so that
//! answers leave by the interface that the question came in by.

pub mod conf;
mod moved_routes;

use std::collections::BTreeSet;
use std::net::IpAddr;

use chained::{AddOrCheck, ChainedPlugin, Preview, Removing, Shown, Timer, Txn, all, differs, failed, lock};
use cni_spec::{AddResult, CniError, Code, Ip, Route as ResultRoute};
use interface::sides::Sides;
use ipnetwork::IpNetwork;
use netops::link::Link;
use netops::route::whole::{self, Whole};
use netops::rule::{self, Listed, Rule};
use netops::{Family, Kernel, addr, route};

use crate::conf::{Conf, Removal};
use crate::moved_routes::{Change, MADE_BESIDE_COPIES, MADE_BY_ADD, Moving, is_default, is_own, of_source, rules_of};

/// The first table that may be chosen, as in the reference.
const FIRST_TABLE: u32 = 100;

#[derive(Debug)]
pub struct Sbr;

impl ChainedPlugin for Sbr {
    const NAME: &'static str = "sbr";
    type Conf = Conf;
    type Removal = Removal;

    async fn add(call: &AddOrCheck<'_>, own: &Conf, txn: &Txn, _result: &mut AddResult) -> Result<(), CniError> {
        let ips = ips(call);
        if ips.is_empty() {
            return Ok(());
        }
        let sides = call.sides.open()?;
        let _lock = lock(Self::NAME, &sides.netns)?;
        let inside = &sides.container;
        let mut rules = Rules::read(inside)?;
        if let Some(table) = own.table {
            return ips.iter().try_for_each(|ip| rules.direct(txn, ip.address.ip(), table));
        }
        let link = call.attached.link(sides)?;
        let routes = routes_of(inside, &link, &ips)?;
        let prev_routes = &call.attached.result.routes;
        let moving = Moving::new(inside, txn, own, &link, &ips, &routes, prev_routes);
        let mut first = FIRST_TABLE;
        for ip in &ips {
            let (table, is_earlier) = rules.table_for(&link, own, ip, first)?;
            // The rule first: DEL finds the table by it. While that is empty, packets take the routes that they took before.
            rules.direct(txn, ip.address.ip(), table)?;
            let timer = Timer::start();
            moving.fill(table, ip, is_earlier)?;
            timer.end("fill table");
            first = if is_earlier { first } else { table.saturating_add(1) };
            txn.checkpoint().await;
        }
        moving.clear_main()
    }

    fn preview(call: &AddOrCheck<'_>, own: &Conf, preview: &mut Preview) -> Result<(), CniError> {
        let (ips, ifname) = (ips(call), &call.attachment.ifname);
        if call.attached.result.ips.is_empty() {
            preview.unknown.push("rules and tables: the interface's addresses are not known before".to_owned());
        }
        let inside = &call.sides.open()?.container;
        let mut first = FIRST_TABLE;
        for ip in &ips {
            let free = || rule::free_table(inside, first).map_err(failed)?.ok_or_else(|| no_table(inside));
            let table = own.table.map_or_else(free, Ok)?;
            let rule = Rule { source: single(ip.address.ip()), table, priority: None };
            preview.step(format!("ip rule add {rule}"));
            if own.table.is_some() {
                continue;
            }
            if let Some(gateway) = gateway_of(&own.gateways, ip) {
                preview.step(format!("ip route add default via {gateway} dev {ifname} table {table}"));
            }
            let copied = format!("copy the routes of {ifname} that belong to {} into table {table}", ip.address);
            preview.push(Shown::new(copied).uncompared());
            first = table.saturating_add(1);
        }
        if own.table.is_none() && !ips.is_empty() {
            let has = |family| ips.iter().any(|ip| Family::from(ip.address) == family);
            let family = match Family::BOTH.map(has) {
                [true, false] => "IPv4 ",
                [false, true] => "IPv6 ",
                [true, true] | [false, false] => "",
            };
            let but = if own.add_source_hints { ", but those to its subnets" } else { "" };
            let taken = format!("take the {family}routes of {ifname} out of table main{but}");
            preview.push(Shown::new(taken).uncompared());
        }
        Ok(())
    }

    async fn check(call: &AddOrCheck<'_>, own: &Conf) -> Result<(), CniError> {
        let ips = ips(call);
        if ips.is_empty() {
            return Ok(());
        }
        let sides = call.sides.open()?;
        let link = call.attached.link(sides)?;
        all(ips.iter().map(|ip| compare(sides, &link, own, ip)))
    }

    async fn del(removing: &Removing<'_, Removal>) -> Vec<CniError> {
        let netns = match removing.find_netns() {
            Ok(Some(netns)) => netns,
            // The rules ended with the namespace.
            Ok(None) => return Vec::new(),
            Err(error) => return vec![error],
        };
        let look = || {
            let inside = Kernel::in_netns(&netns)?;
            let link = removing.find_link(&netns, &inside)?;
            let rules = rules_to_remove(&inside, removing, link.as_ref())?;
            Ok((inside, link, rules))
        };
        let (inside, link, found) = match look() {
            Ok(found) => found,
            Err(error) => return vec![failed(error)],
        };
        // The rules last: a DEL that is repeated finds the tables by them.
        let rules: Vec<Rule> = found.iter().map(|(rule, _)| *rule).collect();
        if let (Some(link), None) = (link, removing.removal.table) {
            let tables: BTreeSet<u32> =
                found.iter().filter(|(_, is_own)| *is_own).map(|(rule, _)| rule.table).collect();
            for table in tables {
                let back = |inside: &Kernel| move_back(inside, &link, table, &rules, removing);
                // The interface is about to be removed, with its routes. A passing failure, such as one of memory, is not the end
                // of it; a connection that has failed may still have an answer to what it was asked.
                let again = |_| Kernel::in_netns(&netns).and_then(|inside| back(&inside));
                if let Err(error) = back(&inside).or_else(again) {
                    tracing::warn!(%error, "the interface's routes stay where they are");
                }
            }
        }
        rules.iter().filter_map(|rule| remove(&inside, rule).err()).map(failed).collect()
    }
}

/// The addresses that prevResult has on the interface, or on none.
fn ips<'a>(call: &AddOrCheck<'a>) -> Vec<&'a Ip> {
    call.attached.ips_by_name().collect()
}

/// The interface's routes in the main table that get another one, in the order in which they can be deleted. Those of a family
/// without an address stay where they are: there is no table that they could go to.
fn routes_of(inside: &Kernel, link: &Link, ips: &[&Ip]) -> Result<Vec<Whole>, CniError> {
    let mut routes = Vec::new();
    for family in Family::BOTH {
        if ips.iter().any(|ip| Family::from(ip.address) == family) {
            routes.extend(whole::list(inside, link.index, route::MAIN_TABLE, family).map_err(failed)?);
        }
    }
    routes.reverse();
    Ok(routes)
}

fn single(ip: IpAddr) -> IpNetwork {
    IpNetwork::from(ip)
}

fn gateway_of(gateways: &[IpAddr], ip: &Ip) -> Option<IpAddr> {
    gateways.iter().copied().find(|gateway| gateway.is_ipv4() == ip.address.is_ipv4()).or(ip.gateway)
}

fn no_table(inside: &Kernel) -> CniError {
    CniError::new(Code::KERNEL, format!("cannot choose a routing table in {}: none is free", inside.place()))
}

/// The rules of both families, read once, with those that ADD makes.
struct Rules<'a> {
    inside: &'a Kernel,
    all: Vec<Listed>,
}

impl<'a> Rules<'a> {
    fn read(inside: &'a Kernel) -> Result<Self, CniError> {
        Ok(Self { inside, all: rule::list_both(inside).map_err(failed)? })
    }

    /// The table that an earlier ADD chose for the address, or a free one from `first` on; and whether it is an earlier one's.
    fn table_for(&self, link: &Link, own: &Conf, ip: &Ip, first: u32) -> Result<(u32, bool), CniError> {
        let address = ip.address.ip();
        for (_, table) in of_source(&self.all, address) {
            let gateway = gateway_of(&own.gateways, ip);
            if is_own(self.inside, Some(link.index), table, address, gateway).map_err(failed)? {
                return Ok((table, true));
            }
        }
        let is_named = |table| self.all.iter().any(|rule| rule.table == Some(table));
        let free = rule::free_table_beside(self.inside, first, &is_named).map_err(failed)?;
        Ok((free.ok_or_else(|| no_table(self.inside))?, false))
    }

    /// Has packets from the address routed by the table.
    fn direct(&mut self, txn: &Txn, ip: IpAddr, table: u32) -> Result<(), CniError> {
        if of_source(&self.all, ip).any(|(_, found)| found == table) {
            return Ok(());
        }
        let rule = Rule { source: single(ip), table, priority: None };
        txn.push(Box::new(Change::AddedRule(rule)));
        self.inside.run(rule::add(&rule)).map_err(failed)?;
        // The kernel chooses the priority, which nothing asks for.
        self.all.push(Listed { source: Some(rule.source), table: Some(table), ..Listed::default() });
        Ok(())
    }
}

fn compare(sides: &Sides, link: &Link, own: &Conf, ip: &Ip) -> Result<(), CniError> {
    let inside = &sides.container;
    let address = ip.address.ip();
    let place = || format!("routing in {}", inside.place());
    let mut rules = rules_of(inside, address).map_err(failed)?;
    rules.retain(|(_, table)| own.table.is_none_or(|own| own == *table));
    let Some((_, first)) = rules.first() else {
        return Err(differs(place(), format!("no rule has packets from {address} routed by a table")));
    };
    let gateway = gateway_of(&own.gateways, ip).filter(|_| own.table.is_none());
    let Some(gateway) = gateway else { return Ok(()) };
    for (_, table) in &rules {
        let routes = route::list(inside, Some(link.index), Some(*table), address.into()).map_err(failed)?;
        if routes.iter().any(|route| route.dst.prefix() == 0 && route.gateway == Some(gateway)) {
            return Ok(());
        }
    }
    Err(differs(place(), format!("table {first} has no default route by {gateway}")))
}

/// The rules for addresses of the interface, as it has them and as prevResult has them; and whether their tables are those of
/// ADD. An address's rules to other tables are left out, as an administrator's, unless none is to its own.
fn rules_to_remove(
    inside: &Kernel,
    removing: &Removing<'_, Removal>,
    link: Option<&Link>,
) -> netops::error::Result<Vec<(Rule, bool)>> {
    let Removal { table, gateways } = removing.removal;
    let prev_ips: Vec<&Ip> = removing.attached.iter().flat_map(|prev| prev.ips_by_name()).collect();
    let mut sources: BTreeSet<IpAddr> = prev_ips.iter().map(|ip| ip.address.ip()).collect();
    match link {
        Some(link) => sources.extend(addr::list(inside, link)?.into_iter().map(|address| address.net.ip())),
        // The interface is gone, or another attachment's, with the rules for its addresses.
        None => addr::list_all(inside, None)?.iter().for_each(|(_, address)| {
            sources.remove(&address.ip());
        }),
    }
    let mut removed = Vec::new();
    for source in sources {
        let gateway = prev_ips.iter().find(|ip| ip.address.ip() == source).and_then(|ip| gateway_of(gateways, ip));
        let mut rules = Vec::new();
        for (rule, found) in rules_of(inside, source)? {
            if table.is_none_or(|own| own == found) {
                let is_own = is_own(inside, link.map(|link| link.index), found, source, gateway)?;
                rules.push((Rule { source: single(source), table: found, priority: Some(rule.priority) }, is_own));
            }
        }
        let has_own = rules.iter().any(|(_, is_own)| *is_own);
        removed.extend(rules.into_iter().filter(|(_, is_own)| *is_own || !has_own || table.is_some()));
    }
    Ok(removed)
}

fn remove(inside: &Kernel, rule: &Rule) -> netops::error::Result<()> {
    match inside.run(rule::delete(rule)) {
        Err(error) if !error.is_absent() => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Moves the interface's routes from a table that no rule but `own` ones uses to the main one, so that ADD may follow; a default
/// route that ADD made is only deleted. The reference's has no mark: it was there if prevResult has one of the family; without
/// one of the interface it is taken for one that was. Other interfaces' stay.
fn move_back(
    inside: &Kernel,
    link: &Link,
    table: u32,
    own: &[Rule],
    removing: &Removing<'_, Removal>,
) -> netops::error::Result<()> {
    let is_own = |rule: &Listed| {
        !rule.is_narrower
            && own.iter().any(|own| Some(own.source) == rule.source && own.priority == Some(rule.priority))
    };
    if rule::list_both(inside)?.iter().any(|other| other.table == Some(table) && !is_own(other)) {
        return Ok(());
    }
    for family in Family::BOTH {
        let is_default_of_prev = |route: &ResultRoute| route.is_default() && Family::from(route.dst) == family;
        let known = removing.attached.filter(|prev| prev.interface().is_some());
        let routes = whole::list(inside, link.index, table, family)?;
        let is_beside = routes.iter().any(|route| route.protocol() == MADE_BESIDE_COPIES);
        let had_default = is_beside || known.is_none_or(|prev| prev.result.routes.iter().any(is_default_of_prev));
        let is_moved = |route: &&Whole| {
            let is_made = matches!(route.protocol(), MADE_BY_ADD | MADE_BESIDE_COPIES);
            !is_made && (!is_default(route) || had_default)
        };
        let back = |route: &Whole| {
            let back = route.in_table(route::MAIN_TABLE);
            match is_beside && is_default(route) {
                true => back.with_metric(route.metric().saturating_sub(1)),
                false => back,
            }
        };
        whole::restore(inside, routes.iter().filter(is_moved).map(back))?;
        inside.run_all(routes.iter().map(whole::delete).collect())?;
    }
    Ok(())
}
