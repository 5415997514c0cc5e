//! Waiting for the folder's lock without standing in the way of the runtime's other work, such as SIGTERM.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::channel::oneshot;
use netops::lock::Lock;
use netops::{Errno, OpError};

/// The reference's permissions.
const BITS: u32 = 0o750;

/// Takes the lock `path`, on a thread of its own if it must be waited for. If the caller goes away meanwhile, the
/// thread drops what it gets.
///
/// # Errors
/// The lock file cannot be made; the deadline passed, and who held the lock.
pub(super) async fn take(path: &Path, deadline: Duration) -> Result<Lock, OpError> {
    match Lock::try_take(path, BITS) {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => wait(path.to_owned(), deadline).await,
        // CHECK, and DEL of what is not there, can be answered from a store that cannot be written to.
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
