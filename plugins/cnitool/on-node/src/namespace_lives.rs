//! Whether a namespace exists: that of a veth's other end, and that of a record.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use libcni::inventory::Life;
use netops::link::Link;
use netops::{Kernel, Netns, veth_peer};

/// The namespaces that links of the node lead to, each looked at once.
pub(crate) struct Peers<'a> {
    host: &'a Kernel,
    seen: RefCell<BTreeMap<i32, Life>>,
}

impl<'a> Peers<'a> {
    pub(crate) fn new(host: &'a Kernel) -> Self {
        Self { host, seen: RefCell::default() }
    }

    /// What the link says of its container. A namespace that is about to end still has its links for a moment, but its
    /// number leads nowhere.
    pub(crate) fn life(&self, link: &Link) -> Life {
        match link.peer_netns_id {
            // Both ends on the node: no container has it.
            None => Life::Gone,
            Some(id) if id < 0 => Life::Gone,
            Some(id) => *self.seen.borrow_mut().entry(id).or_insert_with(|| self.look(id)),
        }
    }

    fn look(&self, id: i32) -> Life {
        match veth_peer::namespace_exists(self.host, id) {
            Ok(true) => Life::Lives,
            Ok(false) => Life::Gone,
            Err(_) => Life::Unknown,
        }
    }
}

/// Whether the path leads to the namespace with this device and inode.
pub(crate) fn leads_to(path: &Path, numbers: [u64; 2]) -> bool {
    Netns::open(path).is_ok_and(|netns| netns.identity().numbers() == numbers)
}

/// What a search of all namespaces says.
pub(crate) fn of_search(found: Option<bool>) -> Life {
    match found {
        Some(true) => Life::Lives,
        Some(false) => Life::Gone,
        None => Life::Unknown,
    }
}
