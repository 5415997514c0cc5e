//! What the node remembers of a device that is away: a file for each attachment.
//!
//! The reference keeps nothing but the device's old name, in the link's alias; so does this plugin, for the reference. But a
//! container with `CAP_NET_ADMIN` can change alias, name and Ethernet address, and put another link in the device's place, so
//! DEL goes by what is in this folder, which is root's alone.

use std::fs::DirBuilder;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use cni_spec::Attachment;
use interface::link_by_name::{RECORDS as FOLDER, record_path as path};
use ipnetwork::IpNetwork;
use netops::addr::{Address, Kept};
use netops::boot::{self, Boot};
use netops::bridge_port::Vlans;
use netops::error::Result;
use netops::link::details::Values;
use netops::link::{Before, Link, Mac};
use netops::{Netns, OpError, file};
use serde::Deserialize;
use serde_json::json;

/// The longest record that is read, in bytes: a device has hundreds of addresses at most.
const BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AwayDevice {
    pub network: String,
    pub container_id: String,
    pub ifname: String,
    /// The boot of the machine in which the device was moved.
    pub boot: String,
    /// The namespace's path in ADD.
    pub netns: String,
    /// The namespace's device and inode.
    pub netns_numbers: [u64; 2],
    /// The device's index in the container, once it is there.
    pub index: Option<u32>,
    pub device: Device,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Device {
    pub name: String,
    /// The kind of link, empty for hardware.
    pub kind: String,
    pub mac: Option<String>,
    /// The Ethernet address that the hardware came with.
    pub permanent_mac: Option<String>,
    /// The device's place on a bus, as [`Link::parent_device`].
    pub parent: Option<String>,
    /// The link that it is connected to or stacked on, if that is on the host: its index there.
    pub peer: Option<u32>,
    /// The MTU, in bytes.
    pub mtu: u32,
    pub up: bool,
    /// Whether the device was promiscuous by the administrator's wish.
    pub promisc: bool,
    /// Whether the device received all multicast.
    pub allmulti: bool,
    /// Whether the device did not resolve addresses.
    pub no_arp: bool,
    /// Whether the device could send to multicast addresses.
    pub multicast: bool,
    /// Length of the transmit queue, in packets.
    pub tx_queue_len: u32,
    /// The group that the administrator put it in; records of earlier versions have none.
    #[serde(default)]
    pub group: u32,
    pub alt_names: Vec<String>,
    pub alias: String,
    /// The link that it was a port of: index and name.
    pub master: Option<(u32, String)>,
    /// The device's addresses, with prefixes, and whether they were used without detecting duplicates.
    pub addresses: Vec<(String, bool)>,
    /// The device's addresses with all that the kernel says of them.
    #[serde(default)]
    pub kept: Option<Vec<KeptAddress>>,
    /// The machine's time since its start when they were read, in seconds.
    #[serde(default)]
    pub read_at: u64,
    /// The device's further settings, as [`netops::link::details`]; records of earlier versions have none.
    #[serde(default)]
    pub details: Values,
    /// The device's VLANs as a port of a bridge: first and last, whether untagged frames belong to the VLAN, and whether
    /// its frames go out untagged.
    #[serde(default)]
    pub vlans: Vec<(u16, u16, bool, bool)>,
}

impl Device {
    /// Whether the device was found by this name on the host.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.name == name || self.alt_names.iter().any(|other| other == name)
    }
}

