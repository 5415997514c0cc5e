//! `lo` of a pod, and the links in its namespace: what crate `pods` leaves to its caller.

use netops::link::{self, Link, Settings, Target};
use netops::{Kernel, Netns};
use pods::{PodNetns, PodNetnsError};

/// Sets the loopback interface up by netlink, in this process.
#[derive(Debug)]
pub(crate) struct ByNetops;

impl PodNetns for ByNetops {
    fn set_lo_up(&self, netns: &str) -> Result<bool, PodNetnsError> {
        let opened = Netns::open(netns)?;
        if opened.is_current()? {
            return Err(format!("network namespace {netns} is the node's own").into());
        }
        let net = Kernel::in_netns(&opened)?;
        let lo = link::get(&net, &lo())?;
        if !lo.up {
            set(&net, &lo, true)?;
        }
        Ok(!lo.up)
    }

    fn set_lo_down(&self, netns: &str) -> Result<(), PodNetnsError> {
        let opened = match Netns::open(netns) {
            Err(error) if error.is_gone() => return Ok(()),
            opened => opened?,
        };
        if opened.is_current()? {
            return Ok(());
        }
        let net = Kernel::in_netns(&opened)?;
        let links = link::list_of_container(&net)?;
        match links.iter().find(|link| link.loopback) {
            Some(lo) if !links.iter().any(|link| link.up && !link.loopback) => set(&net, lo, false),
            _ => Ok(()),
        }
    }

    fn is_lo_up(&self, netns: &str) -> Result<bool, PodNetnsError> {
        Ok(link::get(&Kernel::in_netns(&Netns::open(netns)?)?, &lo())?.up)
    }

    fn has_link(&self, netns: &str, name: &str) -> Result<bool, PodNetnsError> {
        Ok(link::find(&Kernel::in_netns(&Netns::open(netns)?)?, name)?.is_some())
    }
}

fn lo() -> Target {
    Target::named("lo")
}

fn set(net: &Kernel, lo: &Link, up: bool) -> Result<(), PodNetnsError> {
    Ok(net.run(link::set(&lo.into(), &Settings { up: Some(up), ..Settings::default() }))?)
}
