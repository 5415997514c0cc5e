//! Set-up: loopback, then the networks, all or nothing.

use crate::error::{Error, SetUpError};
use crate::handle::{Order, Pods};
use crate::lock::Operation;
use crate::loopback::{self, Loopback};
use crate::pod::Pod;
use crate::pod_attachments::{self, Planned};
use crate::pod_spans;
use crate::status::Status;
use cni_spec::{AddResult, IfName, NetworkName};
use futures::future::join_all;
use libcni::{Cached, Namespace, NetworkConf, RuntimeConf};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

impl Pods {
    /// Gives a pod its network: `lo`, then the networks that it requests, or the default one.
    ///
    /// Different networks are set up at the same time, unless [`crate::Builder::order`] says otherwise. If one fails,
    /// the others may finish, within the deadline; then all are taken down, newest first, `lo` last. What could not be
    /// taken down stays in the cache, so that [`Pods::tear_down`] finishes it.
    ///
    /// A pod that is already set up as requested is left as it is, and its status returned, even if the configuration
    /// has changed since. One whose set-up did not finish, because the runtime ended during it, is taken down first.
    ///
    /// Dropping the future terminates the running plugins and starts no others; nothing is rolled back then. Call
    /// [`Pods::tear_down`] afterwards, which finds in the cache what had begun. [`Pods::cancelled_by`] is the better
    /// way: it rolls back.
    /// Errors: every error of every network, and what the rollback left behind. [`Error::Request`], [`Error::Busy`] and
    /// [`Error::AlreadyUp`] come alone: no plugin has run.
    pub async fn set_up(&self, pod: &Pod) -> Result<Status, SetUpError> {
        pod_spans::pod(Operation::SetUp, &pod.id, async { self.set_up_in_span(pod).await }).await
    }

    async fn set_up_in_span(&self, pod: &Pod) -> Result<Status, SetUpError> {
        let until = self.deadline();
        let failed = |error| SetUpError { pod: pod.id.clone(), errors: vec![error], left: Vec::new() };
        let _turn = self.inner.locks.pod(Operation::SetUp, &pod.id, until).await.map_err(|busy| failed(busy.into()))?;
        let networks = self.networks().await;
        let choice = self.choice(&networks);
        let planned =
            pod_attachments::plan(pod, &choice, &self.settings().prefix).map_err(|error| failed(error.into()))?;
        let cached = self.cached(Some(&pod.id.sandbox)).map_err(failed)?;
        match find_state(pod, &planned, &cached).map_err(failed)? {
            SandboxState::Nothing => {}
            SandboxState::Up(status) => {
                tracing::info!("the pod is up already");
                return Ok(status);
            }
            SandboxState::Unfinished => {
                tracing::warn!(entries = cached.len(), "taking down what an unfinished set-up left");
                let left = Box::pin(self.del_all(&cached, &choice, until)).await;
                Error::all(left).map_err(failed)?;
            }
        }
        self.attach(pod, &planned, until).await
    }

