//! The plan of an attachment: everything the ptp plugin puts on the node, from config and lease alone.
//!
//! Pure. ADD applies it, CHECK compares the node with it.

use std::net::IpAddr;

use cni_spec::{AddResult, Attachment, CniError, Code, Ip};
use interface::container::Options;
use interface::plan::{Compared, Uncompared, Veth};
use interface::{Side, Step};
use ipnetwork::IpNetwork;
use netops::Family;
use netops::addr::Address;
use netops::route::{MAIN_TABLE, Route};

use crate::conf::Conf;
use crate::step::Own;

pub type Plan = interface::Plan<Own>;

const SCOPE_LINK: u8 = 253; // RT_SCOPE_LINK, include/uapi/linux/rtnetlink.h
const SCOPE_HOST: u8 = 254; // RT_SCOPE_HOST
const ADDRCONF_METRIC: u32 = 256; // IP6_RT_PRIO_ADDRCONF, include/uapi/linux/ipv6_route.h

pub fn plan(conf: &Conf, attachment: &Attachment, lease: Option<AddResult>) -> Result<Plan, CniError> {
    let mut plan = Plan::new(attachment, lease, conf.dns.clone());
    plan.refuse_mtu(conf.mtu_bytes)?;
    let pairs: Vec<Pair> = plan.lease.ips.iter().map(Pair::of).collect::<Result<_, _>>()?;
    plan.push(Compared::Veth(Veth { mtu_bytes: conf.mtu_bytes, ..Veth::default() }));
    if let Some(step) = conf.masquerade.as_ref().and_then(|of| of.step(pairs.iter().map(|pair| pair.address))) {
        plan.push(step);
    }
    push_host(&mut plan, &pairs);
    push_container(&mut plan, &pairs)?;
    for family in Family::BOTH {
        if pairs.iter().any(|pair| Family::from(pair.gateway) == family) {
            plan.push(Uncompared::Forward(family));
        }
    }
    Ok(plan)
}

/// An address of the container, and the host's on the other end of the link.
#[derive(Debug, Clone, Copy)]
struct Pair {
    address: IpNetwork,
    gateway: IpAddr,
}

impl Pair {
    fn of(ip: &Ip) -> Result<Self, CniError> {
        let unusable = |text: String| CniError::new(Code::UNUSABLE_RESULT, text);
        let address = ip.address;
        let Some(gateway) = ip.gateway.filter(|gateway| !gateway.is_unspecified()) else {
            return Err(unusable(format!("cannot use address {address}: the IPAM plugin gave no gateway for it"))
                .detail("Plugin ptp gives the gateway's address to the host's end: set gateway in the ipam section."));
        };
        if gateway.is_ipv4() != address.is_ipv4() {
            return Err(unusable(format!(
                "cannot use gateway {gateway} for {address}: they are of different families"
            )));
        }
        if gateway == address.ip() {
            return Err(unusable(format!(
                "cannot use gateway {gateway} for {address}: both ends cannot have one address"
            )));
        }
        Ok(Self { address, gateway })
    }

    /// The kernel makes no route for a single IPv4 address. `None` stands for that.
    fn subnet(self) -> Option<IpNetwork> {
        let net = self.address;
        let is_single = net.is_ipv4() && net.prefix() == 32;
        IpNetwork::new(net.network(), net.prefix()).ok().filter(|_| !is_single)
    }
}

/// The host's end: up, with the gateways' addresses, and a route to each of the container's.
fn push_host(plan: &mut Plan, pairs: &[Pair]) {
    let (mut gateways, mut routes) = (Vec::new(), Vec::new());
    for pair in pairs {
        // Known from the config to be unowned on this link: usable at once.
        let gateway = Address { nodad: pair.gateway.is_ipv6(), ..Address::from(IpNetwork::from(pair.gateway)) };
        push_new(&mut gateways, gateway);
        push_new(&mut routes, Route { scope: Some(SCOPE_HOST), ..direct(pair.address.ip()) });
    }
    plan.push_refuse_advertisements();
    if gateways.iter().any(|gateway| gateway.net.is_ipv6()) {
        plan.push(Step::Own(Own::WatchGateways));
    }
    plan.push(Compared::Up(Side::Host));
    plan.push(Compared::Addresses(Side::Host, gateways));
    plan.push(Compared::OnlyRoutes(Side::Host, routes));
}

/// The container's end: all packets go to the gateway, those to its own subnet, too. The lease's routes come before the
/// subnets lose the kernel's: their gateways may be elsewhere in a subnet.
fn push_container(plan: &mut Plan, pairs: &[Pair]) -> Result<(), CniError> {
    let (mut gateways, mut kernels, mut subnets) = (Vec::new(), Vec::new(), Vec::<Route>::new());
    for pair in pairs {
        let source = Some(pair.address.ip());
        if !gateways.iter().any(|known: &Route| known.dst == IpNetwork::from(pair.gateway)) {
            gateways.push(Route { scope: Some(SCOPE_LINK), source, ..direct(pair.gateway) });
        }
        let Some(subnet) = pair.subnet() else { continue };
        push_new(&mut kernels, kernels_route(subnet));
        let route = Route { source, ..Route::new(subnet, Some(pair.gateway), None) };
        match subnets.iter_mut().find(|known| known.dst == subnet) {
            // Another gateway for one subnet takes the place of the first, as in the reference.
            Some(known) if known.gateway != route.gateway => *known = route,
            Some(_) => (),
            None => subnets.push(route),
        }
    }
    plan.push_addresses(Options::default());
    let ipv6: Vec<IpAddr> = gateways.iter().map(|route| route.dst.ip()).filter(IpAddr::is_ipv6).collect();
    if !ipv6.is_empty() {
        plan.push(Step::Own(Own::AwaitGateways(ipv6)));
    }
    // The kernel takes no route with a tentative source.
    plan.push_await_addresses();
    // A route of the lease's for a whole subnet takes its place.
    let lease = &plan.lease.routes;
    let is_main = |table: Option<u32>| table.is_none_or(|table| table == MAIN_TABLE);
    subnets.retain(|route| !lease.iter().any(|other| other.dst == route.dst && is_main(other.table)));
    plan.push(Compared::Routes(Side::Container, gateways));
    plan.push_routes()?;
    if !kernels.is_empty() {
        plan.push(Uncompared::DeleteRoutes(Side::Container, kernels));
    }
    if !subnets.is_empty() {
        plan.push(Compared::Routes(Side::Container, subnets));
    }
    // Until the kernel has seen the carrier it drops what is sent.
    plan.push(Uncompared::AwaitUp(Side::Container));
    plan.push(Uncompared::AwaitUp(Side::Host));
    Ok(())
}

fn direct(to: IpAddr) -> Route {
    Route::new(to.into(), None, None)
}

/// The route that the kernel makes with an address, and no other to its subnet.
fn kernels_route(subnet: IpNetwork) -> Route {
    let route = Route::new(subnet, None, None);
    match subnet {
        IpNetwork::V4(_) => Route { scope: Some(SCOPE_LINK), ..route },
        IpNetwork::V6(_) => Route { metric: Some(ADDRCONF_METRIC), ..route },
    }
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

#[cfg(test)]
mod tests;
