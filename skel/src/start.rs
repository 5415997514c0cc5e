//! The start of a process whose `main` is C's.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, IntoRawFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use signal_hook::consts::SIGPIPE;

/// Does what Rust's own start does before `main`, and plugins rely on: each standard stream that is closed becomes
/// `/dev/null`, so that no file which a plugin opens becomes its stdout; and a write to a pipe that nothing reads fails with
/// `EPIPE` instead of ending the process.
///
/// # Errors
/// There is no `/dev/null`, or the handler of SIGPIPE cannot be installed.
pub fn start() -> io::Result<()> {
    // In the order of their numbers: a file gets the lowest that is free.
    open_if_closed(io::stdin())?;
    open_if_closed(io::stdout())?;
    open_if_closed(io::stderr())?;
    signal_hook::flag::register(SIGPIPE, Arc::default()).map(drop)
}

fn open_if_closed(stream: impl AsFd) -> io::Result<()> {
    if fcntl(stream, FcntlArg::F_GETFD) == Err(Errno::EBADF) {
        // The file stays open until the process ends.
        let _number = File::options().read(true).write(true).open("/dev/null")?.into_raw_fd();
    }
    Ok(())
}
