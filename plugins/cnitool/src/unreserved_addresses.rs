//! The addresses of attachments that host-local has not reserved for them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use cni_spec::SpecVersion;
use host_local::inventory::{Holder, list_held};
use libcni::{AttachmentId, Cached};
use on_node::Requests;

/// host-local's folders, each read once.
#[derive(Debug, Default)]
pub(crate) struct Stores(BTreeMap<PathBuf, BTreeMap<IpAddr, Option<Holder>>>);

/// An address of an attachment that is not reserved for it.
#[derive(Debug)]
pub(crate) struct Lacking {
    pub(crate) address: IpAddr,
    /// The attachment that it is reserved for; `None`: no attachment.
    pub(crate) reserved_for: Option<Holder>,
}

impl Stores {
    /// The addresses of the attachment's result that host-local has not reserved for it.
    pub(crate) fn lacking(&mut self, entry: &Cached) -> Vec<Lacking> {
        let Ok(network) = entry.network_conf() else { return Vec::new() };
        let Some(result) = entry.result(SpecVersion::V0_1_0).ok().flatten() else { return Vec::new() };
        let addresses: Vec<IpAddr> = result.ips.iter().map(|ip| ip.address.ip()).collect();
        self.lacking_of(&Requests::of(&network), &entry.attachment.id, &addresses)
    }

    /// Returns the addresses of an attachment that host-local has not reserved for it. An address without a reservation counts
    /// only where all addresses of the network are host-local's; a file that names no attachment does not count.
    pub(crate) fn lacking_of(&mut self, requests: &Requests, id: &AttachmentId, addresses: &[IpAddr]) -> Vec<Lacking> {
        let has_others = requests.ipams().any(|ipam| on_node::plugin_of(ipam.as_str()) != "host-local");
        let are_all_reserved = !has_others && requests.host_locals().next().is_some();
        let folders = requests.stores();
        for folder in &folders {
            self.0.entry(folder.clone()).or_insert_with(|| read(folder));
        }
        let addresses = addresses.iter().copied();
        addresses
            .filter_map(|address| {
                let reserved = folders.iter().find_map(|folder| self.0.get(folder)?.get(&address));
                let Some(holder) = reserved else {
                    return are_all_reserved.then_some(Lacking { address, reserved_for: None });
                };
                // An older reservation does not name the interface.
                let (container_id, ifname) = holder.as_ref()?;
                let is_its = *container_id == id.container_id && ifname.as_ref().is_none_or(|name| *name == id.ifname);
                (!is_its).then(|| Lacking { address, reserved_for: holder.clone() })
            })
            .collect()
    }
}

fn read(folder: &Path) -> BTreeMap<IpAddr, Option<Holder>> {
    list_held(folder).into_iter().flatten().map(|held| (held.address, held.holder().cloned())).collect()
}
