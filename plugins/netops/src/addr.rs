//! Addresses on links.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, CacheInfo};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;

use crate::error::{Cause, Result};
use crate::link::{Link, Mac};
use crate::netlink_connection::{Kernel, Request};
use crate::route;

/// The family of an IP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4: addresses of 32 bits.
    V4,
    /// IPv6: addresses of 128 bits.
    V6,
}

impl Family {
    /// Both families, IPv4 first.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The address of no host (`0.0.0.0`, `::`).
    #[must_use]
    pub fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Self::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

impl From<IpAddr> for Family {
    fn from(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

impl From<IpNetwork> for Family {
    fn from(net: IpNetwork) -> Self {
        net.ip().into()
    }
}

impl From<Family> for AddressFamily {
    fn from(family: Family) -> Self {
        match family {
            Family::V4 => Self::Inet,
            Family::V6 => Self::Inet6,
        }
    }
}

/// An address on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The address with its prefix length; the host bits are kept.
    pub net: IpNetwork,
    /// The address is usable at once, without duplicate address detection (IPv6).
    pub nodad: bool,
    /// Duplicate address detection still runs (IPv6).
    pub tentative: bool,
    /// Duplicate address detection found another owner of the address (IPv6).
    pub dad_failed: bool,
}

impl From<IpNetwork> for Address {
    fn from(net: IpNetwork) -> Self {
        Self { net, nodad: false, tentative: false, dad_failed: false }
    }
}

/// Adds an address.
///
/// # Errors
/// `EEXIST`: the link has it. `ENODEV`: the link is gone. `EACCES`, `EPERM`: IPv6 is disabled on the link.
pub fn add(link: &Link, address: &Address) -> Request {
    let message = RouteNetlinkMessage::NewAddress(message(link.index, address));
    request("add", "RTM_NEWADDR", link, address.net, message).flags(NLM_F_CREATE | NLM_F_EXCL)
}

/// All that can be said of an address, to make it once more as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The address; its prefix is the peer's, if it has one.
    pub net: IpNetwork,
    /// The address at the other end of a point-to-point link.
    pub peer: Option<IpAddr>,
    /// The broadcast address (IPv4).
    pub broadcast: Option<Ipv4Addr>,
    /// `RT_SCOPE_*` (IPv4).
    pub scope: u8,
    /// `IFA_F_*` (include/uapi/linux/if_addr.h), those that can be set.
    pub flags: u32,
    /// The label (IPv4).
    pub label: Option<String>,
    /// The metric of its route.
    pub metric: Option<u32>,
    /// The origin (`IFAPROT_*`), on kernels from 5.18 on.
    pub protocol: Option<u8>,
    /// The preferred and the valid lifetime, in seconds; `u32::MAX` is for ever.
    pub lifetimes: [u32; 2],
}

/// The flags that a request can set.
const SETTABLE: AddressFlags = AddressFlags::Nodad
    .union(AddressFlags::Optimistic)
    .union(AddressFlags::Homeaddress)
    .union(AddressFlags::Managetempaddr)
    .union(AddressFlags::Noprefixroute)
    .union(AddressFlags::Mcautojoin);

/// The addresses of one link, in the kernel's order, without those that it makes again itself: its link-local address and
/// temporary ones.
///
/// # Errors
/// As [`list`].
pub fn kept(net: &Kernel, link: &Link) -> Result<Vec<Kept>> {
    let answers = net.call(list_request(link).in_detail())?;
    Ok(answers.iter().filter_map(|answer| read_kept(answer, link)).collect())
}

fn read_kept(answer: &RouteNetlinkMessage, link: &Link) -> Option<Kept> {
    let RouteNetlinkMessage::NewAddress(message) = answer else { return None };
    let Address { net, .. } = read(answer, link.index)?;
    let mut kept = Kept {
        net,
        peer: None,
        broadcast: None,
        scope: message.header.scope.into(),
        flags: 0,
        label: None,
        metric: None,
        protocol: None,
        lifetimes: [u32::MAX; 2],
    };
    let mut flags = AddressFlags::empty();
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(ip) => kept.peer = Some(*ip).filter(|ip| *ip != net.ip()),
            AddressAttribute::Broadcast(ip) => kept.broadcast = Some(*ip),
            AddressAttribute::Label(label) => kept.label = Some(label.clone()),
            AddressAttribute::RoutePriority(metric) => kept.metric = Some(*metric),
            AddressAttribute::Protocol(protocol) => kept.protocol = Some((*protocol).into()),
            AddressAttribute::CacheInfo(times) => kept.lifetimes = [times.ifa_preferred, times.ifa_valid],
            AddressAttribute::Flags(all) => flags = *all,
            _ => (),
        }
    }
    kept.flags = flags.intersection(SETTABLE).bits();
    // For IPv6 the flag of secondary addresses says that it is temporary.
    let is_kernels =
        net.is_ipv6() && (flags.contains(AddressFlags::Secondary) || is_own_link_local(&kept, flags, link));
    (!is_kernels).then_some(kept)
}