impl AwayDevice {
    /// The record of a device that is about to be moved.
    pub fn new(attachment: &Attachment, netns: &Netns, before: &Before, master: Option<&Link>) -> Result<Self> {
        let Before { link, addresses, kept, details, vlans } = before;
        let vlan = |vlans: &Vlans| (vlans.first, vlans.last, vlans.pvid, vlans.untagged);
        let text = |mac: Option<Mac>| mac.map(|mac| mac.to_string());
        Ok(Self {
            network: attachment.network.as_str().to_owned(),
            container_id: attachment.container_id.as_str().to_owned(),
            ifname: attachment.ifname.as_str().to_owned(),
            boot: Boot::read()?.id,
            netns: netns.path().display().to_string(),
            netns_numbers: netns.identity().numbers(),
            index: None,
            device: Device {
                name: link.name.clone(),
                kind: link.kind.name().to_owned(),
                mac: text(link.mac),
                permanent_mac: text(link.permanent_mac),
                parent: link.parent_device.clone(),
                peer: link.peer.filter(|_| link.peer_netns_id.is_none()),
                mtu: link.mtu_bytes,
                up: link.up,
                promisc: link.promisc,
                allmulti: link.allmulti,
                no_arp: link.no_arp,
                multicast: link.multicast,
                tx_queue_len: link.tx_queue_len,
                group: link.group,
                alt_names: link.alt_names.clone(),
                alias: link.alias.clone().unwrap_or_default(),
                master: master.map(|master| (master.index, master.name.clone())),
                addresses: addresses.iter().map(|address| (address.net.to_string(), address.nodad)).collect(),
                kept: Some(kept.iter().map(KeptAddress::from).collect()),
                read_at: boot::uptime()?.as_secs(),
                details: details.clone(),
                vlans: vlans.iter().map(vlan).collect(),
            },
        })
    }

    fn is_of(&self, attachment: &Attachment) -> bool {
        self.names() == names(attachment)
    }

    pub fn write(&self) -> Result<()> {
        make_folder().map_err(|error| OpError::io("create", format!("folder {FOLDER}"), &error))?;
        let Device {
            name,
            kind,
            mac,
            permanent_mac,
            parent,
            peer,
            mtu,
            up,
            promisc,
            allmulti,
            no_arp,
            multicast,
            tx_queue_len,
            group,
            alt_names,
            alias,
            master,
            addresses,
            kept,
            read_at,
            details,
            vlans,
        } = &self.device;
        let content = json!({
            "network": self.network, "container_id": self.container_id, "ifname": self.ifname,
            "boot": self.boot, "netns": self.netns, "netns_numbers": self.netns_numbers, "index": self.index,
            "device": {
                "name": name, "kind": kind, "mac": mac, "permanent_mac": permanent_mac, "parent": parent, "peer": peer,
                "mtu": mtu, "up": up, "promisc": promisc, "allmulti": allmulti, "no_arp": no_arp,
                "multicast": multicast, "tx_queue_len": tx_queue_len, "group": group, "alt_names": alt_names, "alias": alias,
                "master": master, "addresses": addresses, "details": details,
                "vlans": vlans, "read_at": read_at, "kept": kept.as_ref().map(|all| all.iter().map(KeptAddress::to_json).collect::<Vec<_>>()),
            },
        });
        file::replace(&path(self.names()), format!("{content}\n").as_bytes(), 0o600)
    }

    /// Network, container and interface.
    pub fn names(&self) -> [&str; 3] {
        [&self.network, &self.container_id, &self.ifname]
    }
}

impl Device {
    /// Returns whether the device is hardware, which the kernel returns when its namespace ends. It deletes other links.
    pub fn is_hardware(&self) -> bool {
        self.kind.is_empty()
    }

    /// Returns whether the bus no longer has the device: it was unplugged.
    pub fn is_unplugged(&self) -> bool {
        let Some((bus, id)) = self.parent.as_deref().and_then(|parent| parent.split_once('/')) else { return false };
        let devices = Path::new("/sys/bus").join(bus).join("devices");
        devices.is_dir() && matches!(devices.join(id).try_exists(), Ok(false))
    }

    /// The addresses that have not expired meanwhile. A record of an earlier version says less of them:
    /// [`Device::addresses`].
    pub fn kept(&self) -> Result<Vec<Kept>> {
        let elapsed = boot::uptime()?.as_secs().saturating_sub(self.read_at);
        Ok(self.kept.iter().flatten().filter_map(|address| address.after(elapsed)).collect())
    }

    pub fn vlans(&self) -> Vec<Vlans> {
        let vlan = |&(first, last, pvid, untagged): &(u16, u16, bool, bool)| Vlans { first, last, pvid, untagged };
        self.vlans.iter().map(vlan).collect()
    }

    /// The device's addresses in a record of an earlier version, except entries that are no address.
    pub fn addresses(&self) -> impl Iterator<Item = Address> {
        let parse = |text: &String| text.parse::<IpNetwork>().ok();
        self.addresses
            .iter()
            .filter(|_| self.kept.is_none())
            .filter_map(move |(net, nodad)| Some(Address { nodad: *nodad, ..parse(net)?.into() }))
    }
}

