//! Garbage collection: what is left of sandboxes that are no more.

use crate::error::Error;
use crate::lock::Operation;
use crate::loopback;
use crate::pod::PodId;
use crate::pods::{Looking, Pods, pod_of};
use crate::watch;
use cni_spec::{CniError, Code, ContainerId, IfName};
use libcni::inventory::{OnNode, Survey};
use libcni::{AttachmentId, Cached, NetworkConf};
use std::collections::BTreeSet;

/// What a collection did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Collected {
    /// The pods that were taken down.
    pub pods: Vec<PodId>,
    /// The networks that were told which attachments are valid.
    pub networks: Vec<String>,
    /// What may live and is in no list, by network: it was kept ([`crate::Builder::inventory`]).
    pub kept: Vec<(String, OnNode)>,
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
            let kept = match self.kept(&conf, &valid, &known).await {
                Ok(kept) => kept,
                Err(error) => {
                    errors.push(Error::Collect { network: conf.name, error: libcni::Error::Invalid(error) });
                    continue;
                }
            };
            let mut valid = valid.clone();
            valid.extend(kept.iter().filter_map(|found| found.id.clone()));
            collected.kept.extend(kept.into_iter().map(|found| (conf.name.clone(), found)));
            match Box::pin(runtime.gc(&conf, &valid)).await {
                Ok(()) => collected.networks.push(conf.name),
                Err(error) => errors.push(Error::Collect { network: conf.name, error }),
            }
        }
        Error::all(errors)?;
        Ok(collected)
    }

    /// What is on the node beside the valid attachments, may live, and is not this cache's.
    ///
    /// # Errors
    /// The node cannot be looked at; the mark of what may live does not tell its attachment, so no list can keep it.
    async fn kept(
        &self,
        conf: &NetworkConf,
        valid: &[AttachmentId],
        known: &[Cached],
    ) -> Result<Vec<OnNode>, CniError> {
        let Some(Looking(inventory)) = self.inner.inventory.clone() else { return Ok(Vec::new()) };
        let (network, valid) = (conf.clone(), valid.to_vec());
        let others: Vec<_> = known.iter().map(|cached| cached.attachment.id.clone()).collect();
        let look = move || {
            // What the cache has and is not valid is dead by the caller's word.
            let is_to_go = |found: &OnNode| found.id.as_ref().is_some_and(|id| others.contains(id));
            Survey::of(&*inventory, &network, &valid, &others, is_to_go)
        };
        let survey = tokio::task::spawn_blocking(look).await;
        let survey = survey.unwrap_or_else(|panic| Err(CniError::new(Code::STATE, panic.to_string())))?;
        survey.keep().map_err(|found| {
            let objects = found.objects.join(", ");
            CniError::new(Code::STATE, format!("cannot keep {objects}: {}, and no mark tells whose it is", found.life))
        })?;
        for OnNode { id, objects, life } in &survey.kept {
            let id = id.as_ref().map(|id| format!("{}/{}", id.container_id, id.ifname)).unwrap_or_default();
            let objects = objects.join(", ");
            tracing::warn!("network {}: kept {id}, which this cache does not know: {life} ({objects})", conf.name);
        }
        Ok(survey.kept)
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
