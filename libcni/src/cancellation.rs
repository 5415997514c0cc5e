//! Calling off operations that are under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Calls off every operation of the [`crate::Runtime`]s it was given to. Clones are one and the same.
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
    /// Calls off; there is no way back.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }

    /// Whether it was called off.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::SeqCst)
    }

    /// Waits until it is called off.
    pub async fn cancelled(&self) {
        let mut changed = std::pin::pin!(self.0.changed.notified());
        // Listening comes before looking, so that no call is missed in between.
        changed.as_mut().enable();
        if !self.is_cancelled() {
            changed.await;
        }
    }
}
