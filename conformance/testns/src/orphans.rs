//! Processes that go on after a call's answer.

use std::fs;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Makes this process the parent of orphans among its descendants, so that [`wait`] waits for them. The one that it replaces, PID 1 of
/// a container, may wait for none, or late.
pub fn adopt() -> Result<(), String> {
    set_child_subreaper(true).map_err(|errno| format!("cannot inherit orphaned processes: {errno}"))
}

/// Waits until this process has no child left, and returns when the last one ended; `None` if none was left before.
pub fn wait(deadline: Duration) -> Result<Option<Instant>, String> {
    if !any_left(WaitPidFlag::WNOHANG) {
        return Ok(None);
    }
    // No call waits for whatever child with a deadline; so a thread ends what takes too long.
    let (through, is_through) = channel::<()>();
    thread::scope(|scope| {
        let watch = scope.spawn(move || {
            let late = is_through.recv_timeout(deadline).is_err();
            if late {
                children().into_iter().for_each(|child| kill(child, Signal::SIGKILL).unwrap_or_default());
            }
            late
        });
        while any_left(WaitPidFlag::empty()) {}
        let end = Instant::now();
        through.send(()).ok(); // the watch may have given up
        match watch.join() {
            Ok(false) => Ok(Some(end)),
            Ok(true) | Err(_) => Err(format!("processes of a call were left after {deadline:?}")),
        }
    })
}

fn children() -> Vec<Pid> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids = lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>());
    pids.map(Pid::from_raw).collect()
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