/// Whether the kernel has made it of the link's Ethernet address, or by `addr_gen_mode`.
fn is_own_link_local(kept: &Kept, flags: AddressFlags, link: &Link) -> bool {
    let IpAddr::V6(ip) = kept.net.ip() else { return false };
    let of_mac = link.mac.map(|Mac([a, b, c, d, e, f])| [a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    let [.., s, t, u, v, w, x, y, z] = ip.octets();
    let is_made = || {
        kept.protocol == Some(LINK_LOCAL)
            || flags.contains(AddressFlags::StablePrivacy)
            || of_mac == Some([s, t, u, v, w, x, y, z]) && kept.protocol.is_none()
    };
    ip.is_unicast_link_local() && kept.net.prefix() == 64 && is_made()
}

/// `IFAPROT_KERNEL_LL` (include/uapi/linux/if_addr.h).
const LINK_LOCAL: u8 = 3;

/// Makes an address as it was.
///
/// # Errors
/// As [`add`].
pub fn add_kept(link: &Link, kept: &Kept) -> Request {
    let mut message = AddressMessage::default();
    message.header.index = link.index;
    message.header.prefix_len = kept.net.prefix();
    message.header.family = family(kept.net.ip());
    message.header.scope = kept.scope.into();
    let [preferred, valid] = kept.lifetimes;
    let mut times = CacheInfo::default();
    (times.ifa_preferred, times.ifa_valid) = (preferred, valid);
    let is_for_ever = kept.lifetimes == [u32::MAX; 2];
    let attributes = [
        Some(AddressAttribute::Local(kept.net.ip())),
        Some(AddressAttribute::Address(kept.peer.unwrap_or(kept.net.ip()))),
        kept.broadcast.map(AddressAttribute::Broadcast),
        kept.label.clone().map(AddressAttribute::Label),
        kept.metric.filter(|metric| *metric != 0).map(AddressAttribute::RoutePriority),
        kept.protocol.filter(|protocol| *protocol != 0).map(|protocol| AddressAttribute::Protocol(protocol.into())),
        (!is_for_ever).then_some(AddressAttribute::CacheInfo(times)),
        (kept.flags != 0).then_some(AddressAttribute::Flags(AddressFlags::from_bits_retain(kept.flags))),
    ];
    message.attributes.extend(attributes.into_iter().flatten());
    request("add", "RTM_NEWADDR", link, kept.net, RouteNetlinkMessage::NewAddress(message))
        .flags(NLM_F_CREATE | NLM_F_EXCL)
}

/// How long an IPv6 address lasts, in seconds from now; `u32::MAX` is for ever. The kernel deletes it afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// The time for which new connections use the address; at most `valid`.
    pub preferred: u32,
    /// The time for which all connections use the address; not 0.
    pub valid: u32,
}

/// Gives an IPv6 address its lifetimes, and adds it if the link does not have it. It says nothing about which other addresses
/// are on the link (`IFA_F_NOPREFIXROUTE`).
///
/// # Errors
/// `EINVAL`: lifetimes that contradict each other. `ENODEV`: the link is gone. `EACCES`, `EPERM`: IPv6 is disabled on the link.
pub fn ensure_for(link: &Link, net: IpNetwork, lifetimes: Lifetimes) -> Request {
    let mut message = message(link.index, &net.into());
    let mut times = CacheInfo::default();
    (times.ifa_preferred, times.ifa_valid) = (lifetimes.preferred, lifetimes.valid);
    message.attributes.push(AddressAttribute::CacheInfo(times));
    message.attributes.push(AddressAttribute::Flags(AddressFlags::Noprefixroute));
    request("set lifetimes of", "RTM_NEWADDR", link, net, RouteNetlinkMessage::NewAddress(message))
        .flags(NLM_F_CREATE | NLM_F_REPLACE)
}

/// Deletes an address.
///
/// # Errors
/// `EADDRNOTAVAIL`: the link does not have it. `ENODEV`: the link is gone.
pub fn delete(link: &Link, net: IpNetwork) -> Request {
    let message = RouteNetlinkMessage::DelAddress(message(link.index, &net.into()));
    request("delete", "RTM_DELADDR", link, net, message)
}

fn request(op: &'static str, kind: &str, link: &Link, net: IpNetwork, message: RouteNetlinkMessage) -> Request {
    Request::new(op, format!("address {net} on {}", link.name), message)
        .wire_name(format!("{kind} dev={} {net}", link.name))
}

/// The message by hand: rtnetlink's builder leaves a multicast address out, and has neither flags, peer nor lifetimes.
fn message(index: u32, address: &Address) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = index;
    message.header.prefix_len = address.net.prefix();
    let ip = address.net.ip();
    message.header.family = family(ip);
    // For IPv4, IFA_LOCAL is the address and IFA_ADDRESS the peer's. Without a peer both are the same.
    message.attributes.push(AddressAttribute::Local(ip));
    message.attributes.push(AddressAttribute::Address(ip));
    if let IpNetwork::V4(net) = address.net
        && net.prefix() < 31
    {
        message.attributes.push(AddressAttribute::Broadcast(net.broadcast()));
    }
    if address.nodad {
        message.header.flags |= AddressHeaderFlags::Nodad;
    }
    message
}

