//! A run of the runtime that lasts as long as its container.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use testns::Output;

/// A lasting run: ADD is done when the container's process prints its first line, which it does only once the runtime
/// has let it go, or when the run ends without that. DEL is done when the run has ended.
#[derive(Debug, Clone)]
pub(super) struct ForegroundRun {
    seen: Arc<(Mutex<RunState>, Condvar)>,
    stderr: PathBuf,
    start: Instant,
}

#[derive(Debug, Default)]
struct RunState {
    first_line: Option<String>,
    status: Option<ExitStatus>,
}

impl ForegroundRun {
    /// Starts one, with its stderr in a file: all that was written before a certain moment can be read at that moment.
    pub(super) fn start(mut command: Command, stderr: PathBuf) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&stderr)?);
        let start = Instant::now();
        let mut child = command.spawn()?;
        let seen = Arc::<(Mutex<RunState>, Condvar)>::default();
        let (stdout, received) = (child.stdout.take(), Arc::clone(&seen));
        thread::spawn(move || {
            let mut lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok);
            if let Some(line) = lines.next() {
                notify(&received, |seen| seen.first_line = Some(line));
            }
            lines.for_each(drop); // so that a runtime which prints more is not held up
        });
        let ended = Arc::clone(&seen);
        thread::spawn(move || {
            let status = child.wait().unwrap_or_default();
            notify(&ended, |seen| seen.status = Some(status));
        });
        Ok(Self { seen, stderr, start })
    }

    /// Waits until its container runs or it has ended; `None` if that takes too long.
    pub(super) fn attached(&self, deadline: Duration) -> Option<Output> {
        self.wait(deadline, |seen| seen.first_line.is_some() || seen.status.is_some())
    }

    /// Has a command end the container and waits for the end of the run; `None` if that takes too long. Where there is
    /// none, or it has ended already, there is no container either, and nothing is done.
    pub(super) fn end(stay: Option<Self>, command: Command, deadline: Duration) -> Option<Output> {
        let start = Instant::now();
        let Some(stay) = stay.filter(|stay| stay.ended(Duration::ZERO).is_none()) else {
            let (stdout, stderr) = (String::new(), String::new());
            return Some(Output { status: ExitStatus::default(), stdout, stderr, elapsed: start.elapsed() });
        };
        let asked = testns::try_run(command, b"", deadline)?;
        if asked.code() != 0 {
            return Some(asked);
        }
        let ended = stay.ended(deadline.saturating_sub(start.elapsed()))?;
        Some(Output { stdout: asked.stdout, elapsed: start.elapsed(), ..ended })
    }

    /// Waits until it has ended; `None` if that takes too long.
    fn ended(&self, deadline: Duration) -> Option<Output> {
        self.wait(deadline, |seen| seen.status.is_some())
    }

    fn wait(&self, deadline: Duration, is_it: fn(&RunState) -> bool) -> Option<Output> {
        let (seen, changed) = &*self.seen;
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(seen, deadline, |seen| !is_it(seen));
        let (seen, _) = waited.unwrap_or_else(PoisonError::into_inner);
        is_it(&seen).then(|| Output {
            status: seen.status.unwrap_or_default(), // the run still lasts: as good as a success
            stdout: seen.first_line.clone().unwrap_or_default(),
            stderr: fs::read(&self.stderr)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .unwrap_or_default(),
            elapsed: self.start.elapsed(),
        })
    }
}

fn notify(seen: &(Mutex<RunState>, Condvar), change: impl FnOnce(&mut RunState)) {
    change(&mut seen.0.lock().unwrap_or_else(PoisonError::into_inner));
    seen.1.notify_all();
}
