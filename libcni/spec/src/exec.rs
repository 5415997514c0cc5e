//! A call of a plugin executable (SPEC 3, "Plugin execution").
//!
//! The child gets the caller's environment with every `CNI_*` variable set anew, the config on stdin, and a deadline.
//! The child's stdout is read until the child *ends*, not until the pipe closes: a grandchild that holds the pipe open
//! does not delay the caller.

use self::pipe::{Limited, Reading, Tail};
use self::start_error::Unstartable;
use crate::Command;
use crate::error::{CniError, Code};
use crate::names::PluginPath;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::ffi::OsString;
use std::future::poll_fn;
use std::io::{self, PipeReader, PipeWriter, Write};
use std::iter;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until};

pub use self::child::Child;

/// The maximum size of a plugin's output. A result has some kilobytes; more means that the plugin is faulty.
pub const MAX_STDOUT_BYTES: usize = 16 << 20;
/// The bytes of stderr that are kept for an error text.
pub const KEPT_STDERR_BYTES: usize = 8 << 10;
/// The characters of stdout that an error text shows.
const STDOUT_CHARS: usize = 1000;
/// How long a terminated plugin may clean up before it is killed.
pub const GRACE: Duration = Duration::from_secs(5);
/// The time to wait for the end of a killed plugin. One that waits for a device or a file system may take any time.
const KILLED: Duration = Duration::from_secs(1);
/// The default deadline: the time that kubelets give a whole operation.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(220);
/// The longest deadline, a century: a later moment may be none that the clock can show.
pub const DEADLINE_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// The time for which a start is retried while the executable is being written (`ETXTBSY`): until the reference's sixth attempt.
const BUSY_TIME: Duration = Duration::from_secs(5);

