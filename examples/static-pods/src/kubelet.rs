//! Compares the wanted pods with the existing ones: a worker for each pod, which gets the pod's manifest.

use crate::board::{Board, Phase, PodStatus, Readiness};
use crate::cli::Options;
use crate::desired::{self, Desired, Wanted};
use crate::manifest::Key;
use crate::network::Network;
use crate::ports::Ports;
use crate::screen::{Screen, is_news};
use crate::state::State;
use crate::watcher::Watcher;
use crate::worker::{Leaving, Node, Sandbox, Worker};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};

/// Everything that runs.
struct Kubelet {
    options: Options,
    node: Arc<Node>,
    /// The channel to each worker.
    workers: BTreeMap<Key, watch::Sender<Option<Wanted>>>,
    desired: Desired,
    leaving: watch::Sender<Leaving>,
    board: Board,
    screen: Screen,
}

/// Runs pods until a signal ends it.
pub(crate) async fn run(options: Options) -> Result<ExitCode> {
    let mut signals = Signals::new()?;
    let state = State::open(&options.state_dir)?;
    let mut watcher = Watcher::open(&options.manifests)?;
    let network = Network::open(&options)?;
    let (readiness_sender, readiness) = watch::channel(Readiness::Collecting);
    let (updates, mut updated) = mpsc::unbounded_channel();
    let (leaving, leaving_receiver) = watch::channel(Leaving::No);
    let first_retry = options.retry;
    let ports = Ports::default();
    let node = Node { state, ports, network, readiness, leaving: leaving_receiver, updates, first_retry };
    let screen = Screen::new(options.output);
    let (workers, board, desired) = (BTreeMap::new(), Board::new(), Desired::default());
    let mut kubelet = Kubelet { options, node: Arc::new(node), workers, desired, leaving, board, screen };
    let mut readiness = kubelet.node.readiness.clone();
    let live = kubelet.recover().await?;
    tokio::task::spawn_local(watch_network(kubelet.node.clone(), live, readiness_sender));
    // Ages count in seconds.
    let mut tick = interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        kubelet.screen.show(&kubelet.board);
        if let Some(end) = kubelet.end() {
            return Ok(end);
        }
        tokio::select! {
            biased;
            Some((key, status)) = updated.recv() => {
                kubelet.note(key, status);
                while let Ok((key, status)) = updated.try_recv() {
                    kubelet.note(key, status);
                }
            }
            event = signals.next() => kubelet.handle(event),
            changed = watcher.changed() => {
                changed?;
                kubelet.read();
            }
            Ok(()) = readiness.changed() => kubelet.board.network = readiness.borrow_and_update().clone(),
            _ = tick.tick(), if kubelet.screen.has_ages() => (),
        }
    }
}

impl Kubelet {
    /// Takes over what an earlier program left, then reads the manifests; returns the IDs of the sandboxes.
    async fn recover(&mut self) -> Result<Vec<String>> {
        let (records, problems) = self.node.state.records()?;
        for problem in problems {
            eprintln!("static-pods: {problem}");
        }
        let live = records.iter().map(|record| record.sandbox.clone()).collect();
        let desired = self.read_folder().unwrap_or_default();
        let mut adopted: BTreeMap<Key, Vec<Sandbox>> = BTreeMap::new();
        for record in records {
            let process = self.node.state.process(&record);
            let up = match (record.up, record.manifest.host_network) {
                (false, _) => None,
                (true, true) => Some(crate::network::Up::default()),
                // Where the cache has less than the record, the sandbox is made anew.
                (true, false) => self.node.network.status(&record).await.ok(),
            };
            adopted.entry(record.manifest.key.clone()).or_default().push(Sandbox { record, process, up });
        }
        // Existing pods have their ports before new ones are started.
        let mut starting = Vec::new();
        for (key, sandboxes) in adopted {
            let kept = sandboxes.last().filter(|sandbox| desired.broken.contains(&sandbox.record.file));
            let kept = kept.map(|sandbox| Wanted {
                manifest: Arc::new(sandbox.record.manifest.clone()),
                file: sandbox.record.file.clone(),
            });
            let (sender, want) = watch::channel(desired.find(&key).cloned().or(kept));
            let mut worker = Worker::new(key.clone(), self.node.clone(), want);
            sandboxes.into_iter().for_each(|sandbox| worker.adopt(sandbox));
            self.workers.insert(key, sender);
            starting.push(worker);
        }
        starting.into_iter().for_each(|worker| drop(tokio::task::spawn_local(worker.run())));
        self.apply(desired);
        Ok(live)
    }

