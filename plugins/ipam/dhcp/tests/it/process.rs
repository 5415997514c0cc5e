//! A process that runs beside a test, and its log.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long a test waits for a line. Renewals come after seconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running process. Dropping it kills it.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Process {
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = lines(child.stderr.take().unwrap());
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits for a line with `text` that no earlier wait has passed, and returns it.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let start = Instant::now();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE.saturating_sub(start.elapsed())) {
            self.seen.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
        panic!("no line has {text:?}:\n{}", self.seen.join("\n"));
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Sends a signal and waits for the end; returns all that it logged.
    pub(crate) fn end(&mut self, signal: Signal) -> String {
        self.signal(signal);
        self.child.wait().unwrap();
        self.rest()
    }

    /// All that it logs until its end.
    pub(crate) fn rest(&mut self) -> String {
        self.seen.extend(self.lines.iter());
        self.seen.join("\n")
    }

    /// Waits for the end: a process that goes on is a failure.
    #[track_caller]
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            match self.lines.recv_timeout(PATIENCE.saturating_sub(start.elapsed())) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().unwrap().code(),
                Err(RecvTimeoutError::Timeout) => panic!("it has not ended:\n{}", self.seen.join("\n")),
            }
        }
    }

    /// Processor time that it has used, in steps of 10 ms.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        let ticks: u64 = stat.split_whitespace().skip(13).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 10)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
