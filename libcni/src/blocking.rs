//! Callers without an event loop, and work that waits in the kernel, on a thread of its own.

use crate::error::Error;
use cni_spec::{CniError, Code};
use std::io;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Waits for an operation of a [`Runtime`](crate::Runtime), in an event loop of its own: `wait(runtime.add(&network, &web))`.
///
/// # Errors
/// The operation's own; [`Error::NoEventLoop`]: the kernel gives none, or this thread is in one, and would stop it.
pub fn wait<T>(operation: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let none = |why: &str| Error::NoEventLoop(CniError::new(Code::IO, format!("cannot wait for an operation: {why}")));
    if Handle::try_current().is_ok() {
        return Err(none("this thread runs an event loop: await the operation there"));
    }
    let events = Builder::new_current_thread().enable_io().enable_time().build();
    events.map_err(|error| none(&format!("the kernel gave no event loop: {error}")))?.block_on(operation)
}

/// Runs `work` on a thread of its own while the caller's event loop goes on. If the future is dropped, the work goes on.
///
/// `tokio::task::spawn_blocking` does the same, but panics where no thread can be made, as in a cgroup whose processes are
/// at their limit.
///
/// # Errors
/// `EAGAIN`, with a sentence: no thread can be made. Another error: `work` panicked.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (sender, receiver) = oneshot::channel();
    let started = std::thread::Builder::new().name("cni-aside".into()).spawn(move || drop(sender.send(work())));
    started.map_err(|error| io::Error::new(error.kind(), format!("cannot make a thread: {error}")))?;
    receiver.await.map_err(|_panic| io::Error::other("a thread ended before its work"))
}
