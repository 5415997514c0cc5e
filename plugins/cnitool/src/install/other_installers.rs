//! Other programs at work in the folder: another `install`, or an installer that writes into a file.

use libcni::{Cancellation, aside};
use netops::lock::Lock;
use std::fmt;
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

/// The lock's file, which is there while an `install` runs, or was killed.
pub(super) const LOCK: &str = ".cni-install.lock";

/// How long one wait for another `install` may take.
const LOCK_DEADLINE: Duration = Duration::from_secs(60);

/// The interval of looks at a file that is being written: inotify reports a close only to watches that existed before it.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// The error that another program is at work. Nothing was changed, and a later try can succeed.
#[derive(Debug)]
pub(super) struct Busy(String);

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Busy {}

impl Busy {
    pub(super) fn error(what: impl Into<String>) -> anyhow::Error {
        Self(what.into()).into()
    }

    pub(super) fn writer(path: &Path) -> anyhow::Error {
        let path = path.display();
        Self::error(format!("cannot replace {path}: another program is writing it; nothing was changed, try again"))
    }

    pub(super) fn is(error: &anyhow::Error) -> bool {
        error.chain().any(|cause| cause.is::<Self>())
    }
}

/// Says what is waited for, and waits until another `install` of the folder has ended, and a moment; `None`: cancelled.
pub(super) async fn wait(error: &anyhow::Error, dir: &Path, cancellation: &Cancellation) -> Option<()> {
    tracing::warn!("{error:#}; it is waited for");
    let path = dir.join(LOCK);
    // At the deadline, or where nothing can wait, the caller's next try tells.
    let ended = aside(move || drop(Lock::take_existing(&path, LOCK_DEADLINE)));
    tokio::select! {
        () = cancellation.cancelled() => return None,
        _ = ended => {}
    }
    timeout(AGAIN, cancellation.cancelled()).await.is_err().then_some(())
}
