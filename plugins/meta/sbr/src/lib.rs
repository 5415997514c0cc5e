//! The sbr plugin: source-based routing. Packets from each address of the interface are routed by a table of their own, so that
//! answers leave by the interface that the question came in by.

pub mod change;
pub mod conf;

use std::collections::BTreeSet;
use std::net::IpAddr;

use chained::{Call, ChainedPlugin, Removing, Txn, differs, failed, lock};
use cni_spec::{AddResult, CniError, Code, Ip, Route as ResultRoute};
use interface::pod::Pod;
use ipnetwork::IpNetwork;
use netops::link::{self, Link};
use netops::route::whole::{self, Whole};
use netops::route::{self, Route};
use netops::rule::{self, Listed, Rule};
use netops::{Errno, Kernel, addr};

use crate::change::Change;
use crate::conf::{Conf, Table};

/// The first table that may be chosen, as in the reference.
const FIRST_TABLE: u32 = 100;

/// The sbr plugin.
#[derive(Debug)]
pub struct Sbr;

chained::plugin!(Sbr);

impl ChainedPlugin for Sbr {
    const NAME: &'static str = "sbr";
    type Conf = Conf;
    type Removal = Table;

    async fn add(call: &Call<'_, Conf>, txn: &Txn, _result: &mut AddResult) -> Result<(), CniError> {
        let ips = ips(call);
        if ips.is_empty() {
            return Ok(());
        }
        let own = &call.conf.own;
        let pod = call.site.pod()?;
        let _lock = lock(Self::NAME)?;
        let inside = &pod.container;
        if let Some(table) = own.table {
            return ips.iter().try_for_each(|ip| direct(inside, txn, ip.address.ip(), table));
        }
        let link = call.attached.link(pod)?;
        let routes = routes_of(inside, &link)?;
        let moving = Moving { inside, txn, own, link: &link, ips: &ips, routes: &routes };
        let mut first = FIRST_TABLE;
        for ip in &ips {
            let table = table_for(inside, ip.address.ip(), first)?;
            // The rule first: DEL finds the table by it. While that is empty, packets take the routes that they took before.
            direct(inside, txn, ip.address.ip(), table)?;
            moving.fill(table, ip)?;
            first = table.saturating_add(1);
            txn.checkpoint().await;
        }
        clear_main(inside, txn, own, &ips, &routes)
    }

    async fn check(call: &Call<'_, Conf>) -> Result<(), CniError> {
        let ips = ips(call);
        if ips.is_empty() {
            return Ok(());
        }
        let own = &call.conf.own;
        let pod = call.site.pod()?;
        let link = call.attached.link(pod)?;
        ips.iter().try_for_each(|ip| compare(pod, &link, own, ip))
    }

    async fn del(removing: &Removing<'_, Table>) -> Vec<CniError> {
        let netns = match removing.find_netns() {
            Ok(Some(netns)) => netns,
            // The rules ended with the namespace.
            Ok(None) => return Vec::new(),
            Err(error) => return vec![error],
        };
        let look = || {
            let inside = Kernel::in_netns(&netns)?;
            let link = link::find(&inside, removing.attachment.ifname.as_str())?;
            let rules = rules_to_remove(&inside, removing, link.as_ref())?;
            Ok((inside, link, rules))
        };
        let (inside, link, rules) = match look() {
            Ok(found) => found,
            Err(error) => return vec![failed(error)],
        };
        // The rules last: a DEL that is repeated finds the tables by them.
        if let (Some(link), None) = (link, removing.removal.0) {
            for table in tables(&rules) {
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

fn tables(rules: &[Rule]) -> BTreeSet<u32> {
    rules.iter().map(|rule| rule.table).collect()
}

/// The addresses that prevResult has on the interface.
fn ips<'a>(call: &Call<'a, Conf>) -> Vec<&'a Ip> {
    call.attached.ips().filter(|ip| ip.interface.is_some()).collect()
}

/// The interface's routes in the main table, those by a gateway first: their order when they are deleted.
fn routes_of(inside: &Kernel, link: &Link) -> Result<Vec<Whole>, CniError> {
    let mut routes = whole::list(inside, link.index, route::MAIN_TABLE, false).map_err(failed)?;
    routes.extend(whole::list(inside, link.index, route::MAIN_TABLE, true).map_err(failed)?);
    routes.sort_by_key(Whole::is_on_link);
    Ok(routes)
}

fn single(ip: IpAddr) -> IpNetwork {
    IpNetwork::from(ip)
}

/// The rule that an earlier ADD made for this address.
fn find_rule(inside: &Kernel, ip: IpAddr, table: Option<u32>) -> Result<Option<Listed>, CniError> {
    let rules = rule::list(inside, ip.is_ipv6()).map_err(failed)?;
    let is_it = |rule: &Listed| {
        let is_of_table = table.is_none_or(|table| rule.table == Some(table));
        rule.source == Some(single(ip)) && !rule.is_narrower && rule.table.is_some() && is_of_table
    };
    Ok(rules.into_iter().find(is_it))
}

/// The table that the address has already, or a free one from `first` on.
fn table_for(inside: &Kernel, ip: IpAddr, first: u32) -> Result<u32, CniError> {
    if let Some(table) = find_rule(inside, ip, None)?.and_then(|rule| rule.table) {
        return Ok(table);
    }
    rule::free_table(inside, first).map_err(failed)?.ok_or_else(|| {
        CniError::new(Code::KERNEL, format!("cannot choose a routing table in {}: none is free", inside.place()))
    })
}

/// Has packets from the address routed by the table.
fn direct(inside: &Kernel, txn: &Txn, ip: IpAddr, table: u32) -> Result<(), CniError> {
    if find_rule(inside, ip, Some(table))?.is_some() {
        return Ok(());
    }
    let rule = Rule { source: single(ip), table, priority: None };
    txn.push(Box::new(Change::AddedRule(rule)));
    inside.run(rule::add(&rule)).map_err(failed)
}

/// An interface whose routes go to tables of its addresses.
struct Moving<'a> {
    inside: &'a Kernel,
    txn: &'a Txn,
    own: &'a Conf,
    link: &'a Link,
    ips: &'a [&'a Ip],
    routes: &'a [Whole],
}

