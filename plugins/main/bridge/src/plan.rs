//! The plan of an attachment: everything the bridge plugin puts on the node, from config and lease alone.
//!
//! Pure. ADD applies it, CHECK compares the node with it.

use std::fmt;
use std::net::IpAddr;

use cni_spec::{AddResult, CniError, Code, Ip, Route};
use filter::Backend;
use interface::container;
use interface::host_veth::Owner;
use ipnetwork::IpNetwork;
use netops::addr::Address;
use netops::bridge_port::Vlans;
use netops::link::{Mac, NAME_BYTES_MAX, Port};

use crate::conf::{Conf, Gateway};

/// What is to be on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The bridge.
    pub bridge: Bridge,
    /// The port that holds the gateway's addresses instead of the bridge, with `vlan`.
    pub vlan_gateway: Option<VlanGateway>,
    /// Addresses of the bridge, or of the VLAN gateway.
    pub gateways: Vec<Address>,
    /// The host's end.
    pub host_veth: HostVeth,
    /// The container's end.
    pub container: container::Plan,
    /// Whether the container's end gets up.
    pub container_up: bool,
    /// Its Ethernet address, if one is asked for.
    pub container_mac: Option<Mac>,
    /// The container may send from its own Ethernet address only.
    pub spoof_guard: bool,
    /// Addresses that leave the node under its own.
    pub masquerade: Option<(Backend, Vec<IpNetwork>)>,
    /// The part of the result that IPAM decides, gateways and default routes completed.
    pub lease: AddResult,
}

/// The bridge, which is made if it is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// MTU of a new one, in bytes.
    pub mtu_bytes: Option<u32>,
    /// A new one tells VLANs apart.
    pub vlan_filtering: bool,
    /// It is promiscuous.
    pub promisc: bool,
}

/// A veth between the bridge and the host, in one VLAN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VlanGateway {
    /// The host's interface.
    pub name: String,
    /// Its VLAN.
    pub vlan: u16,
}

/// The host's end of the container's veth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostVeth {
    /// Its name, unless somebody else has it.
    pub name: String,
    /// Its mark.
    pub alias: String,
    /// MTU of both ends, in bytes.
    pub mtu_bytes: Option<u32>,
    /// Its flags as a port.
    pub port: Port,
    /// VLANs it leaves, and those it joins after that.
    pub vlans: PortVlans,
}

/// Changes to a port's VLANs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortVlans {
    /// Leaves what the kernel put it in.
    pub leave_default: bool,
    /// What it joins, in order.
    pub join: Vec<Vlans>,
}

impl Plan {
    /// Whether the bridge is the containers' gateway and so keeps its Ethernet address, which they have learned. Another
    /// one has an address of its ports', another after each ADD and DEL.
    pub(crate) fn keeps_mac(&self) -> bool {
        !self.gateways.is_empty() && self.vlan_gateway.is_none()
    }

    /// The plan for one attachment. `mac` is the strongest of the requests for one; `lease` is `None` for a network
    /// without IPAM.
    ///
    /// # Errors
    /// Code 110: a lease that no interface can have; code 7: a name that becomes too long.
    pub fn new(conf: &Conf, owner: &Owner<'_>, mac: Option<Mac>, lease: Option<AddResult>) -> Result<Self, CniError> {
        let ifname = owner.ifname.as_str();
        let has_lease = lease.is_some();
        let mut lease = complete(conf.gateway, lease.unwrap_or_default())?;
        if let Some(dns) = &conf.dns {
            lease.dns = dns.clone();
        }
        let vlans = PortVlans {
            leave_default: conf.vlans.as_ref().is_some_and(|vlans| !vlans.keep_default),
            join: conf.vlans.as_ref().map(|vlans| vlans.member_of.clone()).unwrap_or_default(),
        };
        Ok(Self {
            bridge: Bridge {
                name: conf.bridge.clone(),
                mtu_bytes: conf.mtu_bytes,
                vlan_filtering: conf.vlans.is_some(),
                promisc: conf.promisc,
            },
            vlan_gateway: vlan_gateway(conf, has_lease)?,
            gateways: gateways(conf.gateway, &lease.ips)?,
            host_veth: HostVeth {
                name: owner.name(),
                alias: owner.alias(),
                mtu_bytes: conf.mtu_bytes,
                port: conf.port,
                vlans,
            },
            container: match has_lease {
                true => container::Plan::layer3(ifname, &lease.ips, &lease.routes, conf.dad, conf.routers)?,
                false => container::Plan::layer2(ifname, conf.routers),
            },
            container_up: !conf.leave_down,
            container_mac: mac,
            spoof_guard: conf.mac_spoof_check,
            masquerade: conf
                .masquerade
                .filter(|_| has_lease)
                .map(|backend| (backend, lease.ips.iter().map(|ip| ip.address).collect())),
            lease,
        })
    }

