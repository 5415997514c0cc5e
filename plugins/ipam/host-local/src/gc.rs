//! GC: releases every reservation that an ADD wrote for a container and interface that GC removes, and every empty one.
//! Reservations that an operator wrote stay, and so does the address of a container that lives: a link that is in the container
//! alone, or without a mark, outlives GC, and the next container must not get its address.

use std::collections::BTreeSet;

use cni_spec::gc::{Sweep, SweptKeys};
use cni_spec::{Attachment, CniError, NetworkName};
use interface::address_in_use;
use netops::OpError;
use netops::all_namespaces::AllNamespaces;

use crate::address::Address;
use crate::conf::Removal;
use crate::inventory::list_held;
use crate::store::{Content, Reservations, Store};
use crate::store_error;

/// GC: releases what is held by attachments that the sweep removes, unless a namespace has the address.
pub async fn gc(conf: &Removal, sweep: &Sweep<&Attachment>) -> Result<(), CniError> {
    let stale = Stale::new(sweep);
    let free = find_free(conf, &stale)?;
    let Some(mut store) = Store::find(&conf.place).await.map_err(|error| store_error(&error))? else { return Ok(()) };
    let outcome = release(&mut store, &stale, &free);
    store.finish();
    let failed = outcome.map_err(|error| store_error(&error))?;
    CniError::join(failed.iter().map(store_error).collect()).map_or(Ok(()), Err)
}

/// The stale addresses that no container uses. Without the lock, as the search goes through all namespaces: an address that is
/// reserved meanwhile is not among them.
fn find_free(conf: &Removal, stale: &Stale<'_>) -> Result<BTreeSet<Address>, CniError> {
    let folder = &conf.place.folder;
    let unreadable = |error| store_error(&OpError::io("read", format!("store {}", folder.display()), &error));
    let mut held = list_held(folder).map_err(unreadable)?;
    held.retain(|held| {
        let holder = held.holder();
        holder
            .is_some_and(|(container, ifname)| stale.has(container.as_str(), ifname.as_ref().map(|name| name.as_str())))
    });
    if held.is_empty() {
        return Ok(BTreeSet::new());
    }
    let network = folder.file_name().and_then(|name| NetworkName::parse(name.to_str()?).ok());
    let places = AllNamespaces::read();
    held.retain(|held| {
        let address = held.address;
        let of_network = network.as_ref().zip(held.holder());
        let is_used = match of_network {
            Some((network, (container, ifname))) => {
                address_in_use::find(&places, (network, container, ifname.as_ref()), &[address])
            }
            None => places.find(&[address]),
        };
        match is_used {
            Some(true) => tracing::warn!(%address, "kept: a container has it or a link for it, though it is not valid; the next GC after its end frees it"),
            None => tracing::warn!(%address, "kept: not all namespaces can be searched for it"),
            Some(false) => {}
        }
        is_used == Some(false)
    });
    Ok(held.into_iter().map(|held| held.address.into()).collect())
}

/// Goes through the folder; returns what could not be deleted.
fn release(store: &mut Store, stale: &Stale<'_>, free: &BTreeSet<Address>) -> Result<Vec<OpError>, OpError> {
    let mut failed = Vec::new();
    for (address, content) in store.scan()? {
        let is_released = match content.attachment() {
            Some((container, ifname)) => free.contains(&address) && stale.has(container, ifname),
            None => content == Content::Debris,
        };
        if is_released {
            let holder = content.holder().unwrap_or_default();
            let owner = holder.replace("\r\n", " ");
            tracing::info!(%address, owner, "releasing an address that nothing valid holds");
            failed.extend(store.release(address, holder).err());
        }
    }
    Ok(failed)
}

/// The attachments that GC removes, and their containers alone for reservations of the older form.
struct Stale<'a> {
    attachments: SweptKeys<(&'a str, &'a str)>,
    containers: SweptKeys<&'a str>,
}

impl<'a> Stale<'a> {
    fn new(sweep: &'a Sweep<&'a Attachment>) -> Self {
        Self {
            attachments: sweep.by(|one| (one.container_id.as_str(), one.ifname.as_str())),
            containers: sweep.by(|one| one.container_id.as_str()),
        }
    }

    fn has(&self, container: &str, ifname: Option<&str>) -> bool {
        match ifname {
            Some(ifname) => self.attachments.has(&(container, ifname)),
            None => self.containers.has(container),
        }
    }
}
