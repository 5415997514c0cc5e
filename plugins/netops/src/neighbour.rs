//! Neighbours: which Ethernet address a link sends to for an IP address.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};

use crate::addr::family;
use crate::error::Result;
use crate::link::{Link, Mac};
use crate::netlink_connection::{Kernel, Request};

/// An entry of the neighbour table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// The Ethernet address that packets are sent to.
    pub mac: Mac,
    /// An administrator has fixed it (`NUD_PERMANENT`, `NUD_NOARP`): the kernel does not replace it by what the neighbour answers.
    pub is_fixed: bool,
}

/// The entry of one address on a link, if it has an Ethernet address.
///
/// # Errors
/// `EOPNOTSUPP`: a kernel before 5.0 looks up none.
pub fn find(net: &Kernel, link: &Link, address: IpAddr) -> Result<Option<Neighbour>> {
    Ok(look_up(net, link, address)?.iter().find_map(read))
}

/// Whether the kernel has asked for the Ethernet address of an address on a link, and no station has answered (`NUD_INCOMPLETE`,
/// `NUD_FAILED`).
///
/// # Errors
/// As [`find`].
pub fn is_unresolved(net: &Kernel, link: &Link, address: IpAddr) -> Result<bool> {
    let is_it =
        |found: &NeighbourMessage| matches!(found.header.state, NeighbourState::Incomplete | NeighbourState::Failed);
    Ok(look_up(net, link, address)?.iter().any(is_it))
}

fn look_up(net: &Kernel, link: &Link, address: IpAddr) -> Result<Vec<NeighbourMessage>> {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = link.index;
    let destination = match address {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    };
    message.attributes.push(NeighbourAttribute::Destination(destination));
    let object = format!("neighbour {address} of {}", link.name);
    let request = Request::new("look up", object, RouteNetlinkMessage::GetNeighbour(message))
        .wire_name(format!("RTM_GETNEIGH {address} dev={}", link.name));
    let answers = match net.call(request) {
        Err(error) if error.is_absent() => return Ok(Vec::new()),
        answers => answers?,
    };
    let entry = |answer| match answer {
        RouteNetlinkMessage::NewNeighbour(message) => Some(message),
        _ => None,
    };
    Ok(answers.into_iter().filter_map(entry).collect())
}

fn read(message: &NeighbourMessage) -> Option<Neighbour> {
    let is_fixed = matches!(message.header.state, NeighbourState::Permanent | NeighbourState::Noarp);
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(octets) => {
            octets.as_slice().try_into().ok().map(|octets| Neighbour { mac: Mac(octets), is_fixed })
        }
        _ => None,
    })
}
