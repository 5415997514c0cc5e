//! The rules and tables of an interface. The kernel keeps no name of a rule's maker, and an administrator may have rules
//! of the same source: a table's routes show its owner.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netops::Kernel;
use netops::error::Result;
use netops::route;
use netops::rule::{self, Listed};

/// The protocol of a default route that ADD made, where the main table had none: DEL does not move it there. A number that
/// `linux/rtnetlink.h` leaves free, as the reference's `boot` is also that of routes that were copied.
pub(crate) const MADE_BY_ADD: u8 = 193;

/// The protocol of a default route that ADD made beside copies of the main table's. The copies' metrics are by 1 higher than
/// theirs, so that packets take this one; DEL moves them back with the metrics that they had.
pub(crate) const MADE_BESIDE_COPIES: u8 = 194;

/// The rules that route packets from the address by a table, and that have no other selector, in the order of evaluation.
pub(crate) fn rules_of(inside: &Kernel, ip: IpAddr) -> Result<Vec<(Listed, u32)>> {
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
) -> Result<bool> {
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
pub(crate) fn has_default(inside: &Kernel, link: u32, table: u32, gateway: IpAddr) -> Result<bool> {
    let routes = route::list(inside, Some(link), Some(table), gateway.into())?;
    Ok(routes.iter().any(|route| route.dst.prefix() == 0 && route.gateway == Some(gateway)))
}

/// Whether the kernel or the node uses the table.
pub(crate) fn is_reserved(table: u32) -> bool {
    matches!(table, 0 | 253..=255)
}
