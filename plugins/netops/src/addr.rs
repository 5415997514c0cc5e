//! Addresses on links.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, CacheInfo};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;

use crate::error::Result;
use crate::kernel::{Kernel, Request};
use crate::link::Link;
use crate::route;

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

/// How long an IPv6 address lasts, in seconds from now; `u32::MAX` is for ever. The kernel deletes it afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// For new connections; at most `valid`.
    pub preferred: u32,
    /// For all; not 0.
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
    let mut message = AddressMessage::default();
    message.header.index = link.index;
    let object = format!("addresses of {}", link.name);
    let request = Request::new("list", object, RouteNetlinkMessage::GetAddress(message))
        .flags(NLM_F_DUMP)
        .wire_name(format!("RTM_GETADDR dump dev={}", link.name));
    let answers = net.call(request)?;
    Ok(answers.iter().filter_map(|answer| read(answer, link.index)).collect())
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
/// `EINVAL`: no namespace has this number (any more). `EACCES`: no `CAP_NET_ADMIN` there.
pub fn list_all(net: &Kernel, netns_id: Option<i32>) -> Result<Vec<(u32, IpNetwork)>> {
    let mut message = AddressMessage::default();
    message.attributes.extend(netns_id.map(AddressAttribute::TargetNetNsId));
    let place = netns_id.map_or(String::new(), |id| format!(" netns-id={id}"));
    let request = Request::new("list", "addresses", RouteNetlinkMessage::GetAddress(message))
        .flags(NLM_F_DUMP)
        .wire_name(format!("RTM_GETADDR dump{place}"));
    let answers = net.call(request)?;
    let address = |answer: &RouteNetlinkMessage| match answer {
        RouteNetlinkMessage::NewAddress(message) => {
            let index = message.header.index;
            read(answer, index).map(|address| (index, address.net))
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
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
