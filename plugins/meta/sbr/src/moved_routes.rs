//! The interface's routes, on their way from the main table to those of its addresses.

use std::net::IpAddr;

use chained::{LazySides, Left, Txn, Undo, failed};
use cni_spec::{CniError, Code, Ip, Route as ResultRoute};
use ipnetwork::IpNetwork;
use netops::link::Link;
use netops::route::whole::{self, Whole};
use netops::route::{self, Route};
use netops::rule::{Listed, Rule};
use netops::{Errno, Kernel, OpError, rule};

use crate::conf::Conf;
use crate::gateway_of;

/// An interface whose routes go to tables of its addresses.
pub(crate) struct Moving<'a> {
    inside: &'a Kernel,
    txn: &'a Txn,
    own: &'a Conf,
    link: &'a Link,
    ips: &'a [&'a Ip],
    /// The interface's routes in the main table, in the order in which they can be deleted.
    routes: &'a [Whole],
    /// True if each address belongs to the subnet of one of the addresses.
    is_of_subnet: Vec<bool>,
    prev_routes: &'a [ResultRoute],
}

/// Whether a route belongs to the subnet of an address: its gateway, or its source, is there.
fn belongs(route: &Whole, ip: &Ip) -> bool {
    let hop = |hop: &Route| [hop.source, hop.gateway].into_iter().flatten().any(|near| ip.address.contains(near));
    route.hops().iter().any(hop)
}

pub(crate) fn is_default(route: &Whole) -> bool {
    route.dst().is_some_and(|dst| dst.prefix() == 0)
}

impl<'a> Moving<'a> {
    pub(crate) fn new(
        inside: &'a Kernel,
        txn: &'a Txn,
        own: &'a Conf,
        link: &'a Link,
        ips: &'a [&'a Ip],
        routes: &'a [Whole],
        prev_routes: &'a [ResultRoute],
    ) -> Self {
        let is_of_subnet = routes.iter().map(|route| ips.iter().any(|ip| belongs(route, ip))).collect();
        Self { inside, txn, own, link, ips, routes, is_of_subnet, prev_routes }
    }

    /// Fills the table of an address: the default route, and a copy of the interface's routes. A route that belongs to the subnet
    /// of one of the addresses is copied to its table alone; others to all of the family.
    pub(crate) fn fill(&self, table: u32, ip: &Ip, is_earlier: bool) -> Result<(), CniError> {
        let Self { inside, txn, own, link, routes, prev_routes, .. } = self;
        let ipv6 = ip.address.is_ipv6();
        let is_wanted = |(route, is_of_subnet): &(&Whole, &bool)| {
            let is_of_family = route.dst().is_some_and(|dst| dst.is_ipv6() == ipv6);
            is_of_family && (!**is_of_subnet || belongs(route, ip))
        };
        // On-link routes first: the others' gateways are reached by them.
        let wanted = routes.iter().zip(&self.is_of_subnet).rev().filter(is_wanted);
        let mut copies: Vec<Whole> = wanted.map(|(route, _)| route.in_table(table)).collect();
        if let Some(gateway) = gateway_of(&own.gateways, ip) {
            // By prevResult DEL knows that the main table had a default route, and a copy takes the place of the own one. Without
            // it, or where that is by another gateway, both are there.
            let is_default_of_prev = prev_routes.iter().any(|route| route.is_default() && route.dst.is_ipv6() == ipv6);
            let is_replaced = own.gateways.contains(&gateway);
            let is_beside = copies.iter().any(is_default) && (is_replaced || !is_default_of_prev);
            if is_beside {
                for copy in copies.iter_mut().filter(|copy| is_default(copy)) {
                    *copy = copy.with_metric(copy.metric().saturating_add(1));
                }
            }
            // A second one of an earlier ADD may have another metric.
            if !is_earlier || !has_default(inside, link.index, table, gateway).map_err(failed)? {
                self.add_default(table, gateway, is_beside)?;
            }
        }
        let requests = copies.iter().map(whole::put).collect();
        txn.push(Box::new(Change::Copied(table, copies)));
        inside.run_all(requests).map_err(failed)
    }

    fn add_default(&self, table: u32, gateway: IpAddr, is_beside: bool) -> Result<(), CniError> {
        let any = if gateway.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
        let default = IpNetwork::new(any, 0).map_err(|error| CniError::new(Code::INTERNAL, error.to_string()))?;
        let route = Route { table: Some(table), ..Route::new(default, Some(gateway), Some(self.link.index)) };
        let route = match is_beside {
            // The best metric: 0 in IPv4, 1 in IPv6, where 0 is 1024.
            true => {
                let metric = gateway.is_ipv6().then_some(1);
                Whole::of(&Route { metric, ..route }, MADE_BESIDE_COPIES)
            }
            false => Whole::of(&route, MADE_BY_ADD),
        };
        match self.inside.run(whole::add_only(&route)) {
            // Of an earlier ADD.
            Err(error) if error.os_errno() == Some(Errno::EEXIST) => Ok(()),
            done => {
                // An error may be that of a lost answer.
                self.txn.push(Box::new(Change::Added(route)));
                done.map_err(failed)
            }
        }
    }

    /// Takes the interface's routes out of the main table, but for those to its subnets where they shall hint at the source.
    pub(crate) fn clear_main(&self) -> Result<(), CniError> {
        let Self { inside, txn, own, .. } = self;
        let mut requests = Vec::new();
        for route in self.routes {
            let hint = self.ips.iter().find(|ip| own.add_source_hints && is_to_subnet(route, ip));
            if !route.is_deletable() || (hint.is_some() && route.source().is_some()) {
                continue;
            }
            txn.push(Box::new(Change::Deleted(route.clone())));
            requests.push(whole::delete(route));
            // Not by replacing: the kernel would also replace another interface's route to the same subnet.
            if let Some(ip) = hint {
                let hinted = route.with_source(ip.address.ip());
                txn.push(Box::new(Change::Added(hinted.clone())));
                requests.push(whole::add(&hinted));
            }
        }
        let tolerate = |error: OpError| match error {
            error if error.is_absent() => Ok(()),
            // As the reference: with source hints the rest is a wish.
            error if own.add_source_hints => {
                tracing::warn!(%error, "going on");
                Ok(())
            }
            error => Err(failed(error)),
        };
        inside.run_each(requests).into_iter().filter_map(Result::err).try_for_each(tolerate)
    }
}

