//! Work that waits in the kernel, on a thread of its own.

use std::io;
use tokio::sync::oneshot;

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
