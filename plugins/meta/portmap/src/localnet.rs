//! What packets to a port of 127.0.0.1 need: the kernel routes a loopback address to another interface only if that
//! interface has `route_localnet`.

use std::net::IpAddr;

use netops::error::Result;
use netops::nft::Family;
use netops::sysctl::{self, Key};
use netops::{Kernel, link, route};

use crate::pod::Pod;

/// Whether a port of 127.0.0.1 is forwarded at all: with snat, for a mapping of any host address, or of a loopback one.
pub(crate) fn is_needed(pod: &Pod<'_>) -> bool {
    let is_loopback = |ip: IpAddr| ip.is_loopback();
    let is_mapped = pod.mappings().iter().any(|mapping| mapping.destination().is_none_or(is_loopback));
    pod.family == Family::Ip && pod.conf.snat.is_some() && is_mapped
}

/// What [`enable`] does, for programs that show it: the route to the container may not be there yet.
pub(crate) fn text(pod: &Pod<'_>) -> String {
    format!("sysctl net/ipv4/conf/LINK/route_localnet=1, LINK being the node's link towards {}", pod.address.ip())
}

/// Turns it on for the node's interface that leads to the container, if it [`is_needed`]. As in the reference it stays on.
pub(crate) fn enable(host: &Kernel, pod: &Pod<'_>) -> Result<()> {
    if !is_needed(pod) {
        return Ok(());
    }
    let leads_there = match route::lookup(host, pod.address.ip()) {
        Ok(route) => route.link.map(|index| link::find_index(host, index)).transpose()?.flatten(),
        // As the reference: without a route no packet of any address comes there.
        Err(error) => {
            tracing::warn!(%error, "no route to the container: ports of 127.0.0.1 are not forwarded");
            None
        }
    };
    let Some(link) = leads_there else { return Ok(()) };
    let key = Key::of_link("ipv4", &link.name, "route_localnet")?;
    tracing::info!(link = link.name, "route_localnet is on, so that ports of 127.0.0.1 are forwarded");
    sysctl::ensure(&key, "1")
}
