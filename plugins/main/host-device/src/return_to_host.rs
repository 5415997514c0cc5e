//! Bringing a device back to the host, from wherever it is, by what the node knows of it.

use std::path::Path;

use interface::{Detaching, alias, link_by_name};
use netops::error::Result;
use netops::link::{self, Before, Kind, Link, LinkName, Mac, Place, Settings, details, transfer, transfer_by_way};
use netops::{Errno, Kernel, Netns, OpError, Request, link_removal, veth_peer};

use crate::conf::{Removal, Selector};
use crate::identity::{
    find_inside, find_on_host, has_mac_of, has_namespace, is_hardware_of, is_recorded, is_virtual_of,
};
use crate::record::{self, AwayDevice, Device};

/// Where the device is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Home,
    /// The device ended with its namespace, as all but hardware does, or was unplugged.
    Gone,
    /// No hardware, and not in its namespace, which is still there: the container has deleted it or moved it on. Where it
    /// is now it ends with its namespace.
    Lost,
    /// Hardware that is in a namespace that nothing leads to.
    Away,
}

/// Brings the device of a record home, under its name, with MTU, address, state, master and addresses that it had.
///
/// `given` is the namespace that the runtime names, if it does.
pub fn bring(record: &AwayDevice, given: Option<&Netns>) -> Result<Outcome> {
    let host = Kernel::host()?;
    let by_path = || Netns::open(Path::new(&record.netns)).ok().filter(|netns| is_recorded(record, netns));
    let opened = if given.is_some_and(|netns| is_recorded(record, netns)) { None } else { by_path() };
    let has_namespace = opened.is_some() || given.is_some_and(|netns| is_recorded(record, netns));
    let arriving = arriving(&record.device);
    for netns in given.into_iter().chain(opened.as_ref()) {
        let container = Kernel::in_netns(netns)?;
        if let Some(link) = find_inside(record, &host, netns, &container)? {
            // The container may give it names faster than they are removed; they are once more when it is home.
            if let Err(error) = drop_foreign_names(&container, &link, &record.device) {
                tracing::debug!(%error, "further names stay until the device is home");
            }
            restore_flags(&container, &link, &record.device)?;
            let link = fetch(&link, netns, &container, &host, &record.device.name, &arriving)?;
            delete_links_on(&container, &link)?;
            drop_foreign_names(&host, &link, &record.device)?;
            restore(&host, &link, &record.device)?;
            return Ok(Outcome::Home);
        }
    }
    match find_on_host(&host, record)? {
        Some(link) => {
            for netns in given.into_iter().chain(opened.as_ref()) {
                delete_links_on(&Kernel::in_netns(netns)?, &link)?;
            }
            recover(&host, record, &link)?;
            Ok(Outcome::Home)
        }
        None if record.device.is_unplugged() => Ok(Outcome::Gone),
        None if record.device.is_hardware() => Ok(Outcome::Away),
        None if has_namespace => Ok(Outcome::Lost),
        None => Ok(Outcome::Gone),
    }
}

/// Gives a device that the kernel has returned to the host its name and settings back. The kernel returns hardware under the
/// name that it had in the container, or `devN`, with its alias, and down. A device under its own name without that
/// alias was brought home by another process, such as the reference's DEL, and may be in use again: it is left as it is.
pub fn recover(host: &Kernel, record: &AwayDevice, link: &Link) -> Result<()> {
    if !is_returned(host, record, link) {
        return Ok(());
    }
    drop_foreign_names(host, link, &record.device)?;
    restore_flags(host, link, &record.device)?;
    let rename = Settings { name: Some(record.device.name.clone()), ..Settings::default() };
    let down = Settings { up: Some(false), ..Settings::default() };
    if link.name != record.device.name {
        host.run(link::set(&link.into(), &down))?;
        host.run(link::set(&link.into(), &rename))?;
    }
    let link = link::get(host, &link::Target::named(&record.device.name))?;
    restore(host, &link, &record.device)
}

/// Whether the kernel has returned a device on the host, or this plugin has not given it all back: it has another name than
/// its own, or an alias that says so. Under its own name with the alias of its time in the container, the reference's DEL
/// may have brought it home as well: then its namespace may still be there, or the device be in use.
pub fn is_returned(host: &Kernel, record: &AwayDevice, link: &Link) -> bool {
    let (device, alias) = (&record.device, link.alias.as_deref().unwrap_or_default());
    if link.name != device.name || alias == arriving(device) {
        return true;
    }
    let has_addresses = || Before::read(host, link).is_ok_and(|now| !now.addresses.is_empty());
    let is_in_use = || link.up || link.master.is_some() || has_addresses();
    alias == device.name && alias != device.alias && !is_in_use() && !has_namespace(record)
}

