//! A child process with input, output and a deadline.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};

use crate::must::Must;

/// How a process ended, and its output.
#[derive(Debug, Clone)]
pub struct Output {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    pub elapsed: Duration,
}

impl Output {
    /// Exit code; a signal counts as 128 and its number, as in a shell.
    pub fn code(&self) -> i32 {
        let signal = self.status.signal().map(|signal| 128 + signal);
        self.status.code().or(signal).unwrap_or(-1)
    }
}

/// Gives the calling thread a table of descriptors of its own: what it opens from now on, no child of another thread has.
///
/// Until a child executes its program, it has all descriptors of the thread that starts it. What ends with its last
/// descriptor, as a link that is not persistent, then stays for as long; and a file that is written is closed later than its
/// writer closes it: a watch reports a change, and `execve` fails with `ETXTBSY`. `/proc/self/fd` shows the process' first
/// thread's descriptors, not these.
pub fn own_descriptors() {
    unshare(CloneFlags::CLONE_FILES).must("leave the table of descriptors");
}

/// Writes files of which no child of another thread holds a descriptor: see [`own_descriptors`].
pub fn unshared<T: Send>(write: impl FnOnce() -> T + Send) -> T {
    let write = || {
        own_descriptors();
        write()
    };
    thread::scope(|scope| scope.spawn(write).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Writes a file that no child of another thread closes later.
pub fn write_unshared(path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> io::Result<()> {
    let (path, content) = (path.as_ref(), content.as_ref());
    unshared(|| fs::write(path, content))
}

/// Writes a program or script that can be executed as soon as this returns.
pub fn write_executable(path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> io::Result<()> {
    write_unshared(&path, content)?;
    fs::set_permissions(path, Permissions::from_mode(0o755))
}

/// Runs a command to its end in a process group of its own.
///
/// Any program may be run this way: it sees the network and mount namespaces of the calling thread.
#[track_caller]
pub fn run(command: Command, stdin: &[u8], deadline: Duration) -> Output {
    let what = format!("run {} within {} ms", command.get_program().display(), deadline.as_millis());
    try_run(command, stdin, deadline).must(what)
}

/// As [`run`], or `None` when it is not through within `deadline`.
#[track_caller]
pub fn try_run(mut command: Command, stdin: &[u8], deadline: Duration) -> Option<Output> {
    let start = Instant::now();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let what = format!("run {}", command.get_program().display());
    let spawned = command.process_group(0).spawn().map_err(|error| {
        let is_there = error.kind() == io::ErrorKind::NotFound && Path::new(command.get_program()).exists();
        if is_there { "its interpreter or loader is not there".to_owned() } else { error.to_string() }
    });
    let mut child = spawned.must(&what);
    let output = Talk::with(&mut child, stdin).until_the_end(start, deadline);
    if output.is_none() {
        killpg(group_of(&child), Signal::SIGKILL).ok(); // ESRCH: all of the group have ended
        child.wait().must(format_args!("{what} to its end"));
    }
    output
}

/// A child's stdin, stdout, stderr and end, without a thread for each: tests make thousands of calls.
struct Talk<'a> {
    child: &'a mut Child,
    end: OwnedFd,
    feed: Option<ChildStdin>,
    unsent: &'a [u8],
    /// stdout and stderr, while anything may come.
    pipes: [Option<File>; 2],
    texts: [Vec<u8>; 2],
    ended: Option<(ExitStatus, Duration)>,
}

/// A source of events that is ready.
#[derive(Clone, Copy)]
enum Ready {
    Feed,
    Pipe(usize),
    End,
}

impl<'a> Talk<'a> {
    fn with(child: &'a mut Child, stdin: &'a [u8]) -> Self {
        let pid = rustix::process::Pid::from_child(child);
        let end = pidfd_open(pid, PidfdFlags::empty()).must("watch for the end of a child");
        let feed = child.stdin.take();
        if let Some(pipe) = &feed {
            // A child that does not read must not hold up its reader.
            fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).must("make a child's stdin non-blocking");
        }
        let stdout = child.stdout.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        let stderr = child.stderr.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        Self { child, end, feed, unsent: stdin, pipes: [stdout, stderr], texts: Default::default(), ended: None }
    }

    /// Until the child has ended and none has its output any more; `None` if that takes too long.
    fn until_the_end(mut self, start: Instant, deadline: Duration) -> Option<Output> {
        loop {
            if self.unsent.is_empty() {
                self.feed = None;
            }
            if let (Some((status, elapsed)), [None, None]) = (self.ended, &self.pipes) {
                let [stdout, stderr] = self.texts.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
                return Some(Output { status, stdout, stderr, elapsed });
            }
            let left = deadline.checked_sub(start.elapsed())?;
            for ready in self.wait(left) {
                match ready {
                    Ready::Feed => self.send(),
                    Ready::Pipe(which) => self.receive(which),
                    Ready::End => {
                        let elapsed = start.elapsed();
                        let status = self.child.wait().must("see how a child ended");
                        self.ended = Some((status, elapsed));
                    }
                }
            }
        }
    }

    /// Waits no longer than `left` and a millisecond, and returns the sources that are ready.
    fn wait(&self, left: Duration) -> Vec<Ready> {
        let feed = self.feed.iter().map(|pipe| (Ready::Feed, PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)));
        let pipes = self.pipes.iter().enumerate().filter_map(|(which, pipe)| Some((which, pipe.as_ref()?)));
        let pipes = pipes.map(|(which, pipe)| (Ready::Pipe(which), PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
        let end = self.ended.is_none().then(|| (Ready::End, PollFd::new(self.end.as_fd(), PollFlags::POLLIN)));
        let (sources, mut fds): (Vec<Ready>, Vec<PollFd<'_>>) = feed.chain(pipes).chain(end).unzip();
        let timeout = left.saturating_add(Duration::from_millis(1));
        match poll(&mut fds, PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => panic!("cannot wait for a child: {errno}"),
        }
        sources.into_iter().zip(fds).filter(|(_, fd)| fd.any() == Some(true)).map(|(ready, _)| ready).collect()
    }

    fn send(&mut self) {
        match self.feed.as_mut().map(|pipe| pipe.write(self.unsent)) {
            Some(Ok(count)) => self.unsent = &self.unsent[count..],
            Some(Err(error)) if is_passing(&error) => {}
            Some(Err(_)) | None => self.unsent = &[], // a reader may end early: EPIPE
        }
    }

    fn receive(&mut self, which: usize) {
        let mut page = [0; 16 << 10];
        match self.pipes[which].as_mut().map(|pipe| pipe.read(&mut page)) {
            Some(Ok(count @ 1..)) => self.texts[which].extend_from_slice(&page[..count]),
            Some(Err(error)) if is_passing(&error) => {}
            Some(Ok(0) | Err(_)) | None => self.pipes[which] = None, // what came before an error still counts
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

pub(crate) fn group_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}
