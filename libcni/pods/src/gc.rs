//! Garbage collection: what is left of sandboxes that are no more.

use crate::error::Error;
use crate::lock::Operation;
use crate::loopback;
use crate::pod::PodId;
use crate::pods::{Pods, pod_of};
use crate::watch;
use cni_spec::{ContainerId, IfName};
use libcni::{AttachmentId, Cached, NetworkConf};
use std::collections::BTreeSet;

/// What a collection did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Collected {
    /// The pods that were taken down.
    pub pods: Vec<PodId>,
    /// The networks that were told which attachments are valid.
    pub networks: Vec<String>,
}

impl Pods {
    /// Takes down what the cache has of sandboxes that are not in `live`, then tells each network of the folder, and each
    /// that only the cache knows, which attachments are valid, so that its plugins remove all others (GC, from version
    /// 1.1.0 on).
    ///
    /// Begins when no other operation runs, and lets none begin. A network that says `disableGC` is left alone, also in the
    /// cache. Nothing of a living sandbox is collected: one that the cache does not know counts as `<prefix>0` on every
    /// network, and one that has a broken cache file counts by that file's name.
    ///
    /// An attachment that could not be taken down is kept valid, as what it still has is to be removed in order: a
    /// repetition, or [`Pods::tear_down`], tries again.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Cache`]; every other error that happened, after going on past it.
    pub async fn gc(&self, live: &[ContainerId]) -> Result<Collected, Error> {
        watch::node(Operation::Gc, live.len(), async { self.gc_in_span(live).await }).await
    }

    async fn gc_in_span(&self, live: &[ContainerId]) -> Result<Collected, Error> {
        let until = self.deadline();
        let _turn = self.inner.locks.node(until).await?;
        let networks = self.networks().await;
        let choice = self.choice(&networks);
        let live: BTreeSet<_> = live.iter().collect();
        let mut collected = Collected::default();
        let is_dead = |cached: &Cached| !live.contains(&cached.attachment.id.container_id);
        let is_collected = |cached: &Cached| {
            let conf = cached.network_conf().ok();
            let disabled = |conf: &NetworkConf| conf.disable_gc;
            !conf.as_ref().is_some_and(disabled) && !choice.find(&cached.network).is_some_and(disabled)
        };
        let known = self.cached(None)?;
        let dead: Vec<_> = known.iter().filter(|cached| is_dead(cached) && is_collected(cached)).cloned().collect();
        let mut errors = self.del_all(&dead, &choice, until).await;
        let left = self.cached(None)?;
        for pod in dead.iter().map(pod_of) {
            let is_left = left.iter().any(|cached| cached.attachment.id.container_id == pod.sandbox);
            if !is_left && !collected.pods.contains(&pod) {
                collected.pods.push(pod);
            }
        }
        let valid = self.valid(&live, &left)?;
        let runtime = self.runtime(until);
        for conf in confs(choice.usable.iter().map(|conf| (*conf).clone()), &known) {
            match Box::pin(runtime.gc(&conf, &valid)).await {
                Ok(()) => collected.networks.push(conf.name),
                Err(error) => errors.push(Error::Collect { network: conf.name, error }),
            }
        }
        Error::all(errors)?;
        Ok(collected)
    }

    /// What is to be kept: all that the cache still has, and what living sandboxes may have beyond it.
    fn valid(&self, live: &BTreeSet<&ContainerId>, left: &[Cached]) -> Result<Vec<AttachmentId>, Error> {
        let mut valid: BTreeSet<_> = left.iter().map(|cached| key(&cached.attachment.id)).collect();
        let broken = self.broken(None)?;
        let first = IfName::parse(&format!("{}0", self.settings().prefix));
        let first = first.map_err(|error| Error::Request(crate::RequestError::Argument(error)))?;
        for id in live {
            let middle = format!("-{id}-");
            let named = broken.iter().filter_map(|name| IfName::parse(name.split_once(&middle)?.1).ok());
            valid.extend(named.map(|ifname| ((*id).clone(), ifname)));
            if !valid.iter().any(|(container, _)| container == *id) {
                valid.insert(((*id).clone(), first.clone()));
            }
        }
        Ok(valid.into_iter().map(|(container_id, ifname)| AttachmentId { container_id, ifname }).collect())
    }
}

fn key(id: &AttachmentId) -> (ContainerId, IfName) {
    (id.container_id.clone(), id.ifname.clone())
}

/// The networks of the folder, then those that only the cache knows, each once.
fn confs(usable: impl Iterator<Item = NetworkConf>, known: &[Cached]) -> Vec<NetworkConf> {
    let mut confs: Vec<NetworkConf> = usable.collect();
    for cached in known.iter().filter(|cached| cached.network.as_str() != loopback::NETWORK) {
        if confs.iter().any(|conf| conf.name == cached.network.as_str()) {
            continue;
        }
        confs.extend(cached.network_conf());
    }
    confs
}
