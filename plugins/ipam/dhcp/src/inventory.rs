//! The leases that GC would have released if no attachment were valid.

use std::collections::BTreeSet;
use std::path::Path;

use cni_spec::{Attachment, CniError, NetworkName};
use skel::inventory::{Item, Sign};

use crate::conf::SOCKET;
use crate::lease_files::{self, LeaseRecord};
use crate::rpc::{Names, Sandbox};

/// Each lease of the network that the daemon of `socket` keeps, by its records. Changes nothing, and asks no daemon.
pub fn inventory(socket: &Path, network: &NetworkName) -> Result<Vec<Item>, CniError> {
    Ok(lease_files::list_of(&lease_files::folder(socket), network.as_str())?.iter().filter_map(item).collect())
}

fn item(record: &LeaseRecord) -> Option<Item> {
    let Names { network, container_id, ifname } = &record.subject.names;
    let attachment = Attachment::parse(network, container_id, ifname).ok()?;
    let Sandbox { path, identity } = &record.subject.sandbox;
    let namespace = Sign::Namespace { path: path.into(), numbers: *identity };
    // GC keeps a lease whose address any namespace has.
    let signs = std::iter::once(namespace).chain(record.addresses().into_iter().map(Sign::Address)).collect();
    let object = format!("DHCP lease of {}", record.lease.address.ip());
    Some(Item { owner: (&attachment).into(), object, signs })
}

/// The names of the networks that have a lease which the usual daemon keeps.
pub fn networks() -> Result<BTreeSet<String>, CniError> {
    let records = lease_files::list_unreleased(&lease_files::folder(Path::new(SOCKET)))?;
    Ok(records.into_iter().map(|record| record.subject.names.network).collect())
}