    fn read_folder(&mut self) -> Option<Desired> {
        match desired::read(&self.options.manifests) {
            Ok(desired) => Some(desired),
            // The wanted pods are unknown, so nothing is changed.
            Err(error) => {
                let folder = self.options.manifests.display().to_string();
                self.board.problems.insert(folder, vec![format!("cannot list the folder: {error}")]);
                None
            }
        }
    }

    /// Reads the manifests again.
    fn read(&mut self) {
        if *self.leaving.borrow() == Leaving::No {
            let desired = self.read_folder();
            desired.into_iter().for_each(|desired| self.apply(desired));
        }
    }

    /// Sends each worker its manifest, and starts missing workers.
    fn apply(&mut self, desired: Desired) {
        for wanted in &desired.pods {
            let key = &wanted.manifest.key;
            match self.workers.get(key) {
                Some(worker) => send(worker, Some(wanted.clone())),
                None => {
                    let (sender, want) = watch::channel(Some(wanted.clone()));
                    tokio::task::spawn_local(Worker::new(key.clone(), self.node.clone(), want).run());
                    self.workers.insert(key.clone(), sender);
                }
            }
        }
        for (_, worker) in self.workers.iter().filter(|(key, _)| desired.find(key).is_none()) {
            let is_kept = worker.borrow().as_ref().is_some_and(|wanted| desired.broken.contains(&wanted.file));
            if !is_kept {
                send(worker, None);
            }
        }
        self.board.problems = desired.problems.clone();
        self.desired = desired;
    }

    /// Handles a worker's message.
    fn note(&mut self, key: Key, status: PodStatus) {
        if is_news(self.board.pods.get(&key), &status) {
            self.screen.show_change(&key, &status);
        }
        match status.phase {
            Phase::Gone => {
                self.board.pods.remove(&key);
                self.workers.remove(&key);
                // The pod may be wanted again since the worker saw that it was not.
                if *self.leaving.borrow() == Leaving::No && self.desired.find(&key).is_some() {
                    let desired = std::mem::take(&mut self.desired);
                    self.apply(desired);
                }
            }
            Phase::Left => {
                self.board.pods.insert(key.clone(), status);
                self.workers.remove(&key);
            }
            Phase::Waiting | Phase::Starting | Phase::Running | Phase::Failed | Phase::Stopping => {
                self.board.pods.insert(key, status);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::End => self.leave(),
            Event::ReadAgain => self.read(),
        }
    }

    /// The first signal takes all pods down, the second leaves that to the next start.
    fn leave(&mut self) {
        let next = if *self.leaving.borrow() == Leaving::No { Leaving::InOrder } else { Leaving::AtOnce };
        self.leaving.send_replace(next);
        self.workers.values().for_each(|worker| send(worker, None));
    }

    /// The exit status, if there is nothing more to do.
    fn end(&mut self) -> Option<ExitCode> {
        if *self.leaving.borrow() != Leaving::No {
            let all_down = self.board.pods.is_empty();
            return self.workers.is_empty().then_some(if all_down { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        let has_answers = self.board.pods.len() == self.workers.len();
        if self.options.once && has_answers && self.board.is_settled() {
            self.screen.show_once(&self.board);
            return Some(if self.board.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        None
    }
}

fn send(worker: &watch::Sender<Option<Wanted>>, want: Option<Wanted>) {
    worker.send_if_modified(|before| {
        let is_new = *before != want;
        *before = want;
        is_new
    });
}

/// How often STATUS is called, whatever its outcome: kubelets do so, too.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Removes what belongs to no pod, once; then reports whether pods can have a network, and when that changes.
async fn watch_network(node: Arc<Node>, live: Vec<String>, readiness: watch::Sender<Readiness>) {
    if let Err(error) = node.network.collect(&live).await {
        eprintln!("static-pods: cannot collect what earlier runs left: {error:#}");
    }
    loop {
        let now = node.network.readiness().await;
        readiness.send_if_modified(|before| {
            let is_new = *before != now;
            *before = now;
            is_new
        });
        // A plugin may become ready, or cease to be, without any file's changing.
        drop(tokio::time::timeout(ASK_AGAIN, node.network.changed()).await);
    }
}

/// The signals to this program.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Event {
        tokio::select! {
            _ = self.interrupt.recv() => Event::End,
            _ = self.terminate.recv() => Event::End,
            _ = self.hang_up.recv() => Event::ReadAgain,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// SIGTERM, SIGINT.
    End,
    /// SIGHUP.
    ReadAgain,
}
