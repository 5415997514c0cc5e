//! Pairs of links.

use std::os::fd::AsRawFd;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoData, InfoVeth};
use nix::errno::Errno;
use rtnetlink::{LinkUnspec, LinkVeth};

use super::{Link, LinkName, Mac, Settings, Target, find, get_request, only, set};
use crate::error::{Cause, OpError, Result};
use crate::feature::Feature;
use crate::kernel::{Kernel, Request};
use crate::netns::Netns;

/// A pair of links, one here, one in another namespace or here too. Both are made down.
#[derive(Debug)]
pub struct Veth<'a> {
    /// Name of the end here.
    pub name: &'a str,
    /// The bridge (or other master) the end here becomes a port of.
    pub master: Option<u32>,
    /// Text on the end here.
    pub alias: &'a str,
    /// Both ends' largest packet, in bytes; `None` leaves the kernel's default.
    pub mtu_bytes: Option<u32>,
    /// Name of the other end.
    pub peer_name: &'a str,
    /// The other end's address; `None` leaves the kernel's random one.
    pub peer_mac: Option<Mac>,
    /// The other end's namespace; `None` is this one.
    pub peer_netns: Option<&'a Netns>,
}

/// Creates a pair, marks it with its alias, and reads the end here: one call to the kernel after a look at the name.
///
/// # Errors
/// `EEXIST`: one of the names is taken; nothing was made. Any failure after the creation deletes the pair again.
pub fn create_veth(net: &Kernel, veth: &Veth<'_>) -> Result<Link> {
    // The kernel would make eth0 for eth%d.
    for name in [veth.name, veth.peer_name] {
        LinkName::parse(name).map_err(|error| OpError::state("create", format!("veth {name}"), error.to_string()))?;
    }
    // A kernel that refuses to create goes on with the batch: it would put the mark on the link that has the name.
    if find(net, veth.name)?.is_some() {
        return Err(new_veth(veth).error(net.place(), Cause::Kernel { errno: Errno::EEXIST, words: None }));
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
        // A pair without its mark is nobody's: DEL would not know it.
        net.run(crate::unlink::request(&here))?;
    }
    link
}

fn new_veth(veth: &Veth<'_>) -> Request {
    let mut peer = LinkUnspec::new_with_name(veth.peer_name);
    let mut message = LinkVeth::new(veth.name, veth.peer_name);
    if let Some(mac) = veth.peer_mac {
        peer = peer.address(mac.0.to_vec());
    }
    if let Some(mtu) = veth.mtu_bytes {
        peer = peer.mtu(mtu);
        message = message.mtu(mtu);
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
    .words(format!("RTM_NEWLINK kind=veth name={} peer={}", veth.name, veth.peer_name))
}
