//! Which link is a recorded device, on the host or in a container.
//!
//! A container with `CAP_NET_ADMIN` can rename the device, change its alias, its MTU and its Ethernet address, and make other
//! links with any name, alias, address and even index. It cannot change a device's place on a bus, the address that
//! its hardware came with, nor which link of the host a veth or macvlan belongs to.

use std::path::Path;

use netops::error::Result;
use netops::link::{self, Kind, Link};
use netops::{Kernel, Netns, veth_peer};

use crate::record::{AwayDevice, Device};

/// Whether the path of ADD still leads to the namespace that the device was moved into.
pub fn has_namespace(record: &AwayDevice) -> bool {
    Netns::open(Path::new(&record.netns)).is_ok_and(|netns| is_recorded(record, &netns))
}

pub(crate) fn is_recorded(record: &AwayDevice, netns: &Netns) -> bool {
    netns.identity().numbers() == record.netns_numbers
}

pub(crate) fn find_inside(
    record: &AwayDevice,
    host: &Kernel,
    netns: &Netns,
    container: &Kernel,
) -> Result<Option<Link>> {
    // An index says something only in the namespace that it counts in.
    let index = record.index.filter(|_| is_recorded(record, netns));
    let is_it = |link: &Link| match is_hardware_of(&record.device, link) {
        Some(is_it) => Ok(is_it),
        None => is_virtual_of(record, index, host, netns, container, link),
    };
    let indexed = index.map(|index| link::find_index(container, index)).transpose()?.flatten();
    if let Some(link) = indexed
        && is_it(&link)?
    {
        return Ok(Some(link));
    }
    for link in link::list(container, None)? {
        if is_it(&link)? {
            return Ok(Some(link));
        }
    }
    Ok(None)
}

/// Whether the link is this hardware; `None` for what has no mark that nothing can change.
pub(crate) fn is_hardware_of(device: &Device, link: &Link) -> Option<bool> {
    if device.parent.is_none() && device.permanent_mac.is_none() {
        return None;
    }
    let is_same_mac = device.permanent_mac == link.permanent_mac.map(|mac| mac.to_string());
    Some(link.kind.name() == device.kind && link.parent_device == device.parent && is_same_mac)
}

/// A link without hardware is known by its index and by the link of the host that it belongs to. One that belongs to none is
/// whatever the container made of it: it must still have its Ethernet address, or the alias that ADD gave it.
pub(crate) fn is_virtual_of(
    record: &AwayDevice,
    index: Option<u32>,
    host: &Kernel,
    netns: &Netns,
    container: &Kernel,
    link: &Link,
) -> Result<bool> {
    let device = &record.device;
    if link.kind.name() != device.kind || index.is_some_and(|index| link.index != index) {
        return Ok(false);
    }
    if let (Kind::Veth, Some(peer)) = (&link.kind, device.peer) {
        let end = veth_peer::find_host_end(host, container, netns, link)?;
        return Ok(end.is_some_and(|end| end.index == peer));
    }
    if device.peer.is_some_and(|lower| link.peer != Some(lower) || link.peer_netns_id.is_none()) {
        return Ok(false);
    }
    let is_aliased = link.alias.as_deref() == Some(&*device.name);
    let has_mac = has_mac_of(device, link);
    // ADD was killed before it knew the index; then the container had no time for tricks.
    Ok(if index.is_some() { is_aliased || has_mac } else { is_aliased && link.name == record.ifname })
}

/// The device among the host's links: under its name, or whatever name the kernel returned it by.
pub fn find_on_host(host: &Kernel, record: &AwayDevice) -> Result<Option<Link>> {
    let named = link::find(host, &record.device.name)?;
    if let Some(link) = named.filter(|link| is_on_host(record, link)) {
        return Ok(Some(link));
    }
    Ok(link::list(host, None)?.into_iter().find(|link| is_on_host(record, link)))
}

/// Returns whether this link of the host is the device. Only hardware is searched for under other names: the kernel
/// returns nothing else.
pub fn is_on_host(record: &AwayDevice, link: &Link) -> bool {
    let device = &record.device;
    is_hardware_of(device, link).unwrap_or_else(|| {
        let has_mac = has_mac_of(device, link);
        let is_named = link.name == device.name || link.alias.as_deref() == Some(&*device.name);
        link.kind.name() == device.kind && has_mac && is_named
    })
}

/// Whether the link has the device's Ethernet address.
pub(crate) fn has_mac_of(device: &Device, link: &Link) -> bool {
    link.mac.is_some() && link.mac.map(|mac| mac.to_string()) == device.mac
}
