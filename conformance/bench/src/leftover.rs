//! What a call leaves behind: processes that go on after the answer, and the kernel's work on dead namespaces.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::call::DEADLINE;
use crate::station::Station;

/// Makes this process the one that inherits orphans, so that [`wait`] hears of their ends.
///
/// # Errors
/// The kernel refused it.
pub(crate) fn adopt_orphans() -> Result<(), String> {
    set_child_subreaper(true).map_err(|errno| format!("cannot inherit orphaned processes: {errno}"))
}

/// Waits until this process has no child left, and returns the time since `start`; `so_far` if none was left before.
///
/// # Errors
/// Something of these process groups was there after the deadline; it was killed.
pub(crate) fn wait(groups: &[Pid], start: Instant, so_far: Duration, deadline: Duration) -> Result<Duration, String> {
    if !any_left(WaitPidFlag::WNOHANG) {
        return Ok(so_far);
    }
    // No call waits for whatever child with a deadline; so a thread ends what takes too long.
    let (through, is_through) = channel::<()>();
    thread::scope(|scope| {
        let watch = scope.spawn(move || {
            let late = is_through.recv_timeout(deadline).is_err();
            if late {
                groups.iter().for_each(|group| killpg(*group, Signal::SIGKILL).unwrap_or_default());
            }
            late
        });
        while any_left(WaitPidFlag::empty()) {}
        let elapsed = start.elapsed();
        through.send(()).ok(); // it may have given up
        match watch.join() {
            Ok(false) => Ok(elapsed),
            Ok(true) | Err(_) => Err(format!("processes of a call were left after {deadline:?}")),
        }
    })
}

/// Takes note of children that have ended.
pub(crate) fn reap() {
    any_left(WaitPidFlag::WNOHANG);
}

/// Waits for the end of one child, as `flag` says; false when there is none.
fn any_left(flag: WaitPidFlag) -> bool {
    loop {
        match waitpid(None, Some(flag)) {
            Err(Errno::ECHILD) => return false,
            Ok(WaitStatus::StillAlive) | Err(_) => return true,
            Ok(_) => {}
        }
    }
}

/// Waits until the kernel has taken apart the namespaces of nodes and pods that are no more.
///
/// # Errors
/// It is not done within a minute.
pub(crate) fn settle() -> Result<(), String> {
    Station::new()?.run(|node| node.settle(DEADLINE))
}
