//! The reservations in a network's folder, for a caller that has to know before GC what it would release.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cni_spec::{ContainerId, IfName, NetworkName, json};
use serde::Deserialize;

use crate::address::Address;
use crate::conf::DATA_DIR;
use crate::store::read;

/// A reserved address, as in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The address.
    pub address: IpAddr,
    /// The container that holds it.
    pub container_id: ContainerId,
    /// Its interface; `None` in files of the older form.
    pub ifname: Option<IfName>,
    /// When the file was written.
    pub written: SystemTime,
}

/// The folder of a network whose plugin has this `ipam` object; `None` if that names another plugin, or cannot be read.
#[must_use]
pub fn folder(network: &NetworkName, ipam: &str) -> Option<PathBuf> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Keys {
        #[serde(rename = "type")]
        plugin: String,
        data_dir: String,
    }
    let keys: Keys = json::decode(&json::parse(ipam.as_bytes()).ok()?).ok()?;
    let data_dir = if keys.data_dir.is_empty() { DATA_DIR } else { &keys.data_dir };
    (keys.plugin == "host-local").then(|| Path::new(data_dir).join(network.as_str()))
}

/// The reservations that GC could release in a folder. Takes no lock and changes nothing: files appear complete. A
/// missing folder has none, and a file that names no owner is none.
///
/// # Errors
/// The folder cannot be read.
pub fn list(folder: &Path) -> io::Result<Vec<Reservation>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let address = entry.file_name().to_str().and_then(Address::from_file_name);
        let Some(address) = address else { continue };
        let (Some(content), Ok(meta)) = (read(&entry.path()), entry.metadata()) else { continue };
        // What an operator wrote is held, and GC leaves it.
        let Some((container, ifname)) = content.attachment() else { continue };
        let Ok(container_id) = ContainerId::parse(container) else { continue };
        let ifname = ifname.and_then(|ifname| IfName::parse(ifname).ok());
        found.push(Reservation { address: address.ip(), container_id, ifname, written: meta.modified()? });
    }
    Ok(found)
}
