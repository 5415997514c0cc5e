//! The identity of this machine: a name, and the Ethernet addresses of its own interfaces.

use std::collections::BTreeSet;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use cni_spec::{CniError, Code};

use cluster_keys::Conf;

const MACHINE_ID: &str = "/etc/machine-id";
const LINKS: &str = "/sys/class/net";

/// The node's name: the key `node`, or the machine-id.
///
/// # Errors
/// Code 7: there is neither.
pub fn name(conf: &Conf) -> Result<String, CniError> {
    if let Some(name) = &conf.node {
        return Ok(name.clone());
    }
    let id = fs::read_to_string(MACHINE_ID).unwrap_or_default();
    match id.trim() {
        "" | "uninitialized" => {
            let text = format!("this node has no name: {MACHINE_ID} has none, and key ipam.node is missing");
            Err(CniError::new(Code::INVALID_CONFIG, text).detail("Run systemd-machine-id-setup, or set ipam.node."))
        }
        id => Ok(id.to_owned()),
    }
}

/// The Ethernet addresses of interfaces that are devices: those of bridges and veths are made up, and copied with an image.
#[must_use]
pub fn macs() -> BTreeSet<String> {
    let links = fs::read_dir(LINKS).into_iter().flatten().flatten().map(|entry| entry.path());
    let devices = links.filter(|link| link.join("device").exists());
    let addresses = devices.filter_map(|link| fs::read_to_string(link.join("address")).ok());
    addresses.map(|address| address.trim().to_owned()).filter(|address| !address.is_empty()).collect()
}

/// The time of day, in seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