/// The alias of a device that is home and has not got back all that it had.
fn arriving(device: &Device) -> String {
    format!("{}: coming home", device.name)
}

/// Brings a device home that has no record: the reference made no more than the alias. What the container may have written
/// there must be what the config says.
pub fn bring_unrecorded(detaching: &Detaching<'_>, removal: &Removal) -> Result<()> {
    let Detaching { attachment, netns: Some(netns), .. } = *detaching else { return Ok(()) };
    let container = Kernel::in_netns(netns)?;
    // The network had another `type` at ADD.
    let Some(link) = link::find(&container, attachment.ifname.as_str())? else {
        return link_by_name::remove_renamed(detaching, netns, &container).map(drop);
    };
    if link_by_name::remove_marked(detaching, netns, &container, &link)? {
        return Ok(());
    }
    let alias = link.alias.clone().unwrap_or_default();
    let is_selected = match removal.0.selector() {
        Selector::Name(name) => name.as_str() == alias || name.is_of(&link),
        Selector::Mac(mac) => link.mac == Some(mac) || link.permanent_mac == Some(mac),
        Selector::Pci(id) => is_on_bus(&link, "pci", &id),
        Selector::Auxiliary(id) => is_on_bus(&link, "auxiliary", &id),
        Selector::KernelPath(_) => link.kind == Kind::None,
        Selector::None | Selector::Unknown(_) => false,
    };
    let is_ours = is_selected && link::is_name(&alias) && !alias::is_marked(&link) && !link.loopback;
    // The link itself, or the device that it pretends to be.
    let is_recorded = |record: &AwayDevice| {
        is_recorded(record, netns) && record.index == Some(link.index) || record.device.name == alias
    };
    let host = Kernel::host()?;
    let mut stale = Vec::new();
    for record in record::list()?.into_iter().filter(is_recorded) {
        if is_left_over(&record, &host, netns, &container, &link)? {
            stale.push(record);
            continue;
        }
        let [network, container, ifname] = record.names();
        tracing::warn!(
            link = link.name,
            network,
            container,
            ifname,
            alias,
            "left in the container: another attachment has it, or has the device whose name its alias is"
        );
        return Ok(());
    }
    if !is_ours || !detaching.evidence(netns).of_unmarked(&container, &link)?.or_warn(&link, netns) {
        tracing::warn!(link = link.name, alias, "left in the container: nothing shows that it is the node's device");
        return Ok(());
    }
    // The container can make any link but hardware.
    if link.kind != Kind::None && link::find(&host, &alias)?.is_some() {
        tracing::warn!(link = link.name, alias, "left in the container: the node has a device of that name");
        return Ok(());
    }
    let device = fetch(&link, netns, &container, &host, &alias, "")?;
    delete_links_on(&container, &device)?;
    stale.iter().try_for_each(|record| record::remove(record.names()))
}

/// Whether the record is of an attachment that had the device before: its own namespace does not hold it any more, while this
/// link, elsewhere, is the device. The reference's DEL leaves such a record.
fn is_left_over(record: &AwayDevice, host: &Kernel, netns: &Netns, container: &Kernel, link: &Link) -> Result<bool> {
    if let Some(own) = Netns::open(Path::new(&record.netns)).ok().filter(|own| is_recorded(record, own))
        && find_inside(record, host, &own, &Kernel::in_netns(&own)?)?.is_some()
    {
        return Ok(false);
    }
    let device = &record.device;
    if let Some(is_it) = is_hardware_of(device, link) {
        return Ok(is_it);
    }
    let has_mac = has_mac_of(device, link);
    let is_alike = link.kind.name() == device.kind && has_mac;
    Ok(is_alike && (device.peer.is_none() || is_virtual_of(record, None, host, netns, container, link)?))
}

/// Deletes links of the container that are stacked on the device (macvlan, ipvlan, vlan), which is home: the kernel has left them
/// on it, and would leave them on it in the next container, whose packets they would receive. The container cannot make more.
fn delete_links_on(container: &Kernel, device: &Link) -> Result<()> {
    let mut on_it = link::list_of_container(container)?;
    on_it.retain(|link| link.kind != Kind::Veth && link.peer == Some(device.index));
    veth_peer::retain_on_host(&mut on_it, container)?;
    if let Some(Link { name, .. }) = on_it.first() {
        let (device, count) = (&device.name, on_it.len());
        tracing::warn!(device, count, first = name, "deleted from the container: links on top of the device");
    }
    link_removal::remove_all_by(container, &on_it).into_iter().next().map_or(Ok(()), |left| Err(left.error))
}

