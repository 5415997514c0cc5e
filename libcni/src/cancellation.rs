//! Cancelling operations in progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

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
