//! Finds the peer of a veth in another namespace, without trusting what one end alone says.
//!
//! A link identifies its peer by an index only, and a process with `CAP_NET_ADMIN` in a namespace chooses the indexes
//! there: a container can create a veth pair with the indexes of a link of the host. So an index means nothing without
//! its namespace. The kernel reports that namespace by a number which the link's own namespace has for it
//! (`IFLA_LINK_NETNSID`). A container cannot set this number for a namespace that it has no access to.

use std::net::IpAddr;
use std::os::fd::AsRawFd;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};

use crate::addr;
use crate::error::{Errno, OpError, Result};
use crate::link::{self, Kind, Link};
use crate::netlink_connection::{Kernel, Reply, Request};
use crate::netns::Netns;

/// The end on the host of a veth whose other end is `container`, a link `inside` the namespace `netns`.
///
/// Only where each end names the other: its index, and the namespace that it counts in. What is in doubt is no end of it.
///
/// # Errors
/// As [`link::find_index`].
pub fn find_host_end(host: &Kernel, inside: &Kernel, netns: &Netns, container: &Link) -> Result<Option<Link>> {
    let Some(index) = container.peer.filter(|_| container.kind == Kind::Veth) else { return Ok(None) };
    let own = Netns::current().map_err(|error| OpError::state("open", "the host's namespace", error.to_string()))?;
    if !names(container, inside, &own)? {
        return Ok(None);
    }
    // Both questions with one call.
    let (end, number) = link::find_index_and(host, index, number_request(netns))?;
    let Some(end) = end else { return Ok(None) };
    let is_pair = end.kind == Kind::Veth && end.peer == Some(container.index) && has_number(&end, read_number(number?));
    Ok(is_pair.then_some(end))
}

/// Whether the link, one of `inside`, says that what it is connected to or stacked on ([`Link::peer`]) is on the host.
///
/// # Errors
/// The kernel does not say.
pub fn is_other_end_on_host(link: &Link, inside: &Kernel) -> Result<bool> {
    let own = Netns::current().map_err(|error| OpError::state("open", "the host's namespace", error.to_string()))?;
    names(link, inside, &own)
}

/// Whether the other end of a link of `net` is in another namespace, and that namespace exists. A namespace that is about to
/// end still has its links for a moment, but its number leads nowhere.
///
/// # Errors
/// The kernel does not say.
pub fn leads_to_a_namespace(net: &Kernel, link: &Link) -> Result<bool> {
    match link.peer_netns_id {
        Some(id @ 0..) => namespace_exists(net, id),
        Some(_) | None => Ok(false),
    }
}

/// Whether the link's other end is in a namespace that exists and has no address but those that each has by itself: a virtual
/// machine in it may have one.
///
/// # Errors
/// The kernel does not say.
pub fn leads_to_none_with_addresses(net: &Kernel, link: &Link) -> Result<bool> {
    let Some(id @ 0..) = link.peer_netns_id else { return Ok(false) };
    match addr::list_all(net, Some(id)) {
        Ok(found) => Ok(!found.iter().any(|(_, address)| is_of_one(address.ip()))),
        Err(error) if error.os_errno() == Some(Errno::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether an address belongs to one namespace or link alone; each namespace has loopback and link-local ones by itself.
#[must_use]
pub fn is_of_one(ip: IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.is_multicast(),
    };
    !ip.is_loopback() && !is_link_local
}

/// Whether the namespace that has this number in `net` exists.
///
/// # Errors
/// The kernel does not say.
pub fn namespace_exists(net: &Kernel, id: i32) -> Result<bool> {
    match addr::list_all(net, Some(id)) {
        Ok(_) => Ok(true),
        Err(error) if error.os_errno() == Some(Errno::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Keeps those of `links`, all of `inside`, that say that what they are connected to or stacked on is on the host.
///
/// # Errors
/// The kernel does not say.
pub fn retain_on_host(links: &mut Vec<Link>, inside: &Kernel) -> Result<()> {
    if links.is_empty() {
        return Ok(());
    }
    let own = Netns::current().map_err(|error| OpError::state("open", "the host's namespace", error.to_string()))?;
    let number = read_number(inside.call(number_request(&own))?);
    links.retain(|link| has_number(link, number));
    Ok(())
}

/// Whether the namespace that a link of `net` says its other end is in is `other`.
///
/// # Errors
/// The kernel does not say.
pub fn names(link: &Link, net: &Kernel, other: &Netns) -> Result<bool> {
    match link.peer_netns_id {
        Some(0..) => Ok(has_number(link, read_number(net.call(number_request(other))?))),
        Some(_) | None => Ok(false),
    }
}

/// Whether the number that the link has for the other end's namespace is this one.
fn has_number(link: &Link, number: Option<i32>) -> bool {
    // Negative: the other end's namespace has no number here, or is ending. None: both ends are here.
    link.peer_netns_id.is_some_and(|id| id >= 0 && number == Some(id))
}

/// Asks for the number that this namespace has for another.
fn number_request(other: &Netns) -> Request {
    let mut message = NsidMessage::default();
    // A descriptor of a process is never negative.
    message.attributes.push(NsidAttribute::Fd(other.as_raw_fd().cast_unsigned()));
    Request::new(
        "get",
        format!("the number of namespace {}", other.path().display()),
        RouteNetlinkMessage::GetNsId(message),
    )
    .wire_name("RTM_GETNSID")
}

fn read_number(reply: Reply) -> Option<i32> {
    let mut numbers = reply.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewNsId(message) => message.attributes.iter().find_map(|attribute| match attribute {
            NsidAttribute::Id(id) => Some(*id),
            _ => None,
        }),
        _ => None,
    });
    numbers.next_back().filter(|id| *id >= 0)
}