/// A virtio device is one of its own on another bus, below the PCI device; kernels before 5.14 say nothing.
fn is_on_bus(link: &Link, bus: &str, id: &str) -> bool {
    let is_there = |parent: &str| parent == format!("{bus}/{id}") || parent.starts_with("virtio/");
    link.kind == Kind::None && link.parent_device.as_deref().is_none_or(is_there)
}

/// Moves a link of a container to the host, with this name and alias. The node announces a link under the name that it comes
/// with, and programs such as udev and NetworkManager react to that: so it gets its name before.
fn fetch(link: &Link, netns: &Netns, container: &Kernel, host: &Kernel, name: &str, alias: &str) -> Result<Link> {
    let own = Netns::current().map_err(|error| OpError::state("open", "the host's namespace", error.to_string()))?;
    let home =
        LinkName::parse(name).map_err(|error| OpError::state("move", format!("link {name}"), error.to_string()))?;
    let (from, to) = (Place { netns, kernel: container }, Place { netns: &own, kernel: host });
    if link::find(host, name)?.is_some() {
        // Refused, and nothing is changed.
        return transfer(link, from, to, &home, Some(alias));
    }
    // The container may have a link of that name.
    let Ok(named) = rename(container, link, name) else { return transfer_by_way(link, from, to, &home, alias) };
    match transfer(&named, from, to, &home, Some(alias)) {
        // Not the name of the device, but a further one.
        Err(error) if link::find(host, name)?.is_none() => {
            let is_it = |found: &Link| found.kind == link.kind && found.permanent_mac == link.permanent_mac;
            match link::find_index(container, link.index)?.filter(is_it) {
                Some(link) => transfer_by_way(&link, from, to, &home, alias),
                None => Err(error),
            }
        }
        Err(error) => {
            // By that name the next DEL finds a device without a record.
            rename(container, &named, &link.name)?;
            Err(error)
        }
        moved => moved,
    }
}

/// Sets a link down, as the kernel may rename no other, and renames it.
fn rename(net: &Kernel, link: &Link, name: &str) -> Result<Link> {
    let down = link::set(&link.into(), &Settings { up: Some(false), ..Settings::default() });
    let renamed = link::set(&link.into(), &Settings { name: Some(name.to_owned()), ..Settings::default() });
    link::run_and_get(net, vec![down, renamed], &link.into())
}

/// Removes the further names that the container gave the device: one that a link of the host has would keep it away, and
/// others would lead the node's lookups to it.
pub(crate) fn drop_foreign_names(net: &Kernel, link: &Link, device: &Device) -> Result<()> {
    let foreign: Vec<String> = link.alt_names.iter().filter(|name| !device.alt_names.contains(name)).cloned().collect();
    if foreign.is_empty() {
        return Ok(());
    }
    let (count, first) = (foreign.len(), foreign.first());
    tracing::warn!(
        device = device.name,
        count,
        ?first,
        "the container gave the device further names, which are removed"
    );
    net.run_all(link::delete_alt_names(&link.into(), &foreign))
}

/// Gives a device its flags back, before the kernel makes the host's IPv6 settings of it by them.
pub(crate) fn restore_flags(net: &Kernel, link: &Link, device: &Device) -> Result<()> {
    let settings = Settings {
        no_arp: (device.no_arp != link.no_arp).then_some(device.no_arp),
        multicast: (device.multicast != link.multicast).then_some(device.multicast),
        ..Settings::default()
    };
    if settings == Settings::default() { Ok(()) } else { net.run(link::set(&link.into(), &settings)) }
}

/// Gives a device that is home what it had; its alias last, which says until then that it has not got all. What the kernel
/// refuses for good (an IPv6 address where that was turned off meanwhile) is logged.
pub(crate) fn restore(host: &Kernel, link: &Link, device: &Device) -> Result<()> {
    let mut later = Later { host, device, failed: None };
    let missing = device.alt_names.iter().filter(|name| !link.alt_names.contains(name));
    for name in missing {
        match host.run(link::add_alt_names(&link.into(), std::slice::from_ref(name))) {
            Err(error) if error.os_errno() == Some(Errno::EEXIST) => not_all(device, &error),
            outcome => later.note(outcome),
        }
    }
    let mac = device.mac.as_ref().and_then(|mac| mac.parse::<Mac>().ok());
    let settings = Settings {
        mac: mac.filter(|mac| link.mac != Some(*mac)),
        mtu_bytes: (device.mtu != link.mtu_bytes).then_some(device.mtu),
        promisc: (device.promisc != link.promisc).then_some(device.promisc),
        allmulti: (device.allmulti != link.allmulti).then_some(device.allmulti),
        tx_queue_len: (device.tx_queue_len != link.tx_queue_len).then_some(device.tx_queue_len),
        group: (device.group != link.group).then_some(device.group),
        ..Settings::default()
    };
    if settings != Settings::default() {
        later.run(link::set(&link.into(), &settings));
    }
    // Behind the MTU, below which there is no IPv6, and before the link is up: it would take router advertisements.
    let is_safe = restore_details(&mut later, link);
    let outcome = join_master(host, link, device);
    later.note(outcome);
    let was = Link { up: device.up && is_safe, master: None, ..link.clone() };
    let (details, vlans) = (details::Values::new(), Vec::new());
    let addresses = device.addresses().collect();
    let before = Before { link: was, addresses, kept: device.kept()?, details, vlans };
    before.restore(link).into_iter().for_each(|request| later.run(request));
    if device.master.is_some() {
        let cost = details::read(host, link).map(|now| details::restore_cost(link, &device.details, &now));
        later.note(cost.and_then(|request| request.map_or(Ok(()), |request| host.run(request))));
    }
    let alias = Settings { alias: Some(device.alias.clone()), ..Settings::default() };
    later.failed.map_or_else(|| host.run(link::set(&link.into(), &alias)), Err)
}

