//! When a process gets its event loop.
//!
//! Making one takes a fifth of the instructions of a short call, and most calls wait for nothing, as the kernel answers
//! a netlink request while it is sent. So [`crate::run`] polls without one first, and makes it when the work waits.

use crate::plugin::Plugin;
use std::future::poll_fn;
use std::task::Poll;
use tokio::runtime::Handle;

/// When a plugin has an event loop, and may so use what needs one: timers, sockets, processes and tasks of tokio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventLoop {
    /// From the start of each verb.
    Always,
    /// Once something waits. For verbs that wait by [`crate::Delegate`], [`crate::interrupted`] and what else begins with
    /// [`ready`]; any other use of tokio before that panics.
    WhenWaiting,
}

/// Waits until there is an event loop, which there is in the end: waiting has it made.
pub async fn ready() {
    poll_fn(|_| if Handle::try_current().is_ok() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Waits for what the plugin's verbs rely on.
pub(crate) async fn as_needed_by<P: Plugin>() {
    match P::EVENT_LOOP {
        EventLoop::Always => ready().await,
        EventLoop::WhenWaiting => {}
    }
}
