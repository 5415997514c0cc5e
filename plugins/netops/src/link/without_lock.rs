//! A link's state, read without the kernel's lock of all links, which a request for a link waits for: on a busy node for
//! many milliseconds. For STATUS, which is asked every few seconds; ADD needs more.
//!
//! `/proc/sys/net` is the caller's namespace's, and tells whether a link is there. `/sys/class/net` tells the rest, but is the
//! namespace's in which it was mounted: it counts only if it has the link under the same index.

use std::fs;
use std::path::{Path, PathBuf};

use nix::libc::{IFF_LOOPBACK, IFF_PROMISC, IFF_UP};
use nix::net::if_::if_nametoindex;

use super::{Link, find, is_name};
use crate::error::Result;
use crate::netlink_connection::Kernel;

/// A link as far as it can be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// The link's name.
    pub name: String,
    /// Set up by the administrator.
    pub up: bool,
    /// Carries Ethernet frames, and is not the loopback link.
    pub has_frames: bool,
    /// Receives all frames, also because a link on top of it needs that.
    pub promisc: bool,
    /// The MTU, in bytes.
    pub mtu_bytes: u32,
    /// The VLAN settings of a bridge; `None`: the link is no bridge.
    pub bridge: Option<BridgeVlans>,
}

/// What a bridge does with VLANs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BridgeVlans {
    /// The kernel knows VLANs on bridges.
    pub are_known: bool,
    /// The bridge keeps them apart.
    pub are_filtered: bool,
}

/// The length of an Ethernet address.
const MAC_BYTES: usize = 6;

/// Looks for the link of this name in the caller's namespace.
///
/// # Errors
/// Only the kernel itself could say, and refuses.
pub fn see(name: &str) -> Result<Option<Sight>> {
    if is_name(name) && is_certainly_absent(name) {
        return Ok(None);
    }
    match in_sysfs(name) {
        Some(seen) => Ok(Some(seen)),
        None => Ok(find(&Kernel::host()?, name)?.map(|link| Sight::from(&link))),
    }
}

/// Each link has settings of IPv4 there, but for one that IP cannot use.
fn is_certainly_absent(name: &str) -> bool {
    const SETTINGS: &str = "/proc/sys/net/ipv4/conf";
    let is_there = |name: &str| Path::new(SETTINGS).join(name).try_exists();
    matches!((is_there("all"), is_there(name)), (Ok(true), Ok(false)))
}

fn in_sysfs(name: &str) -> Option<Sight> {
    // The names of settings in that folder that are no link's.
    let folder: PathBuf = Path::new("/sys/class/net").join(Some(name).filter(|name| is_name(name))?);
    let read = |file: &str| fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned());
    // This request takes no lock. Of a name that no link has, it would have the kernel look for a module.
    let index = read("ifindex")?.parse::<u32>().ok()?;
    if if_nametoindex(name) != Ok(index) {
        return None;
    }
    let flags = i32::from_str_radix(read("flags")?.strip_prefix("0x")?, 16).ok()?;
    let bridge = folder.join("bridge").is_dir().then(|| BridgeVlans {
        are_known: folder.join("bridge/default_pvid").exists(),
        are_filtered: read("bridge/vlan_filtering").is_some_and(|value| value != "0"),
    });
    Some(Sight {
        name: name.to_owned(),
        up: flags & IFF_UP != 0,
        has_frames: flags & IFF_LOOPBACK == 0 && read("address")?.split(':').count() == MAC_BYTES,
        promisc: flags & IFF_PROMISC != 0,
        mtu_bytes: read("mtu")?.parse().ok()?,
        bridge,
    })
}

impl From<&Link> for Sight {
    fn from(link: &Link) -> Self {
        let vlans = link.kind.bridge_vlans();
        let bridge = link.kind.is_bridge().then_some(BridgeVlans {
            are_known: vlans.default_pvid.is_some(),
            are_filtered: vlans.filtering == Some(true),
        });
        Self {
            name: link.name.clone(),
            up: link.up,
            has_frames: link.mac.is_some() && !link.loopback,
            promisc: link.promiscuity > 0,
            mtu_bytes: link.mtu_bytes,
            bridge,
        }
    }
}
