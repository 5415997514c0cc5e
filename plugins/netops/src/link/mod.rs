//! Links, and the requests that create, change, move and read them.
//!
//! Requests are values ([`Request`]), so one call can send several to the kernel. Each kind of link has a file with its
//! settings, which are used to create a link and to report it ([`Kind`]). [`crate::link_removal`] removes links;
//! [`crate::bridge_port`] has a bridge's settings for a port.

mod kind;
mod name;
mod new;
mod read;
mod router;
mod settings;
mod transfer;
mod without_lock;

pub mod bridge;
pub mod details;
pub mod ipvlan;
pub mod macvlan;
pub mod tun;
pub mod veth;
pub mod vlan;
pub mod vrf;

pub use bridge::{Bridge, create_bridge};
pub use kind::Kind;
use name::is_any_name;
pub use name::{AnyName, AnyNameError, LinkName, NAME_BYTES_MAX, NameError, is_name};
pub use new::{NewLink, Place, create};
pub use router::{Advertised, advertised, has_routers, list_hosts_only};
pub use settings::{Settings, add_alt_names, delete_alt_names, set};
pub use transfer::{Before, transfer, transfer_by_way};
pub use veth::{Veth, create_free_veth, create_veth};
pub use without_lock::{BridgeVlans, Sight, see};

use std::collections::BTreeMap;

use netlink_packet_core::{DefaultNla, NLM_F_DUMP};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};
use nix::errno::Errno;
use rtnetlink::LinkUnspec;

use crate::error::{Cause, OpError, Result};
pub use crate::mac::{Mac, MacError};
use crate::netlink_connection::{Kernel, Reply, Request};

/// A link as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Link {
    /// The index, unique in the link's namespace while the link exists.
    pub index: u32,
    /// The link's name.
    pub name: String,
    /// The link's kind, with the settings of that kind.
    pub kind: Kind,
    /// The Ethernet address; `None` if the link's address is not of six bytes.
    pub mac: Option<Mac>,
    /// The Ethernet address that its hardware came with, which nothing can change; virtual links have none.
    pub permanent_mac: Option<Mac>,
    /// The device that it is the network interface of, with its bus: `pci/0000:3b:00.1` (kernels from 5.14 on).
    pub parent_device: Option<String>,
    /// The MTU, in bytes.
    pub mtu_bytes: u32,
    /// Set up by the administrator (`IFF_UP`).
    pub up: bool,
    /// Has a carrier (`IFF_LOWER_UP`), as far as it is up: the kernel shows that before it has worked out `oper_up`.
    pub carrier: bool,
    /// Can carry packets now (`IF_OPER_UP`).
    pub oper_up: bool,
    /// The kernel does not know whether it can (`IF_OPER_UNKNOWN`); treated as if it could.
    pub oper_unknown: bool,
    /// A loopback link (`IFF_LOOPBACK`).
    pub loopback: bool,
    /// The index of its master.
    pub master: Option<u32>,
    /// The index of the link it is connected to or stacked on: a veth's peer, a VLAN's parent.
    pub peer: Option<u32>,
    /// If `peer` is in another namespace: this namespace's number for that one.
    pub peer_netns_id: Option<i32>,
    /// The alias (`ip link set alias`).
    pub alias: Option<String>,
    /// Set promiscuous by the administrator (`IFF_PROMISC`).
    pub promisc: bool,
    /// Receives all multicast (`IFF_ALLMULTI`).
    pub allmulti: bool,
    /// Does not resolve addresses (`IFF_NOARP`).
    pub no_arp: bool,
    /// Can send to multicast addresses (`IFF_MULTICAST`).
    pub multicast: bool,
    /// Further names, which lead to it as its name does (`ip link property add altname`).
    pub alt_names: Vec<String>,
    /// How many users set it promiscuous, the administrator and its bridge included.
    pub promiscuity: u32,
    /// Length of the transmit queue, in packets.
    pub tx_queue_len: u32,
    /// The settings as a bridge port.
    pub port: Option<Port>,
    /// The setting by which it does not pass on all frames as a bridge port.
    pub port_fault: Option<PortFault>,
    /// The group that the administrator put it in (`ip link set group`); 0 is none.
    pub group: u32,
}

/// The settings of a bridge port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Port {
    /// Frames may leave through the port they came in by (hairpin).
    pub hairpin: bool,
    /// Isolated ports exchange no frames with each other.
    pub isolated: bool,
}

