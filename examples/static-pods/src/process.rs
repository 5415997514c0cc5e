//! The identity of a process: a recycled pid belongs to another process.

use anyhow::{Context, Result, anyhow};
use rustix::process::{PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The unique identity of a process within one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pub(crate) pid: u32,
    /// When it started, in clock ticks since the boot (proc(5), field 22 of `stat`).
    pub(crate) start_ticks: u64,
}

/// A process, by a handle that cannot come to mean another one.
#[derive(Debug)]
pub(crate) struct Process {
    id: ProcessId,
    pidfd: AsyncFd<OwnedFd>,
}

/// Time for a process to end after SIGTERM; it has nothing to clean up.
const GRACE: Duration = Duration::from_secs(2);

impl Process {
    /// A child that has not been waited for.
    pub(crate) fn open_child(pid: u32) -> Result<Self> {
        let pidfd = open(pid)?;
        let (start_ticks, _) = stat(pid).with_context(|| format!("cannot read /proc/{pid}/stat"))?;
        Ok(Self { id: ProcessId { pid, start_ticks }, pidfd })
    }

    /// The process, if it still runs.
    pub(crate) fn find(id: ProcessId) -> Option<Self> {
        // The handle is opened first and the process is examined after: what is seen is the handle's process.
        let pidfd = open(id.pid).ok()?;
        id.runs().then_some(Self { id, pidfd })
    }

    pub(crate) fn id(&self) -> ProcessId {
        self.id
    }

    /// Waits until it has ended, and takes its exit status if it is our child.
    pub(crate) async fn ended(&self) {
        // A pidfd is readable from the end on; an error would come at once again, and to wait is as good.
        self.pidfd.ready(Interest::READABLE).await.ok();
        // Adopted processes are not our children; their reaper waits for them.
        let this = WaitId::PidFd(self.pidfd.get_ref().as_fd());
        rustix::process::waitid(this, WaitIdOptions::EXITED | WaitIdOptions::NOHANG).ok();
    }

    /// Ends it, by force if it does not by itself.
    pub(crate) async fn end(&self) {
        for signal in [Signal::TERM, Signal::KILL] {
            // The process may have ended before: then the wait is short.
            pidfd_send_signal(self.pidfd.get_ref(), signal).ok();
            if tokio::time::timeout(GRACE, self.ended()).await.is_ok() {
                return;
            }
        }
    }
}

#[expect(deprecated, reason = "its successor has to be called with unsafe; an OwnedFd keeps its one descriptor open")]
fn open(pid: u32) -> Result<AsyncFd<OwnedFd>> {
    let raw = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let raw = raw.ok_or_else(|| anyhow!("{pid} is no process"))?;
    let pidfd = pidfd_open(raw, PidfdFlags::NONBLOCK).with_context(|| format!("cannot open process {pid}"))?;
    AsyncFd::with_interest(pidfd, Interest::READABLE).with_context(|| format!("cannot watch process {pid}"))
}

/// Start and state, which stand behind the name in parentheses, whatever that contains.
fn stat(pid: u32) -> Option<(u64, char)> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<(u64, char)> {
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.nth(18)?.parse().ok()?, state))
}

impl ProcessId {
    /// Returns whether the process runs, without opening a handle.
    pub(crate) fn runs(self) -> bool {
        stat(self.pid).is_some_and(|(start_ticks, state)| start_ticks == self.start_ticks && !"ZX".contains(state))
    }

    /// The path of its network namespace.
    pub(crate) fn netns(self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_its_pid_and_its_start() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let own = Process::open_child(std::process::id()).unwrap().id();
            assert!(Process::find(own).is_some());
            assert!(Process::find(ProcessId { start_ticks: own.start_ticks + 1, ..own }).is_none());
            assert!(Process::find(ProcessId { pid: 0, ..own }).is_none());
            assert!(Process::find(ProcessId { pid: u32::MAX, ..own }).is_none());
        });
    }

    #[test]
    fn a_name_may_have_anything_in_it() {
        let text = "7 (a) R b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 3 4";
        assert_eq!(parse_stat(text), Some((4242, 'S')));
        assert_eq!(parse_stat("7 (a"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    #[expect(clippy::zombie_processes, reason = "that it is reaped by its handle is the point")]
    fn an_end_is_noticed_and_made() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
            let process = Process::open_child(child.id()).unwrap();
            assert!(tokio::time::timeout(Duration::from_millis(20), process.ended()).await.is_err());
            process.end().await;
            assert!(Process::find(process.id()).is_none());
            // Reaped: nothing of it is left.
            assert!(!std::path::Path::new(&format!("/proc/{}", child.id())).exists());
        });
    }
}
