//! The start of a process whose `main` is C's.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, IntoRawFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use signal_hook::consts::SIGPIPE;

/// Stack of the first thread, in bytes. An ADD of a bridge uses 52 kB of it, and four times that without optimisation.
const STACK: u64 = 1 << 20;

/// Does what Rust's own start does before `main`, and plugins rely on: each standard stream that is closed becomes
/// `/dev/null`, so that no file which a plugin opens becomes its stdout; and a write to a pipe that nothing reads fails with
/// `EPIPE` instead of ending the process. Also makes sure of a stack that suffices. Where the kernel or a filter of system calls
/// refuses the handler of SIGPIPE, the call goes on without it.
///
/// # Errors
/// A standard stream is closed, and there is no `/dev/null`.
pub fn start() -> io::Result<()> {
    open_closed_streams()?;
    allow_stack();
    signal_hook::flag::register(SIGPIPE, Arc::default()).map(drop).unwrap_or_default();
    Ok(())
}

/// Opens each closed standard stream on /dev/null. One `poll` reports which are closed; where it is refused, each is asked.
fn open_closed_streams() -> io::Result<()> {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let mut streams = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()].map(|fd| PollFd::new(fd, PollFlags::empty()));
    let is_polled = poll(&mut streams, PollTimeout::ZERO).is_ok();
    let is_closed = |stream: &&PollFd<'_>| match is_polled {
        true => stream.revents().is_some_and(|events| events.contains(PollFlags::POLLNVAL)),
        false => fcntl(stream.as_fd(), FcntlArg::F_GETFD) == Err(Errno::EBADF),
    };
    for _ in streams.iter().filter(is_closed) {
        // In the order of their numbers: a file gets the lowest that is free. It stays open until the process ends.
        let _number = File::options().read(true).write(true).open("/dev/null")?.into_raw_fd();
    }
    Ok(())
}

/// The kernel lets the first thread's stack grow as far as the limit allows when it grows. A runtime may have been started with less
/// than plugins need, which those of the reference do not notice: Go has stacks of its own.
fn allow_stack() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_STACK) else { return };
    // Root may raise both; with neither raised, what has room goes on.
    let raise = |most| setrlimit(Resource::RLIMIT_STACK, STACK.min(most), most);
    if soft < STACK {
        raise(hard.max(STACK)).or_else(|_| raise(hard)).unwrap_or_default();
    }
}
