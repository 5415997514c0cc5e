//! CHECK's comparisons of a container's interface with the result that ADD gave.

use cni_spec::{AddResult, CniError, Code, Interface};
use ipnetwork::IpNetwork;
use netops::link::{Link, Mac};
use netops::route::{MAIN_TABLE, Route};
use netops::{Kernel, addr, route};
use skel::NetnsPath;

use crate::container::Plan;
use crate::failed;

/// A difference between the node and what ADD left.
#[must_use]
pub fn differs(object: impl std::fmt::Display, how: impl std::fmt::Display) -> CniError {
    CniError::new(Code::CHECK_FAILED, format!("{object} is not as ADD left it: {how}"))
}

/// The result's entry for the container's interface, whose sandbox must be the namespace that CHECK is for.
///
/// # Errors
/// Code 107: there is no such entry, or it is of another namespace.
pub fn container_interface<'a>(
    result: &'a AddResult,
    ifname: &str,
    netns: &NetnsPath,
) -> Result<&'a Interface, CniError> {
    // An earlier result that ADD passed on may have one of this name in another namespace; the own ones come behind.
    let named = || result.interfaces.iter().rev().filter(|entry| entry.name == ifname && !entry.sandbox.is_empty());
    if let Some(entry) = named().find(|entry| entry.sandbox == netns.as_str()) {
        return Ok(entry);
    }
    Err(match named().next() {
        None => CniError::new(Code::CHECK_FAILED, format!("prevResult has no interface {ifname} with a sandbox")),
        Some(entry) => {
            differs(format!("sandbox of {ifname}"), format!("prevResult says {}, CNI_NETNS {netns}", entry.sandbox))
        }
    })
}

/// Compares a link's Ethernet address with the result's, if that has one.
///
/// # Errors
/// Code 107.
pub fn mac(link: &Link, entry: &Interface) -> Result<(), CniError> {
    if entry.mac.is_empty() {
        return Ok(());
    }
    match (entry.mac.parse::<Mac>(), link.mac) {
        (Ok(wanted), Some(found)) if wanted == found => Ok(()),
        (_, Some(found)) => {
            Err(differs(format!("link {}", link.name), format!("its address is {found}, not {}", entry.mac)))
        }
        (_, None) => Err(differs(format!("link {}", link.name), "it has no Ethernet address")),
    }
}

/// Compares the addresses on the link with the plan's. Others may have been added since.
///
/// # Errors
/// Code 107 naming the first that is missing.
pub fn addresses(net: &Kernel, link: &Link, plan: &Plan) -> Result<(), CniError> {
    let found = addr::list(net, link).map_err(failed)?;
    let missing = plan.addresses.iter().find(|wanted| !found.iter().any(|address| address.net == wanted.net));
    match missing {
        None => Ok(()),
        Some(wanted) => Err(differs(format!("link {}", link.name), format!("address {} is not found", wanted.net))),
    }
}

/// Compares the routes with the plan's, each in its own table, and looks for a route to each address's prefix.
///
/// # Errors
/// Code 107 naming the first that is missing.
pub fn routes(net: &Kernel, link: &Link, plan: &Plan) -> Result<(), CniError> {
    // On any link: a later plugin may have moved one, and what counts is that it is there.
    let mut found = Vec::new();
    for ipv6 in [false, true] {
        found.extend(route::list(net, None, None, ipv6).map_err(failed)?);
    }
    let missing = |what: String| Err(differs(format!("link {}", link.name), format!("{what} is not found")));
    for address in &plan.addresses {
        let prefix = address.net;
        let direct = |route: &Route| route.dst.ip() == prefix.network() && route.dst.prefix() == prefix.prefix();
        let in_main = |route: &&Route| route.table == Some(MAIN_TABLE);
        if is_subnet(prefix) && !found.iter().filter(in_main).any(direct) {
            return missing(format!("route to {prefix}"));
        }
    }
    for wanted in &plan.routes {
        if !found.iter().any(|route| same(wanted, route)) {
            return missing(format!("route {wanted}"));
        }
    }
    Ok(())
}

/// A /32 or /128 is no subnet: the kernel makes no route for it (IPv4), or a local one.
fn is_subnet(net: IpNetwork) -> bool {
    net.prefix() < if net.is_ipv4() { 32 } else { 128 }
}

/// Whether `found` is the route that was `wanted`. A default route may have got another next hop since.
fn same(wanted: &Route, found: &Route) -> bool {
    let table = wanted.table.unwrap_or(MAIN_TABLE);
    let gateway = wanted.dst.prefix() == 0 || wanted.gateway.is_none() || wanted.gateway == found.gateway;
    wanted.dst == found.dst && found.table == Some(table) && gateway
}
