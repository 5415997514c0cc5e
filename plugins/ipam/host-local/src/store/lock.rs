//! Waits for the folder's lock without blocking the event loop, so that SIGTERM is handled.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::channel::oneshot;
use netops::error::Cause;
use netops::lock::Lock;
use netops::{Errno, OpError};

/// The reference's permissions.
const BITS: u32 = 0o750;

/// How long a call waits before it says for whom.
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes the lock `path`, on a thread of its own if it is held. If the caller goes away meanwhile, the thread drops the
/// lock.
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
        .spawn(move || drop(sender.send(take_with_word(&waiting, deadline))))
        .map_err(|error| OpError::io("start", "a thread that waits for the lock", &error))?;
    receiver.await.map_err(|_canceled| lost())?
}

/// Takes the lock, and says who holds it if that takes long: the runtime may give up first.
fn take_with_word(path: &Path, deadline: Duration) -> Result<Lock, OpError> {
    match Lock::take(path, BITS, deadline.min(PATIENCE)) {
        Err(error) if matches!(error.cause, Cause::Held(_)) && deadline > PATIENCE => {
            tracing::warn!(%error, "still waiting for it");
            let waited_in_all = |mut error: OpError| {
                if let Cause::Held(held) = &mut error.cause {
                    held.waited = deadline;
                }
                error
            };
            Lock::take(path, BITS, deadline.saturating_sub(PATIENCE)).map_err(waited_in_all)
        }
        taken => taken,
    }
}
