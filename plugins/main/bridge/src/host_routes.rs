//! The node's routes to containers whose address is in another network than their gateway on the bridge: by the gateway's
//! address alone the node would not reach them.
//!
//! Each is of one container, so unlike the bridge it ends with DEL and GC. Its metric is a hash of the attachment's mark: the
//! kernel keeps no note of a route, and DEL has to find it without a result.

use std::net::IpAddr;

use cni_spec::gc::Sweep;
use cni_spec::{AddResult, Attachment, Ip, NetworkName};
use interface::sides::Sides;
use interface::undo::{Left, OwnUndo};
use interface::{Uncollected, alias, host_veth};
use ipnetwork::IpNetwork;
use netops::error::Result;
use netops::link::{self, Link};
use netops::route::{self, MAIN_TABLE, Route};
use netops::{Errno, Family, Kernel};
use sha2::{Digest, Sha512};

use crate::conf::Removal;

const SCOPE_LINK: u8 = 253; // RT_SCOPE_LINK, include/uapi/linux/rtnetlink.h

/// Metrics of these routes are above those that administrators and routing daemons use.
const METRIC_MIN: u32 = 1 << 31;

/// The routes that the node needs to a container's addresses, over the bridge or the VLAN's gateway.
pub(crate) fn routes(attachment: &Attachment, ips: &[Ip]) -> Vec<Route> {
    let outside = ips.iter().filter(|ip| is_outside(ip));
    let to = |ip: &Ip| {
        let (net, scope) = (IpNetwork::from(ip.address.ip()), ip.address.is_ipv4().then_some(SCOPE_LINK));
        Route { scope, metric: Some(metric(&alias::of(attachment))), ..Route::new(net, None, None) }
    };
    outside.map(to).collect()
}

/// Whether the gateway's address has a network that the container's address is not in.
fn is_outside(ip: &Ip) -> bool {
    let network = |gateway: IpAddr| IpNetwork::new(gateway, ip.address.prefix()).ok();
    let network = ip.gateway.filter(|gateway| gateway.is_ipv4() == ip.address.is_ipv4()).and_then(network);
    network.is_some_and(|network| !network.contains(ip.address.ip()))
}

fn metric(mark: &str) -> u32 {
    let [a, b, c, d, ..] = <[u8; 64]>::from(Sha512::digest(mark));
    u32::from_be_bytes([a, b, c, d]) | METRIC_MIN
}

/// Adds the routes; those that are there stay.
pub(crate) fn add(host: &Kernel, router: &Link, routes: &[Route]) -> Result<()> {
    let on = |route: &Route| Route { link: Some(router.index), ..route.clone() };
    routes.iter().try_for_each(|route| match host.run(route::add_only(&on(route))) {
        Err(error) if error.os_errno() == Some(Errno::EEXIST) => Ok(()),
        outcome => outcome,
    })
}

/// The first of the routes that the node does not have over the link.
pub(crate) fn find_missing<'a>(host: &Kernel, router: &Link, routes: &'a [Route]) -> Result<Option<&'a Route>> {
    for family in Family::BOTH {
        let mut wanted = routes.iter().filter(|route| Family::from(route.dst) == family).peekable();
        if wanted.peek().is_none() {
            continue;
        }
        let found = route::list(host, Some(router.index), Some(MAIN_TABLE), family)?;
        let is_there =
            |wanted: &Route| found.iter().any(|found| (found.dst, found.metric) == (wanted.dst, wanted.metric));
        if let Some(missing) = wanted.find(|wanted| !is_there(wanted)) {
            return Ok(Some(missing));
        }
    }
    Ok(None)
}

/// Takes the routes of an ADD back.
#[derive(Debug)]
pub(crate) struct Unreach(pub(crate) Link, pub(crate) Vec<Route>);

impl OwnUndo for Unreach {
    fn text(&self) -> String {
        format!("routes to the container by {} deleted", self.0.name)
    }

    fn run(&self, sides: &Sides) -> std::result::Result<(), Left> {
        let Self(router, routes) = self;
        Ok(delete(&sides.host, router, routes.iter())?)
    }
}

fn delete<'a>(host: &Kernel, router: &Link, mut routes: impl Iterator<Item = &'a Route>) -> Result<()> {
    let on = |route: &Route| Route { link: Some(router.index), ..route.clone() };
    routes.try_for_each(|route| match host.run(route::delete(&on(route))) {
        Err(error) if error.is_absent() => Ok(()),
        outcome => outcome,
    })
}

/// Deletes the routes to an attachment, if it may have any.
pub(crate) fn remove(attachment: &Attachment, removal: &Removal, prev: Option<&AddResult>) -> Result<()> {
    let has_none = prev.is_some_and(|prev| !prev.ips.iter().any(is_outside));
    if has_none || !removal.is_gateway {
        return Ok(());
    }
    let host = Kernel::host()?;
    let wanted = metric(&alias::of(attachment));
    for name in removal.routers() {
        let Some(router) = link::find(&host, &name)? else { continue };
        delete(&host, &router, list(&host, &router)?.iter().filter(|route| route.metric == Some(wanted)))?;
    }
    Ok(())
}

/// The routes to containers over a link, of all attachments.
fn list(host: &Kernel, router: &Link) -> Result<Vec<Route>> {
    let mut routes = route::list_both(host, Some(router.index), Some(MAIN_TABLE))?;
    routes.retain(is_ours);
    Ok(routes)
}

fn is_ours(route: &Route) -> bool {
    let is_single = route.dst.prefix() == if route.dst.is_ipv4() { 32 } else { 128 };
    is_single && route.gateway.is_none() && route.metric.is_some_and(|metric| metric >= METRIC_MIN)
}

/// Deletes the routes over bridges and their VLAN gateways to attachments whose veth is gone, or ends by this GC.
pub(crate) fn collect(network: &NetworkName, sweep: &Sweep<&Attachment>) -> Vec<Uncollected> {
    let collect = || -> Result<()> {
        let host = Kernel::host()?;
        let links = link::list(&host, None)?;
        let is_bridge = |name: &str| links.iter().any(|link| link.name == name && link.kind.is_bridge());
        let is_router = |link: &&Link| {
            is_bridge(&link.name) || link.name.rsplit_once('.').is_some_and(|(bridge, _)| is_bridge(bridge))
        };
        let routers = links.iter().filter(is_router).map(|router| Ok((router, list(&host, router)?)));
        let found: Vec<(&Link, Vec<Route>)> = routers.collect::<Result<_>>()?;
        if found.iter().all(|(_, routes)| routes.is_empty()) {
            return Ok(());
        }
        // Read behind the routes: ADD makes the veth first.
        let stale = host_veth::list_stale(&host, network, sweep)?;
        let is_stale = |link: &&Link| stale.iter().any(|stale| stale.index == link.index);
        let links = link::list(&host, None)?;
        let living = links.iter().filter(|link| !is_stale(link)).filter_map(|link| link.alias.as_deref());
        let kept: Vec<Option<u32>> = living.map(|mark| Some(metric(mark))).collect();
        found.iter().try_for_each(|(router, routes)| {
            delete(&host, router, routes.iter().filter(|route| !kept.contains(&route.metric)))
        })
    };
    collect().err().map(|error| Uncollected { attachment: None, error }).into_iter().collect()
}