    /// Whether the node forwards, by family: IPv4, IPv6.
    #[must_use]
    pub fn forwards(&self) -> (bool, bool) {
        let has = |ipv6| self.gateways.iter().any(|gateway| gateway.net.is_ipv6() == ipv6);
        (has(false), has(true))
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
        let ipv6: Vec<bool> = lease.ips.iter().map(|ip| ip.address.is_ipv6()).collect();
        ipv6.into_iter().for_each(|ipv6| add_default_route(&mut lease, ipv6));
    }
    Ok(lease)
}

/// A default route by the first gateway of a family, unless the lease has a default route for it by now. One without a
/// next hop leads to that same gateway, so it gets it written down.
fn add_default_route(lease: &mut AddResult, ipv6: bool) {
    let of_family = |ip: &&Ip| ip.address.is_ipv6() == ipv6;
    let Some(gateway) = lease.ips.iter().find(of_family).and_then(|ip| ip.gateway) else {
        return;
    };
    let is_default = |route: &&mut Route| route.dst.prefix() == 0 && route.dst.is_ipv6() == ipv6;
    let mut found = false;
    for route in lease.routes.iter_mut().filter(is_default) {
        route.gw.get_or_insert(gateway);
        found = true;
    }
    if found {
        return;
    }
    let any: IpAddr = match ipv6 {
        true => std::net::Ipv6Addr::UNSPECIFIED.into(),
        false => std::net::Ipv4Addr::UNSPECIFIED.into(),
    };
    let dst = IpNetwork::new(any, 0).unwrap_or_else(|_| any.into());
    let (mtu, advmss, priority, table, scope) = (0, 0, 0, None, None);
    lease.routes.push(Route { dst, gw: Some(gateway), mtu, advmss, priority, table, scope });
}

/// The first address of a subnet, the gateway where none is told.
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

/// The gateways of the lease with the prefixes of their addresses, each once.
fn gateways(gateway: Gateway, ips: &[Ip]) -> Result<Vec<Address>, CniError> {
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
        // The bridge's own address, known from the config to be nobody else's: usable at once.
        let address = Address { nodad: net.is_ipv6(), ..Address::from(net) };
        if !gateways.contains(&address) {
            gateways.push(address);
        }
    }
    Ok(gateways)
}

fn vlan_gateway(conf: &Conf, has_lease: bool) -> Result<Option<VlanGateway>, CniError> {
    let access = conf.vlans.as_ref().and_then(|vlans| vlans.access);
    let Some(vlan) = access.filter(|_| conf.gateway != Gateway::None && has_lease) else {
        return Ok(None);
    };
    let name = format!("{}.{vlan}", conf.bridge);
    if name.len() > NAME_BYTES_MAX {
        let msg =
            format!("cannot use network config: interface {name} for the gateway has more than {NAME_BYTES_MAX} bytes");
        return Err(CniError::new(Code::INVALID_CONFIG, msg).detail("Choose a shorter name for key bridge."));
    }
    Ok(Some(VlanGateway { name, vlan }))
}

/// What has to change at a link so that it has these gateways.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddressChanges {
    /// Addresses in the way.
    pub delete: Vec<IpNetwork>,
    /// Addresses that are missing.
    pub add: Vec<Address>,
}

