//! Garbage collection: removes what is left of sandboxes that no longer exist.

use crate::error::Error;
use crate::handle::{Pods, pod_of};
use crate::lock::Operation;
use crate::pod::PodId;
use crate::{loopback, pod_spans};
use cni_spec::{CniError, Code, ContainerId, IfName};
use libcni::inventory::{Inventory, OnNode, Survey};
use libcni::{AttachmentId, Cached, NetworkConf};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The outcome of a collection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Collected {
    /// The pods that were taken down.
    pub pods: Vec<PodId>,
    /// The networks whose plugins got the list of valid attachments.
    pub networks: Vec<String>,
    /// Objects that may be in use and are in no list, by network: they were kept ([`Pods::gc`]).
    pub kept: Vec<(String, OnNode)>,
}

type Node = dyn Inventory + Send + Sync;

impl Pods {
    /// Takes down cached attachments of sandboxes that are not in `live`. Then calls GC (from version 1.1.0 on) of each
    /// network in the folder, and of each that only the cache has, with the list of valid attachments, so that the
    /// plugins remove all others.
    ///
    /// GC begins when no other operation runs, and other operations wait until it ends. A network with `disableGC` is
    /// left alone, also in the cache. Nothing of a living sandbox is collected: one that is not in the cache counts as
    /// `<prefix>0` on every network, and one with a broken cache file counts by that file's name.
    ///
    /// An attachment that could not be taken down stays valid, as the rest of it has to be removed in order: a
    /// repetition, or [`Pods::tear_down`], tries again.
    ///
    /// Examines the node before it decides which attachments are valid, and keeps those that this cache does not have and
    /// that may be in use: another runtime, or another cache, may have pods on the same network. What comes after the look
    /// stays, too.
    /// Errors: [`Error::Busy`], [`Error::Cache`]; every other error that happened, after all work that was possible.
    pub async fn gc(
        &self,
        live: &[ContainerId],
        node: impl Inventory + Send + Sync + 'static,
    ) -> Result<Collected, Error> {
        self.collect(live, Some(Arc::new(node))).await
    }

    /// As [`Pods::gc`], but does not examine the node: pods of other runtimes, and of other caches, on the same networks
    /// lose what they have, however alive they are.
    /// Errors: as [`Pods::gc`].
    pub async fn gc_without_inventory(&self, live: &[ContainerId]) -> Result<Collected, Error> {
        self.collect(live, None).await
    }

    async fn collect(&self, live: &[ContainerId], node: Option<Arc<Node>>) -> Result<Collected, Error> {
        pod_spans::node(Operation::Gc, live.len(), async { self.collect_in_span(live, node).await }).await
    }

    async fn collect_in_span(&self, live: &[ContainerId], node: Option<Arc<Node>>) -> Result<Collected, Error> {
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
        let runtime = self.runtime(until);
        for conf in confs(choice.usable.iter().map(|conf| (*conf).clone()), &known) {
            // Another process may use the cache, too. It cannot add to the network from here to the end of GC.
            let collection = match runtime.collection(&conf).await {
                Ok(collection) => collection,
                Err(error) => {
                    errors.push(Error::Collect { network: conf.name, error: Box::new(error) });
                    continue;
                }
            };
            let valid = self.valid(&live, &self.cached(None)?)?;
            let outcome = match &node {
                None => Box::pin(collection.without_inventory(&valid)).await,
                Some(node) => match survey(Arc::clone(node), &conf, &valid, &known).await {
                    Ok(survey) => {
                        let kept = survey.kept.iter().map(|found| (conf.name.clone(), found.clone()));
                        collected.kept.extend(kept);
                        Box::pin(collection.gc(&survey)).await
                    }
                    Err(error) => Err(libcni::Error::Invalid(error)),
                },
            };
            match outcome {
                Ok(()) => collected.networks.push(conf.name),
                Err(error) => errors.push(Error::Collect { network: conf.name, error: Box::new(error) }),
            }
        }
        Error::all(errors)?;
        Ok(collected)
    }

    /// The list of valid attachments: all that the cache still has, and those that living sandboxes may have besides.
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

/// Decides about the objects on the node, and logs what belongs to no valid attachment, may be in use, and is not in this
/// cache.
async fn survey(
    node: Arc<Node>,
    conf: &NetworkConf,
    valid: &[AttachmentId],
    known: &[Cached],
) -> Result<Survey, CniError> {
    let (network, valid) = (conf.clone(), valid.to_vec());
    let others: Vec<_> = known.iter().map(|cached| cached.attachment.id.clone()).collect();
    let look = move || {
        // A cached attachment that is not valid is dead, as the caller says.
        let is_to_go = |found: &OnNode| found.id.as_ref().is_some_and(|id| others.contains(id));
        Survey::of(&*node, &network, &valid, &others, is_to_go)
    };
    let survey = libcni::aside(look).await;
    let survey = survey.unwrap_or_else(|error| Err(CniError::new(Code::STATE, error.to_string())))?;
    for OnNode { id, objects, life } in &survey.kept {
        let id = id.as_ref().map(|id| format!("{}/{}", id.container_id, id.ifname)).unwrap_or_default();
        let objects = objects.join(", ");
        tracing::warn!("network {}: kept {id}, which this cache does not know: {life} ({objects})", conf.name);
    }
    Ok(survey)
}

fn key(id: &AttachmentId) -> (ContainerId, IfName) {
    (id.container_id.clone(), id.ifname.clone())
}

/// The networks of the folder, then those that only the cache has, each once.
fn confs(usable: impl Iterator<Item = NetworkConf>, known: &[Cached]) -> Vec<NetworkConf> {
    let mut confs: Vec<NetworkConf> = usable.collect();
    for cached in known.iter().filter(|cached| !loopback::is_loopback(cached)) {
        if confs.iter().any(|conf| conf.name == cached.network.as_str()) {
            continue;
        }
        confs.extend(cached.network_conf());
    }
    confs
}
