//! The devices that GC would bring home if no attachment were valid.

use std::collections::BTreeSet;

use cni_spec::{Attachment, CniError, NetworkName};
use interface::failed;
use interface::inventory::{Item, Sign};
use netops::Kernel;

use crate::identity;
use crate::record::{self, AwayDevice};

/// Each device of the network that is away, or has come back without all that it had. Changes nothing.
pub fn inventory(network: &NetworkName) -> Result<Vec<Item>, CniError> {
    let records = record::list_of(network).map_err(failed)?;
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let host = Kernel::host().map_err(failed)?;
    records.iter().filter_map(|record| item(record, &host).transpose()).collect()
}

fn item(record: &AwayDevice, host: &Kernel) -> Result<Option<Item>, CniError> {
    let [network, container, ifname] = record.names();
    let Ok(attachment) = Attachment::parse(network, container, ifname) else { return Ok(None) };
    let on_host = identity::find_on_host(host, record).map_err(failed)?;
    let mut signs = vec![Sign::Namespace { path: record.netns.clone().into(), numbers: record.netns_numbers }];
    // The kernel returns hardware when its namespace ends, so it is in one that is not known.
    if on_host.is_none() && record.device.is_hardware() && !record.device.is_unplugged() {
        signs.push(Sign::Unknown);
    }
    Ok(Some(Item { owner: (&attachment).into(), object: format!("device {}", record.device.name), signs }))
}

/// The names of the networks that have a record of this boot.
pub fn networks() -> Result<BTreeSet<String>, CniError> {
    let records = record::list().map_err(failed)?;
    Ok(records.iter().map(|record| record.names()[0].to_owned()).collect())
}
