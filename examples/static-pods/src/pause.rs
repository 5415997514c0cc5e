//! The pause process, which holds a pod's namespaces and does nothing else.
//!
//! The process is this executable under a hidden subcommand. Its parent writes `go` once the pod's record names the
//! process; if its stdin ends before that, it ends too, so a parent that is killed in between leaves none.

use anyhow::{Context, Result, bail};
use nix::sys::signal::{SigSet, Signal};
use std::io::Read;

/// What the parent writes.
pub(crate) const GO: &[u8] = b"go";

/// Waits for the parent's `go`, then for the signal to end.
pub(crate) fn run() -> Result<()> {
    // A session of its own: keys on the parent's terminal, and its hanging up, are not for this process.
    nix::unistd::setsid().context("cannot start a session")?;
    std::fs::write("/proc/self/comm", "pause").context("cannot set the process's name")?;
    close_others().context("cannot close what the parent left open")?;
    let mut word = [0; GO.len()];
    match std::io::stdin().read_exact(&mut word) {
        Ok(()) if word == *GO => until_the_signal_to_end(),
        Ok(()) => bail!("the parent did not say \"go\""),
        Err(error) => Err(error).context("the parent ended before its word to go"),
    }
}

/// Closes inherited files other than the standard three, as another process may wait for their end.
fn close_others() -> std::io::Result<()> {
    let files = std::fs::read_dir("/proc/self/fd")?.flatten();
    let numbers: Vec<i32> = files.filter_map(|file| file.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // EBADF: the folder's own, which is closed again by now.
        nix::unistd::close(number).ok();
    }
    Ok(())
}

/// Waits for one of two signals; all others stay blocked.
fn until_the_signal_to_end() -> Result<()> {
    let signals = SigSet::all();
    signals.thread_block().context("cannot block signals")?;
    loop {
        if let Signal::SIGTERM | Signal::SIGINT = signals.wait().context("cannot wait for signals")? {
            return Ok(());
        }
    }
}
