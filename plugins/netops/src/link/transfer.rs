//! Moves an existing link into another namespace, and back.

use std::os::fd::AsRawFd;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkAttribute;
use nix::errno::Errno;

use super::details::{self, Values};
use super::{Link, LinkName, Mac, Place, Settings, Target, delete_alt_names, find, find_index, get, list, set};
use crate::addr::{self, Address, Kept};
use crate::bridge_port::{self, Vlans};
use crate::error::{OpError, Result};
use crate::netlink_connection::{Kernel, Request};
use crate::netns::Netns;

/// Moves a link into another namespace and gives it this name and (`Some`) this alias there, by one request.
///
/// The link goes down and loses its master, addresses and routes; [`Before`] reads what to restore. Address, MTU, alias
/// and flags are kept. The index may change: use the returned link.
///
/// # Errors
/// `EEXIST`: the name is taken there. `EINVAL`: the link cannot leave its namespace (`netns-local`: bridges, VRFs,
/// `lo`). `ENODEV`: the link is gone. After an error the link is back in its namespace under its old name, but down. If
/// it could not be moved back, the error says so.
pub fn transfer(link: &Link, from: Place<'_>, to: Place<'_>, name: &LinkName, alias: Option<&str>) -> Result<Link> {
    let request = request(link, to, name.as_str(), alias);
    // The kernel moves the link first and then renames it. If renaming fails, the link stays there under its old name.
    if find(to.kernel, name.as_str())?.is_some() {
        return Err(OpError::errno("move", request.object, Errno::EEXIST).at(to.kernel.place()));
    }
    let moved = from.kernel.run(request).and_then(|()| get(to.kernel, &Target::named(name.as_str())));
    if let Err(error) = &moved {
        take_back(link, from, to, error)?;
    }
    moved
}

fn request(link: &Link, to: Place<'_>, name: &str, alias: Option<&str>) -> Request {
    let mut message = Target::from(link).message();
    message.attributes.push(LinkAttribute::NetNsFd(to.netns.as_raw_fd()));
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message.attributes.extend(alias.map(|alias| LinkAttribute::IfAlias(alias.to_owned())));
    let object = format!("link {} to {} as {name}", link.name, to.netns.path().display());
    Request::new("move", object, RouteNetlinkMessage::SetLink(message)).wire_name(format!(
        "RTM_SETLINK dev={} netns={} name={name}",
        link.name,
        to.netns.path().display()
    ))
}

/// Moves a link back that was moved but not renamed.
fn take_back(link: &Link, from: Place<'_>, to: Place<'_>, why: &OpError) -> Result<()> {
    if find_index(from.kernel, link.index)?.is_some_and(|found| found.name == link.name) {
        return Ok(());
    }
    let is_it = |found: &Link| found.kind == link.kind && found.mac == link.mac;
    match find(to.kernel, &link.name)?.filter(is_it) {
        Some(moved) => {
            to.kernel.run(request(&moved, from, &link.name, Some(link.alias.as_deref().unwrap_or_default())))
        }
        None => Err(OpError::state(
            "move",
            format!("link {} back to {}", link.name, from.netns.path().display()),
            format!("it is not in {} under that name; it was moved because: {why}", to.kernel.place()),
        )),
    }
}

/// As [`transfer`], by way of a new namespace, which no other process can reach: there it loses the further names that links of
/// the place where it goes have. In a namespace that is not the caller's alone they could come back at once.
///
/// # Errors
/// As [`transfer`]. If the process is killed meanwhile, hardware is back in the first namespace of the machine; another link
/// is gone: for a link that does not come otherwise.
pub fn transfer_by_way(link: &Link, from: Place<'_>, to: Place<'_>, name: &LinkName, alias: &str) -> Result<Link> {
    let netns = Netns::create()?;
    let kernel = Kernel::in_netns(&netns)?;
    let way = Place { netns: &netns, kernel: &kernel };
    // Nor may the link's further names be those of the links there, such as lo.
    for own in list(&kernel, None)? {
        kernel.run(set(&(&own).into(), &Settings { name: Some(unused_name()), ..Settings::default() }))?;
    }
    let between = unused_name();
    from.kernel.run(request(link, way, &between, None))?;
    let moved = get(&kernel, &Target::named(&between))?;
    let named = leave_names(&moved, way, to, name).and_then(|()| {
        let rename = Settings { name: Some(name.to_string()), ..Settings::default() };
        super::set_and_get(&kernel, &(&moved).into(), &rename)
    });
    let arrived = named.and_then(|named| transfer(&named, way, to, name, Some(alias)));
    if let Err(error) = arrived {
        let alias = Some(link.alias.as_deref().unwrap_or_default());
        let back = |name: &str| kernel.run(request(&moved, from, name, alias));
        back(&link.name).or_else(|_| back(&unused_name()))?;
        return Err(error);
    }
    arrived
}

/// Removes the further names that links of `to` have, or that the link is to have there itself.
fn leave_names(link: &Link, way: Place<'_>, to: Place<'_>, own: &LinkName) -> Result<()> {
    let there = list(to.kernel, None)?;
    let is_there = |name: &&String| {
        **name == own.as_str() || there.iter().any(|other| other.name == **name || other.alt_names.contains(name))
    };
    let taken: Vec<String> = link.alt_names.iter().filter(is_there).cloned().collect();
    if taken.is_empty() { Ok(()) } else { way.kernel.run_all(delete_alt_names(&link.into(), &taken)) }
}

/// A name that a container cannot guess.
fn unused_name() -> String {
    format!("cni{}", Mac::random().to_string().replace(':', ""))
}

/// What a link loses when it is moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Before {
    /// The link before the move.
    pub link: Link,
    /// The link's addresses, except those that the kernel creates itself (`fe80::/10`).
    pub addresses: Vec<Address>,
    /// The link's addresses with all that can be said of them, and those in `fe80::/10` that are not the kernel's own.
    pub kept: Vec<Kept>,
    /// What the kernel makes anew in each namespace ([`details`]).
    pub details: Values,
    /// The link's VLANs, if it is a port of a bridge.
    pub vlans: Vec<Vlans>,
}

impl Before {
    /// Reads what a move will remove from the link.
    ///
    /// # Errors
    /// As [`addr::list`].
    pub fn read(net: &Kernel, link: &Link) -> Result<Self> {
        let mut addresses = addr::list(net, link)?;
        addresses.retain(|address| match address.net.ip() {
            std::net::IpAddr::V4(_) => true,
            std::net::IpAddr::V6(ip) => !ip.is_unicast_link_local(),
        });
        let details = details::read(net, link)?;
        let bridge = link.master.filter(|_| link.port.is_some());
        let vlans = bridge.map(|bridge| bridge_port::list_vlans(net, bridge, link.index)).transpose()?;
        let vlans = bridge_port::ranges(&vlans.unwrap_or_default());
        Ok(Self { link: link.clone(), addresses, kept: addr::kept(net, link)?, details, vlans })
    }

    /// The requests that restore master, addresses and state of the link, which is back as `now`. Its sysctls come before:
    /// [`details::restore_sysctls`].
    pub fn restore(&self, now: &Link) -> Vec<Request> {
        let settings = Settings { up: Some(self.link.up), master: self.link.master, ..Settings::default() };
        let state = set(&now.into(), &settings);
        let kept = self.kept.iter().map(|kept| addr::add_kept(now, kept));
        let plain = self.addresses.iter().filter(|_| self.kept.is_empty()).map(|address| addr::add(now, address));
        std::iter::once(state).chain(kept).chain(plain).collect()
    }
}