/// Whether a route leads to the subnet of an address: one on the link that has the address in it, or one to the subnet or a part of
/// it, on the link or by a gateway in the subnet, as ptp makes them.
fn is_to_subnet(route: &Whole, ip: &Ip) -> bool {
    let Some(dst) = route.dst().filter(|dst| dst.is_ipv6() == ip.address.is_ipv6()) else { return false };
    let is_part = ip.address.contains(dst.network()) && dst.prefix() >= ip.address.prefix();
    let is_near = |hop: &Route| hop.gateway.is_none_or(|gateway| ip.address.contains(gateway));
    (route.is_on_link() && dst.contains(ip.address.ip())) || (is_part && route.hops().iter().all(is_near))
}

#[derive(Debug)]
pub(crate) enum Change {
    AddedRule(Rule),
    Added(Whole),
    /// Copies of routes in this table.
    Copied(u32, Vec<Whole>),
    /// A route that was deleted from the main table.
    Deleted(Whole),
}

impl Undo for Change {
    fn text(&self) -> String {
        match self {
            Self::AddedRule(rule) => format!("rule {rule} deleted"),
            Self::Added(route) => format!("route {route} deleted"),
            Self::Copied(table, _) => format!("copies of routes in table {table} deleted"),
            Self::Deleted(route) => format!("route {route} restored"),
        }
    }

    fn run(&self, sides: &LazySides<'_>) -> Result<(), Left> {
        let sides = sides.open()?;
        let is_undone = |error: &OpError| error.is_absent() || error.os_errno() == Some(Errno::EEXIST);
        let done = match self {
            Self::AddedRule(rule) => sides.container.run(rule::delete(rule)),
            Self::Added(route) => sides.container.run(whole::delete(route)),
            Self::Copied(_, routes) => whole::remove(&sides.container, routes),
            // Beside other interfaces' routes to the same place.
            Self::Deleted(route) => whole::restore(&sides.container, [route.clone()]),
        };
        match done {
            Err(error) if !is_undone(&error) => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// The protocol of a default route that ADD made, where the main table had none: DEL does not move it there. A number that
/// `linux/rtnetlink.h` leaves free, as the reference's `boot` is also that of routes that were copied.
pub(crate) const MADE_BY_ADD: u8 = 193;

/// The protocol of a default route that ADD made beside copies of the main table's. The copies' metrics are by 1 higher than
/// theirs, so that packets take this one; DEL moves them back with the metrics that they had.
pub(crate) const MADE_BESIDE_COPIES: u8 = 194;

/// The rules that route packets from the address by a table, and that have no other selector, in the order of evaluation.
pub(crate) fn rules_of(inside: &Kernel, ip: IpAddr) -> netops::error::Result<Vec<(Listed, u32)>> {
    let all = rule::list(inside, ip.into())?;
    Ok(of_source(&all, ip).collect())
}

/// The rules of [`rules_of`] among these.
pub(crate) fn of_source(all: &[Listed], ip: IpAddr) -> impl Iterator<Item = (Listed, u32)> {
    let of_source = move |rule: &&Listed| rule.source == Some(IpNetwork::from(ip)) && !rule.is_narrower;
    all.iter().filter(of_source).filter_map(|rule| Some((*rule, rule.table?)))
}

/// Whether a table of a rule for this address is the interface's: it has no routes yet, or its default route is by the address's
/// gateway on the interface. Where the gateway is not known, all of its routes have to be the interface's.
pub(crate) fn is_own(
    inside: &Kernel,
    link: Option<u32>,
    table: u32,
    ip: IpAddr,
    gateway: Option<IpAddr>,
) -> netops::error::Result<bool> {
    if is_reserved(table) {
        return Ok(false);
    }
    let routes = route::list(inside, None, Some(table), ip.into())?;
    let is_here = |route: &route::Route| link.is_some() && route.link == link;
    Ok(routes.is_empty()
        || match gateway {
            Some(_) => routes.iter().any(|route| route.dst.prefix() == 0 && route.gateway == gateway && is_here(route)),
            None => routes.iter().all(is_here),
        })
}

/// Whether the table has a default route by the gateway on the interface.
pub(crate) fn has_default(inside: &Kernel, link: u32, table: u32, gateway: IpAddr) -> netops::error::Result<bool> {
    let routes = route::list(inside, Some(link), Some(table), gateway.into())?;
    Ok(routes.iter().any(|route| route.dst.prefix() == 0 && route.gateway == Some(gateway)))
}

/// Whether the kernel or the node uses the table.
pub(crate) fn is_reserved(table: u32) -> bool {
    matches!(table, 0 | 253..=255)
}
