//! Forgetting an attachment: its entry goes, and no plugin is called.

use crate::attachment::AttachmentId;
use crate::conflist::NetworkConf;
use crate::deadlines::Limits;
use crate::error::Error;
use crate::inventory::Inventory;
use crate::{Runtime, name, orphaned_plugin};
use cni_spec::{Command, NetworkName};

impl Runtime {
    /// Removes an attachment's entry without calling a plugin: for an entry whose DEL no plugin will ever accept, when
    /// nothing of the attachment is on the node any more. An ADD that a dead runtime left running is ended first. A broken
    /// entry is removed, too.
    ///
    /// This library knows nothing of networking. So the call returns a [`Forget`], which has to be told what is on the node.
    pub fn forget<'a>(&'a self, network: &'a NetworkConf, id: &'a AttachmentId) -> Forget<'a> {
        Forget { runtime: self, network, id }
    }
}

/// A removal of an entry that has not begun: it has to be told what is on the node.
#[derive(Debug, Clone, Copy)]
#[must_use = "with_inventory or without_inventory begins it"]
pub struct Forget<'a> {
    runtime: &'a Runtime,
    network: &'a NetworkConf,
    id: &'a AttachmentId,
}

impl Forget<'_> {
    /// Examines the node while no ADD or DEL of the attachment runs, and refuses to forget one that has something there.
    /// Returns whether there was an entry.
    ///
    /// # Errors
    /// [`Error::OnNode`]; [`Error::Invalid`] if the node cannot be examined; [`Error::Cache`] when the entry cannot be
    /// removed; [`Error::Locked`]; [`Error::Orphans`] if an unfinished ADD's plugins cannot be ended. The entry stays then.
    pub async fn with_inventory(self, node: &(dyn Inventory + Sync)) -> Result<bool, Error> {
        let Self { network, id, .. } = self;
        self.run(|name| {
            let on_node = node.list(network, std::slice::from_ref(id))?;
            match on_node.into_iter().find(|found| found.id.as_ref() == Some(id)) {
                Some(found) => Err(Error::OnNode { network: name.clone(), id: id.clone(), objects: found.objects }),
                None => Ok(()),
            }
        })
        .await
    }

    /// Does not examine the node: what is there of the attachment stays, and nothing knows of it any more.
    ///
    /// # Errors
    /// As [`Forget::with_inventory`], apart from the node's.
    pub async fn without_inventory(self) -> Result<bool, Error> {
        self.run(|_| Ok(())).await
    }

    async fn run(self, look: impl Fn(&NetworkName) -> Result<(), Error>) -> Result<bool, Error> {
        let Self { runtime, network, id } = self;
        let name = name(network)?;
        let _held = runtime.lock_for_del(&name, id).await?;
        look(&name)?;
        if let Some(running) = runtime.settings.cache.find(&name, id)?.and_then(|cached| cached.running) {
            orphaned_plugin::end(&running, &Limits::of(runtime), Command::Del).await?;
            // The plugin may have created objects until its end.
            look(&name)?;
        }
        runtime.settings.cache.remove(&name, id)
    }
}