    async fn attach(&self, pod: &Pod, planned: &[Planned<'_>], until: Instant) -> Result<Status, SetUpError> {
        let failed = |error| SetUpError { pod: pod.id.clone(), errors: vec![error], left: Vec::new() };
        let lo = self.lo_up(pod, until).await.map_err(failed)?;
        let done = self.add_all(planned, until).await;
        if done.iter().all(|(_, outcome)| outcome.is_ok()) {
            let results: BTreeMap<_, _> =
                done.into_iter().filter_map(|(index, outcome)| Some((index, outcome.ok()?))).collect();
            let status = Status::of_results(planned, results.into_values());
            for warning in status.warnings() {
                tracing::warn!("pod {}/{}: {warning}", pod.id.namespace, pod.id.name);
            }
            return Ok(status);
        }
        let begin = Instant::now().min(until);
        let mut left = Vec::new();
        // If it was cancelled or out of time, it is rolled back all the same.
        let runtime = self.inner.runtime.until(begin + self.settings().undo_time());
        let newest_first = done.iter().rev().filter(|(_, outcome)| outcome.is_ok());
        for Planned { conf, network, attachment } in newest_first.filter_map(|(index, _)| planned.get(*index)) {
            let outcome = Box::pin(runtime.del(conf, attachment)).await;
            left.extend(outcome.err().map(|error| network_error(network, &attachment.id.ifname, error)));
        }
        if let Some((conf, attachment)) = lo {
            let outcome = Box::pin(runtime.del(&conf, &attachment)).await;
            left.extend(outcome.err().map(|error| loopback::failed("set down", &error)));
        }
        let errors: BTreeMap<_, _> =
            done.into_iter().filter_map(|(index, outcome)| Some((index, outcome.err()?))).collect();
        Err(SetUpError { pod: pod.id.clone(), errors: errors.into_values().collect(), left })
    }

    /// The outcomes of the networks by their position in the request, in the order of time. After an error its group ends.
    async fn add_all(&self, planned: &[Planned<'_>], until: Instant) -> Vec<(usize, Result<AddResult, Error>)> {
        let runtime = self.runtime(until);
        let done = Mutex::new(Vec::new());
        let in_turn = async |group: Vec<usize>| {
            for index in group {
                let Some(Planned { conf, network, attachment }) = planned.get(index) else { continue };
                let outcome = Box::pin(runtime.add(conf, attachment)).await;
                let outcome = outcome.map_err(|error| network_error(network, &attachment.id.ifname, error));
                let is_error = outcome.is_err();
                done.lock().unwrap_or_else(PoisonError::into_inner).push((index, outcome));
                if is_error {
                    return;
                }
            }
        };
        join_all(groups(planned, self.settings().order).into_iter().map(in_turn)).await;
        done.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets `lo` up by the plugin, if that is configured. Returns what a rollback has to delete.
    async fn lo_up(&self, pod: &Pod, until: Instant) -> Result<Option<(NetworkConf, RuntimeConf)>, Error> {
        if self.settings().loopback == Loopback::None {
            return Ok(None);
        }
        let (conf, attachment) = loopback::attachment(pod)?;
        let outcome = Box::pin(self.runtime(until).add(&conf, &attachment)).await;
        outcome.map_err(|error| loopback::failed("set up", &error))?;
        Ok(Some((conf, attachment)))
    }
}

/// The state of a sandbox in the cache, as a set-up finds it.
enum SandboxState {
    Nothing,
    Up(Status),
    /// A set-up began and did not finish, or its namespace is gone.
    Unfinished,
}

/// Compares the request with the cache. The networks' configuration does not count: a pod keeps its network when the
/// file changes.
fn find_state(pod: &Pod, planned: &[Planned<'_>], cached: &[Cached]) -> Result<SandboxState, Error> {
    if cached.is_empty() {
        return Ok(SandboxState::Nothing);
    }
    let networks: Vec<_> = cached.iter().filter(|cached| !loopback::is_loopback(cached)).collect();
    if cached.iter().any(|cached| !cached.is_complete()) || networks.is_empty() {
        return Ok(SandboxState::Unfinished);
    }
    let already = |difference| Error::AlreadyUp { difference };
    for cached in &networks {
        let is_it = |planned: &&Planned| is_same(planned, cached);
        let (network, ifname) = (&cached.network, &cached.attachment.id.ifname);
        match planned.iter().find(is_it).map(|planned| difference(&planned.attachment, &cached.attachment)) {
            None => return Err(already(format!("on network {network} as {ifname}, which is not asked for"))),
            Some(Some(difference)) => return Err(already(format!("{difference} of network {network} is another"))),
            Some(None) => {}
        }
    }
    let is_there = |planned: &Planned| networks.iter().any(|cached| is_same(planned, cached));
    if !planned.iter().all(is_there) {
        return Ok(SandboxState::Unfinished);
    }
    // The same path may now lead to another namespace.
    let is_elsewhere = |cached: &&Cached| cached.namespace() == Namespace::Gone;
    if Namespace::of(&pod.netns) == Namespace::Present && networks.iter().any(is_elsewhere) {
        return Ok(SandboxState::Unfinished);
    }
    Ok(SandboxState::Up(Status::of_cached(networks.iter().copied())?))
}

fn is_same(planned: &Planned<'_>, cached: &Cached) -> bool {
    planned.network == cached.network && planned.attachment.id == cached.attachment.id
}

fn difference(wanted: &RuntimeConf, had: &RuntimeConf) -> Option<&'static str> {
    let capabilities = |attachment: &RuntimeConf| -> BTreeMap<String, String> {
        attachment.capability_args.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    if wanted.netns != had.netns {
        return Some("the network namespace");
    }
    if wanted.args != had.args {
        return Some("an argument (CNI_ARGS)");
    }
    (capabilities(wanted) != capabilities(had)).then_some("a capability argument")
}

/// Groups of attachments: within a group they are set up one after the other; the groups run at the same time.
fn groups(planned: &[Planned<'_>], order: Order) -> Vec<Vec<usize>> {
    if order == Order::InTurn {
        return vec![(0..planned.len()).collect()];
    }
    let mut by_network = BTreeMap::<&NetworkName, Vec<usize>>::new();
    for (index, planned) in planned.iter().enumerate() {
        by_network.entry(&planned.network).or_default().push(index);
    }
    by_network.into_values().collect()
}

pub(crate) fn network_error(network: &NetworkName, ifname: &IfName, error: libcni::Error) -> Error {
    Error::Network { network: network.clone(), ifname: ifname.clone(), error: Box::new(error) }
}
