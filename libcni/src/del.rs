//! DEL under the attachment's lock: by which configuration, for which plugins, with which result and namespace.

use crate::chain::Chain;
use crate::deadlines::Limits;
use crate::error::Error;
use crate::inventory::Inventory;
use crate::lock::LockGuard;
use crate::{AttachmentId, Cached, Namespace, NetworkConf, PluginObject, Runtime, RuntimeConf, name, orphaned_plugin};
use cni_spec::{CniError, Code, Command, NetworkName};
use std::borrow::Cow;
use std::sync::Arc;

impl Runtime {
    pub(crate) async fn lock_for_del(
        &self,
        network: &NetworkName,
        id: &AttachmentId,
    ) -> Result<Option<LockGuard>, Error> {
        let runtime = || self.settings.cache.find(network, id).ok().flatten()?.runtime;
        let is_dead = || runtime().is_some_and(|runtime| matches!(runtime.runs(), Ok(false)));
        self.settings.cache.locks.for_del(network, id, &Limits::of(self), is_dead).await
    }

    pub(crate) async fn del_under_lock(
        &self,
        network: &NetworkConf,
        name: &NetworkName,
        attachment: &RuntimeConf,
    ) -> Result<(), Error> {
        let cached = self.find_cached(name, attachment);
        let own = cached.as_ref().filter(|cached| !cached.is_complete());
        let own = own.and_then(|intent| self.cached_conf(intent).ok());
        self.del_with_fallback(network, own.as_ref(), attachment, cached.as_ref()).await
    }

    /// The configuration that ADD left in the cache.
    pub(crate) fn cached_conf(&self, cached: &Cached) -> Result<NetworkConf, Error> {
        let path = || self.settings.cache.path(&cached.network, &cached.attachment.id);
        let unusable = |error| Error::CachedConf { path: path(), error };
        let network = cached.network_conf().map_err(unusable)?;
        if network.name != cached.network.as_str() {
            let other = format!("it is that of network {:?}", network.name);
            return Err(unusable(CniError::new(Code::INVALID_CONFIG, other)));
        }
        Ok(network)
    }

    /// DEL with one configuration and, where a plugin refuses that, with another one.
    pub(crate) async fn del_with_fallback(
        &self,
        first: &NetworkConf,
        second: Option<&NetworkConf>,
        attachment: &RuntimeConf,
        cached: Option<&Cached>,
    ) -> Result<(), Error> {
        if let Some(running) = cached.and_then(|cached| cached.running.as_ref()) {
            orphaned_plugin::end(running, &Limits::of(self), Command::Del).await?;
        }
        let second = second.filter(|second| second.bytes != first.bytes);
        let first = &self.with_dropped(first, cached);
        match (self.del_with_conf(first, attachment, cached).await, second) {
            (Err(refusal), Some(second)) if refusal.is_refusal() => {
                tracing::warn!(error = refusal.with_causes(), "DEL goes on with the network's other configuration");
                let outcome = self.del_with_conf(second, attachment, cached).await;
                outcome.map_err(|error| match error.to_string() == refusal.to_string() {
                    true => error,
                    false => Error::Several { errors: vec![refusal, error] },
                })
            }
            (outcome, _) => outcome,
        }
    }

    /// The network for DEL, together with the plugins that were part of it at ADD and are no more, as they were then.
    fn with_dropped<'a>(&self, network: &'a NetworkConf, cached: Option<&Cached>) -> Cow<'a, NetworkConf> {
        let had = cached.and_then(|cached| self.cached_conf(cached).ok()).map(|had| had.plugins).unwrap_or_default();
        let is_dropped = |had: &PluginObject| !network.plugins.iter().any(|plugin| plugin.is_alike(had));
        let dropped: Vec<_> = had.into_iter().filter(is_dropped).collect();
        if dropped.is_empty() {
            return Cow::Borrowed(network);
        }
        let types: Vec<_> = dropped.iter().map(|plugin| plugin.plugin_type.as_str()).collect();
        tracing::warn!(
            plugins = types.join(", "),
            "DEL is also for plugins that the network had at ADD and has no more"
        );
        let mut all = network.clone();
        // DEL goes backward. Where only the address plugin is another one, the interface goes first.
        let is_there = |had: &PluginObject| network.plugins.iter().any(|plugin| plugin.plugin_type == had.plugin_type);
        let (first, last): (Vec<_>, Vec<_>) = dropped.into_iter().partition(is_there);
        all.plugins.splice(0..0, first);
        all.plugins.extend(last);
        Cow::Owned(all)
    }

    async fn del_with_conf(
        &self,
        network: &NetworkConf,
        attachment: &RuntimeConf,
        cached: Option<&Cached>,
    ) -> Result<(), Error> {
        let name = name(network)?;
        let version = network.version()?;
        let prev_result = match self.prev_result(cached, version) {
            Ok(result) => result.filter(|_| version.has_check()),
            // DEL must work without a result.
            Err(error) => {
                tracing::warn!(error = error.with_causes(), "DEL goes on without the cached result");
                None
            }
        };
        // The path of a namespace that is gone may now lead to another container's namespace.
        let is_gone =
            |cached: &Cached| cached.attachment.netns == attachment.netns && cached.namespace() == Namespace::Gone;
        let without = cached.is_some_and(is_gone).then(|| attachment.clone().netns(""));
        let attachment = without.as_ref().unwrap_or(attachment);
        let mut chain = Chain::new(self, network, Command::Del);
        // A later process ends the plugin, should this one be killed. DEL needs no cache that can be written.
        // An entry of the oldest format has no room for it, and stays as it is.
        let noting = cached.filter(|cached| !cached.config.is_empty());
        chain.noted = noting.and_then(|cached| self.settings.cache.begin(cached).ok()).map(Arc::new);
        chain.del(attachment, prev_result.as_deref()).await?;
        self.settings.cache.remove(&name, &attachment.id).map(drop)
    }

    /// The cached entry, for DEL, which must work without it.
    pub(crate) fn find_cached(&self, name: &NetworkName, attachment: &RuntimeConf) -> Option<Cached> {
        self.settings.cache.find(name, &attachment.id).unwrap_or_else(|error| {
            tracing::warn!(error = error.with_causes(), "DEL goes on without the cached result");
            None
        })
    }
}

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