/// The `CNI_*` variables of a call (SPEC 2, "Parameters"). All are always set, some to empty text.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CallEnv {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`.
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS`.
    pub args: String,
    /// `CNI_PATH`.
    pub path: PluginPath,
    /// More variables, such as `TRACEPARENT`.
    pub more: Vec<(String, String)>,
}

/// The process group that the child joins, which decides how far a signal reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Group {
    /// A group of its own, so that ending the child ends its children too. Runtimes use this.
    Own,
    /// The caller's group, so that ending the caller ends the child too. Delegation uses this.
    Callers,
}

/// Receives stderr as it comes. `Sync`, so that a call may be part of a task that moves between threads.
pub type StderrSink = Box<dyn FnMut(&[u8]) + Send + Sync>;

/// The destination of the child's stderr.
#[non_exhaustive]
pub enum Stderr {
    /// The caller's own stderr.
    Inherit,
    /// A sink, as it comes; its end is kept for error texts.
    To(StderrSink),
}

impl Stderr {
    /// The caller's own stderr as a sink: unlike [`Stderr::Inherit`], its end is kept for error texts.
    #[must_use]
    pub fn passed_on() -> Self {
        // If the caller's stderr is closed, that cannot be reported.
        Self::To(Box::new(|bytes| drop(io::stderr().write_all(bytes))))
    }
}

/// How a plugin ended, and its output.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Output {
    /// Exit code, or the signal that ended it.
    pub exit: Exit,
    /// All of stdout.
    pub stdout: Vec<u8>,
    /// The end of stderr, if it was not inherited.
    pub stderr: String,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The process ended by itself, with this status.
    Code(i32),
    /// The process was ended by a signal.
    Signal(i32),
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal(signal.unwrap_or(0)),
        }
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit status {code}"),
            Exit::Signal(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "killed by {signal}"),
                Err(_) => write!(f, "killed by signal {number}"),
            },
        }
    }
}

impl Output {
    /// The output of a plugin that printed nothing on stderr.
    #[must_use]
    pub fn new(exit: Exit, stdout: Vec<u8>) -> Self {
        Self { exit, stdout, stderr: String::new() }
    }

    /// The plugin's output, if it succeeded.
    ///
    /// # Errors
    /// The plugin's own error object, also when it exited with 0; otherwise code 108 with the end of its stderr.
    pub fn into_stdout(self) -> Result<Vec<u8>, CniError> {
        match self.error_object() {
            Some(error) => Err(error),
            None => self.unless_failed(),
        }
    }

    /// The error object that the plugin printed, if any. One without text gets its code and stdout as text.
    #[must_use]
    pub fn error_object(&self) -> Option<CniError> {
        let mut error = CniError::find_in(&self.stdout)?;
        if error.msg.trim().is_empty() {
            let stdout = String::from_utf8_lossy(&self.stdout);
            let stdout: String = stdout.trim().chars().take(STDOUT_CHARS).collect();
            error.msg = format!("the plugin gives no reason: code {}, stdout {stdout:?}", error.code.0);
        }
        Some(error)
    }

    /// The plugin's output, if its exit status is 0: for callers that have checked [`Output::error_object`].
    ///
    /// # Errors
    /// Code 108 with the end of its stderr.
    pub fn unless_failed(self) -> Result<Vec<u8>, CniError> {
        if self.exit == Exit::Code(0) {
            return Ok(self.stdout);
        }
        let stdout = String::from_utf8_lossy(&self.stdout);
        let msg = match (stdout.trim(), self.stderr.trim()) {
            ("", "") => format!("netplugin failed with no error message: {}", self.exit),
            ("", stderr) => format!("netplugin failed: {stderr:?}"),
            (stdout, stderr) => format!(
                "netplugin failed but its stdout is no error object: stdout {:?}, stderr {stderr:?}",
                stdout.chars().take(STDOUT_CHARS).collect::<String>()
            ),
        };
        Err(CniError::new(Code::DELEGATE, msg).detail(format!("How it ended: {}.", self.exit)))
    }
}

/// Starts a process: [`std::process::Command::spawn`], or what does so in a cgroup or security context of its own.
pub type Spawn<'a> = &'a (dyn Fn(&mut std::process::Command) -> io::Result<std::process::Child> + Send + Sync);

/// A call, ready to run.
#[non_exhaustive]
pub struct Execution<'a> {
    /// The executable.
    pub executable: &'a Path,
    /// `CNI_COMMAND`.
    pub command: Command,
    /// The other variables.
    pub env: &'a CallEnv,
    /// The network config.
    pub stdin: &'a [u8],
    /// Process group.
    pub group: Group,
    /// Where stderr goes.
    pub stderr: Stderr,
    /// When the plugin is terminated (SIGTERM), and [`GRACE`] later is killed.
    pub deadline: Duration,
    /// What starts the process.
    pub spawn: Spawn<'a>,
}

impl<'a> Execution<'a> {
    /// A call of a plugin in a process group of its own, with the caller's stderr and [`DEFAULT_DEADLINE`].
    #[must_use]
    pub fn new(executable: &'a Path, command: Command, env: &'a CallEnv, stdin: &'a [u8]) -> Self {
        let (group, stderr, deadline) = (Group::Own, Stderr::Inherit, DEFAULT_DEADLINE);
        Self { executable, command, env, stdin, group, stderr, deadline, spawn: &std::process::Command::spawn }
    }
}

/// Runs a plugin once: [`start`] and [`Started::finish`]. Dropping the future terminates the plugin and, [`GRACE`]
/// later, kills it.
///
/// # Errors
/// Code 108 if it cannot be started, 104 after the deadline, 5 if its pipes fail, 108 if it prints more than
/// [`MAX_STDOUT_BYTES`]. Its exit status is not checked: see [`Output::into_stdout`].
pub async fn run(call: Execution<'_>) -> Result<Output, CniError> {
    start(call).await?.finish().await
}

/// Starts a plugin, which does not get the end of its config before [`Started::finish`]: without that it has no valid
/// JSON, and so cannot begin. For callers that have to record the process, or have to know whether it began, as a
/// rollback has nothing to undo otherwise. If the caller dies before, the plugin's config is incomplete.
///
/// # Errors
/// Code 108 if it cannot be started.
pub async fn start(call: Execution<'_>) -> Result<Started<'_>, CniError> {
    // A caller that polls without an event loop, to save its cost, gets one now.
    poll_fn(|_| if Handle::try_current().is_ok() { Poll::Ready(()) } else { Poll::Pending }).await;
    let until = Instant::now() + call.deadline.min(DEADLINE_MAX);
    let (stdin, feed) = Feed::new(call.stdin).map_err(|error| cannot_start(call.executable, &error))?;
    let child = spawn_unless_busy(command(&call, stdin), &call).await?;
    let running = Running { child: Some(child), group: call.group, terminated: false };
    Ok(Started { call, running, feed, until })
}

/// A plugin that waits for the end of its config. Dropping this terminates it and, [`GRACE`] later, kills it.
pub struct Started<'a> {
    call: Execution<'a>,
    running: Running,
    feed: Feed<'a>,
    until: Instant,
}

impl Started<'_> {
    /// The plugin's pid, which no other process gets until [`Started::finish`] has waited for its end.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        self.running.child.as_ref()?.pid()
    }

    /// Sends the rest of the config and reads the output until the plugin ends.
    ///
    /// # Errors
    /// As [`run`], except that it has been started.
    pub async fn finish(self) -> Result<Output, CniError> {
        self.finish_unless(std::future::pending()).await
    }

    /// As [`Started::finish`], but if `stop` returns an error, terminates the plugin and, [`GRACE`] later, kills it,
    /// and returns that error.
    ///
    /// # Errors
    /// As [`Started::finish`], and `stop`'s error.
    pub async fn finish_unless(self, stop: impl Future<Output = CniError>) -> Result<Output, CniError> {
        self.finish_or_end(stop, GRACE, std::future::pending()).await
    }

    /// As [`Started::finish_unless`], but a terminated plugin is killed after `grace`, or when `hurry` ends.
    ///
    /// # Errors
    /// As [`Started::finish_unless`].
    pub async fn finish_or_end(
        self,
        stop: impl Future<Output = CniError>,
        grace: Duration,
        hurry: impl Future<Output = ()>,
    ) -> Result<Output, CniError> {
        let Started { call, mut running, feed, until } = self;
        let plugin = call.executable.display().to_string();
        let broken = |error: io::Error| CniError::new(Code::IO, format!("cannot talk to plugin {plugin}: {error}"));
        let stop = async {
            tokio::select! {
                error = stop => error,
                () = sleep_until(until) => CniError::new(
                    Code::TIMEOUT,
                    format!(
                        "cannot finish {} of plugin {plugin}: it did not end within {} ms",
                        call.command,
                        call.deadline.as_millis()
                    ),
                ),
            }
        };
        let why = tokio::select! {
            output = running.talk(feed, call.stderr) => {
                return output.map_err(broken)?.ok_or_else(|| {
                    CniError::new(
                        Code::DELEGATE,
                        format!("cannot use plugin {plugin}: it printed more than {MAX_STDOUT_BYTES} bytes"),
                    )
                });
            }
            why = stop => why,
        };
        Err(why.detail(match running.end(grace, hurry).await {
            true => "It was sent SIGTERM, and SIGKILL where that did not end it.",
            false => "It was sent SIGTERM and SIGKILL, and has not ended: it may wait for a device or a file system.",
        }))
    }
}

/// Starts the child, and retries while its executable is open for writing. There is no event to wait for that is not
/// itself a race.
#[expect(clippy::disallowed_methods, reason = "nothing announces that a file is no longer open for writing")]
async fn spawn_unless_busy(mut command: std::process::Command, call: &Execution<'_>) -> Result<Child, CniError> {
    for pause in busy_pauses() {
        match (call.spawn)(&mut command) {
            Err(error) if error.raw_os_error() == Some(Errno::ETXTBSY as i32) => sleep(pause).await,
            outcome => return outcome.map(Child::of).map_err(|error| cannot_start(call.executable, &error)),
        }
    }
    (call.spawn)(&mut command).map(Child::of).map_err(|error| cannot_start(call.executable, &error))
}

/// The pauses between the attempts. They grow from 5 ms to a second, the reference's, and the last attempt is after
/// [`BUSY_TIME`].
fn busy_pauses() -> impl Iterator<Item = Duration> {
    let growing =
        iter::successors(Some(Duration::from_millis(5)), |pause| Some((*pause * 2).min(Duration::from_secs(1))));
    growing.scan(BUSY_TIME, |left, pause| {
        let pause = pause.min(*left);
        *left -= pause;
        (!pause.is_zero()).then_some(pause)
    })
}

fn cannot_start(executable: &Path, error: &io::Error) -> CniError {
    let Unstartable { cause, remedy } = Unstartable::find(executable, error);
    CniError::new(Code::DELEGATE, format!("cannot start plugin {}: {cause}", executable.display())).detail(remedy)
}

fn command(call: &Execution<'_>, stdin: PipeReader) -> std::process::Command {
    let mut command = std::process::Command::new(call.executable);
    command
        .env("CNI_COMMAND", call.command.as_str())
        .env("CNI_CONTAINERID", &call.env.container_id)
        .env("CNI_NETNS", &call.env.netns)
        .env("CNI_IFNAME", &call.env.ifname)
        .env("CNI_ARGS", &call.env.args)
        .env("CNI_PATH", OsString::from(call.env.path.to_string()))
        .envs(call.env.more.iter().map(|(key, value)| (key, value)))
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(match call.stderr {
            Stderr::Inherit => Stdio::inherit(),
            Stderr::To(_) => Stdio::piped(),
        });
    if call.group == Group::Own {
        command.process_group(0);
    }
    command
}

/// A started child. Dropping it before its end terminates it.
struct Running {
    child: Option<Child>,
    group: Group,
    terminated: bool,
}

impl Running {
    /// Writes the child's stdin and reads its output until it ends. `None`: the output was too large.
    async fn talk(&mut self, feed: Feed<'_>, stderr: Stderr) -> io::Result<Option<Output>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let mut stdout = Reading::new(receiver(child.process.stdout.take())?, Limited::new(MAX_STDOUT_BYTES));
        let mut stderr = Reading::new(receiver(child.process.stderr.take())?, Tail::new(stderr, KEPT_STDERR_BYTES));
        let status = {
            let talk = async { tokio::try_join!(feed.finish(), stdout.read_to_end(), stderr.read_to_end()).map(drop) };
            let mut talk = std::pin::pin!(talk);
            let mut closed = false;
            loop {
                tokio::select! {
                    status = child.wait() => break status?,
                    outcome = &mut talk, if !closed => { outcome?; closed = true; }
                }
            }
        };
        stdout.drain()?;
        stderr.drain()?;
        self.child = None;
        let stdout = stdout.into_taken().into_bytes();
        Ok(stdout.map(|stdout| Output { exit: status.into(), stdout, stderr: stderr.into_taken().into_text() }))
    }
}

/// A pipe from a child, read through the event loop.
fn receiver(pipe: Option<impl Into<OwnedFd>>) -> io::Result<Option<Receiver>> {
    pipe.map(|pipe| Receiver::from_owned_fd(pipe.into())).transpose()
}

mod child;
mod pipe;
mod start_error;
mod termination;

/// The rest of a child's config: its last character, without which it is no valid JSON, and what did not fit into the
/// pipe before that (64 KiB as a rule, pipe(7)). Dropping it leaves the child with an incomplete config.
pub(super) struct Feed<'a> {
    writer: PipeWriter,
    rest: &'a [u8],
}

impl<'a> Feed<'a> {
    /// A pipe for the child to read from, filled.
    /// Errors: the kernel cannot create a pipe.
    pub(super) fn new(input: &'a [u8]) -> io::Result<(PipeReader, Self)> {
        let (reader, writer) = io::pipe()?;
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let last = input.trim_ascii_end().len().saturating_sub(1);
        let count = fill(&writer, &input[..last])?;
        Ok((reader, Self { writer, rest: &input[count..] }))
    }

    /// Writes the rest, as the child reads. A plugin need not read its config: a closed pipe is no error.
    pub(super) async fn finish(self) -> io::Result<()> {
        let written = async {
            let count = fill(&self.writer, self.rest)?;
            match &self.rest[count..] {
                [] => Ok(()),
                rest => Sender::from_owned_fd(self.writer.into())?.write_all(rest).await,
            }
        };
        match written.await {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Writes as much as fits, and returns how much that was.
fn fill(writer: &PipeWriter, bytes: &[u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < bytes.len() {
        match nix::unistd::write(writer, &bytes[count..]) {
            Ok(more) => count += more,
            Err(Errno::EAGAIN) => break,
            Err(Errno::EINTR) => (),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests;
