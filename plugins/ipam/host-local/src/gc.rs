//! GC: releases every reservation that an ADD wrote for a container and interface that are not in the list, and every
//! empty one. Reservations that an operator wrote stay.

use std::collections::HashSet;

use cni_spec::{Attachment, CniError};
use netops::OpError;

use crate::conf::Removal;
use crate::fault::fault;
use crate::store::{Content, Store};

pub(crate) async fn gc(conf: &Removal, valid: &[Attachment]) -> Result<(), CniError> {
    let Some(mut store) = Store::find(&conf.place).await.map_err(|error| fault(&error))? else { return Ok(()) };
    let outcome = sweep(&mut store, &Valid::new(valid));
    store.finish();
    let failed = outcome.map_err(|error| fault(&error))?;
    CniError::join(failed.iter().map(fault).collect()).map_or(Ok(()), Err)
}

/// Goes through the folder; returns what could not be deleted.
fn sweep(store: &mut Store, valid: &Valid<'_>) -> Result<Vec<OpError>, OpError> {
    let mut failed = Vec::new();
    for (address, content) in store.scan()? {
        let stale = match content.attachment() {
            Some((container, ifname)) => !valid.has(container, ifname),
            None => content == Content::Debris,
        };
        if stale {
            let holder = content.holder().unwrap_or_default();
            let owner = holder.replace("\r\n", " ");
            tracing::info!(%address, owner, "releasing an address that nothing valid holds");
            failed.extend(store.release(address, holder).err());
        }
    }
    Ok(failed)
}

/// The valid attachments, and their containers alone for reservations of the older form.
struct Valid<'a> {
    attachments: HashSet<(&'a str, &'a str)>,
    containers: HashSet<&'a str>,
}

impl<'a> Valid<'a> {
    fn new(list: &'a [Attachment]) -> Self {
        let pair = |valid: &'a Attachment| (valid.container_id.as_str(), valid.ifname.as_str());
        Self {
            attachments: list.iter().map(pair).collect(),
            containers: list.iter().map(|valid| valid.container_id.as_str()).collect(),
        }
    }

    fn has(&self, container: &str, ifname: Option<&str>) -> bool {
        match ifname {
            Some(ifname) => self.attachments.contains(&(container, ifname)),
            None => self.containers.contains(container),
        }
    }
}
