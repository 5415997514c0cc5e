//! veth pairs.

use std::os::fd::AsRawFd;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkAttribute::{NumRxQueues, NumTxQueues};
use netlink_packet_route::link::{InfoData, InfoVeth};
use nix::errno::Errno;
use rtnetlink::{LinkUnspec, LinkVeth};

use super::{Link, LinkName, Mac, Settings, Target, find, get_request, only, set};
use crate::error::{Cause, OpError, Result};
use crate::feature::Feature;
use crate::netlink_connection::{Kernel, Request};
use crate::netns::Netns;

/// A veth pair: one end here, its peer, which is created down, here or in another namespace.
#[derive(Debug)]
pub struct Veth<'a> {
    /// The name of the end here.
    pub name: &'a str,
    /// The master of the end here.
    pub master: Option<u32>,
    /// The alias of the end here.
    pub alias: &'a str,
    /// The MTU of both ends, in bytes; `None` leaves the kernel's default.
    pub mtu_bytes: Option<u32>,
    /// The end here is set up with its creation, which saves a request. It has no carrier while the peer is down.
    pub up: bool,
    /// The Ethernet address of the end here; `None`: the kernel chooses a random one, which udev replaces on nodes with
    /// `MACAddressPolicy=persistent`.
    pub mac: Option<Mac>,
    /// The name of the peer.
    pub peer_name: &'a str,
    /// The Ethernet address of the peer; `None`: the kernel chooses a random one.
    pub peer_mac: Option<Mac>,
    /// The namespace of the peer; `None`: this one.
    pub peer_netns: Option<&'a Netns>,
    /// The number of queues of both ends, in each direction; `None`: one for each processor, which costs as much as the rest of the pair
    /// and is of use only to XDP.
    pub queues: Option<u32>,
}

impl<'a> Veth<'a> {
    /// A pair with these names and the kernel's defaults, both ends in the namespace of the request.
    #[must_use]
    pub fn new(name: &'a str, peer_name: &'a str) -> Self {
        let (mac, peer_mac, peer_netns, queues) = (None, None, None, None);
        Self { name, master: None, alias: "", mtu_bytes: None, up: false, mac, peer_name, peer_mac, peer_netns, queues }
    }
}

/// Creates a pair, sets its alias and reads the end here, by one call to the kernel after the name was checked.
///
/// # Errors
/// `EEXIST`: one of the names is taken; nothing was created. After any later error the pair is deleted again.
pub fn create_veth(net: &Kernel, veth: &Veth<'_>) -> Result<Link> {
    // The kernel processes the rest of the batch after a refusal: it would set the alias of the other link with this
    // name.
    if find(net, veth.name)?.is_some() {
        return Err(new_veth(veth).error(net.place(), Cause::Kernel { errno: Errno::EEXIST, extended_ack: None }));
    }
    create_free_veth(net, veth)
}

/// As [`create_veth`], for a caller that has just seen that no link has the name of the end here. Without that look, the
/// alias would be set on the other link.
///
/// # Errors
/// As [`create_veth`].
pub fn create_free_veth(net: &Kernel, veth: &Veth<'_>) -> Result<Link> {
    // The kernel would replace eth%d by eth0.
    for name in [veth.name, veth.peer_name] {
        LinkName::parse(name).map_err(|error| OpError::state("create", format!("veth {name}"), error.to_string()))?;
    }
    let here = Target::named(veth.name);
    let alias = Settings { alias: Some(veth.alias.to_owned()), ..Settings::default() };
    let mut outcomes = net.call_all(vec![new_veth(veth), set(&here, &alias), get_request(&here)]).into_iter();
    match outcomes.next() {
        Some(Ok(_)) => (),
        Some(Err(error)) => return Err(error),
        None => return Err(OpError::state("create", format!("veth {}", veth.name), "no answer")),
    }
    let mut made = Ok(Vec::new());
    for outcome in outcomes {
        made = made.and(outcome);
    }
    let link = made.and_then(|reply| only(reply, net, veth.name));
    if link.is_err() {
        // Without the alias, DEL cannot find this veth, so delete it.
        net.run(crate::link_removal::request(&here))?;
    }
    link
}

fn new_veth(veth: &Veth<'_>) -> Request {
    let mut peer = LinkUnspec::new_with_name(veth.peer_name);
    let mut message = LinkVeth::new(veth.name, veth.peer_name);
    if let Some(mac) = veth.peer_mac {
        peer = peer.address(mac.0.to_vec());
    }
    if let Some(mac) = veth.mac {
        message = message.address(mac.0.to_vec());
    }
    if let Some(mtu) = veth.mtu_bytes {
        peer = peer.mtu(mtu);
        message = message.mtu(mtu);
    }
    for queues in veth.queues.iter().flat_map(|count| [NumTxQueues(*count), NumRxQueues(*count)]) {
        peer = peer.append_extra_attribute(queues.clone());
        message = message.append_extra_attribute(queues);
    }
    if veth.up {
        message = message.up();
    }
    if let Some(netns) = veth.peer_netns {
        peer = peer.setns_by_fd(netns.as_raw_fd());
    }
    if let Some(master) = veth.master {
        message = message.controller(master);
    }
    let message = message.set_info_data(InfoData::Veth(InfoVeth::Peer(peer.build())));
    let place = match veth.peer_netns {
        Some(netns) => format!(" in {}", netns.path().display()),
        None => String::new(),
    };
    Request::new(
        "create",
        format!("veth {} with peer {}{place}", veth.name, veth.peer_name),
        RouteNetlinkMessage::NewLink(message.build()),
    )
    .flags(NLM_F_CREATE | NLM_F_EXCL)
    .needs(Feature::Veth)
    .wire_name(format!("RTM_NEWLINK kind=veth name={} peer={}", veth.name, veth.peer_name))
}
