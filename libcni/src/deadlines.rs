//! The time limits of an operation, and its cancellation. How a plugin is ended then: `cni_spec::exec`, `termination.rs`.

use crate::Runtime;
use crate::cancellation::Cancellation;
use cni_spec::{CniError, Code, Command};
use std::time::{Duration, Instant};
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
