//! What the routers of a link have said about its IPv6 addresses, as the kernel remembers it.

use netlink_packet_core::{NLM_F_DUMP, Nla};
use netlink_packet_route::link::{Inet6IfaceFlags, LinkAttribute, LinkMessage, LinkProtoInfoInet6};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::Link;
use crate::error::Result;
use crate::netlink_connection::{Kernel, Request};

/// `IFLA_INET6_FLAGS` (linux/if_link.h).
const FLAGS: u16 = 1;

/// The newest advertisement that the kernel has taken on a link (RFC 4861, 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advertised {
    /// No advertisement yet; or the link refuses them, or has no IPv6.
    Nothing,
    /// Addresses are available by DHCPv6 (flag M).
    Managed,
    /// No addresses are available by DHCPv6: hosts make their own, of the advertised prefixes.
    Unmanaged,
}

/// Reads what routers have advertised on a link. The kernel says so in a list of all links that have IPv6.
///
/// # Errors
/// As the kernel refuses. A link that is gone has heard nothing.
pub fn advertised(net: &Kernel, link: &Link) -> Result<Advertised> {
    let mut message = LinkMessage::default();
    message.header.interface_family = AddressFamily::Inet6;
    let object = format!("what routers advertise on {}", link.name);
    let request = Request::new("list", object, RouteNetlinkMessage::GetLink(message))
        .flags(NLM_F_DUMP)
        .wire_name("RTM_GETLINK family=inet6 dump");
    let reply = net.call(request)?;
    Ok(reply.iter().find_map(|answer| flags(answer, link.index)).map_or(Advertised::Nothing, |flags| {
        match (flags.contains(Inet6IfaceFlags::RaRcvd), flags.contains(Inet6IfaceFlags::RaManaged)) {
            (false, _) => Advertised::Nothing,
            (true, true) => Advertised::Managed,
            (true, false) => Advertised::Unmanaged,
        }
    }))
}

fn flags(answer: &RouteNetlinkMessage, index: u32) -> Option<Inet6IfaceFlags> {
    let RouteNetlinkMessage::NewLink(LinkMessage { header, attributes, .. }) = answer else { return None };
    let ipv6 = attributes.iter().filter(|_| header.index == index).find_map(|attribute| match attribute {
        LinkAttribute::ProtoInfoInet6(values) => Some(values),
        _ => None,
    })?;
    ipv6.iter().find_map(|value| match value {
        LinkProtoInfoInet6::Other(value) if value.kind() == FLAGS => {
            let mut bytes = [0; 4];
            (value.value_len() == bytes.len()).then(|| value.emit_value(&mut bytes))?;
            Some(Inet6IfaceFlags::from_bits_retain(u32::from_ne_bytes(bytes)))
        }
        _ => None,
    })
}
