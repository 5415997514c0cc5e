//! When a process gets its event loop.
//!
//! Creating one takes a fifth of the instructions of a short call, and most calls never wait, as the kernel answers a
//! netlink request while it is sent. So [`crate::run`] polls without one first, and creates it when the work waits.

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

/// Waits until there is an event loop; the wait itself causes its creation.
pub async fn ready() {
    poll_fn(|_| if Handle::try_current().is_ok() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Waits until the event loop is there if the plugin's verbs rely on it.
pub(crate) async fn as_needed(wanted: EventLoop) {
    match wanted {
        EventLoop::Always => ready().await,
        EventLoop::WhenWaiting => {}
    }
}