impl Moving<'_> {
    /// Fills the table of an address: the default route, and a copy of the interface's routes. A route that belongs to the subnet
    /// of one of the addresses is copied to its table alone; others to all of the family.
    fn fill(&self, table: u32, ip: &Ip) -> Result<(), CniError> {
        let Self { inside, txn, own, link, ips, routes } = *self;
        let is_ipv4 = ip.address.is_ipv4();
        let replaced = own.gateways.iter().copied().find(|gateway| gateway.is_ipv4() == is_ipv4);
        let of_family = routes.iter().filter(|route| route.dst().is_some_and(|dst| dst.is_ipv4() == is_ipv4));
        let belongs = |route: &Whole, ip: &Ip| {
            let hop =
                |hop: &Route| [hop.source, hop.gateway].into_iter().flatten().any(|near| ip.address.contains(near));
            route.hops().iter().any(hop)
        };
        let is_wanted = |route: &&Whole| {
            let is_default = route.dst().is_some_and(|dst| dst.prefix() == 0);
            (belongs(route, ip) || !ips.iter().any(|ip| belongs(route, ip))) && !(is_default && replaced.is_some())
        };
        // On-link routes first: the others' gateways are reached by them.
        let mut copies: Vec<Whole> = of_family.filter(is_wanted).map(|route| route.in_table(table)).collect();
        copies.reverse();
        if let Some(gateway) = replaced.or(ip.gateway) {
            let any = if is_ipv4 { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
            let default = IpNetwork::new(any, 0).map_err(|error| CniError::new(Code::INTERNAL, error.to_string()))?;
            let route = Route { table: Some(table), ..Route::new(default, Some(gateway), Some(link.index)) };
            match inside.run(route::add_only(&route)) {
                // Of an earlier ADD.
                Err(error) if error.os_errno() == Some(Errno::EEXIST) => (),
                done => {
                    // An error may be that of a lost answer.
                    txn.push(Box::new(Change::AddedDefault(route)));
                    done.map_err(failed)?;
                }
            }
        }
        for copy in copies {
            txn.push(Box::new(Change::Copied(copy.clone())));
            inside.run(whole::put(&copy)).map_err(failed)?;
        }
        Ok(())
    }
}

/// Takes the interface's routes out of the main table, but for those to its subnets where they shall hint at the source.
fn clear_main(inside: &Kernel, txn: &Txn, own: &Conf, ips: &[&Ip], routes: &[Whole]) -> Result<(), CniError> {
    for route in routes {
        let subnet_of = |ip: &&&Ip| route.is_on_link() && route.dst().is_some_and(|dst| dst.contains(ip.address.ip()));
        let hint = ips.iter().find(subnet_of).filter(|_| own.add_source_hints);
        let wish = match hint {
            Some(_) if route.source().is_some() => continue,
            Some(ip) => whole::put(&route.with_source(ip.address.ip())),
            None => whole::delete(route),
        };
        txn.push(Box::new(Change::Deleted(route.clone())));
        match inside.run(wish) {
            Err(error) if error.is_absent() => (),
            // As the reference: with source hints the rest is a wish.
            Err(error) if own.add_source_hints => tracing::warn!(%error, "going on"),
            done => done.map_err(failed)?,
        }
    }
    Ok(())
}

