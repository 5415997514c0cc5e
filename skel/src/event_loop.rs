//! When a process gets its event loop.
//!
//! Creating one takes a fifth of the instructions of a short call, and most calls never wait, as the kernel answers a
//! netlink request while it is sent. So [`crate::run`] polls without one first, and creates it when the work waits.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;
use tokio::runtime::Handle;

/// When a plugin has an event loop, which tokio's timers, sockets, processes and tasks need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventLoop {
    /// The event loop is made at the start of each verb.
    Always,
    /// At the first wait. For verbs that wait through [`crate::Delegate`], [`crate::interrupted`] and other functions
    /// that call [`ready`]; any other use of tokio before that panics.
    WhenWaiting,
}

thread_local! {
    /// Whether this thread polls without an event loop, so that tokio, which sets itself up for the question, need not be asked.
    static IS_WITHOUT: Cell<bool> = const { Cell::new(false) };
}

/// Waits until there is an event loop; the wait itself causes its creation.
pub async fn ready() {
    let is_there = || !IS_WITHOUT.get() && Handle::try_current().is_ok();
    poll_fn(|_| if is_there() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// As long as this is kept, the thread polls without an event loop.
pub(crate) struct Without(());

impl Without {
    pub(crate) fn begin() -> Self {
        IS_WITHOUT.set(true);
        Self(())
    }
}

impl Drop for Without {
    fn drop(&mut self) {
        IS_WITHOUT.set(false);
    }
}

/// Waits until the event loop is there if the plugin's verbs rely on it.
pub(crate) async fn as_needed(wanted: EventLoop) {
    match wanted {
        EventLoop::Always => ready().await,
        EventLoop::WhenWaiting => {}
    }
}
