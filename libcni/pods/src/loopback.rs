//! `lo` of a pod: it is set up before the networks and down after them.

use crate::error::Error;
use libcni::{NetworkConf, aside};
use netops::link::{self, Settings, Target};
use netops::{Kernel, Netns};

/// What sets a pod's `lo` up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Loopback {
    /// This process, by netlink in the pod's namespace: no process to start, nothing to cache.
    #[default]
    InProcess,
    /// The plugin `loopback`, as network `cni-loopback` and interface `lo`, cached like any other.
    Plugin,
    /// Another component.
    None,
}

/// The network of [`Loopback::Plugin`], by the name that dockershim and containerd gave it.
pub(crate) const NETWORK: &str = "cni-loopback";
pub(crate) const IFNAME: &str = "lo";

pub(crate) fn network() -> Result<NetworkConf, cni_spec::CniError> {
    // The first version with CHECK, so that executables of any age work.
    NetworkConf::parse(br#"{"cniVersion":"0.4.0","name":"cni-loopback","plugins":[{"type":"loopback"}]}"#)
}

/// Sets `lo` in the namespace up or down. Setting it down succeeds if the namespace is gone.
pub(crate) async fn set(netns: &str, up: bool) -> Result<(), Error> {
    let path = netns.to_owned();
    // A thread has to enter the namespace for a moment.
    let done = aside(move || set_here(&path, up)).await;
    let verb = if up { "set up" } else { "set down" };
    done.unwrap_or_else(|error| Err(error.to_string())).map_err(|reason| Error::Loopback { verb, reason })
}

fn set_here(path: &str, up: bool) -> Result<(), String> {
    let netns = match Netns::open(path) {
        Ok(netns) => netns,
        Err(error) if error.is_gone() && !up => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    if netns.is_current().map_err(|error| error.to_string())? {
        if !up {
            return Ok(());
        }
        return Err(format!("network namespace {path} is the node's own"));
    }
    let net = Kernel::in_netns(&netns).map_err(|error| error.to_string())?;
    let settings = Settings { up: Some(up), ..Settings::default() };
    net.run(link::set(&Target::named(IFNAME), &settings)).map_err(|error| error.to_string())
}

/// Checks that `lo` in the namespace is up.
pub(crate) async fn check(netns: &str) -> Result<(), Error> {
    let path = netns.to_owned();
    let look = move || -> Result<(), String> {
        let netns = Netns::open(&path).map_err(|error| error.to_string())?;
        let net = Kernel::in_netns(&netns).map_err(|error| error.to_string())?;
        match link::get(&net, &Target::named(IFNAME)).map_err(|error| error.to_string())?.up {
            true => Ok(()),
            false => Err(format!("in {path} it is down")),
        }
    };
    let done = aside(look).await;
    done.unwrap_or_else(|error| Err(error.to_string())).map_err(|reason| Error::Loopback { verb: "use", reason })
}

/// Whether a link of this name is in the namespace; `None` if it cannot be determined.
pub(crate) async fn has_link(netns: &str, name: &str) -> Option<bool> {
    let (path, name) = (netns.to_owned(), name.to_owned());
    let look = move || {
        let net = Kernel::in_netns(&Netns::open(&path).ok()?).ok()?;
        link::find(&net, &name).ok().map(|link| link.is_some())
    };
    aside(look).await.ok().flatten()
}
