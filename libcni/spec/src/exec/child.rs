//! A child process, whose end the event loop announces by a descriptor of the process: without SIGCHLD, for which tokio needs a
//! socket pair, and panics where there is none.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;

/// The longest time between two looks at a child, where nothing announces its end.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// A child process that is waited for by an event loop.
#[derive(Debug)]
pub struct Child {
    /// The child with its pipes; [`Child::wait`] waits for its end.
    pub process: std::process::Child,
    /// Readable when the child has ended; `None` where the kernel gives no such descriptor (Linux before 5.3; seccomp; too many open files).
    end: Option<AsyncFd<OwnedFd>>,
    has_ended: bool,
}

impl Child {
    /// Starts a child. There must be an event loop.
    ///
    /// # Errors
    /// The child cannot be started.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(Self::of)
    }

    /// Waits for a child that was started elsewhere. There must be an event loop.
    #[must_use]
    pub fn of(process: std::process::Child) -> Self {
        let pidfd = pidfd_open(rustix::process::Pid::from_child(&process), PidfdFlags::empty());
        let end = pidfd.map_err(io::Error::from).and_then(watched);
        let end = end.inspect_err(|error| tracing::debug!(%error, "nothing announces the end of a child")).ok();
        Self { process, end, has_ended: false }
    }

    /// The child's pid, until it was waited for.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        let pid = i32::try_from(self.process.id()).ok().filter(|_| !self.has_ended)?;
        Some(Pid::from_raw(pid))
    }

    /// Waits for the child's end. May be dropped at any await.
    ///
    /// # Errors
    /// The kernel cannot wait for it.
    #[expect(clippy::disallowed_methods, reason = "nothing else announces the end of a child here")]
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let mut pause = Duration::from_millis(1);
        loop {
            let mut announced = match &self.end {
                Some(end) => Some(end.readable().await?),
                None => None,
            };
            if let Some(status) = self.process.try_wait()? {
                self.has_ended = true;
                return Ok(status);
            }
            match &mut announced {
                // One that is traced has not ended for its parent until its tracer knows of it, which is announced, too.
                Some(announced) => announced.clear_ready(),
                None => {
                    sleep(pause).await;
                    pause = PAUSE_MAX.min(pause * 2);
                }
            }
        }
    }
}

#[expect(deprecated, reason = "the successor is unsafe for types that might close their descriptor; this one does not")]
fn watched(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(pidfd, Interest::READABLE)
}
