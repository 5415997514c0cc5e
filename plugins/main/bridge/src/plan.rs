//! The plan of an attachment: everything the bridge plugin puts on the node, from config and lease alone.
//!
//! Pure. ADD applies it, CHECK compares the node with it.

use std::fmt;
use std::net::IpAddr;

use cni_spec::{AddResult, Attachment, CniError, Code, Ip, Route};
use interface::container::Options;
use interface::plan::{Compared, Uncompared, Veth};
use interface::{Side, Step};
use ipnetwork::IpNetwork;
use netops::Family;
use netops::addr::Address;
use netops::link::{Mac, NAME_BYTES_MAX, Port};
use netops::sysctl::Need;

use crate::conf::{Conf, Gateway};
use crate::host_routes;

pub type Plan = interface::Plan<Own>;

/// The steps that only the bridge plugin has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Own {
    /// The bridge: shared by all attachments, and never taken back.
    Shared(Shared),
    /// The container's port can carry packets; the bridge is read again, as it may have taken the port's address.
    AwaitPort {
        /// Whether the port gets carrier at all.
        carrier: bool,
    },
    /// The gateways' addresses, which all attachments share, too.
    Gateways(Gateways),
    /// The node forgets on this link which Ethernet addresses the container's addresses had before.
    Forget(String, Vec<IpAddr>),
    /// The gateways' new IPv6 addresses answer.
    AwaitGateways,
    /// The node's routes to the container's addresses that are in no network of the gateways, over this link.
    Reach(String, Vec<netops::route::Route>),
}

/// The part of a plan that all attachments of a bridge share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shared {
    pub bridge: Bridge,
    /// The gateways that it is to have, by a later step.
    pub gateways: Gateways,
    /// The bridge keeps its Ethernet address, which the containers have learned as their gateway's: so the config has it, also
    /// before the lease says which addresses that gets. A switch that another process made may follow its ports.
    pub keeps_mac: bool,
}

/// The bridge, which is made if it is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    pub name: String,
    pub mtu_bytes: Option<u32>,
    pub vlan_filtering: bool,
    pub promisc: bool,
    pub group_forward_mask: Option<u16>,
    pub multicast_snooping: Option<bool>,
}

/// The gateways of the lease, on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateways {
    /// The interface that has them: the bridge, or the host's end of a veth to it in a VLAN.
    pub holder: String,
    pub vlan: Option<u16>,
    pub addresses: Vec<Address>,
    /// Conflicting addresses are replaced.
    pub force: bool,
}

impl Gateways {
    /// The need of a sysctl of IPv6 on a link of the node.
    pub(crate) fn need_of_ipv6(&self) -> Need {
        if self.addresses.iter().any(|gateway| gateway.net.is_ipv6()) { Need::WhereThere } else { Need::WhereWritable }
    }
}

/// The plan for one attachment. `mac` is the strongest of the requests for one; `lease` is `None` for a network without
/// IPAM.
pub fn plan(
    conf: &Conf,
    attachment: &Attachment,
    mac: Option<Mac>,
    lease: Option<AddResult>,
) -> Result<Plan, CniError> {
    let has_lease = lease.is_some();
    let lease = lease.map(|lease| complete(conf.gateway, lease)).transpose()?;
    let mut plan = Plan::new(attachment, lease, conf.dns.clone());
    plan.refuse_mtu(conf.mtu_bytes)?;
    let shared = shared(conf, has_lease, &plan.lease.ips)?;
    let gateways = shared.gateways.clone();
    let has_gateway = |family: &Family| gateways.addresses.iter().any(|gateway| Family::from(gateway.net) == *family);
    let forwards: Vec<Family> = Family::BOTH.into_iter().filter(has_gateway).collect();
    let master = Some(conf.bridge.clone());
    plan.push(Step::Own(Own::Shared(shared)));
    // Up at once, unless a step below restricts the port: a process in the container may set its own end up as soon as it
    // is there. A bridge's port hears no router advertisements, so their refusal can come behind.
    let up = !conf.mac_spoof_check && conf.vlans.is_none() && conf.port == Port::default();
    plan.push(Compared::Veth(Veth { master, mtu_bytes: conf.mtu_bytes, mac, up }));
    if conf.mac_spoof_check {
        plan.push(Compared::SpoofGuard(mac));
    }
    let masquerade = conf.masquerade.as_ref().filter(|_| has_lease);
    if let Some(step) = masquerade.and_then(|of| of.step(plan.lease.ips.iter().map(|ip| ip.address))) {
        plan.push(step);
    }
    push_port(&mut plan, conf);
    if !up {
        plan.push(Compared::Up(Side::Host));
    }
    let (dad, routers) = (conf.dad, conf.routers);
    match conf.leave_down {
        false => plan.push_configuration(Options { dad, routers, announces: true, await_up: true })?,
        true => plan.push_left_down(routers),
    }
    plan.push(Step::Own(Own::AwaitPort { carrier: !conf.leave_down }));
    plan.push_await_addresses();
    if !conf.leave_down && !plan.lease.ips.is_empty() {
        plan.push(Uncompared::Announce);
    }
    // Behind what the kernel may refuse of the lease, and what may take seconds: until then the bridge is as it was.
    let router = gateways.holder.clone();
    let gateways_is_empty = gateways.addresses.is_empty();
    if gateways.vlan.is_some() || !gateways.addresses.is_empty() {
        plan.push(Step::Own(Own::Gateways(gateways)));
    }
    if !gateways_is_empty {
        let addresses = plan.lease.ips.iter().map(|ip| ip.address.ip()).collect();
        plan.push(Step::Own(Own::Forget(router.clone(), addresses)));
    }
    let routes = host_routes::routes(attachment, &plan.lease.ips);
    if conf.gateway != Gateway::None && !routes.is_empty() {
        plan.push(Step::Own(Own::Reach(router, routes)));
    }
    if forwards.contains(&Family::V6) {
        plan.push(Step::Own(Own::AwaitGateways));
    }
    forwards.into_iter().for_each(|family| plan.push(Uncompared::Forward(family)));
    Ok(plan)
}