/// Makes several changes and continues after a failure. Keeps the first error that a later attempt may avoid.
struct Later<'a> {
    host: &'a Kernel,
    device: &'a Device,
    failed: Option<OpError>,
}

impl Later<'_> {
    fn run(&mut self, request: Request) {
        self.note(self.host.run(request));
    }

    fn note(&mut self, outcome: Result<()>) {
        match outcome {
            Err(error) if error.os_errno() == Some(Errno::EEXIST) => (),
            Err(error) if is_final(&error) => not_all(self.device, &error),
            Err(error) => self.failed = self.failed.take().or(Some(error)),
            Ok(()) => (),
        }
    }
}

fn not_all(device: &Device, error: &OpError) {
    tracing::warn!(%error, device = device.name, "the device is home, but not all as it was");
}

/// Gives the device the sysctls and further settings that it had, and takes programs of the container's from it. Whether it
/// may be set up: without some of these the host's traffic would go where its administrator forbids.
fn restore_details(later: &mut Later<'_>, link: &Link) -> bool {
    let (host, device) = (later.host, later.device);
    if device.details.is_empty() {
        return true;
    }
    let stays_down =
        |error: &OpError| tracing::warn!(%error, device = device.name, "the device is home, but stays down");
    let now = match details::read(host, link) {
        Ok(now) => now,
        Err(error) => {
            stays_down(&error);
            return false;
        }
    };
    details::restore(link, &device.details, &now).into_iter().for_each(|request| later.run(request));
    let mut is_safe = true;
    for (is_critical, error) in details::restore_sysctls(&device.name, &device.details, &now) {
        if is_critical {
            stays_down(&error)
        } else {
            not_all(device, &error)
        }
        is_safe &= !is_critical;
    }
    for request in details::detach_programs(link, &device.details, &now) {
        tracing::warn!(device = device.name, "the container put an XDP program on the device, which is detached");
        if let Err(error) = host.run(request) {
            stays_down(&error);
            is_safe = false;
        }
    }
    is_safe
}

/// Makes the device a port of its master again, with what that had for it. Without all of that it is no port: a guard could be
/// missing, or its frames come into another VLAN.
fn join_master(host: &Kernel, link: &Link, device: &Device) -> Result<()> {
    let Some((index, name)) = &device.master else { return Ok(()) };
    // An index passes to another link when its own is gone.
    let Some(master) = link::find_index(host, *index)?.filter(|master| master.name == *name) else {
        let device = &device.name;
        tracing::warn!(device, master = name, "the device is home, but not all as it was: its master is gone");
        return Ok(());
    };
    let join =
        |master: u32| host.run(link::set(&link.into(), &Settings { master: Some(master), ..Settings::default() }));
    join(master.index)?;
    if !device.details.keys().any(|name| name.starts_with("port/")) {
        return Ok(());
    }
    let set_vlans = || netops::bridge_port::set_vlans(host, master.index, link, &device.vlans());
    let set_port = |now: details::Values| {
        details::restore_port(link, &device.details, &now).map_or(Ok(()), |request| host.run(request))
    };
    set_vlans().and_then(|()| details::read(host, link)).and_then(set_port).or_else(|error| join(0).and(Err(error)))
}

fn is_final(error: &OpError) -> bool {
    let refusals =
        [Errno::EINVAL, Errno::EACCES, Errno::EOPNOTSUPP, Errno::EADDRNOTAVAIL, Errno::ENODEV, Errno::ERANGE];
    error.os_errno().is_some_and(|errno| refusals.contains(&errno))
}
