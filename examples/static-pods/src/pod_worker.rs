//! A pod's life: a task that compares what is wanted with what exists, takes the next step, and may be stopped at any point.
//!
//! While one worker waits for a plugin, other pods are not affected.

use crate::manifest::{Key, Manifest};
use crate::network::{Network, Sandbox};
use crate::ports::{Claim, Ports};
use crate::say;
use anyhow::Result;
use pods::libcni::Cancellation;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) network: Network,
    pub(crate) ports: Ports,
    /// The networks' names, or why pods cannot have a network; `None` while remains of earlier runs are being removed.
    pub(crate) readiness: watch::Receiver<Option<Result<String, String>>>,
    pub(crate) first_retry: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Want {
    /// The pod runs as this manifest says.
    Pod(Arc<Manifest>),
    Nothing,
    /// The pod goes, and if that fails, the next start of this program tries again.
    Leave,
}

#[derive(Debug)]
pub(crate) struct Worker {
    key: Key,
    node: Arc<Node>,
    want: watch::Receiver<Want>,
    /// At most one, unless an earlier program was killed at the wrong moment more than once.
    sandboxes: Vec<Sandbox>,
    /// Ports of the node that the pod has, kept while it is tried again.
    claim: Option<Claim>,
    failures: u32,
    /// The last line: it is not said twice in a row.
    said: String,
}

/// The longest time between two tries, as a kubelet's.
const RETRY_MAX: Duration = Duration::from_secs(300);

impl Worker {
    /// A worker that takes over what an earlier program made; a pod that runs as it is to be has its ports from now on,
    /// before any worker starts a new pod.
    pub(crate) fn new(key: Key, node: Arc<Node>, want: watch::Receiver<Want>, sandboxes: Vec<Sandbox>) -> Self {
        let mut worker = Self { key, node, want, sandboxes, claim: None, failures: 0, said: String::new() };
        let wanted = worker.want.borrow().clone();
        if let Want::Pod(manifest) = &wanted
            && worker.sandboxes.iter().any(|sandbox| serves(sandbox, &wanted))
        {
            worker.claim = worker.node.ports.claim(&worker.key, manifest.ports()).ok();
        }
        worker
    }

    /// Works until the pod is gone; `false` if the next start has to take it down.
    pub(crate) async fn run(mut self) -> (Key, bool) {
        loop {
            let want = self.want.borrow_and_update().clone();
            // Sandboxes that do not serve are removed before a new one is made.
            let unfit = self.sandboxes.iter().position(|sandbox| !serves(sandbox, &want));
            let unfit = unfit.or_else(|| self.sandboxes.len().checked_sub(1).filter(|extra| *extra > 0));
            let step = match (unfit, &want) {
                (Some(unfit), _) => self.take_down(unfit).await,
                (None, Want::Pod(manifest)) => self.bring_up(manifest).await,
                (None, Want::Nothing | Want::Leave) => {
                    // The ports are free before the pod is reported as gone.
                    self.claim = None;
                    self.say("Gone");
                    return (self.key, true);
                }
            };
            if let Err(error) = step {
                if want == Want::Leave {
                    self.say(&format!("Left: {error:#}"));
                    return (self.key, false);
                }
                self.say(&format!("Failed: {error:#}"));
                self.rest().await;
            }
        }
    }

    /// Makes the sandbox and its network, then waits; ends once the manifest changes.
    async fn bring_up(&mut self, manifest: &Manifest) -> Result<()> {
        if !self.has_ports(manifest).await {
            return Ok(());
        }
        if manifest.spec.host_network {
            self.say("Running in the node's network");
        } else {
            if self.sandboxes.is_empty() && !(self.has_network().await && self.connect(manifest).await?) {
                return Ok(());
            }
            self.failures = 0;
            let line = self.running();
            self.say(&line);
        }
        self.unless_changed(std::future::pending::<()>()).await;
        Ok(())
    }

