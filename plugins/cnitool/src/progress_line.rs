//! A line on a terminal for what takes longer than a second: the verb, and for how long it has worked.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

static IS_SHOWN: Mutex<bool> = Mutex::new(false);

/// The sequence that goes to the start of the line and empties it (ECMA-48, EL).
const CLEAR: &str = "\r\x1b[K";

pub(crate) struct Progress {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Begins to count; `None` unless stderr is a terminal.
pub(crate) fn begin(verb: &'static str) -> Option<Progress> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let (end, ended) = mpsc::channel();
    let begin = Instant::now();
    let count = move || {
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_secs(1)) {
            show(&format!("{CLEAR}cnitool {verb}: {} s", begin.elapsed().as_secs()), true);
        }
    };
    // Without a thread there is no line.
    let thread = thread::Builder::new().spawn(count).ok();
    Some(Progress { end: Some(end), thread })
}

/// Takes the line away, before anything else is written.
pub(crate) fn clear() {
    if *IS_SHOWN.lock().unwrap_or_else(PoisonError::into_inner) {
        show(CLEAR, false);
    }
}

fn show(text: &str, is_shown: bool) {
    let mut line = IS_SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    // A terminal that is gone shows nothing.
    drop(io::stderr().write_all(text.as_bytes()));
    *line = is_shown;
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.end.take());
        drop(self.thread.take().map(JoinHandle::join));
        clear();
    }
}
