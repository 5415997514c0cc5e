//! What the routers of a link have said about its IPv6 addresses, as the kernel remembers it.

use std::collections::BTreeSet;

use netlink_packet_core::{NLM_F_DUMP, Nla};
use netlink_packet_route::link::{Inet6IfaceFlags, LinkAttribute, LinkMessage, LinkProtoInfoInet6};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{Link, find_index};
use crate::error::Result;
use crate::netlink_connection::{Kernel, Request};
use crate::route;
use crate::sysctl::{self, Key};

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
    let flags = list(net)?.into_iter().find_map(|(index, flags)| (index == link.index).then_some(flags));
    Ok(flags.map_or(Advertised::Nothing, |flags| {
        match (flags.contains(Inet6IfaceFlags::RaRcvd), flags.contains(Inet6IfaceFlags::RaManaged)) {
            (false, _) => Advertised::Nothing,
            (true, true) => Advertised::Managed,
            (true, false) => Advertised::Unmanaged,
        }
    }))
}

/// Lists the links on which the kernel takes router advertisements only as long as the host forwards no IPv6 (`accept_ra` is 1),
/// and has taken some: with forwarding it forgets their routes, and their addresses end. `net` is the calling thread's namespace.
///
/// # Errors
/// As the kernel refuses.
pub fn list_hosts_only(net: &Kernel) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    for index in with_routers(net)? {
        let Some(link) = find_index(net, index)? else { continue };
        if sysctl::find(&Key::of_link("ipv6", &link.name, "accept_ra")?)?.as_deref() == Some("1") {
            links.push(link);
        }
    }
    Ok(links)
}

/// Whether the kernel takes router advertisements on a link, and has taken some. `net` is the calling thread's namespace.
///
/// # Errors
/// As the kernel refuses.
pub fn has_routers(net: &Kernel, link: &Link) -> Result<bool> {
    let value = sysctl::find(&Key::of_link("ipv6", &link.name, "accept_ra")?)?;
    Ok(value.is_some_and(|value| value != "0") && with_routers(net)?.contains(&link.index))
}

fn with_routers(net: &Kernel) -> Result<BTreeSet<u32>> {
    let heard = list(net)?.into_iter().filter(|(_, flags)| flags.contains(Inet6IfaceFlags::RaRcvd));
    let mut indexes: BTreeSet<u32> = heard.map(|(index, _)| index).collect();
    // The flag is not there where the kernel has not asked for an advertisement.
    indexes.extend(route::list_advertised(net)?.into_iter().filter_map(|route| route.link));
    Ok(indexes)
}

/// The flags of all links that have IPv6 (`IF_RA_*`, include/net/if_inet6.h).
fn list(net: &Kernel) -> Result<Vec<(u32, Inet6IfaceFlags)>> {
    let mut message = LinkMessage::default();
    message.header.interface_family = AddressFamily::Inet6;
    let request = Request::new("list", "what routers advertise", RouteNetlinkMessage::GetLink(message))
        .flags(NLM_F_DUMP)
        .wire_name("RTM_GETLINK family=inet6 dump");
    Ok(net.call(request)?.iter().filter_map(flags).collect())
}

fn flags(answer: &RouteNetlinkMessage) -> Option<(u32, Inet6IfaceFlags)> {
    let RouteNetlinkMessage::NewLink(LinkMessage { header, attributes, .. }) = answer else { return None };
    let ipv6 = attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::ProtoInfoInet6(values) => Some(values),
        _ => None,
    })?;
    ipv6.iter().find_map(|value| match value {
        LinkProtoInfoInet6::Other(value) if value.kind() == FLAGS => {
            let mut bytes = [0; 4];
            (value.value_len() == bytes.len()).then(|| value.emit_value(&mut bytes))?;
            Some((header.index, Inet6IfaceFlags::from_bits_retain(u32::from_ne_bytes(bytes))))
        }
        _ => None,
    })
}
