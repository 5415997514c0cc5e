//! What packets to a port of 127.0.0.1 need: the kernel routes a loopback address to another interface only if that
//! interface has `route_localnet`, which opens 127.0.0.0/8 of the node to it.
//!
//! So the interface is the container's own, and the last port takes back what the first one set: `/run/cni/portmap` has a
//! folder for each bridge that ADD found without the setting, by the numbers of the namespace and the bridge's index, and in
//! it a file for each attachment that has needed it since. Like the setting it is gone when the node starts anew.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use chained::{AddOrCheck, failed};
use cni_filter::Stale;
use cni_spec::CniError;
use interface::sides::open_netns;
use ipnetwork::IpNetwork;
use netops::error::Result;
use netops::link::{self, Kind, Link};
use netops::lock::Lock;
use netops::nft::Family;
use netops::sysctl::{self, Key};
use netops::{Kernel, Netns, OpError, addr, file, veth_peer};

use crate::forwards;
use crate::pod_ports::PodPorts;

const NOTES: &str = "/run/cni/portmap";

/// The last DEL of a bridge reads the forwards of the node meanwhile, by iptables' programs in its legacy variant.
const DEADLINE: Duration = Duration::from_secs(30);

/// Whether a port of 127.0.0.1 is forwarded at all: with snat, for a mapping of any host address, or of a loopback one.
pub(crate) fn is_needed(pod: &PodPorts<'_>) -> bool {
    let is_loopback = |ip: IpAddr| ip.is_loopback();
    let is_mapped = pod.mappings().iter().any(|mapping| mapping.destination().is_none_or(is_loopback));
    pod.family == Family::Ip && pod.conf.snat.is_some() && is_mapped
}

/// What [`enable`] does, for programs that show it: the link may not be there yet.
pub(crate) fn text(pod: &PodPorts<'_>) -> String {
    format!("sysctl net/ipv4/conf/LINK/route_localnet=1, LINK being the node's link towards {}", pod.address.ip())
}

#[derive(Debug, Default)]
pub(crate) enum Enabled {
    #[default]
    Nothing,
    /// The setting of the container's own link, which ends with the container.
    Own(Link),
    /// The note of the attachment, and where it is the first one the setting of the bridge.
    Shared,
}

/// Turns it on for the node's link to the container, if it [`is_needed`]. `enabled` is known to the undo before anything changes.
pub(crate) fn enable(
    call: &AddOrCheck<'_>,
    pod: &PodPorts<'_>,
    enabled: &RefCell<Enabled>,
) -> std::result::Result<(), CniError> {
    if !is_needed(pod) {
        return Ok(());
    }
    let Some((link, is_shared)) = link_of(call)? else {
        tracing::warn!("no link of the node is the container's: ports of 127.0.0.1 are not forwarded");
        return Ok(());
    };
    let key = key_of(&link).map_err(failed)?;
    let is_off = || Ok(sysctl::find(&key)?.as_deref() == Some("0"));
    let noted = match is_shared {
        true => note(&link, &pod.names.key(), is_off),
        false => is_off().map(|is_off| if is_off { Enabled::Own(link.clone()) } else { Enabled::Nothing }),
    };
    match noted {
        Ok(noted) => {
            enabled.replace(noted);
        }
        // No DEL would turn it off.
        Err(error) if is_off().unwrap_or(true) => {
            tracing::warn!(%error, link = link.name, "route_localnet stays off: ports of 127.0.0.1 are not forwarded");
            return Ok(());
        }
        Err(_) => {}
    }
    sysctl::ensure(&key, "1").map_err(failed)?;
    tracing::info!(link = link.name, "route_localnet is on, so that ports of 127.0.0.1 are forwarded");
    Ok(())
}

/// The setting of the link towards the container that is off again: a bridge that was made anew begins with it off. `None` also
/// where the node has no link of the container's.
pub(crate) fn lost(call: &AddOrCheck<'_>, pod: &PodPorts<'_>) -> Result<Option<Key>> {
    let link = if is_needed(pod) { link_of(call).ok().flatten() } else { None };
    let key = link.map(|(link, _)| key_of(&link)).transpose()?;
    Ok(key.filter(|key| matches!(sysctl::find(key), Ok(Some(value)) if value == "0")))
}

fn key_of(link: &Link) -> Result<Key> {
    Key::of_link("ipv4", &link.name, "route_localnet")
}

/// The node's link by which its packets get to the container, and whether other containers share it: the host end of the
/// container's veth, or that one's bridge. Routes do not count: of a moment, or of a VPN's rules, they lead anywhere.
fn link_of(call: &AddOrCheck<'_>) -> std::result::Result<Option<(Link, bool)>, CniError> {
    let (host, netns) = (Kernel::host().map_err(failed)?, open_netns(call.netns)?);
    let named = call.attached.result.interfaces.iter().filter(|entry| entry.sandbox.is_empty());
    let named = named.filter_map(|entry| link::find(&host, &entry.name).transpose());
    let named: Vec<Link> = named.collect::<Result<_>>().map_err(failed)?;
    let is_end = |link: &&Link| link.kind == Kind::Veth && veth_peer::names(link, &host, &netns).unwrap_or(false);
    let end = match named.iter().rfind(is_end) {
        Some(end) => Some(end.clone()),
        // The plugin in front does not name it.
        None => {
            let sides = call.sides.open()?;
            let inside = link::find(&sides.container, call.attachment.ifname.as_str()).map_err(failed)?;
            let end = inside.map(|inside| veth_peer::find_host_end(&host, &sides.container, &netns, &inside));
            end.transpose().map_err(failed)?.flatten()
        }
    };
    end.map(|end| behind(&host, end, named)).transpose().map_err(failed)
}

