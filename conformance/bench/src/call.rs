//! A call of an executable: started as a runtime does it, timed, and checked once the clock has stopped.
//!
//! The clock runs from just before the process is made until a runtime would know the answer: the process has ended,
//! and its stdout and stderr are at their end. `std` starts it by `posix_spawn`, which shares the spawner's memory
//! until the program begins, so that what the spawner weighs does not count.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, killpg};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Longest that a call may take before it counts as failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Where the programs that the reference needs are.
const SEARCH_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// A program to run, and the answer that it has to give.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) stdin: String,
    pub(crate) expect: Expect,
}

/// The expected stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Expect {
    /// Nothing.
    Nothing,
    /// A result with so many addresses.
    Result { addresses: usize },
    /// A JSON object.
    Object,
    /// The versions that a plugin speaks.
    Versions,
}

/// A call that came to its end.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Until a runtime knows the answer.
    pub(crate) wall: Duration,
    start: Instant,
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// The cost of a call, alone on the machine.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// Until a runtime knows the answer.
    pub(crate) wall: Duration,
    /// Until nothing of its processes is left.
    pub(crate) gone: Duration,
    /// User and system time of all of its processes.
    pub(crate) cpu: Duration,
    /// Voluntary and involuntary, of all of its processes.
    pub(crate) switches: i64,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.wall += other.wall;
        self.gone += other.gone;
        self.cpu += other.cpu;
        self.switches += other.switches;
    }
}

impl Call {
    /// A plugin as a runtime calls it: these variables, this stdin, and a `PATH`.
    pub(crate) fn new(program: PathBuf, expect: Expect) -> Self {
        let environment = vec![("PATH".to_owned(), SEARCH_PATH.to_owned())];
        Self { program, arguments: Vec::new(), environment, stdin: String::new(), expect }
    }

    pub(crate) fn variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn stdin(mut self, stdin: impl Into<String>) -> Self {
        self.stdin = stdin.into();
        self
    }

    /// Makes the call while nothing else is called, and waits until nothing of it is left.
    pub(crate) fn timed(&self) -> Result<(Cost, Value), String> {
        let before = spent();
        let ended = self.run()?;
        let gone = testns::orphans::wait(DEADLINE)?.map_or(ended.wall, |end| end - ended.start);
        let after = spent();
        let cost = Cost { wall: ended.wall, gone, cpu: after.0 - before.0, switches: after.1 - before.1 };
        Ok((cost, self.verify(&ended)?))
    }

    /// Makes the call, perhaps at the same time as others; [`Call::verify`] it afterwards.
    pub(crate) fn run(&self) -> Result<Ended, String> {
        self.try_run().map_err(|error| format!("cannot run {}: {error}", self.description()))
    }

    fn try_run(&self) -> io::Result<Ended> {
        let (stdin, mut feed) = io::pipe()?;
        feed.write_all(self.stdin.as_bytes())?; // a pipe holds 64 KiB, and no config here is so long
        drop(feed);
        let (mut stdout, to_stdout) = io::pipe()?;
        let (mut stderr, to_stderr) = io::pipe()?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(stdin).stdout(to_stdout).stderr(to_stderr).process_group(0);

        let start = Instant::now();
        let mut child = command.spawn()?;
        drop(command); // our copies of its ends of the pipes
        let (stdout, stderr) = until_its_end(&child, &mut stdout, &mut stderr).inspect_err(|_| kill(&child))?;
        let status = child.wait()?;
        let wall = start.elapsed();
        Ok(Ended { wall, start, status, stdout, stderr })
    }

    /// Returns what the call printed, if that is what it had to.
    pub(crate) fn verify(&self, ended: &Ended) -> Result<Value, String> {
        self.verify_output(&ended.status, &ended.stdout, &ended.stderr)
    }

