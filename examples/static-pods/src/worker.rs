//! A pod's life: a task that makes it as its manifest requests and keeps it so.
//!
//! All of a worker's state is in its fields, so it may be stopped at any `await` without losing anything; the objects
//! on the node are in the record, so even the fields may be lost. While one worker waits for a plugin, other pods are
//! not affected.

use crate::board::{Phase, PodStatus, Readiness};
use crate::desired::Wanted;
use crate::manifest::{Key, Port};
use crate::network::{Network, Up};
use crate::ports::{Claim, Ports};
use crate::process::Process;
use crate::state::{Record, State};
use crate::{backoff::Backoff, sandbox};
use anyhow::{Context, Result, anyhow};
use pods::libcni::Cancellation;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// What all workers share.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) state: State,
    pub(crate) ports: Ports,
    pub(crate) network: Network,
    pub(crate) readiness: watch::Receiver<Readiness>,
    pub(crate) leaving: watch::Receiver<Leaving>,
    pub(crate) updates: mpsc::UnboundedSender<(Key, PodStatus)>,
    pub(crate) first_retry: Duration,
}

/// Whether this program is about to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Leaving {
    No,
    /// Once all pods are down.
    InOrder,
    /// Now: the next start finishes what is unfinished.
    AtOnce,
}

/// The objects created for the pod.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) record: Record,
    /// The pause process; `None` once it has ended.
    pub(crate) process: Option<Process>,
    /// The pod's network, once that is complete.
    pub(crate) up: Option<Up>,
}

impl Sandbox {
    fn serves(&self, want: Option<&Wanted>) -> bool {
        want.is_some_and(|want| *want.manifest == self.record.manifest) && self.process.is_some() && self.up.is_some()
    }
}

/// The task's state.
#[derive(Debug)]
pub(crate) struct Worker {
    key: Key,
    node: Arc<Node>,
    /// The manifest, or none if the pod is to go.
    want: watch::Receiver<Option<Wanted>>,
    /// At most one, unless an earlier program was interrupted at the wrong moment more than once.
    sandboxes: Vec<Sandbox>,
    /// Ports of the node that the pod has, kept while it is tried again.
    claim: Option<(Vec<Port>, Claim)>,
    backoff: Backoff,
    error: Option<String>,
}

impl Worker {
    pub(crate) fn new(key: Key, node: Arc<Node>, want: watch::Receiver<Option<Wanted>>) -> Self {
        let backoff = Backoff::new(node.first_retry);
        Self { key, node, want, sandboxes: Vec::new(), claim: None, backoff, error: None }
    }

    /// Takes over what an earlier program made.
    pub(crate) fn adopt(&mut self, sandbox: Sandbox) {
        let manifest = &sandbox.record.manifest;
        if let Ok(claim) = self.node.ports.claim(manifest) {
            self.claim = Some((manifest.ports.clone(), claim));
        }
        self.sandboxes.push(sandbox);
    }

    /// Works until the pod is gone, or this program leaves at once.
    pub(crate) async fn run(mut self) {
        let mut leaving = self.node.leaving.clone();
        tokio::select! {
            () = self.work() => (),
            () = at_once(&mut leaving) => self.abandon().await,
        }
        // The ports are free before the pod is reported as gone.
        self.claim = None;
        self.report(if self.sandboxes.is_empty() { Phase::Gone } else { Phase::Left });
    }

    async fn work(&mut self) {
        loop {
            let want = self.want.borrow_and_update().clone();
            let unfit = self.sandboxes.iter().position(|sandbox| !sandbox.serves(want.as_ref()));
            // Sandboxes that are not wanted are removed before a new one is made.
            let unfit = unfit.or_else(|| self.sandboxes.len().checked_sub(1).filter(|extra| *extra > 0));
            match (unfit, want) {
                (Some(unfit), _) => {
                    if let Err(error) = self.take_down(unfit).await {
                        self.fail(&error);
                        if *self.node.leaving.borrow() != Leaving::No {
                            return self.abandon().await;
                        }
                        self.rest(Phase::Stopping).await;
                    }
                }
                (None, None) => return,
                (None, Some(_)) if !self.sandboxes.is_empty() => self.hold().await,
                (None, Some(want)) => {
                    if let Err(error) = self.bring_up(&want).await {
                        self.fail(&error);
                    }
                }
            }
        }
    }

