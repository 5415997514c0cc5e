//! GC: the list of valid attachments is made and obeyed while no ADD or DEL of the network runs.

use crate::attachment::AttachmentId;
use crate::call_log::Operation;
use crate::chain::Chain;
use crate::conflist::NetworkConf;
use crate::entry::Cached;
use crate::error::Error;
use crate::limits::Limits;
use crate::lock::Held;
use crate::{Runtime, name, watch};
use cni_spec::{Command, NetworkName};

/// A network that no ADD or DEL changes until this is dropped: in it the list of valid attachments is made and given to
/// [`Collection::gc`].
///
/// The lock is in the cache's folder, and excludes every process that uses this library on that cache. Runtimes of
/// other libraries do not take it: see [`crate::inventory`]. No other operation of the network may be awaited while it
/// is held, as that would wait for this one.
#[derive(Debug)]
pub struct Collection<'a> {
    runtime: Runtime,
    network: &'a NetworkConf,
    name: NetworkName,
    /// The network's entries when the collection began.
    cached: Vec<Cached>,
    _held: Held,
}

impl Runtime {
    /// Begins a collection of garbage: waits at most 30 seconds until the ADDs and DELs in progress have ended; new
    /// ones then wait for its end, at most for the time that a plugin may take.
    ///
    /// # Errors
    /// [`Error::Locked`], code 11, with the process that holds the lock; [`Error::Cache`]; [`Error::Invalid`] for an
    /// invalid name.
    pub async fn collection<'a>(&self, network: &'a NetworkConf) -> Result<Collection<'a>, Error> {
        let mut collection = self.locked(network).await?;
        collection.cached = self.stale(network, &[])?;
        Ok(collection)
    }

    async fn locked<'a>(&self, network: &'a NetworkConf) -> Result<Collection<'a>, Error> {
        let (runtime, name) = (self.bounded(), name(network)?);
        let _held = self.settings.cache.locks.for_gc(&name, &Limits::of(&runtime)).await?;
        Ok(Collection { runtime, network, name, cached: Vec::new(), _held })
    }

    /// GC: DEL for every cached attachment of the network that is not in `valid`, then, from version 1.1.0 on, GC for
    /// each plugin. Continues after errors.
    ///
    /// The DELs use the cached namespace and arguments with this `network`. An empty `valid` means that nothing is
    /// kept, except for attachments that enter the cache after this call: their ADD may have run while this waited. A
    /// caller that makes `valid` from the cache or the node uses [`Runtime::collection`], so that no ADD runs between
    /// the two. Succeeds without calling a plugin when the network sets `disableGC`.
    ///
    /// # Errors
    /// Every error that happened, as one or as [`Error::Several`]; an unreadable cache folder is one of them.
    pub async fn gc(&self, network: &NetworkConf, valid: &[AttachmentId]) -> Result<(), Error> {
        if network.disable_gc {
            return Ok(());
        }
        let (cached, error) = match self.settings.cache.list(None) {
            Ok(listing) => (listing.cached, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let collection = Collection { cached, ..self.locked(network).await? };
        // What cannot be read now cannot be read then, and one error says it.
        collection.gc(valid).await.and(error.map_or(Ok(()), Err))
    }
}

impl Collection<'_> {
    /// The network's attachments in the cache.
    #[must_use]
    pub fn cached(&self) -> &[Cached] {
        &self.cached
    }

    /// As [`Runtime::gc`], for the attachments that the cache had when the collection began. Those that another
    /// runtime has added to the same cache since are valid.
    ///
    /// # Errors
    /// As [`Runtime::gc`].
    pub async fn gc(self, valid: &[AttachmentId]) -> Result<(), Error> {
        let about = Operation::on(&self.runtime, Command::Gc, self.network, None);
        watch::operation(about, self.gc_in_span(valid)).await
    }

    async fn gc_in_span(&self, valid: &[AttachmentId]) -> Result<(), Error> {
        if self.network.disable_gc {
            return Ok(());
        }
        let (mut errors, mut valid) = (Vec::new(), valid.to_vec());
        match self.runtime.stale(self.network, &valid) {
            Ok(stale) => {
                for cached in stale {
                    match self.cached.iter().any(|before| before.is_unchanged(&cached)) {
                        true => errors.extend(self.del(&cached).await.err()),
                        false => valid.push(cached.attachment.id),
                    }
                }
                errors.extend(self.runtime.settings.cache.remove_unfinished().err());
            }
            Err(error) => errors.push(error),
        }
        if self.network.version().map_err(Error::Invalid)?.has_gc() {
            errors.extend(Chain::new(&self.runtime, self.network, Command::Gc).gc(&valid).await);
        }
        Error::join(errors).map_or(Ok(()), Err)
    }

    async fn del(&self, cached: &Cached) -> Result<(), Error> {
        let Cached { attachment, .. } = cached;
        let about = Operation::on(&self.runtime, Command::Del, self.network, Some(&attachment.id));
        watch::operation(about, async { self.runtime.del_under_lock(self.network, &self.name, attachment).await }).await
    }
}