    /// As [`Call::verify`], for a call that other code made.
    pub(crate) fn verify_output(&self, status: &ExitStatus, stdout: &[u8], stderr: &[u8]) -> Result<Value, String> {
        let (stdout, stderr) = (String::from_utf8_lossy(stdout), String::from_utf8_lossy(stderr));
        let failure = |what: &str| {
            format!("{}: {what}; stdout {:?}, stderr {:?}", self.description(), stdout.trim(), stderr.trim())
        };
        if !status.success() {
            return Err(failure(&status.to_string()));
        }
        self.expect.verify(&stdout).map_err(|what| failure(&what))
    }

    /// The call in one line.
    pub(crate) fn description(&self) -> String {
        let verb = self.environment.iter().find(|(name, _)| name == "CNI_COMMAND").map(|(_, verb)| verb.as_str());
        let name = self.program.file_name().unwrap_or_default().to_string_lossy();
        let arguments = std::iter::once(name.as_ref()).chain(verb).chain(self.arguments.iter().map(String::as_str));
        arguments.collect::<Vec<_>>().join(" ")
    }
}

impl Expect {
    fn verify(self, stdout: &str) -> Result<Value, String> {
        if self == Self::Nothing {
            return if stdout.is_empty() { Ok(Value::Null) } else { Err("it has to print nothing".to_owned()) };
        }
        let value: Value = serde_json::from_str(stdout).map_err(|error| format!("stdout is not JSON: {error}"))?;
        let count = |key| value.get(key).and_then(Value::as_array).map_or(0, Vec::len);
        match self {
            Self::Object if value.is_object() => Ok(value),
            Self::Object | Self::Nothing => Err("it has to print an object".to_owned()),
            Self::Versions if count("supportedVersions") > 0 => Ok(value),
            Self::Versions => Err("it has to print versions".to_owned()),
            Self::Result { addresses } if count("ips") == addresses => Ok(value),
            Self::Result { addresses } => Err(format!("it has to print {addresses} addresses")),
        }
    }
}

/// Reads until both ends are closed and the process has ended, all within the deadline.
fn until_its_end(child: &Child, stdout: &mut impl Pipe, stderr: &mut impl Pipe) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let pid = rustix::process::Pid::from_child(child);
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (mut out_open, mut err_open, mut runs) = (true, true, true);
    let timeout = PollTimeout::try_from(DEADLINE).unwrap_or(PollTimeout::MAX);
    while out_open || err_open || runs {
        let (is_out, is_err, has_ended) = {
            let wanted = |open| if open { PollFlags::POLLIN } else { PollFlags::empty() };
            let mut fds = Vec::with_capacity(3);
            fds.extend(out_open.then(|| PollFd::new(stdout.as_fd(), wanted(true))));
            fds.extend(err_open.then(|| PollFd::new(stderr.as_fd(), wanted(true))));
            fds.extend(runs.then(|| PollFd::new(process.as_fd(), wanted(true))));
            match poll(&mut fds, timeout) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            let mut ready = fds.iter().map(|fd| fd.any().unwrap_or(false));
            let mut next = |open: bool| open && ready.next().unwrap_or(false);
            (next(out_open), next(err_open), next(runs))
        };
        out_open &= !is_out || read_some(stdout, &mut out)?;
        err_open &= !is_err || read_some(stderr, &mut err)?;
        runs &= !has_ended;
    }
    Ok((out, err))
}

trait Pipe: Read + AsFd {}
impl<T: Read + AsFd> Pipe for T {}

/// Reads what is there; false at the end.
fn read_some(pipe: &mut impl Read, to: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = [0; 4096];
    let length = pipe.read(&mut buffer)?;
    to.extend_from_slice(buffer.get(..length).unwrap_or_default());
    Ok(length > 0)
}

fn kill(child: &Child) {
    killpg(group_of(child), Signal::SIGKILL).ok();
}

fn group_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// CPU time and context switches of all children that were waited for.
pub(crate) fn spent() -> (Duration, i64) {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else {
        return (Duration::ZERO, 0); // refused for an unknown `who` only
    };
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    let switches = usage.voluntary_context_switches() + usage.involuntary_context_switches();
    (Duration::from_micros(microseconds.unsigned_abs()), switches)
}
