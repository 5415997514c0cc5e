//! The program as a process that a test starts, reads and ends.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time for whatever is waited for: many tests run at once on small machines.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The program, killed when dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
    /// Every line so far.
    pub(crate) seen: Vec<String>,
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("cannot start static-pods");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        Self { child, lines, seen: Vec::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that begins with `start`, from now on, and returns it.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, start: &str) -> String {
        self.wait_until(&format!("{start}..."), |line| line.starts_with(start))
    }

    /// Waits until each of the beginnings has been a line's, from now on, in any order.
    #[track_caller]
    pub(crate) fn wait_for_all<S: AsRef<str>>(&mut self, starts: impl IntoIterator<Item = S>) {
        let mut starts: Vec<String> = starts.into_iter().map(|start| start.as_ref().to_owned()).collect();
        while !starts.is_empty() {
            let what = starts.join(", ");
            let line = self.wait_until(&what, |line| starts.iter().any(|start| line.starts_with(start)));
            starts.retain(|start| !line.starts_with(start));
        }
    }

    #[track_caller]
    fn wait_until(&mut self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + DEADLINE;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if is_it(&line) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("no line {what} within {DEADLINE:?} after\n{}", self.text()),
                Err(RecvTimeoutError::Disconnected) => panic!("ended without a line {what} after\n{}", self.text()),
            }
        }
    }

    /// Lets it go on for so long, unless it ends before; there is nothing else to wait for.
    pub(crate) fn goes_on_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.seen.push(line);
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("cannot send a signal");
    }

    /// `kill -9`, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.child.wait().expect("cannot wait");
    }

    /// SIGTERM, and the status it ends with once it has taken all down.
    #[track_caller]
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.end()
    }

    /// Waits until it has ended.
    #[track_caller]
    pub(crate) fn end(&mut self) -> ExitStatus {
        let until = Instant::now() + DEADLINE;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Timeout) => panic!("did not end within {DEADLINE:?} after\n{}", self.text()),
                // The program's end closes its stdout, which no other process has open.
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().expect("cannot wait"),
            }
        }
    }

    /// Everything it printed so far.
    pub(crate) fn text(&self) -> String {
        self.seen.join("\n")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// `kill -9` of a process that is no child of the test, until it has ended.
#[track_caller]
pub(crate) fn kill_and_wait(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a process");
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).expect("cannot open it");
    rustix::process::pidfd_send_signal(&process, rustix::process::Signal::KILL).expect("cannot kill it");
    let mut files = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    let deadline = PollTimeout::try_from(DEADLINE).expect("a short time");
    assert_eq!(poll(&mut files, deadline), Ok(1), "{pid:?} did not end");
}

/// The process of a line `pod default/web: Running ... pid=4711`.
#[track_caller]
pub(crate) fn pid_in(line: &str) -> u32 {
    // A warning may follow.
    word(line, "pid=").trim_end_matches(':').parse().expect("a number")
}

/// The first address of a line `pod default/web: Running addresses=10.88.0.2 ...`.
#[track_caller]
pub(crate) fn address_in(line: &str) -> std::net::IpAddr {
    let addresses = word(line, "addresses=");
    addresses.split(',').next().unwrap_or_default().parse().unwrap_or_else(|_| panic!("no address in {line}"))
}

#[track_caller]
fn word<'a>(line: &'a str, key: &str) -> &'a str {
    line.split(' ').find_map(|word| word.strip_prefix(key)).unwrap_or_else(|| panic!("no {key} in {line}"))
}
