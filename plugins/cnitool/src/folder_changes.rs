//! Folders whose changes the kernel reports, so that nothing is polled.

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(crate) struct Folders {
    queue: Inotify,
    /// The descriptor for waiting; it is the same queue.
    readable: AsyncFd<OwnedFd>,
}

impl Folders {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let made = || -> io::Result<Self> {
            let queue = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
            let readable = watched(queue.as_fd().try_clone_to_owned()?, Interest::READABLE)?;
            Ok(Self { queue, readable })
        };
        made().context("cannot watch folders")
    }

    /// Watches a folder for these changes; one that is watched already changes nothing.
    /// Errors: `ENOENT`, `ENOTDIR`: there is no such folder. `ENOSPC`: the user has as many watches as it may have.
    pub(crate) fn add(&self, folder: &Path, changes: AddWatchFlags) -> Result<(), Errno> {
        self.queue.add_watch(folder, changes | AddWatchFlags::IN_ONLYDIR).map(|_| ())
    }

    pub(crate) async fn changed(&mut self) -> anyhow::Result<()> {
        self.readable.readable().await.context("cannot watch folders")?.clear_ready();
        Ok(())
    }

    /// Drops the announcements of changes that the next reading sees.
    pub(crate) fn pass_over(&mut self) {
        while self.queue.read_events().is_ok_and(|events| !events.is_empty()) {}
    }
}

/// A descriptor whose events tokio reports.
#[expect(deprecated, reason = "its replacement is unsafe; the descriptor is owned, so it is open all the time")]
pub(crate) fn watched(queue: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(queue, interest)
}
