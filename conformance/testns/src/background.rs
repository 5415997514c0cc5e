//! A process that runs beside a test, and the lines that it prints.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::must::Must;

/// The deadline of every wait: many tests run at once on small machines.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running process, whose stderr or stdout the test reads. Dropping it kills it.
#[derive(Debug)]
pub struct Background {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Background {
    /// Starts a process whose stderr the test reads, and whose stdout nothing reads.
    pub fn with_stderr(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().must("start the process");
        let lines = lines(child.stderr.take().must("take its stderr"));
        Self { child, lines, seen: Vec::new() }
    }

    /// Starts a process whose stdout the test reads; its stderr is the test's.
    pub fn with_stdout(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().must("start the process");
        let lines = lines(child.stdout.take().must("take its stdout"));
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits for a line with `text` that no earlier wait has passed, and returns it.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        self.wait_for_all([text]);
        self.seen.last().cloned().unwrap_or_default()
    }

    /// Waits until each of the texts has been in a line that no earlier wait has passed, in any order.
    #[track_caller]
    pub fn wait_for_all<S: AsRef<str>>(&mut self, texts: impl IntoIterator<Item = S>) {
        let mut texts: Vec<String> = texts.into_iter().map(|text| text.as_ref().to_owned()).collect();
        let start = Instant::now();
        while !texts.is_empty() {
            match self.lines.recv_timeout(PATIENCE.saturating_sub(start.elapsed())) {
                Ok(line) => {
                    texts.retain(|text| !line.contains(text));
                    self.seen.push(line);
                }
                Err(error) => panic!("{error}: no line has {texts:?}:\n{}", self.seen.join("\n")),
            }
        }
    }

    /// Lets the process run for so long, or until its end: for kills at moments that no line announces.
    pub fn run_for(&mut self, time: Duration) {
        let start = Instant::now();
        while let Ok(line) = self.lines.recv_timeout(time.saturating_sub(start.elapsed())) {
            self.seen.push(line);
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).must("send a signal");
    }

    pub fn end(&mut self, signal: Signal) -> String {
        self.signal(signal);
        self.child.wait().must("wait for the process");
        self.rest()
    }

    /// All lines, once the process has ended.
    pub fn rest(&mut self) -> String {
        self.seen.extend(self.lines.iter());
        self.seen.join("\n")
    }

    /// Waits for the end, and returns the exit code; `None` after a signal.
    #[track_caller]
    pub fn exit_code(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            match self.lines.recv_timeout(PATIENCE.saturating_sub(start.elapsed())) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().must("wait for the process").code(),
                Err(RecvTimeoutError::Timeout) => panic!("it has not ended:\n{}", self.seen.join("\n")),
            }
        }
    }

    pub fn seen(&self) -> &[String] {
        &self.seen
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        BufReader::new(pipe).lines().map_while(Result::ok).all(|line| sender.send(line).is_ok());
    });
    receiver
}