/// A setting by which a bridge port does not pass on all frames (`IFLA_BRPORT_*` of linux/if_link.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortFault {
    /// The spanning tree, or an administrator, has the port blocked or disabled.
    Blocks,
    /// The spanning tree lets the port pass on nothing yet (listening, learning).
    Waits,
    /// The port neither learns who is behind it nor gets frames for stations that the bridge does not know.
    Deaf,
    /// The port takes frames only from stations that an administrator has entered (`locked`).
    Locked,
    /// The port gets no broadcasts.
    NoBroadcast,
    /// The port gets no multicasts to groups that the bridge does not know.
    NoMulticast,
}

const IFLA_ALT_IFNAME: u16 = 53; // include/uapi/linux/if_link.h

/// The link a request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    index: u32,
    name: String,
}

impl Target {
    /// The link with this name. Prefer `From<&Link>`: an index is not reused soon, but a name may be.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { index: 0, name: name.into() }
    }

    /// The link's index; 0 if only the name is known.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The link's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn message(&self) -> LinkMessage {
        match self.index {
            0 if self.name.len() > NAME_BYTES_MAX => {
                let name = [self.name.as_bytes(), &[0]].concat();
                let mut message = LinkMessage::default();
                message.attributes.push(LinkAttribute::Other(DefaultNla::new(IFLA_ALT_IFNAME, name)));
                message
            }
            0 => LinkUnspec::new_with_name(&self.name).build(),
            index => LinkUnspec::new_with_index(index).build(),
        }
    }
}

impl From<&Link> for Target {
    fn from(link: &Link) -> Self {
        Self { index: link.index, name: link.name.clone() }
    }
}

/// Reads the link, which must exist. A text that cannot be a link's name ([`AnyName`]) is not sent to the kernel.
///
/// # Errors
/// `ENODEV`: the link does not exist.
pub fn get(net: &Kernel, target: &Target) -> Result<Link> {
    let start = || target.name.chars().take(2 * NAME_BYTES_MAX).collect::<String>();
    let absent = || OpError::errno("get", format!("link {:?}", start()), Errno::ENODEV).at(net.place());
    if target.index == 0 && !is_any_name(&target.name) {
        return Err(absent());
    }
    match net.call(get_request(target)) {
        // A kernel before 5.5 has no names of such a length, and asks for another one.
        Err(error) if error.os_errno() == Some(Errno::EINVAL) && target.name.len() > NAME_BYTES_MAX => Err(absent()),
        reply => only(reply?, net, &target.name),
    }
}

/// Reads the link with this name, if it exists.
///
/// # Errors
/// As the kernel refuses; `ENODEV` is `None`.
pub fn find(net: &Kernel, name: &str) -> Result<Option<Link>> {
    present(get(net, &Target::named(name)))
}

/// Reads the link with this index, if it exists.
///
/// # Errors
/// As [`find`].
pub fn find_index(net: &Kernel, index: u32) -> Result<Option<Link>> {
    let target = Target { index, name: format!("number {index}") };
    present(get(net, &target))
}

/// As [`find_index`], and the reply to another request, in one call to the kernel.
pub(crate) fn find_index_and(net: &Kernel, index: u32, other: Request) -> Result<(Option<Link>, Result<Reply>)> {
    let target = Target { index, name: format!("number {index}") };
    let mut outcomes = net.call_all(vec![get_request(&target), other]).into_iter();
    let mut next = || outcomes.next().unwrap_or(Ok(Vec::new()));
    let found = present(next().and_then(|reply| only(reply, net, &target.name)));
    Ok((found?, next()))
}

