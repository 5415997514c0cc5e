//! Compares the wanted pods with the existing ones: a worker for each pod, which gets the pod's manifest.

use crate::folder::{Folder, Wanted};
use crate::manifest::Key;
use crate::network::{Network, Sandbox};
use crate::pod_worker::{Node, Want, Worker};
use crate::ports::Ports;
use crate::{Options, say};
use anyhow::Result;
use nix::libc::{SIGINT, SIGTERM};
use skel::interrupt::Signals;
use std::collections::BTreeMap;
use std::mem;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_local};
use tokio::time::MissedTickBehavior;

/// The time between two questions whether pods can have a network: a plugin may become ready without a change of any file.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Everything that runs.
struct Kubelet {
    node: Arc<Node>,
    /// The channel to each worker.
    workers: BTreeMap<Key, watch::Sender<Want>>,
    tasks: JoinSet<(Key, bool)>,
    /// Sandboxes of earlier runs that no worker has taken over yet.
    adopted: BTreeMap<Key, Vec<Sandbox>>,
    problems: Vec<String>,
}

pub(crate) async fn run(options: Options) -> Result<ExitCode> {
    let mut signals = Signals::hear([SIGINT, SIGTERM]);
    let network = Network::open(&options)?;
    let folder = Folder::open(options.manifests, options.read_again)?;
    let adopted = network.recover().await?;
    let (sender, readiness) = watch::channel(None);
    let node = Arc::new(Node { network, ports: Ports::default(), readiness, first_retry: options.retry });
    spawn_local(watch_network(Arc::clone(&node), sender));
    let mut kubelet = Kubelet { node, workers: BTreeMap::new(), tasks: JoinSet::new(), adopted, problems: Vec::new() };
    loop {
        kubelet.apply(folder.read());
        tokio::select! {
            _ = signals.next() => return kubelet.leave(signals).await,
            changed = folder.changed() => changed?,
            // A pod that went may be wanted again.
            Some(ended) = kubelet.tasks.join_next() => drop(kubelet.workers.remove(&ended?.0)),
        }
    }
}

impl Kubelet {
    fn apply(&mut self, wanted: Wanted) {
        wanted.problems.iter().filter(|problem| !self.problems.contains(problem)).for_each(|problem| say(problem));
        self.problems = wanted.problems;
        let mut absent: Vec<Key> = self.workers.keys().chain(self.adopted.keys()).cloned().collect();
        for manifest in wanted.pods {
            let key = manifest.key();
            absent.retain(|other| *other != key);
            self.want(key, Want::Pod(Arc::new(manifest)));
        }
        // A typing error in a file takes no running pod down.
        if !wanted.is_partial {
            absent.into_iter().for_each(|key| self.want(key, Want::Nothing));
        }
    }

    fn want(&mut self, key: Key, want: Want) {
        if let Some(worker) = self.workers.get(&key) {
            worker.send_if_modified(|before| mem::replace(before, want.clone()) != want);
            return;
        }
        let (sender, receiver) = watch::channel(want);
        let sandboxes = self.adopted.remove(&key).unwrap_or_default();
        self.tasks.spawn_local(Worker::new(key.clone(), Arc::clone(&self.node), receiver, sandboxes).run());
        self.workers.insert(key, sender);
    }

    /// Takes all pods down. A second signal leaves the rest to the next start.
    async fn leave(mut self, mut signals: Signals) -> Result<ExitCode> {
        let all: Vec<Key> = self.workers.keys().chain(self.adopted.keys()).cloned().collect();
        all.into_iter().for_each(|key| self.want(key, Want::Leave));
        let mut outcome = ExitCode::SUCCESS;
        loop {
            tokio::select! {
                _ = signals.next() => return Ok(ExitCode::FAILURE),
                ended = self.tasks.join_next() => match ended.transpose()? {
                    None => return Ok(outcome),
                    Some((_, true)) => {}
                    Some((_, false)) => outcome = ExitCode::FAILURE,
                },
            }
        }
    }
}

/// Removes what belongs to no pod, once; then reports whether pods can have a network, and when that changes.
async fn watch_network(node: Arc<Node>, readiness: watch::Sender<Option<Result<String, String>>>) {
    if let Err(error) = node.network.collect().await {
        eprintln!("static-pods: cannot remove what earlier runs left: {error:#}");
    }
    let mut questions = tokio::time::interval(ASK_AGAIN);
    questions.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        questions.tick().await;
        let now = node.network.readiness().await;
        let is_new = readiness.send_if_modified(|before| before.replace(now.clone()).as_ref() != Some(&now));
        match now {
            _ if !is_new => {}
            Ok(names) => say(&format!("network ready: {names}")),
            Err(reason) => say(&format!("network not ready: {reason}")),
        }
    }
}