/// An address of the device on the host; the fields are those of [`Kept`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct KeptAddress {
    net: IpNetwork,
    peer: Option<IpAddr>,
    broadcast: Option<Ipv4Addr>,
    scope: u8,
    flags: u32,
    label: Option<String>,
    metric: Option<u32>,
    protocol: Option<u8>,
    lifetimes: [u32; 2],
}

impl From<&Kept> for KeptAddress {
    fn from(kept: &Kept) -> Self {
        let Kept { net, peer, broadcast, scope, flags, ref label, metric, protocol, lifetimes } = *kept;
        Self { net, peer, broadcast, scope, flags, label: label.clone(), metric, protocol, lifetimes }
    }
}

impl KeptAddress {
    fn to_json(&self) -> serde_json::Value {
        let Self { net, peer, broadcast, scope, flags, label, metric, protocol, lifetimes } = self;
        json!({
            "net": net, "peer": peer, "broadcast": broadcast, "scope": scope, "flags": flags, "label": label,
            "metric": metric, "protocol": protocol, "lifetimes": lifetimes,
        })
    }

    /// The address as it is so many seconds later; `None` if it has ended.
    fn after(&self, elapsed: u64) -> Option<Kept> {
        let Self { net, peer, broadcast, scope, flags, label, metric, protocol, lifetimes } = self.clone();
        let elapsed = u32::try_from(elapsed).unwrap_or(u32::MAX);
        let lifetimes = lifetimes.map(|time| if time == u32::MAX { time } else { time.saturating_sub(elapsed) });
        let [_, valid] = lifetimes;
        (valid > 0).then_some(Kept { net, peer, broadcast, scope, flags, label, metric, protocol, lifetimes })
    }
}

pub fn names(Attachment { network, container_id, ifname }: &Attachment) -> [&str; 3] {
    [network.as_str(), container_id.as_str(), ifname.as_str()]
}

pub fn read(attachment: &Attachment) -> Result<Option<AwayDevice>> {
    let found = read_at(&path(names(attachment)))?;
    Ok(found.filter(|record| record.is_of(attachment)))
}

pub fn list() -> Result<Vec<AwayDevice>> {
    let failed = |error: &std::io::Error| OpError::io("list", format!("folder {FOLDER}"), error);
    let entries = match std::fs::read_dir(FOLDER) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(&error)),
    };
    let mut records = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| failed(&error))?;
        // A record that is just being written begins with a dot.
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            records.extend(read_at(&entry.path())?);
        }
    }
    Ok(records)
}

/// The records of attachments to the network: what GC goes through.
pub fn list_of(network: &cni_spec::NetworkName) -> Result<Vec<AwayDevice>> {
    let mut records = list()?;
    records.retain(|record| record.network == network.as_str());
    Ok(records)
}

/// Removes the record of an attachment, if there is one, and what a killed process left of one.
pub fn remove(attachment: [&str; 3]) -> Result<()> {
    file::remove(&path(attachment))
}

/// Reads a record. A file of an earlier boot is none: devices were back on the host since. Nor is a file that this
/// version cannot read.
fn read_at(path: &Path) -> Result<Option<AwayDevice>> {
    let failed = |error: &std::io::Error| OpError::io("read", path.display().to_string(), error);
    let content = match file::read_plain(path, BYTES_MAX) {
        Ok(content) => content,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            tracing::warn!(path = %path.display(), "ignored: it is no record of a device that is away");
            return Ok(None);
        }
        Err(error) => return Err(failed(&error)),
    };
    match serde_json::from_slice::<AwayDevice>(&content) {
        Ok(record) => Ok((record.boot == Boot::read()?.id).then_some(record)),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot use the record of a device that is away");
            Ok(None)
        }
    }
}

fn make_folder() -> std::io::Result<()> {
    match DirBuilder::new().mode(0o700).create(FOLDER) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            netops::file::make_folders(Path::new(FOLDER).parent().unwrap_or(Path::new("/")))?;
            match DirBuilder::new().mode(0o700).create(FOLDER) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
                _ => Ok(()),
            }
        }
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
