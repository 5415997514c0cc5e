//! Changes of mounts. inotify does not report that a folder is mounted over another, or that a mount is detached.
//!
//! The kernel announces that this namespace's mounts changed, but not which (proc_pid_mountinfo(5)). Each open file of
//! this kind has its own state of what it announced. So there are two files: one to check and one to wait for.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The thread's own namespace: that of the process may be different.
const MOUNTS: &str = "/proc/thread-self/mountinfo";

/// Announcements of changed mounts.
#[derive(Debug)]
pub(super) struct Mounts {
    looked_at: File,
    waited_for: AsyncFd<File>,
}

impl Mounts {
    /// # Errors
    /// There is no /proc, or the runtime cannot wait for it.
    #[expect(deprecated, reason = "its successor has to be called with unsafe; a File keeps its one descriptor open")]
    pub(super) fn open() -> io::Result<Self> {
        let waited_for = AsyncFd::with_interest(File::open(MOUNTS)?, Interest::PRIORITY)?;
        Ok(Self { looked_at: File::open(MOUNTS)?, waited_for })
    }

    /// Whether mounts changed since the last call of this. One system call, no waiting.
    pub(super) fn have_changed(&self) -> bool {
        let mut fds = [PollFd::new(self.looked_at.as_fd(), PollFlags::POLLPRI)];
        let is_ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| events.contains(PollFlags::POLLPRI));
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|count| count > 0) && fds.iter().any(is_ready)
    }

    /// Waits until mounts change.
    pub(super) async fn changed(&self) {
        match self.waited_for.ready(Interest::PRIORITY).await {
            Ok(mut ready) => ready.clear_ready(),
            // The runtime is shutting down.
            Err(_) => std::future::pending().await,
        }
    }
}
