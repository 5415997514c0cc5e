//! Neighbours: which Ethernet address a link sends to for an IP address.

use std::net::IpAddr;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};

use crate::addr::Family;
use crate::error::Result;
use crate::kernel::{Kernel, Request};
use crate::link::Mac;

/// An entry that an administrator has made, which the kernel does not replace by what neighbours answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permanent {
    /// The index of the link.
    pub link: u32,
    /// The neighbour's address.
    pub address: IpAddr,
    /// The Ethernet address that packets are sent to.
    pub mac: Mac,
}

/// The permanent entries (`NUD_PERMANENT`) of one family.
///
/// # Errors
/// As the kernel refuses.
pub fn list_permanent(net: &Kernel, family: Family) -> Result<Vec<Permanent>> {
    let mut message = NeighbourMessage::default();
    message.header.family = family.into();
    let request = Request::new("list", "neighbours", RouteNetlinkMessage::GetNeighbour(message))
        .flags(NLM_F_DUMP)
        .wire_name("RTM_GETNEIGH dump");
    let permanent = |answer: &RouteNetlinkMessage| match answer {
        RouteNetlinkMessage::NewNeighbour(message) => read(message),
        _ => None,
    };
    Ok(net.call(request)?.iter().filter_map(permanent).collect())
}

fn read(message: &NeighbourMessage) -> Option<Permanent> {
    if message.header.state != NeighbourState::Permanent {
        return None;
    }
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(IpAddr::from(*address)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => Some(IpAddr::from(*address)),
        _ => None,
    });
    let mac = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(octets) => octets.as_slice().try_into().ok().map(Mac),
        _ => None,
    });
    Some(Permanent { link: message.header.ifindex, address: address?, mac: mac? })
}
