//! Cancelling operations in progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    changed: Notify,
}

impl Cancellation {
    /// Cancels the operations; this cannot be reverted.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }

    /// Whether it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::SeqCst)
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
