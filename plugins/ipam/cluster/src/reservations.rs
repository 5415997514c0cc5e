//! The reservations in the node's folder: host-local's files, inside the network's ranges.

use cni_spec::{Attachment, CniError, Code};
use host_local::address::Address;
use host_local::inventory::{Held, list_held};
use netops::OpError;
use netops::lock::Lock;

use crate::node_view::{self, View};
use cluster_keys::Conf;

/// The permissions of host-local's lock.
const BITS: u32 = 0o750;

/// Whether the node's folder holds an address for the attachment.
pub(crate) fn holds(conf: &Conf, owner: &Attachment) -> Result<bool, CniError> {
    Ok(held(conf)?.iter().any(|held| held.is_of(owner)))
}

/// The reservations in the node's folder that are in the network's ranges.
pub(crate) fn held(conf: &Conf) -> Result<Vec<Held>, CniError> {
    let mut held = list(conf)?;
    held.retain(|held| conf.is_in_a_set(held.address.into()));
    Ok(held)
}

/// Takes host-local's lock: no call reserves or releases meanwhile.
pub(crate) fn lock(conf: &Conf) -> Result<Lock, CniError> {
    let place = &conf.local.place;
    Lock::take(&place.folder.join("lock"), BITS, place.deadline).map_err(|error| node_view::fault(&error))
}

/// All reservations in the node's folder.
pub(crate) fn list(conf: &Conf) -> Result<Vec<Held>, CniError> {
    let folder = conf.folder();
    let unreadable = |error| node_view::fault(&OpError::io("read", format!("store {}", folder.display()), &error));
    list_held(folder).map_err(unreadable)
}

/// No address of set `index` is in no run.
pub(crate) fn exhausted(conf: &Conf, index: usize, view: &View) -> CniError {
    let Some(set) = conf.local.sets.get(index) else { return CniError::new(Code::NO_ADDRESS, "no such range set") };
    let (held, all) = room(conf, index, view);
    CniError::new(Code::NO_ADDRESS, format!("no IP addresses available in range set: {set}")).detail(format!(
        "All are in runs of nodes and claims; here {held} of {all} are reserved. Other nodes give back what they do not use at their next calls: try again. \
         Else widen the range, run GC, forget lost nodes, or release claims whose pods are gone: cnitool cluster show {0}; cnitool cluster release {0} \
         CLAIM.",
        conf.network
    ))
}

/// How many addresses of a set's runs are reserved, and how many there are.
pub(crate) fn room(conf: &Conf, index: usize, view: &View) -> (u128, u128) {
    let owned = conf.local.sets.get(index).map(|set| view.owned(set)).unwrap_or_default();
    let all = owned.iter().map(|range| conf.local.barred.count_allowed(range.span())).sum();
    let entries = std::fs::read_dir(conf.folder()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| Address::from_file_name(entry.file_name().to_str()?));
    let is_given = |address: &Address| {
        conf.local.barred.end(*address).is_none() && owned.iter().any(|range| range.span().contains(*address))
    };
    (names.filter(is_given).count() as u128, all)
}
