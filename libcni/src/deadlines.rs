//! The time limits of an operation, and its cancellation. How a plugin is ended then: `cni_spec::exec`, `termination.rs`.

use crate::Runtime;
use cni_spec::{CniError, Code, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::sleep_until;

#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// How long each plugin may take.
    pub(crate) each: Duration,
    /// The time at which all calls have to end, and the name of that limit for error texts.
    until: Option<Instant>,
    whole: &'static str,
    /// The cancellation of the operation.
    cancellation: Option<Cancellation>,
    /// The cancellation that kills plugins that were terminated: those of a rollback, too.
    hurry: Option<Cancellation>,
}

impl Limits {
    pub(crate) fn of(runtime: &Runtime) -> Self {
        Self {
            each: runtime.settings.plugin_deadline,
            until: runtime.bounded().until,
            whole: "the whole operation",
            cancellation: runtime.cancellation.clone(),
            hurry: runtime.cancellation.clone(),
        }
    }

    /// The limits of a rollback that begins now: an operation that ran out of time or was cancelled is rolled back too.
    pub(crate) fn of_rollback(runtime: &Runtime) -> Self {
        Self {
            each: runtime.settings.plugin_deadline,
            until: runtime.settings.rollback_deadline.and_then(|limit| Instant::now().checked_add(limit)),
            whole: "the rollback",
            cancellation: None,
            hurry: runtime.cancellation.clone(),
        }
    }

    /// The time limit of the next plugin.
    /// Errors: code 104 or 109 when it may not be started.
    pub(crate) fn time_left(&self, command: Command) -> Result<Duration, CniError> {
        if self.cancellation.as_ref().is_some_and(Cancellation::is_cancelled) {
            return Err(called_off(command));
        }
        let Some(until) = self.until else { return Ok(self.each) };
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(self.passed(command)),
            left => Ok(self.each.min(left)),
        }
    }

    /// Waits until the operation is cancelled, and returns the error.
    pub(crate) async fn cancelled(&self, command: Command) -> CniError {
        match &self.cancellation {
            Some(cancellation) => cancellation.cancelled().await,
            None => std::future::pending().await,
        }
        called_off(command)
    }

    /// Waits until plugins that were terminated are to be killed, from now on.
    pub(crate) fn hurried(&self) -> impl Future<Output = ()> {
        let since = self.hurry.as_ref().map_or(0, Cancellation::hurries);
        async move {
            match &self.hurry {
                Some(hurry) => hurry.hurried(since).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until the operation is cancelled or its time is over, and returns which as an error.
    pub(crate) async fn reached(&self, command: Command) -> CniError {
        let passed = async {
            match self.until {
                Some(until) => sleep_until(until.into()).await,
                None => std::future::pending().await,
            }
            self.passed(command)
        };
        tokio::select! {
            error = self.cancelled(command) => error,
            error = passed => error,
        }
    }

    fn passed(&self, command: Command) -> CniError {
        CniError::new(Code::TIMEOUT, format!("cannot start {command}: the deadline of {} has passed", self.whole))
    }
}

fn called_off(command: Command) -> CniError {
    CniError::new(Code::INTERRUPTED, format!("cannot finish {command}: the operation was cancelled"))
}

/// Cancels every operation of the [`crate::Runtime`]s that it was given to. Clones share their state.
///
/// ```
/// # use libcni::{Cancellation, Runtime};
/// # let runtime = Runtime::builder().build();
/// let cancellation = Cancellation::default();
/// let runtime = runtime.cancelled_by(cancellation.clone());
/// // ... in a signal handler's task, or when the pod is deleted while it is being set up:
/// cancellation.cancel();
/// assert!(cancellation.is_cancelled());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Cancellation(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_cancelled: AtomicBool,
    /// How often plugins that do not end were to be killed.
    hurries: AtomicUsize,
    changed: Notify,
}

impl Cancellation {
    /// Cancels the operations; this cannot be reverted.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }

    /// Returns whether [`Cancellation::cancel`] was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::SeqCst)
    }

    /// Cancels the operations, and kills (SIGKILL) the plugins that have got SIGTERM and have not ended yet. Each call is for the
    /// plugins of that moment: those of a rollback that comes after have their time.
    pub fn hurry(&self) {
        self.cancel();
        self.0.hurries.fetch_add(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }

    /// How often [`Cancellation::hurry`] was called.
    pub(crate) fn hurries(&self) -> usize {
        self.0.hurries.load(Ordering::SeqCst)
    }

    /// Waits until [`Cancellation::hurry`] was called more often than this.
    pub(crate) async fn hurried(&self, since: usize) {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if self.hurries() > since {
                return;
            }
            changed.await;
        }
    }

    /// Waits until it is cancelled.
    pub async fn cancelled(&self) {
        let mut changed = std::pin::pin!(self.0.changed.notified());
        // Registration comes before the check, so that no cancellation in between is missed.
        changed.as_mut().enable();
        if !self.is_cancelled() {
            changed.await;
        }
    }
}
