//! This node: its name, its Ethernet addresses and its view; and the errors when the store confirms nothing to it.

use std::collections::BTreeSet;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use cni_spec::{CniError, Code};

use crate::node_view::View;
use crate::protocol::{Me, Refusal};
use crate::view_age;
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

/// This machine, and its view; a new one if there is none.
pub(crate) fn identify(conf: &Conf) -> Result<(Me, View), CniError> {
    let name = name(conf)?;
    let found = View::read(conf.folder())?;
    let is_known = found.is_some();
    let view = match found {
        Some(view) => view,
        None => View { node: name.clone(), store_id: random()?, ..View::default() },
    };
    if view.node != name {
        let text = format!("the data folder is node {}'s, and this is node {name}", view.node);
        return Err(CniError::new(Code::STATE, text).detail(format!(
            "It was copied with an image, or the node has a new name. End the node's containers of this network, remove {}, \
             and forget node {} if no machine has that name: cnitool cluster forget {} {}.",
            conf.folder().display(),
            view.node,
            conf.network,
            view.node
        )));
    }
    let (store_id, boot, macs) = (view.store_id.clone(), view_age::boot()?, macs());
    let (is_copy, trust_seconds, now) = (view.is_copy && view.boot == boot, conf.trust_seconds, now());
    Ok((Me { name, store_id, is_known, is_copy, boot, macs, trust_seconds, now }, view))
}

fn random() -> Result<String, CniError> {
    let number = |_| getrandom::u64().map(|number| format!("{number:016x}"));
    let text: Result<String, _> = (0..2).map(number).collect();
    text.map_err(|error| CniError::new(Code::IO, format!("the kernel gave no random number: {error}")))
}

pub(crate) fn refused(conf: &Conf, name: &str, refusal: Refusal) -> CniError {
    let (folder, network) = (conf.folder().display(), &conf.network);
    let (why, remedy) = match refusal {
        Refusal::Emptied => (
            "the node is recorded, and its data folder does not know",
            format!(
                "Folder {folder} was emptied, or another machine has this name. If it was emptied: end the node's \
                 containers of this network, then run: cnitool cluster forget {network} {name}. If not: give this machine a name of its own, by \
                 its machine-id or key ipam.node."
            ),
        ),
        Refusal::OtherFolder => (
            "another data folder is recorded for the node",
            format!(
                "Another machine has this name, or folder {folder} was restored from a copy. If it was restored: end the \
                 node's containers of this network, remove the folder, and run: cnitool cluster forget {network} {name}."
            ),
        ),
        Refusal::Clone => (
            "this machine is a copy of the recorded one",
            format!(
                "It has the data folder and none of the Ethernet addresses. If it is a clone: remove {folder}, and give it \
                 a name of its own, by its machine-id or key ipam.node. If it is the same machine with new network cards: \
                 remove {folder} while none of its containers runs, and run: cnitool cluster forget {network} {name}."
            ),
        ),
        Refusal::Leaving => (
            "an operator is forgetting the node",
            "Call ADD again when cnitool cluster forget has ended; run it again if it was interrupted.".to_owned(),
        ),
        Refusal::Restored => (
            "the store has other runs or claims of it than the node has left there",
            format!(
                "The store was restored from a copy, and may give addresses that containers have: run on each node: cnitool \
                 cluster repair {network}."
            ),
        ),
    };
    let code = if refusal == Refusal::Leaving { Code::TRY_AGAIN } else { Code::STATE };
    CniError::new(code, format!("node {name} gets no addresses: {why}")).detail(remedy)
}
