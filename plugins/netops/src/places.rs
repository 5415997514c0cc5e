//! The addresses in all namespaces but the node's own: those that the node's links lead to, and those of processes and
//! mounts, as macvlan, ipvlan and host-device leave no link on the node.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::error::{Errno, Result};
use crate::link::{self, Kind, Link};
use crate::{Kernel, Netns, addr};

/// What was found in the namespaces.
#[derive(Debug)]
pub struct Places {
    addresses: BTreeSet<IpAddr>,
    /// Whether a namespace could not be looked at that plugins of this node may have worked in.
    is_partial: bool,
}

impl Places {
    /// Looks through all of them. The cost grows with the number of processes: not for the hot path.
    #[must_use]
    pub fn look() -> Self {
        let mut places = Self { addresses: BTreeSet::new(), is_partial: false };
        match (linked(), entered()) {
            (Ok(linked), Ok(entered)) => linked.into_iter().chain(entered).for_each(|found| places.take(found)),
            (linked, entered) => {
                places.is_partial = true;
                linked.into_iter().chain(entered).flatten().for_each(|found| places.take(found));
            }
        }
        places
    }

    fn take(&mut self, found: Result<Vec<IpAddr>>) {
        match found {
            Ok(addresses) => self.addresses.extend(addresses),
            // It has ended meanwhile; or who may not enter it cannot have been a plugin's caller there.
            Err(error) if matches!(error.os_errno(), Some(Errno::EINVAL | Errno::EACCES | Errno::EPERM)) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot look at the addresses of a namespace");
                self.is_partial = true;
            }
        }
    }

    /// Whether a namespace has one of these addresses; `None`: it was not found, but not all namespaces could be searched.
    #[must_use]
    pub fn find(&self, addresses: &[IpAddr]) -> Option<bool> {
        match addresses.iter().any(|address| self.addresses.contains(address)) {
            true => Some(true),
            false if self.is_partial => None,
            false => Some(false),
        }
    }
}

/// The namespaces that the node's links lead to: also where no process and no mount is in sight, as in a container.
fn linked() -> Result<Vec<Result<Vec<IpAddr>>>> {
    let host = Kernel::host()?;
    let ids: BTreeSet<i32> = link::list(&host, None)?.iter().filter_map(|link: &Link| link.peer_netns_id).collect();
    let of = |id: i32| Ok(addr::list_all(&host, Some(id))?.iter().map(|(_, address)| address.ip()).collect());
    Ok(ids.into_iter().filter(|id| *id >= 0).map(of).collect())
}

/// The namespaces that have a name in `/proc`, each entered once. A veth there that no link of the node leads to belongs
/// to another node, such as one in a container, whose networks may have the same addresses.
fn entered() -> std::io::Result<Vec<Result<Vec<IpAddr>>>> {
    let mut netns: Vec<Netns> = Vec::new();
    for path in names()? {
        // Gone meanwhile, of another kind, or another user's.
        let Ok(opened) = Netns::open(path) else { continue };
        let is_new = || netns.iter().all(|seen| seen.identity() != opened.identity());
        if is_new() && !opened.is_current().unwrap_or(false) {
            netns.push(opened);
        }
    }
    let of = |netns: Netns| {
        let inside = Kernel::in_netns(&netns)?;
        let links = link::list(&inside, None)?;
        let is_other = |index: &u32| links.iter().any(|link| link.index == *index && link.kind != Kind::Veth);
        let addresses = addr::list_all(&inside, None)?.into_iter().filter(|(index, _)| is_other(index));
        Ok(addresses.map(|(_, address)| address.ip()).collect())
    };
    Ok(netns.into_iter().map(of).collect())
}

/// `/proc/PID/ns/net` of every process, and where namespaces are mounted.
fn names() -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
            paths.push(entry.path().join("ns/net"));
        }
    }
    let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo")?;
    // proc_pid_mountinfo(5): the fourth word is the root, `net:[4026531840]`, the fifth the place, in octal escapes.
    let mounted = |line: &str| {
        let mut words = line.split(' ').skip(3);
        words.next().filter(|root| root.starts_with("net:["))?;
        words.next().map(unescaped)
    };
    paths.extend(mounts.lines().filter_map(mounted));
    Ok(paths)
}

/// A path of mountinfo: space, tab, newline and backslash are three octal digits behind a backslash.
fn unescaped(path: &str) -> PathBuf {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(path.to_owned(), |path, (escape, text)| path.replace(escape, text)).into()
}
