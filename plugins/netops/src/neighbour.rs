//! Neighbours: which Ethernet address a link sends to for an IP address.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};

use crate::addr::family;
use crate::error::Result;
use crate::link::{Link, Mac};
use crate::netlink_connection::{Kernel, Reply, Request};

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

/// Deletes the entries of addresses on a link that have another Ethernet address than `mac`, but for those that an administrator
/// has fixed. Errors are logged: the entries end by themselves, and a kernel before 5.0 looks up none.
pub fn forget(net: &Kernel, link: &Link, addresses: &[IpAddr], mac: Option<Mac>) {
    let looked_up = net.call_all(addresses.iter().map(|address| get(link, *address)).collect());
    for (address, found) in addresses.iter().zip(looked_up) {
        let entries = found.map(entries).unwrap_or_default();
        if entries.iter().filter_map(read).any(|entry| !entry.is_fixed && Some(entry.mac) != mac) {
            let request = Request::new(
                "delete",
                format!("neighbour {address} of {}", link.name),
                RouteNetlinkMessage::DelNeighbour(message(link, *address)),
            );
            if let Err(error) = net.run(request.wire_name(format!("RTM_DELNEIGH {address} dev={}", link.name))) {
                tracing::debug!(%error, "going on");
            }
        }
    }
}

fn look_up(net: &Kernel, link: &Link, address: IpAddr) -> Result<Vec<NeighbourMessage>> {
    match net.call(get(link, address)) {
        Err(error) if error.is_absent() => Ok(Vec::new()),
        answers => answers.map(entries),
    }
}

fn get(link: &Link, address: IpAddr) -> Request {
    let object = format!("neighbour {address} of {}", link.name);
    Request::new("look up", object, RouteNetlinkMessage::GetNeighbour(message(link, address)))
        .wire_name(format!("RTM_GETNEIGH {address} dev={}", link.name))
}

fn message(link: &Link, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = link.index;
    let destination = match address {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    };
    message.attributes.push(NeighbourAttribute::Destination(destination));
    message
}

fn entries(answers: Reply) -> Vec<NeighbourMessage> {
    let entry = |answer| match answer {
        RouteNetlinkMessage::NewNeighbour(message) => Some(message),
        _ => None,
    };
    answers.into_iter().filter_map(entry).collect()
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
