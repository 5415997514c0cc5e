//! Giving a device the settings back that it had on the host.

use netops::error::Result;
use netops::link::{self, Before, Link, Mac, Settings, details};
use netops::{Errno, Kernel, OpError, Request};

use crate::record::Device;

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