/// Compares the addresses a link has with the gateways it needs: every other IPv4 address, and IPv6 ones of an
/// overlapping subnet, are in the way.
///
/// # Errors
/// Code 103 naming the first that is in the way, unless `force`.
pub fn address_changes(
    link: &str,
    found: &[Address],
    wanted: &[Address],
    force: bool,
) -> Result<AddressChanges, CniError> {
    let is = |net: IpNetwork| move |address: &&Address| address.net == net;
    let missing = wanted.iter().filter(|gateway| !found.iter().any(|address| address.net == gateway.net));
    let mut changes = AddressChanges { add: missing.copied().collect(), ..AddressChanges::default() };
    for address in found {
        let in_way = |gateway: &&Address| match (address.net, gateway.net) {
            (IpNetwork::V4(_), IpNetwork::V4(_)) => true,
            (IpNetwork::V6(has), IpNetwork::V6(needs)) => has.contains(needs.ip()) || needs.contains(has.ip()),
            (IpNetwork::V4(_), IpNetwork::V6(_)) | (IpNetwork::V6(_), IpNetwork::V4(_)) => false,
        };
        let Some(gateway) = changes.add.iter().find(in_way) else { continue };
        if wanted.iter().any(|gateway| is(gateway.net)(&address)) {
            continue;
        }
        if !force {
            let msg = format!("cannot add gateway {} to {link}: it has address {} already", gateway.net, address.net);
            return Err(CniError::new(Code::EXISTS, msg).detail("Set forceAddress to have it replaced."));
        }
        changes.delete.push(address.net);
    }
    Ok(changes)
}

impl fmt::Display for Plan {
    /// In the words of `ip`, `bridge` and `sysctl`, a step a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mtu = |mtu: Option<u32>| mtu.map(|mtu| format!(" mtu {mtu}")).unwrap_or_default();
        let Bridge { name, mtu_bytes, vlan_filtering, promisc } = &self.bridge;
        let filtering = if *vlan_filtering { " vlan_filtering 1" } else { "" };
        writeln!(f, "ip link add {name}{} type bridge{filtering}", mtu(*mtu_bytes))?;
        writeln!(f, "sysctl net/ipv6/conf/{name}/accept_ra=0")?;
        writeln!(f, "ip link set {name} up{}", if *promisc { " promisc on" } else { "" })?;
        let router = self.vlan_gateway.as_ref().map_or(name, |gateway| &gateway.name);
        if let Some(gateway) = &self.vlan_gateway {
            writeln!(f, "ip link add {} type veth, peer in {name}, vid {} pvid untagged", gateway.name, gateway.vlan)?;
        }
        for gateway in &self.gateways {
            writeln!(f, "ip address add {} dev {router}{}", gateway.net, if gateway.nodad { " nodad" } else { "" })?;
        }
        self.fmt_port(f, &mtu(self.host_veth.mtu_bytes))?;
        match self.container_up {
            true => write!(f, "{}", self.container)?,
            false => writeln!(f, "{} stays down", self.container.ifname)?,
        }
        if let Some((backend, addresses)) = &self.masquerade {
            let addresses: Vec<String> = addresses.iter().map(IpNetwork::to_string).collect();
            writeln!(f, "masquerade {} ({backend:?})", addresses.join(" "))?;
        }
        let (ipv4, ipv6) = self.forwards();
        if ipv4 {
            writeln!(f, "sysctl net/ipv4/ip_forward=1")?;
        }
        if ipv6 {
            writeln!(f, "sysctl net/ipv6/conf/all/forwarding=1")?;
        }
        Ok(())
    }
}

impl Plan {
    fn fmt_port(&self, f: &mut fmt::Formatter<'_>, mtu: &str) -> fmt::Result {
        let HostVeth { name, alias, port, vlans, .. } = &self.host_veth;
        let mac = self.container_mac.map(|mac| format!(" address {mac}")).unwrap_or_default();
        let (bridge, ifname) = (&self.bridge.name, &self.container.ifname);
        writeln!(f, "ip link add {name}{mtu} master {bridge} type veth peer {ifname}{mac}")?;
        writeln!(f, "ip link set {name} alias {alias}")?;
        if vlans.leave_default {
            writeln!(f, "bridge vlan del vid 1 dev {name}")?;
        }
        for vlan in &vlans.join {
            writeln!(f, "bridge vlan add {vlan} dev {name}")?;
        }
        if *port != Port::default() {
            let (hairpin, isolated) = (u8::from(port.hairpin), u8::from(port.isolated));
            writeln!(f, "bridge link set dev {name} hairpin {hairpin} isolated {isolated}")?;
        }
        if self.spoof_guard {
            writeln!(f, "drop what {name} sends from another address than {ifname}'s")?;
        }
        writeln!(f, "sysctl net/ipv6/conf/{name}/accept_ra=0")?;
        writeln!(f, "ip link set {name} up")
    }
}

#[cfg(test)]
mod tests;
