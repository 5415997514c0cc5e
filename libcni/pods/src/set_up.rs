//! Set-up: loopback, then the networks, all or nothing.

use crate::error::{Error, SetUpError};
use crate::handle::{Order, Pods};
use crate::lock::Operation;
use crate::loopback::{self, Loopback, PodNetns};
use crate::pod::Pod;
use crate::pod_attachments::{self, Planned};
use crate::pod_spans;
use crate::sandbox_state::{self, SandboxState};
use crate::status::Status;
use cni_spec::{AddResult, IfName, NetworkName};
use futures::future::join_all;
use libcni::{Attachment, AttachmentId, NetworkConf};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

impl Pods {
    /// Gives a pod its network: `lo`, then the networks that it requests, or the default one.
    ///
    /// Different networks are set up at the same time, unless [`crate::Builder::order`] says otherwise. If one fails,
    /// the others may finish, within the deadline; then all are taken down, newest first, `lo` last. What could not be
    /// taken down stays in the cache, so that [`Pods::tear_down`] finishes it. `lo` that was up before stays up with
    /// [`crate::Loopback::By`].
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
        match sandbox_state::of(pod, &planned, &cached, &self.settings().loopback).await.map_err(failed)? {
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
        if done.errors.is_empty() {
            let status = Status::of_results(planned, done.results);
            for warning in status.warnings() {
                tracing::warn!("pod {}/{}: {warning}", pod.id.namespace, pod.id.name);
            }
            return Ok(status);
        }
        let begin = Instant::now().min(until);
        let newest_first = done.finished.iter().rev().filter_map(|index| planned.get(*index));
        let mut left = Vec::new();
        // If it was cancelled or out of time, it is rolled back all the same.
        let runtime = self.inner.runtime.until(begin + self.settings().undo_time());
        for Planned { conf, network, attachment } in newest_first {
            let outcome = Box::pin(runtime.del(conf, attachment)).await;
            left.extend(outcome.err().map(|error| network_error(network, &attachment.id.ifname, error)));
        }
        left.extend(self.lo_down(lo, &pod.netns, &runtime).await.err());
        Err(SetUpError { pod: pod.id.clone(), errors: done.errors, left })
    }

    /// Sets up all networks, as far as possible.
    async fn add_all(&self, planned: &[Planned<'_>], until: Instant) -> Done {
        let runtime = self.runtime(until);
        let done = Mutex::new(Progress::default());
        let note = |note: &dyn Fn(&mut Progress)| note(&mut done.lock().unwrap_or_else(PoisonError::into_inner));
        let in_turn = async |group: Vec<usize>| {
            for (index, Planned { conf, network, attachment }) in
                group.into_iter().filter_map(|index| Some((index, planned.get(index)?)))
            {
                match Box::pin(runtime.add(conf, attachment)).await {
                    Ok(result) => note(&|done| {
                        done.finished.push(index);
                        done.results.insert(index, result.clone());
                    }),
                    Err(error) => {
                        let error = network_error(network, &attachment.id.ifname, error);
                        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                        done.errors.insert(index, error);
                        return;
                    }
                }
            }
        };
        join_all(groups(planned, self.settings().order).into_iter().map(in_turn)).await;
        let Progress { results, errors, finished } = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        Done { results: results.into_values().collect(), errors: errors.into_values().collect(), finished }
    }

    /// Sets `lo` up, by the configured method.
    async fn lo_up(&self, pod: &Pod, until: Instant) -> Result<Lo, Error> {
        match &self.settings().loopback {
            Loopback::None => Ok(Lo::Unowned),
            Loopback::By(pod_netns) => match loopback::up(pod_netns, &pod.netns).await? {
                true => Ok(Lo::Callers(Arc::clone(pod_netns))),
                false => Ok(Lo::Unowned),
            },
            Loopback::Plugin => {
                let (conf, attachment) = lo_attachment(pod)?;
                let outcome = Box::pin(self.runtime(until).add(&conf, &attachment)).await;
                outcome.map_err(|error| loopback_error("set up", &error))?;
                Ok(Lo::Plugins(Box::new((conf, attachment))))
            }
        }
    }

    async fn lo_down(&self, lo: Lo, netns: &str, runtime: &libcni::Runtime) -> Result<(), Error> {
        match lo {
            Lo::Unowned => Ok(()),
            Lo::Callers(pod_netns) => loopback::down(&pod_netns, netns).await,
            Lo::Plugins(made) => {
                Box::pin(runtime.del(&made.0, &made.1)).await.map_err(|error| loopback_error("set down", &error))
            }
        }
    }
}

/// The component that set `lo` up, and has to set it down after a failure.
enum Lo {
    /// Nothing to take back: `lo` was up before, or another component sets it up.
    Unowned,
    Callers(Arc<dyn PodNetns>),
    Plugins(Box<(NetworkConf, Attachment)>),
}

/// The outcomes of the networks, by their position in the request.
#[derive(Default)]
struct Progress {
    results: BTreeMap<usize, AddResult>,
    errors: BTreeMap<usize, Error>,
    /// In the order of time.
    finished: Vec<usize>,
}

struct Done {
    results: Vec<AddResult>,
    errors: Vec<Error>,
    finished: Vec<usize>,
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

fn lo_attachment(pod: &Pod) -> Result<(NetworkConf, Attachment), Error> {
    let made = || -> Result<_, cni_spec::CniError> {
        let id = AttachmentId { container_id: pod.id.sandbox.clone(), ifname: IfName::parse(loopback::IFNAME)? };
        let mut attachment = Attachment::from(id).netns(&pod.netns);
        for (key, value) in pod_attachments::pod_args(&pod.id) {
            attachment.args.push(key, &value)?;
        }
        Ok((loopback::network()?, attachment))
    };
    made().map_err(|error| Error::Request(crate::RequestError::Argument(error)))
}

fn loopback_error(verb: &'static str, error: &libcni::Error) -> Error {
    Error::Loopback { verb, reason: error.with_causes() }
}

pub(crate) fn network_error(network: &NetworkName, ifname: &IfName, error: libcni::Error) -> Error {
    Error::Network { network: network.clone(), ifname: ifname.clone(), error: Box::new(error) }
}