    /// Makes the sandbox and its network, unless the manifest changes meanwhile.
    async fn bring_up(&mut self, want: &Wanted) -> Result<()> {
        if self.backoff.has_failed() && self.rest(Phase::Failed).await == Rested::Changed {
            return Ok(());
        }
        if !self.has_ports(want).await || !(want.manifest.host_network || self.has_network().await) {
            return Ok(());
        }
        self.error = None;
        self.report(Phase::Starting);
        let state = &self.node.state;
        let mut record = state.new_record(&want.manifest, &want.file)?;
        state.save(&record)?;
        let started = sandbox::start(&want.manifest);
        let process = match started {
            Ok((process, go)) => {
                record.pause = Some(process.id());
                // The process is recorded before it can outlive this program.
                state.save(&record).and_then(|()| go.say()).map(|()| process)
            }
            Err(error) => Err(error),
        };
        let (process, failed) = match process {
            Ok(process) => (Some(process), None),
            Err(error) => (None, Some(error)),
        };
        self.sandboxes.push(Sandbox { record, process, up: None });
        failed.map_or(Ok(()), Err)?;
        self.connect().await
    }

    /// Gives the sandbox its network.
    async fn connect(&mut self) -> Result<()> {
        let Self { sandboxes, node, want, .. } = self;
        let Some(Sandbox { record, process: Some(process), up }) = sandboxes.last_mut() else { return Ok(()) };
        let made = if record.manifest.host_network {
            Up::default()
        } else {
            let call_off = Cancellation::default();
            let mut set_up = pin!(node.network.set_up(record, process.id(), call_off.clone()));
            let early = tokio::select! {
                made = &mut set_up => Ok(made?),
                () = process.ended() => Err(Early::Killed),
                _ = want.changed() => Err(Early::Changed),
            };
            match early {
                Ok(made) => made,
                Err(why) => {
                    // Running plugins are terminated, and their changes are rolled back.
                    call_off.cancel();
                    drop(set_up.await);
                    return match why {
                        Early::Killed => Err(anyhow!("the pause process ended while the network was being made")),
                        Early::Changed => {
                            want.mark_changed();
                            Ok(())
                        }
                    };
                }
            }
        };
        node.state.save_resolv_conf(record, &node.network.resolv_conf(&record.manifest, &made))?;
        record.up = true;
        node.state.save(record)?;
        *up = Some(made);
        self.backoff.reset();
        Ok(())
    }

    /// Waits for ports of the node that another pod has; `false` if the manifest changed meanwhile.
    async fn has_ports(&mut self, want: &Wanted) -> bool {
        if self.claim.as_ref().is_some_and(|(ports, _)| *ports == want.manifest.ports) {
            return true;
        }
        self.claim = None;
        loop {
            let given_back = self.node.ports.clone();
            match self.node.ports.claim(&want.manifest) {
                Ok(claim) => {
                    self.claim = Some((want.manifest.ports.clone(), claim));
                    return true;
                }
                Err(taken) => self.wait_for(taken.to_string()),
            }
            tokio::select! {
                () = given_back.given_back() => (),
                _ = self.want.changed() => {
                    self.want.mark_changed();
                    return false;
                }
            }
        }
    }

    /// Waits until pods can have a network; `false` if the manifest changed meanwhile.
    async fn has_network(&mut self) -> bool {
        let mut readiness = self.node.readiness.clone();
        loop {
            let now = readiness.borrow_and_update().clone();
            if let Readiness::Ready { .. } = now {
                return true;
            }
            self.wait_for(format!("network {now}"));
            tokio::select! {
                Ok(()) = readiness.changed() => (),
                _ = self.want.changed() => {
                    self.want.mark_changed();
                    return false;
                }
            }
        }
    }