/// The addresses of one link, both families, in the kernel's order.
///
/// # Errors
/// `ENODEV`: the link is gone.
pub fn list(net: &Kernel, link: &Link) -> Result<Vec<Address>> {
    let answers = net.call(list_request(link))?;
    Ok(answers.iter().filter_map(|answer| read(answer, link.index)).collect())
}

fn list_request(link: &Link) -> Request {
    let mut message = AddressMessage::default();
    message.header.index = link.index;
    let object = format!("addresses of {}", link.name);
    Request::new("list", object, RouteNetlinkMessage::GetAddress(message))
        .flags(NLM_F_DUMP)
        .wire_name(format!("RTM_GETADDR dump dev={}", link.name))
}

/// Whether a link has an address, whatever its prefix. The answer that it has is one lookup, however many addresses there are.
///
/// The kernel can be asked for one IPv6 address, but only for all IPv4 addresses. Each of these has a route in the local
/// table, which is looked up first. A namespace's rules may lead past that table, so the list decides what is not found.
///
/// # Errors
/// As the kernel refuses.
pub fn has(net: &Kernel, link: &Link, ip: IpAddr) -> Result<bool> {
    if ip.is_ipv4() {
        return Ok(route::is_local(net, link, ip) || list(net, link)?.iter().any(|found| found.net.ip() == ip));
    }
    let mut message = AddressMessage::default();
    message.header.index = link.index;
    message.header.family = family(ip);
    message.attributes.push(AddressAttribute::Address(ip));
    let request =
        Request::new("find", format!("address {ip} on {}", link.name), RouteNetlinkMessage::GetAddress(message))
            .wire_name(format!("RTM_GETADDR dev={} {ip}", link.name));
    match net.call(request) {
        Ok(answers) => {
            Ok(answers.iter().filter_map(|answer| read(answer, link.index)).any(|found| found.net.ip() == ip))
        }
        Err(error) if error.os_errno() == Some(Errno::EADDRNOTAVAIL) => Ok(false),
        Err(error) => Err(error),
    }
}

/// All addresses in the namespace of `net`, each with the index of its link. With `netns_id`, those of the namespace
/// that has this number in the namespace of `net` (`IFA_TARGET_NETNSID`); that needs no path to that namespace and no
/// process in it.
///
/// # Errors
/// `EINVAL`: no namespace has this number (any more). `EACCES`: no `CAP_NET_ADMIN` there. `EOPNOTSUPP`: the kernel is older
/// than 4.20, which would list those of the namespace of `net`.
pub fn list_all(net: &Kernel, netns_id: Option<i32>) -> Result<Vec<(u32, IpNetwork)>> {
    Ok(list_states(net, netns_id)?.into_iter().map(|(index, address)| (index, address.net)).collect())
}

/// The addresses of all links with their states, as [`list_all`] lists them.
///
/// # Errors
/// As [`list_all`].
pub fn list_states(net: &Kernel, netns_id: Option<i32>) -> Result<Vec<(u32, Address)>> {
    let mut message = AddressMessage::default();
    message.attributes.extend(netns_id.map(AddressAttribute::TargetNetNsId));
    let place = netns_id.map_or(String::new(), |id| format!(" netns-id={id}"));
    let request = Request::new("list", "addresses", RouteNetlinkMessage::GetAddress(message))
        .flags(NLM_F_DUMP)
        .wire_name(format!("RTM_GETADDR dump{place}"));
    if netns_id.is_some() && !net.is_strict() {
        return Err(request.error(net.place(), Cause::Kernel { errno: Errno::EOPNOTSUPP, extended_ack: None }));
    }
    let answers = net.call(request)?;
    let address = |answer: &RouteNetlinkMessage| match answer {
        RouteNetlinkMessage::NewAddress(message) => {
            let index = message.header.index;
            read(answer, index).map(|address| (index, address))
        }
        _ => None,
    };
    Ok(answers.iter().filter_map(address).collect())
}

pub(crate) fn read(answer: &RouteNetlinkMessage, index: u32) -> Option<Address> {
    let RouteNetlinkMessage::NewAddress(message) = answer else {
        return None;
    };
    if message.header.index != index {
        return None;
    }
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    let (mut local, mut address) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Flags(all) => flags = *all,
            _ => (),
        }
    }
    Some(Address {
        net: IpNetwork::new(local.or(address)?, message.header.prefix_len).ok()?,
        nodad: flags.contains(AddressFlags::Nodad),
        tentative: flags.contains(AddressFlags::Tentative),
        dad_failed: flags.contains(AddressFlags::Dadfailed),
    })
}

pub(crate) fn family(ip: IpAddr) -> AddressFamily {
    Family::from(ip).into()
}