fn shared(conf: &Conf, has_lease: bool, ips: &[Ip]) -> Result<Shared, CniError> {
    Ok(Shared {
        bridge: Bridge {
            name: conf.bridge.clone(),
            mtu_bytes: conf.mtu_bytes,
            vlan_filtering: conf.vlans.is_some(),
            promisc: conf.promisc,
            group_forward_mask: conf.group_forward_mask,
            multicast_snooping: conf.multicast_snooping,
        },
        gateways: gateways(conf, has_lease, ips)?,
        keeps_mac: conf.gateway != Gateway::None && (conf.has_ipam || has_lease) && access_vlan(conf).is_none(),
    })
}

/// The host's end as a port.
fn push_port(plan: &mut Plan, conf: &Conf) {
    plan.push_refuse_advertisements();
    if let Some(vlans) = &conf.vlans {
        if !vlans.keep_default {
            plan.push(Uncompared::LeaveDefaultVlan);
        }
        plan.push(Compared::JoinVlans(vlans.member_of.clone()));
    }
    if conf.port != Port::default() {
        plan.push(Compared::Port(conf.port));
    }
}

/// The lease with the gateways and default routes that the config asks for.
fn complete(gateway: Gateway, mut lease: AddResult) -> Result<AddResult, CniError> {
    if gateway == Gateway::None {
        return Ok(lease);
    }
    for ip in &mut lease.ips {
        if ip.gateway.is_none() {
            ip.gateway = Some(first_address(ip.address)?);
        }
    }
    if gateway == Gateway::DefaultRoute {
        let families: Vec<Family> = lease.ips.iter().map(|ip| ip.address.into()).collect();
        families.into_iter().for_each(|family| add_default_route(&mut lease, family));
    }
    Ok(lease)
}

/// A default route by the first gateway of a family, unless the lease already has a default route for it. One without a
/// next hop leads to that same gateway, so it gets it written down.
fn add_default_route(lease: &mut AddResult, family: Family) {
    let of_family = |ip: &&Ip| Family::from(ip.address) == family;
    let Some(gateway) = lease.ips.iter().find(of_family).and_then(|ip| ip.gateway) else {
        return;
    };
    let is_default = |route: &&mut Route| route.dst.prefix() == 0 && Family::from(route.dst) == family;
    let mut found = false;
    for route in lease.routes.iter_mut().filter(is_default) {
        route.gw.get_or_insert(gateway);
        found = true;
    }
    if found {
        return;
    }
    let any = family.unspecified();
    let dst = IpNetwork::new(any, 0).unwrap_or_else(|_| any.into());
    lease.routes.push(Route::new(dst, Some(gateway)));
}

/// The first address of a subnet, the gateway where none is given.
fn first_address(address: IpNetwork) -> Result<IpAddr, CniError> {
    let first = match address {
        IpNetwork::V4(net) if net.prefix() < 31 => {
            u32::from(net.network()).checked_add(1).map(|bits| IpAddr::V4(bits.into()))
        }
        IpNetwork::V6(net) if net.prefix() < 127 => {
            u128::from(net.network()).checked_add(1).map(|bits| IpAddr::V6(bits.into()))
        }
        IpNetwork::V4(_) | IpNetwork::V6(_) => None,
    };
    first.ok_or_else(|| {
        CniError::new(
            Code::UNUSABLE_RESULT,
            format!("cannot derive a gateway for {address}: the subnet has no room for one"),
        )
        .detail("Set the gateway in the ipam section, or turn off isGateway.")
    })
}

