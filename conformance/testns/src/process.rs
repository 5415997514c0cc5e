//! A child process with input, output and a deadline.

use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::must::Must;

/// How a process ended, and its output.
#[derive(Debug, Clone)]
pub struct Output {
    /// Exit status or signal.
    pub status: ExitStatus,
    /// All of its stdout.
    pub stdout: String,
    /// All of its stderr.
    pub stderr: String,
    /// From start to end.
    pub elapsed: Duration,
}

impl Output {
    /// Exit code; a signal counts as 128 and its number, as in a shell.
    #[must_use]
    pub fn code(&self) -> i32 {
        let signal = self.status.signal().map(|signal| 128 + signal);
        self.status.code().or(signal).unwrap_or(-1)
    }
}

enum News {
    Ended(std::io::Result<ExitStatus>),
    Stdout(String),
    Stderr(String),
}

/// Writes a file of which no child of another thread holds a descriptor.
///
/// Until a child executes its program, it has all descriptors of the process that starts it. If one of them writes a file,
/// that file is closed later than its writer closes it: a watch reports a change, and `execve` fails with `ETXTBSY`.
///
/// # Errors
/// What the kernel says of the file.
///
/// # Panics
/// When the kernel refuses a thread or a table of descriptors.
pub fn write_unshared(path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> std::io::Result<()> {
    let (path, content) = (path.as_ref(), content.as_ref());
    let write = || {
        unshare(CloneFlags::CLONE_FILES).must("leave the table of descriptors");
        std::fs::write(path, content)
    };
    thread::scope(|scope| scope.spawn(write).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs a command to its end in a process group of its own.
///
/// Any program may be run this way: it sees the network and mount namespaces of the calling thread.
///
/// # Panics
/// When it cannot be started, and when it (or a child that holds its output) is not through within `deadline`: the
/// group is killed first.
#[track_caller]
pub fn run(command: Command, stdin: &[u8], deadline: Duration) -> Output {
    let what = format!("run {} within {} ms", command.get_program().display(), deadline.as_millis());
    try_run(command, stdin, deadline).must(what)
}

/// As [`run`], or `None` when it is not through within `deadline`.
///
/// # Panics
/// When it cannot be started.
#[track_caller]
pub fn try_run(mut command: Command, stdin: &[u8], deadline: Duration) -> Option<Output> {
    let start = Instant::now();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let what = format!("run {}", command.get_program().display());
    let mut child = command.process_group(0).spawn().must(&what);
    let group = group_of(&child);
    let (news, reports) = channel();
    thread::scope(|scope| {
        let feed = child.stdin.take();
        scope.spawn(move || feed.map(|mut pipe| pipe.write_all(stdin))); // a reader may end early: EPIPE
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (to_out, to_err) = (news.clone(), news.clone());
        scope.spawn(move || report(&to_out, News::Stdout(read_all(out))));
        scope.spawn(move || report(&to_err, News::Stderr(read_all(err))));
        scope.spawn(move || report(&news, News::Ended(child.wait())));
        let output = collect(&reports, start, deadline);
        if output.is_none() {
            killpg(group, Signal::SIGKILL).ok(); // lets the scope's threads end
        }
        output
    })
}

pub(crate) fn group_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

fn read_all(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes).ok(); // what came before an error still counts
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn report(news: &Sender<News>, report: News) {
    news.send(report).ok(); // the receiver is gone once the deadline has passed
}

fn collect(reports: &Receiver<News>, start: Instant, deadline: Duration) -> Option<Output> {
    let (mut status, mut stdout, mut stderr) = (None, None, None);
    let mut elapsed = Duration::ZERO;
    while status.is_none() || stdout.is_none() || stderr.is_none() {
        match reports.recv_timeout(deadline.saturating_sub(start.elapsed())).ok()? {
            News::Ended(ended) => {
                elapsed = start.elapsed();
                status = Some(ended.ok()?);
            }
            News::Stdout(text) => stdout = Some(text),
            News::Stderr(text) => stderr = Some(text),
        }
    }
    Some(Output { status: status?, stdout: stdout?, stderr: stderr?, elapsed })
}