    /// Waits until the pod is no longer as it is to be.
    async fn hold(&mut self) {
        self.error = None;
        self.report(Phase::Running);
        let Self { sandboxes, want, .. } = self;
        let Some(Sandbox { process: slot @ Some(_), .. }) = sandboxes.last_mut() else { return };
        let Some(process) = slot.as_ref() else { return };
        tokio::select! {
            _ = want.changed() => want.mark_changed(),
            () = process.ended() => {
                let pid = process.id().pid;
                *slot = None;
                self.error = Some(format!("the pause process {pid} ended: it was killed"));
            }
        }
    }

    /// Takes the network down, ends the pause process and forgets the sandbox, in this order.
    async fn take_down(&mut self, index: usize) -> Result<()> {
        self.report(Phase::Stopping);
        let Some(Sandbox { record, process, up }) = self.sandboxes.get_mut(index) else { return Ok(()) };
        *up = None;
        if record.pause.is_some() && !record.manifest.host_network {
            self.node.network.tear_down(record).await?;
        }
        if let Some(process) = process {
            process.end().await;
        }
        self.node.state.forget(record).context("cannot forget the sandbox")?;
        self.sandboxes.remove(index);
        Ok(())
    }

    /// Ends the pause processes; the records stay for the next start.
    async fn abandon(&mut self) {
        for process in self.sandboxes.iter().filter_map(|sandbox| sandbox.process.as_ref()) {
            process.end().await;
        }
    }

    /// Waits before the next try: some time, or until something changes.
    async fn rest(&mut self, phase: Phase) -> Rested {
        self.report(phase);
        let time = self.backoff.next_wait();
        let Self { node, want, backoff, .. } = self;
        let mut readiness = node.readiness.clone();
        readiness.mark_unchanged();
        let changed = async {
            tokio::select! {
                _ = want.changed() => {
                    want.mark_changed();
                    // A changed manifest is tried at once.
                    backoff.reset();
                    Rested::Changed
                }
                // A network's file changed, so the next try may end otherwise.
                Ok(()) = readiness.changed() => Rested::Through,
            }
        };
        tokio::time::timeout(time, changed).await.unwrap_or(Rested::Through)
    }

    fn fail(&mut self, error: &anyhow::Error) {
        self.error = Some(format!("{error:#}"));
        self.backoff.fail();
    }

    fn wait_for(&mut self, what: String) {
        self.error = Some(what);
        self.report(Phase::Waiting);
    }

    fn report(&self, phase: Phase) {
        let sandbox = self.sandboxes.last();
        let up = sandbox.and_then(|sandbox| sandbox.up.clone()).unwrap_or_default();
        let host_network = match (sandbox, &*self.want.borrow()) {
            (Some(sandbox), _) => sandbox.record.manifest.host_network,
            (None, want) => want.as_ref().is_some_and(|want| want.manifest.host_network),
        };
        let status = PodStatus {
            phase,
            addresses: up.addresses,
            networks: up.networks,
            warnings: up.warnings,
            host_network,
            pid: sandbox.and_then(|sandbox| sandbox.process.as_ref()).map(|process| process.id().pid),
            created: sandbox.map(|sandbox| sandbox.record.created),
            error: self.error.clone(),
        };
        // The display may be gone after the program's last output.
        drop(self.node.updates.send((self.key.clone(), status)));
    }
}

/// Waits until this program is to leave at once.
async fn at_once(leaving: &mut watch::Receiver<Leaving>) {
    // The sender lives as long as the program.
    drop(leaving.wait_for(|leaving| *leaving == Leaving::AtOnce).await);
}

/// Why a network is not wanted before it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Early {
    Killed,
    Changed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rested {
    /// The next try is due.
    Through,
    /// The manifest changed, so there may be nothing to try.
    Changed,
}
