//! Waits for the folder's lock without blocking the event loop, so that SIGTERM is handled.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::channel::oneshot;
use netops::lock::Lock;
use netops::{Errno, OpError};

/// The reference's permissions.
const BITS: u32 = 0o750;

/// Takes the lock `path`, on a thread of its own if it is held. If the caller goes away meanwhile, the thread drops the
/// lock.
///
/// # Errors
/// The lock file cannot be made; the deadline passed, with the holder of the lock.
pub(super) async fn take(path: &Path, deadline: Duration) -> Result<Lock, OpError> {
    match Lock::try_take(path, BITS) {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => wait(path.to_owned(), deadline).await,
        // CHECK, and DEL of an absent reservation, need no writable store.
        Err(error) if error.os_errno() == Some(Errno::EROFS) => Lock::take_existing(path, deadline),
        Err(error) => Err(error),
    }
}

async fn wait(path: PathBuf, deadline: Duration) -> Result<Lock, OpError> {
    tracing::info!(lock = %path.display(), "another process holds the lock: waiting for it");
    let lost = || OpError::state("take", format!("lock {}", path.display()), "the waiting thread ended");
    let (sender, receiver) = oneshot::channel();
    let waiting = path.clone();
    std::thread::Builder::new()
        .spawn(move || drop(sender.send(Lock::take(&waiting, BITS, deadline))))
        .map_err(|error| OpError::io("start", "a thread that waits for the lock", &error))?;
    receiver.await.map_err(|_canceled| lost())?
}