/// The VLAN in which the gateways are, not on the bridge itself.
fn gateway_vlan(conf: &Conf, has_lease: bool) -> Option<u16> {
    access_vlan(conf).filter(|_| conf.gateway != Gateway::None && has_lease)
}

pub(crate) fn gateway_link(conf: &Conf, has_lease: bool) -> Result<String, CniError> {
    gateway_vlan(conf, has_lease).map_or_else(|| Ok(conf.bridge.clone()), |vlan| vlan_gateway_name(&conf.bridge, vlan))
}

fn gateways(conf: &Conf, has_lease: bool, ips: &[Ip]) -> Result<Gateways, CniError> {
    let vlan = gateway_vlan(conf, has_lease);
    let holder = gateway_link(conf, has_lease)?;
    Ok(Gateways { holder, vlan, addresses: gateway_addresses(conf.gateway, ips)?, force: conf.force_address })
}

/// The gateways of the lease with the prefixes of their addresses, each once.
fn gateway_addresses(gateway: Gateway, ips: &[Ip]) -> Result<Vec<Address>, CniError> {
    let mut gateways: Vec<Address> = Vec::new();
    if gateway == Gateway::None {
        return Ok(gateways);
    }
    for ip in ips {
        let Some(gateway) = ip.gateway else { continue };
        let net = match IpNetwork::new(gateway, ip.address.prefix()) {
            Ok(net) if gateway.is_ipv4() == ip.address.is_ipv4() => net,
            Ok(_) | Err(_) => {
                let msg = format!("cannot use gateway {gateway} for {}: they are of different families", ip.address);
                return Err(CniError::new(Code::UNUSABLE_RESULT, msg));
            }
        };
        // The bridge's own address, known from the config to be no other host's: usable at once.
        let address = Address { nodad: net.is_ipv6(), ..Address::from(net) };
        if !gateways.contains(&address) {
            gateways.push(address);
        }
    }
    Ok(gateways)
}

fn access_vlan(conf: &Conf) -> Option<u16> {
    conf.vlans.as_ref()?.access
}

fn vlan_gateway_name(bridge: &str, vlan: u16) -> Result<String, CniError> {
    let name = format!("{bridge}.{vlan}");
    if name.len() > NAME_BYTES_MAX {
        let msg =
            format!("cannot use network config: interface {name} for the gateway has more than {NAME_BYTES_MAX} bytes");
        return Err(CniError::new(Code::INVALID_CONFIG, msg).detail("Choose a shorter name for key bridge."));
    }
    Ok(name)
}

impl fmt::Display for Own {
    /// In the words of `ip`, `bridge` and `sysctl`, a change a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared(shared) => shared.fmt(f),
            Self::Gateways(gateways) => gateways.fmt(f),
            Self::AwaitPort { carrier: true } => writeln!(f, "wait until the port can carry packets"),
            Self::AwaitPort { carrier: false } => Ok(()),
            Self::Forget(router, addresses) => {
                addresses.iter().try_for_each(|address| writeln!(f, "ip neigh del {address} dev {router}"))
            }
            Self::AwaitGateways => writeln!(f, "wait until new gateways answer"),
            Self::Reach(router, routes) => {
                routes.iter().try_for_each(|route| writeln!(f, "ip route add {route} dev {router}"))
            }
        }
    }
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bridge { name, mtu_bytes, vlan_filtering, promisc, group_forward_mask, multicast_snooping } = &self.bridge;
        let mtu = mtu_bytes.map(|mtu| format!(" mtu {mtu}")).unwrap_or_default();
        let filtering = if *vlan_filtering { " vlan_filtering 1" } else { "" };
        write!(f, "ip link add {name}{mtu} type bridge{filtering}")?;
        group_forward_mask.iter().try_for_each(|mask| write!(f, " group_fwd_mask {mask}"))?;
        multicast_snooping.iter().try_for_each(|is_on| write!(f, " mcast_snooping {}", u8::from(*is_on)))?;
        writeln!(f)?;
        writeln!(f, "sysctl net/ipv6/conf/{name}/accept_ra=0")?;
        writeln!(f, "ip link set {name} up{}", if *promisc { " promisc on" } else { "" })
    }
}

impl fmt::Display for Gateways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holder = &self.holder;
        if let Some(vlan) = self.vlan {
            let bridge = holder.rsplit_once('.').map_or("the bridge", |(bridge, _)| bridge);
            writeln!(f, "ip link add {holder} type veth, peer in {bridge}, vid {vlan} pvid untagged")?;
        }
        for gateway in &self.addresses {
            writeln!(f, "ip address add {} dev {holder}{}", gateway.net, if gateway.nodad { " nodad" } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
