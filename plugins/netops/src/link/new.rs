//! Creates a link, here or in another namespace, by one message with all its settings.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::AsRawFd;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::InfoKind;
use nix::errno::Errno;
use rtnetlink::{LinkMessageBuilder, LinkUnspec};

use super::{Kind, Link, LinkName, Mac, Settings, Target, find, run_and_get, set};
use crate::error::Result;
use crate::link_removal;
use crate::netlink_connection::{Kernel, Request};
use crate::netns::Netns;

/// A namespace and a connection that acts on it.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The namespace.
    pub netns: &'a Netns,
    /// The connection, from [`Kernel::in_netns`] of that namespace.
    pub kernel: &'a Kernel,
}

/// A link to create. `None` leaves the kernel's default.
#[derive(Debug, Clone)]
pub struct NewLink<'a> {
    /// The name in the namespace that the link is created in.
    pub name: &'a LinkName,
    /// The kind. [`super::create_veth`] creates veths, [`super::tun::create_tap`] taps.
    pub kind: Kind,
    /// The lower link (of a macvlan, ipvlan or VLAN): an index in the namespace that the request is *sent* in.
    pub lower: Option<u32>,
    /// The master: an index in the namespace that the link is *created* in.
    pub master: Option<u32>,
    /// The MTU, in bytes.
    pub mtu_bytes: Option<u32>,
    /// The Ethernet address.
    pub mac: Option<Mac>,
    /// The alias, at most 255 bytes.
    pub alias: Option<&'a str>,
    /// Whether the link is set up at once. A sysctl that must be in effect from the start has to be written before: then
    /// leave the link down.
    pub up: bool,
}

impl<'a> NewLink<'a> {
    /// A link with the kernel's defaults, down.
    #[must_use]
    pub fn new(name: &'a LinkName, kind: Kind) -> Self {
        Self { name, kind, lower: None, master: None, mtu_bytes: None, mac: None, alias: None, up: false }
    }

    /// The message that creates it, without the alias, which the kernel ignores there.
    fn request(&self, netns: Option<&Netns>, index: u32) -> Request {
        let kind = InfoKind::from(self.kind.name());
        let mut link = LinkMessageBuilder::<LinkUnspec>::new_with_info_kind(kind).index(index).name(self.name.as_str());
        if self.up {
            link = link.up();
        }
        if let Some(lower) = self.lower {
            link = link.link(lower);
        }
        if let Some(master) = self.master {
            link = link.controller(master);
        }
        if let Some(mtu) = self.mtu_bytes {
            link = link.mtu(mtu);
        }
        if let Some(Mac(mac)) = self.mac {
            link = link.address(mac.to_vec());
        }
        if let Some(netns) = netns {
            link = link.setns_by_fd(netns.as_raw_fd());
        }
        if let Some(data) = self.kind.data() {
            link = link.set_info_data(data);
        }
        let place = netns.map_or(String::new(), |netns| format!(" in {}", netns.path().display()));
        let request = Request::new(
            "create",
            format!("{} {}{place}", self.kind, self.name),
            RouteNetlinkMessage::NewLink(link.build()),
        )
        .flags(NLM_F_CREATE | NLM_F_EXCL)
        .wire_name(self.wire_name());
        match self.kind.feature() {
            Some(feature) => request.needs(feature),
            None => request,
        }
    }

    fn wire_name(&self) -> String {
        let mut wire_name = format!("RTM_NEWLINK kind={} name={}", self.kind.name(), self.name);
        let numbers = [("link", self.lower), ("master", self.master), ("mtu", self.mtu_bytes)];
        for (name, number) in numbers {
            if let Some(number) = number {
                wire_name.push_str(&format!(" {name}={number}"));
            }
        }
        if let Some(mac) = self.mac {
            wire_name.push_str(&format!(" address={mac}"));
        }
        wire_name
    }
}

/// Creates a link and reads it back: all of it or nothing.
///
/// `net` acts on the namespace of the lower link, where the request is sent. The link is created in `place`, or
/// (`None`) in the same namespace. It is never visible under another name or in another namespace.
///
/// # Errors
/// `EEXIST`: the name is taken in the target namespace. `ENODEV`: the lower link is gone.
/// [`crate::error::Cause::Unsupported`]: the kernel lacks the kind. `EINVAL`, `ERANGE`: it refuses a setting; the
/// extended ack says which.
pub fn create(net: &Kernel, new: &NewLink<'_>, place: Option<Place<'_>>) -> Result<Link> {
    let netns = place.map(|place| place.netns);
    let there = place.map_or(net, |place| place.kernel);
    match net.run(new.request(netns, 0)) {
        Err(error)
            if netns.is_some()
                && error.os_errno() == Some(Errno::EEXIST)
                && find(there, new.name.as_str())?.is_none() =>
        {
            // Before Linux 6.15 the kernel checks the name in the namespace that the request is sent in, unless the
            // request contains the new link's index.
            net.run(new.request(netns, unlikely_index()))?;
        }
        made => made?,
    }
    let target = Target::named(new.name.as_str());
    let alias = new.alias.map(|alias| Settings { alias: Some(alias.to_owned()), ..Settings::default() });
    let made = run_and_get(there, alias.map(|alias| set(&target, &alias)).into_iter().collect(), &target);
    if made.is_err() {
        there.run(link_removal::request(&target))?;
    }
    made
}

/// A random index, so probably a free one: the kernel assigns indexes from 1 upwards, and refuses one that is taken.
fn unlikely_index() -> u32 {
    // The hasher's key is random in each process.
    let random = u32::try_from(RandomState::new().build_hasher().finish() >> 32).unwrap_or_default();
    (random >> 2) | 1 << 30
}