    /// Makes the sandbox and its network; `false` if the manifest changed before.
    async fn connect(&mut self, manifest: &Manifest) -> Result<bool> {
        self.say("Starting");
        self.sandboxes.push(self.node.network.sandbox(manifest)?);
        let Self { sandboxes, node, want, .. } = self;
        let Some(sandbox) = sandboxes.last_mut() else { return Ok(false) };
        let call_off = Cancellation::default();
        let mut set_up = pin!(node.network.set_up(&sandbox.id, manifest, call_off.clone()));
        tokio::select! {
            up = &mut set_up => sandbox.up = Some(up?),
            _ = want.changed() => {
                want.mark_changed();
                // Running plugins are terminated, and their changes are rolled back.
                call_off.cancel();
                drop(set_up.await);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for ports of the node that another pod has; `false` if the manifest changed before.
    async fn has_ports(&mut self, manifest: &Manifest) -> bool {
        let ports = manifest.ports();
        if self.claim.as_ref().is_some_and(|claim| claim.ports == ports) {
            return true;
        }
        self.claim = None;
        loop {
            let mut changes = self.node.ports.changes();
            match self.node.ports.claim(&self.key, ports.clone()) {
                Ok(claim) => {
                    self.claim = Some(claim);
                    return true;
                }
                Err(taken) => self.say(&format!("Waiting: {taken}")),
            }
            if !self.unless_changed(changes.changed()).await {
                return false;
            }
        }
    }

    /// Waits until pods can have a network; `false` if the manifest changed before.
    async fn has_network(&mut self) -> bool {
        let mut readiness = self.node.readiness.clone();
        loop {
            let now = readiness.borrow_and_update().clone();
            match now {
                Some(Ok(_)) => return true,
                Some(Err(reason)) => self.say(&format!("Waiting: network not ready: {reason}")),
                None => {}
            }
            if !self.unless_changed(readiness.changed()).await {
                return false;
            }
        }
    }

    async fn take_down(&mut self, index: usize) -> Result<()> {
        self.say("Stopping");
        self.node.network.tear_down(&self.sandboxes[index].id).await?;
        self.sandboxes.remove(index);
        Ok(())
    }

    /// Waits before the next try: longer after each failure, or until the manifest or a network changes.
    async fn rest(&mut self) {
        let factor = 2_u32.saturating_pow(self.failures);
        let time = self.node.first_retry.saturating_mul(factor).min(RETRY_MAX);
        self.failures = self.failures.saturating_add(1);
        let mut readiness = self.node.readiness.clone();
        readiness.mark_unchanged();
        let network_changed = tokio::time::timeout(time, readiness.changed());
        if !self.unless_changed(network_changed).await {
            self.failures = 0;
        }
    }

    /// Waits for an event; `false` if the manifest changed before.
    async fn unless_changed<T>(&mut self, event: impl Future<Output = T>) -> bool {
        tokio::select! {
            _ = event => true,
            _ = self.want.changed() => {
                self.want.mark_changed();
                false
            }
        }
    }

    fn running(&self) -> String {
        let Some(Sandbox { id, up: Some(up) }) = self.sandboxes.last() else { return "Running".to_owned() };
        let addresses: Vec<_> = up.addresses().iter().map(ToString::to_string).collect();
        let networks: Vec<_> = up.networks.iter().map(|at| format!("{}:{}", at.network, at.ifname)).collect();
        let warnings: String = up.warnings().iter().map(|warning| format!(": warning: {warning}")).collect();
        let netns = self.node.network.netns(id);
        let (addresses, networks, netns) = (addresses.join(","), networks.join(","), netns.display());
        format!("Running addresses={addresses} networks={networks} netns={netns}{warnings}")
    }

    fn say(&mut self, phase: &str) {
        if self.said != phase {
            phase.clone_into(&mut self.said);
            say(&format!("pod {}: {phase}", self.key));
        }
    }
}

/// Whether the sandbox is complete, and the wanted one.
fn serves(sandbox: &Sandbox, want: &Want) -> bool {
    let (Want::Pod(manifest), Some(up)) = (want, &sandbox.up) else { return false };
    let is_same = manifest.uid().is_ok_and(|uid| uid == sandbox.id.uid);
    // Of a set-up that was killed, the cache may know the first of two networks only.
    is_same && manifest.networks().is_ok_and(|networks| networks.len() == up.networks.len())
}