/// The link that routes packets to a container's veth: its bridge, or that one's gateway in a VLAN, which is another veth, if
/// the plugin has made one.
fn behind(host: &Kernel, end: Link, named: Vec<Link>) -> Result<(Link, bool)> {
    let master = end.master.map(|master| link::find_index(host, master)).transpose()?.flatten();
    let Some(bridge) = master.filter(|master| master.kind.is_bridge()) else { return Ok((end, false)) };
    for link in named {
        let below = match (&link.kind, link.peer) {
            (Kind::Vlan(_), below) => below,
            (Kind::Veth, Some(peer)) if link.peer_netns_id.is_none() => {
                link::find_index(host, peer)?.and_then(|port| port.master)
            }
            _ => None,
        };
        if below == Some(bridge.index) {
            return Ok((link, true));
        }
    }
    Ok((bridge, true))
}

/// The folder of each noted link begins like this.
fn namespace() -> Result<String> {
    let netns = Netns::current().map_err(|error| OpError::state("open", "the host's namespace", error.to_string()))?;
    let [device, inode] = netns.identity().numbers();
    Ok(format!("{device}-{inode}-"))
}

fn io(verb: &'static str, path: &Path) -> impl Fn(std::io::Error) -> OpError {
    move |error| OpError::io(verb, path.display().to_string(), &error)
}

/// Notes that the attachment needs the setting, where ADD has to turn it on or has done so for another.
fn note(link: &Link, attachment: &str, is_off: impl Fn() -> Result<bool>) -> Result<Enabled> {
    let (notes, make) = (Path::new(NOTES), |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path));
    notes.parent().map_or(Ok(()), file::make_folders).and_then(|()| make(notes)).map_err(io("create", notes))?;
    let _lock = Lock::take_existing(notes, DEADLINE)?;
    let folder = notes.join(format!("{}{}", namespace()?, link.index));
    if !folder.is_dir() && !is_off()? {
        return Ok(Enabled::Nothing);
    }
    let path = folder.join(attachment);
    match make(&folder).and_then(|()| File::create_new(&path)) {
        Ok(_) => Ok(Enabled::Shared),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Enabled::Nothing),
        Err(error) => {
            // Only if it is empty.
            drop(fs::remove_dir(&folder));
            Err(io("create", &path)(error))
        }
    }
}

/// Takes back what a failed ADD changed.
pub(crate) fn undo(enabled: &Enabled, attachment: &str, search_path: &str) -> Result<()> {
    match enabled {
        Enabled::Nothing => Ok(()),
        Enabled::Own(link) => off(link.index),
        Enabled::Shared => forget(attachment, search_path),
    }
}

/// Forgets an attachment whose ports are gone, and turns the setting off for a bridge that it was the last one of.
pub(crate) fn forget(attachment: &str, search_path: &str) -> Result<()> {
    settle(search_path, |folder| match fs::remove_file(folder.join(attachment)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    })
}

/// The same for all attachments that are stale.
pub(crate) fn gc(stale: &Stale, search_path: &str) -> Result<()> {
    settle(search_path, |folder| {
        for note in fs::read_dir(folder)? {
            let note = note?;
            if stale.has(note.file_name().to_str()) {
                fs::remove_file(note.path())?;
            }
        }
        Ok(())
    })
}

/// Turns the setting off for each noted link that has no note after `remove`, also if a call was killed between the two, unless
/// the node has ports of others there: those of the reference, or of a runtime that has another `/run`, which found it on.
fn settle(search_path: &str, remove: impl Fn(&Path) -> std::io::Result<()>) -> Result<()> {
    let notes = Path::new(NOTES);
    if !notes.exists() {
        return Ok(());
    }
    let _lock = Lock::take_existing(notes, DEADLINE)?;
    let namespace = namespace()?;
    for folder in fs::read_dir(notes).map_err(io("read", notes))? {
        let folder = folder.map_err(io("read", notes))?.path();
        let name = folder.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_prefix(&namespace));
        let Some(index) = name.and_then(|index| index.parse().ok()) else { continue };
        let is_last = || remove(&folder).and_then(|()| Ok(fs::read_dir(&folder)?.next().is_none()));
        if is_last().map_err(io("read", &folder))? && !has_ports(index, search_path)? {
            off(index)?;
            fs::remove_dir(&folder).map_err(io("remove", &folder))?;
        }
    }
    Ok(())
}

fn off(index: u32) -> Result<()> {
    let Some(link) = link::find_index(&Kernel::host()?, index)? else { return Ok(()) };
    tracing::info!(link = link.name, "route_localnet is off again: it forwards no port of 127.0.0.1");
    sysctl::ensure(&key_of(&link)?, "0")
}

/// Whether a port of 127.0.0.1 is forwarded to an address of this link's networks.
fn has_ports(index: u32, search_path: &str) -> Result<bool> {
    let networks = addr::list_all(&Kernel::host()?, None)?.into_iter().filter(|(of, _)| *of == index);
    let networks: Vec<IpNetwork> = networks.map(|(_, network)| network).filter(IpNetwork::is_ipv4).collect();
    if networks.is_empty() {
        return Ok(false);
    }
    let forwards = forwards::list(search_path)?.into_iter().chain(forwards::list_of_others(search_path)?);
    let mut to_loopback = forwards.filter(|forward| forward.address.is_none_or(|address| address.is_loopback()));
    Ok(to_loopback.any(|forward| networks.iter().any(|network| network.contains(forward.to.ip()))))
}
