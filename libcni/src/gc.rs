//! GC: the list of valid attachments is made and obeyed while no ADD or DEL of the network runs.

pub(crate) mod keep;

use crate::attachment::AttachmentId;
use crate::cache_entry::Cached;
use crate::call_log::Operation;
use crate::chain::Chain;
use crate::conflist::NetworkConf;
use crate::deadlines::Limits;
use crate::error::Error;
use crate::inventory::{Inventory, OnNode, Survey};
use crate::lock::LockGuard;
use crate::{Runtime, name, operation_spans};
use cni_spec::{Command, NetworkName};
use std::collections::BTreeSet;

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
    _held: LockGuard,
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
    /// Plugins remove everything on the node that is not in the list that they get, whichever runtime has made it. So this
    /// returns a [`Gc`], which has to be told what is on the node.
    ///
    /// The DELs use the cached namespace and arguments with this `network`. An empty `valid` means that nothing is
    /// kept, except for attachments that enter the cache after this call: their ADD may have run while this waited. A
    /// caller that makes `valid` from the cache or the node uses [`Runtime::collection`], so that no ADD runs between
    /// the two. Succeeds without calling a plugin when the network sets `disableGC`.
    pub fn gc<'a>(&'a self, network: &'a NetworkConf, valid: &'a [AttachmentId]) -> Gc<'a> {
        Gc { runtime: self, network, valid }
    }
}

/// A GC that has not begun: it has to be told what is on the node.
#[derive(Debug, Clone, Copy)]
#[must_use = "with_inventory or without_inventory begins it"]
pub struct Gc<'a> {
    runtime: &'a Runtime,
    network: &'a NetworkConf,
    valid: &'a [AttachmentId],
}

impl Gc<'_> {
    /// Examines the node first: what may be in use, and is neither in the list of valid attachments nor in this cache, is
    /// kept, and so is what comes after this look. Returns what was kept. Examining takes milliseconds, in which the calling
    /// thread does nothing else.
    ///
    /// ```no_run
    /// # async fn example(runtime: libcni::Runtime, network: libcni::NetworkConf, node: &(dyn libcni::inventory::Inventory + Sync))
    /// # -> Result<(), libcni::Error> {
    /// let live = [libcni::RuntimeConf::new("c1", "eth0").map_err(libcni::Error::Invalid)?.id];
    /// for found in runtime.gc(&network, &live).with_inventory(node).await? {
    ///     eprintln!("kept {}: {}", found.objects.join(", "), found.life);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Every error that happened, as one or as [`Error::Several`]. [`Error::Invalid`] if the node cannot be examined, or has
    /// something in use whose mark does not name its attachment: no plugin has run then.
    pub async fn with_inventory(self, node: &(dyn Inventory + Sync)) -> Result<Vec<OnNode>, Error> {
        let Self { runtime, network, valid } = self;
        if network.disable_gc {
            return Ok(Vec::new());
        }
        let known = runtime.stale(network, &[])?;
        let others: Vec<_> = known.iter().map(|cached| cached.attachment.id.clone()).collect();
        let collection = Collection { cached: known, ..runtime.locked(network).await? };
        // For what is in this cache the list decides.
        let is_to_go = |found: &OnNode| found.id.as_ref().is_some_and(|id| others.contains(id));
        let survey = Survey::of(node, network, valid, &others, is_to_go)?;
        let kept = survey.kept.clone();
        collection.gc(&survey).await?;
        Ok(kept)
    }

    /// Does not examine the node: pods of other runtimes, and of other caches, on the same network lose what they have, if
    /// they are not in the list, however alive they are.
    ///
    /// # Errors
    /// Every error that happened, as one or as [`Error::Several`]; an unreadable cache folder is one of them.
    pub async fn without_inventory(self) -> Result<(), Error> {
        let Self { runtime, network, valid } = self;
        if network.disable_gc {
            return Ok(());
        }
        let (cached, error) = match runtime.listed() {
            Ok(listing) => (listing.cached, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let collection = Collection { cached, ..runtime.locked(network).await? };
        // Entries that cannot be read now cannot be read later, and one error reports them.
        collection.without_inventory(valid).await.and(error.map_or(Ok(()), Err))
    }
}

impl Collection<'_> {
    /// The network's attachments in the cache.
    #[must_use]
    pub fn cached(&self) -> &[Cached] {
        &self.cached
    }

    /// As [`Gc::with_inventory`], for the attachments that the cache had when the collection began. Those that another
    /// runtime has added to the same cache since are valid. What is on the node and was neither there nor in the cache when
    /// the survey was made stays.
    ///
    /// # Errors
    /// As [`Gc::with_inventory`].
    pub async fn gc(self, survey: &Survey) -> Result<(), Error> {
        let valid = survey.all_valid()?;
        let cached = self.cached.iter().map(|cached| &cached.attachment.id);
        let seen: BTreeSet<_> = survey.seen().chain(cached).collect();
        let seen: Vec<_> = seen.into_iter().cloned().collect();
        self.run(&valid, Some(&seen)).await
    }

    /// As [`Gc::without_inventory`], for the attachments that the cache had when the collection began.
    ///
    /// # Errors
    /// As [`Gc::without_inventory`].
    pub async fn without_inventory(self, valid: &[AttachmentId]) -> Result<(), Error> {
        self.run(valid, None).await
    }

    async fn run(&self, valid: &[AttachmentId], seen: Option<&[AttachmentId]>) -> Result<(), Error> {
        let about = Operation::on(&self.runtime, Command::Gc, self.network, None);
        operation_spans::operation(about, self.run_in_span(valid, seen)).await
    }

    async fn run_in_span(&self, valid: &[AttachmentId], seen: Option<&[AttachmentId]>) -> Result<(), Error> {
        if self.network.disable_gc {
            return Ok(());
        }
        let (mut errors, mut valid) = (Vec::new(), valid.to_vec());
        // Broken files were reported when the collection began.
        match self.runtime.settings.cache.list(None) {
            Ok(listing) => {
                for cached in listing.stale(&self.name, &valid) {
                    match self.cached.iter().any(|before| before.is_unchanged(&cached)) {
                        true => errors.extend(self.del(&cached).await.err()),
                        false => valid.push(cached.attachment.id),
                    }
                }
                errors.extend(self.runtime.settings.cache.remove_unfinished().err());
            }
            Err(error) => errors.push(error),
        }
        if self.network.version()?.has_gc() {
            errors.extend(Chain::new(&self.runtime, self.network, Command::Gc).gc(&valid, seen).await);
        }
        Error::join(errors).map_or(Ok(()), Err)
    }

    async fn del(&self, cached: &Cached) -> Result<(), Error> {
        let Cached { attachment, .. } = cached;
        let about = Operation::on(&self.runtime, Command::Del, self.network, Some(&attachment.id));
        operation_spans::operation(about, async {
            self.runtime.del_under_lock(self.network, &self.name, attachment).await
        })
        .await
    }
}