fn present(found: Result<Link>) -> Result<Option<Link>> {
    match found {
        Ok(link) => Ok(Some(link)),
        Err(error) if error.os_errno() == Some(Errno::ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Changes a link and reads it back, in one call to the kernel.
///
/// # Errors
/// As [`set`].
pub fn set_and_get(net: &Kernel, target: &Target, settings: &Settings) -> Result<Link> {
    run_and_get(net, vec![set(target, settings)], target)
}

/// Sends requests and then reads the link, in one call to the kernel.
///
/// # Errors
/// The first failure; as for [`Kernel::run_all`], later requests may have succeeded.
pub fn run_and_get(net: &Kernel, mut requests: Vec<Request>, target: &Target) -> Result<Link> {
    requests.push(get_request(target));
    let mut last = Ok(Vec::new());
    for outcome in net.call_all(requests) {
        last = last.and(outcome);
    }
    only(last?, net, &target.name)
}

/// Whether the link has ever sent or received a packet. For rare questions: other readings leave the counters out.
///
/// # Errors
/// `ENODEV`: the link does not exist.
pub fn has_carried(net: &Kernel, link: &Link) -> Result<bool> {
    let message = RouteNetlinkMessage::GetLink(Target::from(link).message());
    let request = Request::new("get", format!("counters of link {}", link.name), message)
        .wire_name(format!("RTM_GETLINK dev={} with counters", link.name))
        .in_detail();
    let is_used = |attribute: &LinkAttribute| match attribute {
        LinkAttribute::Stats64(stats) => stats.rx_packets > 0 || stats.tx_packets > 0,
        _ => false,
    };
    Ok(net.call(request)?.iter().any(|message| match message {
        RouteNetlinkMessage::NewLink(link) => link.attributes.iter().any(is_used),
        _ => false,
    }))
}

/// Reads the links with these names, as far as they exist, in one call to the kernel.
///
/// # Errors
/// As [`find`].
pub fn find_both(net: &Kernel, one: &str, other: &str) -> Result<(Option<Link>, Option<Link>)> {
    let mut found = find_all(net, &[one, other])?.into_iter();
    Ok((found.next().flatten(), found.next().flatten()))
}

/// As [`find_both`], of any number of names.
///
/// # Errors
/// As [`find`].
pub fn find_all(net: &Kernel, names: &[&str]) -> Result<Vec<Option<Link>>> {
    let outcomes = net.call_all(names.iter().map(|name| get_request(&Target::named(*name))).collect());
    let found = |(outcome, name): (Result<Reply>, &&str)| present(outcome.and_then(|reply| only(reply, net, name)));
    outcomes.into_iter().zip(names).map(found).collect()
}

/// Reads two links, which must exist, in one call to the kernel.
///
/// # Errors
/// `ENODEV`: one of them does not exist.
pub fn get_both(net: &Kernel, one: &Target, other: &Target) -> Result<(Link, Link)> {
    let mut outcomes = net.call_all(vec![get_request(one), get_request(other)]).into_iter();
    let mut next = |target: &Target| only(outcomes.next().unwrap_or(Ok(Vec::new()))?, net, &target.name);
    Ok((next(one)?, next(other)?))
}

/// All links of the namespace, or the ports of one master. The cost grows with their number: for GC, not for ADD.
///
/// # Errors
/// As the kernel refuses.
pub fn list(net: &Kernel, master: Option<u32>) -> Result<Vec<Link>> {
    // Kernels before 4.6 do not know the filter. A link that cannot be decoded has no name here, and counts as a port.
    let is_wanted = |link: &Link| master.is_none() || link.master == master || link.name.is_empty();
    Ok(net.call(list_request(master))?.iter().filter_map(Link::from_message).filter(is_wanted).collect())
}

/// All links of a container's namespace, for DEL. Where its processes make and remove links so fast that no list is whole, those
/// that were there all the time.
///
/// # Errors
/// As the kernel refuses.
pub fn list_of_container(net: &Kernel) -> Result<Vec<Link>> {
    let seen = net.gather(&list_request(None))?;
    let by_index: BTreeMap<u32, Link> =
        seen.iter().filter_map(Link::from_message).map(|link| (link.index, link)).collect();
    Ok(by_index.into_values().collect())
}

fn list_request(master: Option<u32>) -> Request {
    let mut message = LinkMessage::default();
    message.attributes.extend(master.map(LinkAttribute::Controller));
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    Request::new("list", "links", RouteNetlinkMessage::GetLink(message)).flags(NLM_F_DUMP).wire_name("RTM_GETLINK dump")
}

pub(crate) fn get_request(target: &Target) -> Request {
    let mut message = target.message();
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    Request::new("get", format!("link {}", target.name), RouteNetlinkMessage::GetLink(message))
        .wire_name(format!("RTM_GETLINK dev={}", target.name))
}

fn only(reply: Reply, net: &Kernel, name: &str) -> Result<Link> {
    reply.iter().find_map(Link::from_message).ok_or_else(|| {
        let cause = Cause::State("the kernel answered without a link".into());
        OpError::new("get", format!("link {name}"), cause).at(net.place())
    })
}