fn compare(pod: &Pod, link: &Link, own: &Conf, ip: &Ip) -> Result<(), CniError> {
    let inside = &pod.container;
    let address = ip.address.ip();
    let place = || format!("routing in {}", inside.place());
    let found = find_rule(inside, address, own.table)?;
    let Some(table) = found.and_then(|rule| rule.table) else {
        return Err(differs(place(), format!("no rule has packets from {address} routed by a table")));
    };
    if own.table.is_some() {
        return Ok(());
    }
    let family = |gateway: &&IpAddr| gateway.is_ipv4() == address.is_ipv4();
    let Some(gateway) = own.gateways.iter().find(family).copied().or(ip.gateway) else { return Ok(()) };
    let routes = route::list(inside, Some(link.index), Some(table), address.is_ipv6()).map_err(failed)?;
    match routes.iter().any(|route| route.dst.prefix() == 0 && route.gateway == Some(gateway)) {
        true => Ok(()),
        false => Err(differs(place(), format!("table {table} has no default route by {gateway}"))),
    }
}

/// The rules for addresses of the interface, as it has them and as prevResult has them.
fn rules_to_remove(
    inside: &Kernel,
    removing: &Removing<'_, Table>,
    link: Option<&Link>,
) -> netops::error::Result<Vec<Rule>> {
    let mut sources: Vec<IpAddr> =
        removing.attached.iter().flat_map(|prev| prev.ips()).map(|ip| ip.address.ip()).collect();
    if let Some(link) = link {
        sources.extend(addr::list(inside, link)?.into_iter().map(|address| address.net.ip()));
    }
    let mut rules = Vec::new();
    for ipv6 in [false, true] {
        let all = rule::list(inside, ipv6)?.into_iter().filter(|rule| !rule.is_narrower);
        rules.extend(all.filter_map(|rule| {
            let source = rule.source.filter(|source| sources.iter().any(|ip| single(*ip) == *source))?;
            let table = rule.table.filter(|table| removing.removal.0.is_none_or(|own| own == *table))?;
            Some(Rule { source, table, priority: Some(rule.priority) })
        }));
    }
    Ok(rules)
}

fn remove(inside: &Kernel, rule: &Rule) -> netops::error::Result<()> {
    match inside.run(rule::delete(rule)) {
        Err(error) if !error.is_absent() => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Moves the interface's routes from a table that no rule but `own` ones uses to the main one, so that ADD may follow. A default
/// route was there if prevResult has one of the family; without one of the interface it is taken for one that was. Another
/// interface's stays.
fn move_back(
    inside: &Kernel,
    link: &Link,
    table: u32,
    own: &[Rule],
    removing: &Removing<'_, Table>,
) -> netops::error::Result<()> {
    let is_reserved = matches!(table, 0 | 253..=255);
    let is_own = |rule: &Listed| {
        !rule.is_narrower
            && own.iter().any(|own| Some(own.source) == rule.source && own.priority == Some(rule.priority))
    };
    let is_used = |ipv6| -> netops::error::Result<bool> {
        Ok(rule::list(inside, ipv6)?.iter().any(|other| other.table == Some(table) && !is_own(other)))
    };
    if is_reserved || is_used(false)? || is_used(true)? {
        return Ok(());
    }
    for ipv6 in [false, true] {
        let is_default = |route: &ResultRoute| route.is_default() && route.dst.is_ipv6() == ipv6;
        let known = removing.attached.filter(|prev| prev.interface().is_some());
        let had_default = known.is_none_or(|prev| prev.result.routes.iter().any(is_default));
        let mut routes = whole::list(inside, link.index, table, ipv6)?;
        // On-link routes first: the others' gateways are reached by them.
        routes.sort_by_key(|route| !route.is_on_link());
        for route in routes {
            let is_default = route.dst().is_some_and(|dst| dst.prefix() == 0);
            if !is_default || had_default {
                match inside.run(whole::add(&route.in_table(route::MAIN_TABLE))) {
                    Err(error) if error.os_errno() == Some(Errno::EEXIST) => (),
                    done => done?,
                }
            }
            inside.run(whole::delete(&route))?;
        }
    }
    Ok(())
}
