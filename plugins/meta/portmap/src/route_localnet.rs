//! What packets to a port of 127.0.0.1 need: the kernel routes a loopback address to another interface only if that
//! interface has `route_localnet`.

use std::net::IpAddr;

use netops::error::Result;
use netops::link::Link;
use netops::nft::Family;
use netops::route::Route;
use netops::sysctl::{self, Key};
use netops::{Kernel, link, route};

use crate::pod_ports::PodPorts;

/// Whether a port of 127.0.0.1 is forwarded at all: with snat, for a mapping of any host address, or of a loopback one.
pub(crate) fn is_needed(pod: &PodPorts<'_>) -> bool {
    let is_loopback = |ip: IpAddr| ip.is_loopback();
    let is_mapped = pod.mappings().iter().any(|mapping| mapping.destination().is_none_or(is_loopback));
    pod.family == Family::Ip && pod.conf.snat.is_some() && is_mapped
}

/// What [`enable`] does, for programs that show it: the route to the container may not be there yet.
pub(crate) fn text(pod: &PodPorts<'_>) -> String {
    format!("sysctl net/ipv4/conf/LINK/route_localnet=1, LINK being the node's link towards {}", pod.address.ip())
}

/// Turns it on for the node's interface that leads to the container, if it [`is_needed`]. As in the reference it stays on.
pub(crate) fn enable(host: &Kernel, pod: &PodPorts<'_>) -> Result<()> {
    if !is_needed(pod) {
        return Ok(());
    }
    let route = match route::lookup(host, pod.address.ip()) {
        Ok(route) => route,
        // As the reference: without a route no packet of any address comes there.
        Err(error) => {
            tracing::warn!(%error, "no route to the container: ports of 127.0.0.1 are not forwarded");
            return Ok(());
        }
    };
    let Some((link, key)) = of_route(host, &route)? else { return Ok(()) };
    tracing::info!(link = link.name, "route_localnet is on, so that ports of 127.0.0.1 are forwarded");
    sysctl::ensure(&key, "1")
}

/// The setting of the link towards the container that is off again: a bridge that was made anew begins with it off. `None` also
/// where the node has no link of the container's own network.
pub(crate) fn lost(host: &Kernel, pod: &PodPorts<'_>) -> Result<Option<Key>> {
    if !is_needed(pod) {
        return Ok(None);
    }
    let Ok(route) = route::lookup(host, pod.address.ip()) else { return Ok(None) };
    let of_link = if route.gateway.is_none() { of_route(host, &route)? } else { None };
    // An address that the node has, too, leads to the loopback link.
    let of_link = of_link.filter(|(link, _)| !link.loopback);
    Ok(of_link.map(|(_, key)| key).filter(|key| matches!(sysctl::find(key), Ok(Some(value)) if value == "0")))
}

fn of_route(host: &Kernel, route: &Route) -> Result<Option<(Link, Key)>> {
    let link = route.link.map(|index| link::find_index(host, index)).transpose()?.flatten();
    link.map(|link| Ok((Key::of_link("ipv4", &link.name, "route_localnet")?, link)).map(|(key, link)| (link, key)))
        .transpose()
}
