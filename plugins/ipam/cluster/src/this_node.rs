//! This node: its name, its Ethernet addresses and its view; and the errors when the store confirms nothing to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use cni_spec::{CniError, Code};
use netops::link::{self, Link};
use netops::netlink_connection::Kernel;

use crate::node_view::View;
use crate::protocol::{Closed, Me, Refusal};
use crate::view_age;
use cluster_keys::Conf;

const MACHINE_ID: &str = "/etc/machine-id";
const LINKS: &str = "/sys/class/net";
/// `NET_ADDR_PERM`.
const PERMANENT: &str = "0";

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
        id => match cluster_keys::check_name(id) {
            Ok(()) => Ok(id.to_owned()),
            Err(error) => Err(error.detail(format!("It is the machine-id, {MACHINE_ID}: set ipam.node."))),
        },
    }
}

/// The permanent Ethernet addresses of the machine's cards, which none can change or copy. Bridges and veths are no devices: their addresses are made up,
/// and copied with an image. Cards on USB are left out, as all management controllers of a kind have the same address there, and so are virtual
/// functions, which come and go.
#[must_use]
pub fn macs() -> BTreeSet<String> {
    let links = Kernel::host().and_then(|kernel| link::list(&kernel, None)).unwrap_or_else(|error| {
        tracing::warn!(%error, "the kernel names no permanent address");
        Vec::new()
    });
    let names = fs::read_dir(LINKS).into_iter().flatten().flatten().map(|entry| entry.path());
    names.filter(|path| is_card(path)).filter_map(|path| permanent(&path, &links)).collect()
}

fn is_card(path: &Path) -> bool {
    let device = path.join("device");
    let is_usb = || fs::read_link(device.join("subsystem")).is_ok_and(|bus| bus.ends_with("usb"));
    device.exists() && !device.join("physfn").exists() && !is_usb()
}

/// The permanent address of a card. Kernels before 5.6 tell only whether the present one is, and bonds the one of their ports.
fn permanent(path: &Path, links: &[Link]) -> Option<String> {
    let read = |name: &str| Some(fs::read_to_string(path.join(name)).ok()?.trim().to_owned());
    let present = read("address").filter(|address| !address.is_empty())?;
    // The folder may be of another namespace than the links.
    let is_it = |link: &&Link| path.ends_with(&link.name) && link.mac.is_some_and(|mac| mac.to_string() == present);
    let told = links.iter().find(is_it).and_then(|link| link.permanent_mac).map(|mac| mac.to_string());
    let is_permanent = read("addr_assign_type").is_none_or(|kind| kind == PERMANENT);
    told.or_else(|| read("bonding_slave/perm_hwaddr")).or(Some(present).filter(|_| is_permanent))
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
    let (is_recorded, shared) = (view.standing.is_recorded, BTreeMap::new());
    Ok((Me { name, store_id, is_recorded, is_copy, boot, macs, shared, trust_seconds, now }, view))
}

pub(crate) fn random() -> Result<String, CniError> {
    let number = |_| getrandom::u64().map(|number| format!("{number:016x}"));
    let text: Result<String, _> = (0..2).map(number).collect();
    text.map_err(|error| CniError::new(Code::IO, format!("the kernel gave no random number: {error}")))
}

/// A random number from 0 to 1.
pub(crate) fn random_part() -> Result<f64, CniError> {
    let random = getrandom::u32().map_err(|error| CniError::new(Code::IO, format!("no random number: {error}")))?;
    Ok(f64::from(random) / f64::from(u32::MAX))
}

/// The error of a machine that gets nothing; the records of `sharing` have addresses of its cards, too.
pub(crate) fn refused(conf: &Conf, name: &str, refusal: Refusal, sharing: &BTreeSet<String>) -> CniError {
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
            "another data folder is recorded for the node, or a later state of this one",
            format!(
                "Another machine has this name, or folder {folder} was restored from a copy. If it was restored: end the \
                 node's containers of this network, remove the folder, and run: cnitool cluster forget {network} {name}."
            ),
        ),
        Refusal::Clone if !sharing.is_empty() => (
            "other records have the Ethernet addresses of its cards, which prove nothing then",
            format!(
                "They are of: {0}. If that is the name which this machine had before, run: cnitool cluster forget {network} {0}; and call again. If the \
                 machines have a card alike, or this one is a clone: end the node's containers of this network, remove {folder}, and run: cnitool cluster \
                 forget {network} {name}.",
                sharing.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
            ),
        ),
        Refusal::Clone => (
            "this machine is a copy of the recorded one",
            format!(
                "It has the data folder and not the cards: all but one have to be the recorded ones. If it is a clone: remove {folder}, and give it a name of its own, by its machine-id or key ipam.node. If it is the same machine \
                 with new network cards: remove {folder} while none of its containers runs, and run: cnitool cluster forget {network} {name}."
            ),
        ),
        Refusal::Leaving => (
            "an operator is forgetting the node",
            "Call ADD again when cnitool cluster forget has ended; run it again if it was interrupted.".to_owned(),
        ),
        Refusal::Restored => (
            "the store is older than what this node has left there",
            format!(
                "It was emptied, or restored from a copy, and may give addresses that containers have. Run once: cnitool cluster repair {network} \
                 --begin, which lets no node claim; then on each node: cnitool cluster repair {network}."
            ),
        ),
    };
    let code = if refusal == Refusal::Leaving { Code::TRY_AGAIN } else { Code::STATE };
    CniError::new(code, format!("node {name} gets no addresses: {why}")).detail(remedy)
}

/// The error while no run is given on purpose.
pub(crate) fn closed(conf: &Conf, closed: &Closed) -> CniError {
    let network = &conf.network;
    let (why, remedy) = match closed {
        Closed::Adopt => (
            "nodes still write down what they gave before".to_owned(),
            format!(
                "Run on each node: cnitool cluster adopt {network}; and at last, once: cnitool cluster adopt {network} --end."
            ),
        ),
        Closed::Repair(nodes) => {
            let names = nodes.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            (
                format!("it was restored, and these nodes have not written back yet: {names}"),
                format!(
                    "Run on each of them: cnitool cluster repair {network}. If one is lost: cnitool cluster forget {network} NODE."
                ),
            )
        }
    };
    CniError::new(Code::TRY_AGAIN, format!("the store gives no run at present: {why}")).detail(remedy)
}
