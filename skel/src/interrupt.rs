//! SIGTERM, SIGINT and SIGHUP: an interrupted ADD is rolled back.

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

use crate::event_loop;

/// The time between two looks for a signal, where no pipe can tell of it.
const PAUSE: Duration = Duration::from_millis(100);

/// Makes a write beyond the limit of a file's size (`RLIMIT_FSIZE`) fail with `EFBIG`, so that ADD rolls back;
/// otherwise SIGXFSZ would end the process. Delegates start with the default action, and do the same for themselves.
pub fn survive_file_size_limit() {
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, Arc::default()) {
        tracing::debug!(%error, "cannot listen for SIGXFSZ");
    }
}

/// Completes when a signal asks the process to end. The handlers are installed by the call, not by the first poll; from
/// then on none of the three signals ends the process by itself. A signal that was ignored when the process started (by
/// nohup, or in the background of a shell) stays ignored.
///
/// A signal whose handler cannot be installed keeps its default action, which ends the process at once: the runtime's
/// DEL then finds what is left by name.
pub fn interrupted() -> impl Future<Output = ()> {
    let mut signals = Signals::hear(ending_signals());
    async move {
        // Without an event loop no task is waiting yet, and each checkpoint of the work checks this.
        let mut looped = std::pin::pin!(event_loop::ready());
        let looped = poll_fn(|context| match signals.take() {
            Some(_) => Poll::Ready(false),
            None => looped.as_mut().poll(context).map(|looped| looped.is_ok()),
        });
        if looped.await {
            // Refused: the work, which cannot wait, is cancelled as well.
            event_loop::unless_refused(signals.next()).await.ok();
        }
    }
}

/// Signals that this process handles. A flag notes each, which needs no descriptor; a wait is ended by a pipe, and goes on without
/// one where the kernel gives none.
#[derive(Debug)]
pub struct Signals {
    heard: Vec<(i32, Arc<AtomicBool>)>,
    /// Readable when a signal has come; `None` before the first wait.
    pipe: Option<io::Result<Receiver>>,
}

impl Signals {
    /// Installs handlers. A signal whose handler cannot be installed keeps its action.
    pub fn hear(numbers: impl IntoIterator<Item = i32>) -> Self {
        let heard = numbers.into_iter().map(|number| (number, Arc::<AtomicBool>::default()));
        let heard: Vec<_> = heard.collect();
        for (number, flag) in &heard {
            if let Err(error) = signal_hook::flag::register(*number, Arc::clone(flag)) {
                tracing::debug!(%error, number, "cannot listen for a signal");
            }
        }
        Self { heard, pipe: None }
    }

    /// A signal that has come and was not taken yet.
    #[must_use]
    pub fn take(&self) -> Option<i32> {
        let came = self.heard.iter().find(|(_, flag)| flag.swap(false, Ordering::SeqCst));
        came.map(|(number, _)| *number)
    }

    /// Waits for the next signal; there must be an event loop. May be dropped at any await.
    pub async fn next(&mut self) -> i32 {
        let pipe = self.pipe.take().unwrap_or_else(|| self.open_pipe());
        let pipe = self.pipe.insert(pipe);
        loop {
            let came = self.heard.iter().find(|(_, flag)| flag.swap(false, Ordering::SeqCst));
            if let Some((number, _)) = came {
                return *number;
            }
            match pipe {
                // What is read does not matter, and a pipe of which this process has both ends is not closed.
                Ok(open) => {
                    if let Err(error) = open.read(&mut [0; 16]).await {
                        *pipe = Err(error);
                    }
                }
                Err(_) => pause().await,
            }
        }
    }

    fn open_pipe(&self) -> io::Result<Receiver> {
        let (reader, writer) = io::pipe()?;
        for (number, _) in &self.heard {
            signal_hook::low_level::pipe::register(*number, OwnedFd::from(writer.try_clone()?))?;
        }
        Receiver::from_owned_fd(reader.into())
    }
}

#[expect(clippy::disallowed_methods, reason = "nothing else tells of a signal where the kernel gives no pipe")]
async fn pause() {
    tokio::time::sleep(PAUSE).await;
}

/// SIGTERM, SIGINT and SIGHUP, without those that this process ignores.
#[must_use]
pub fn ending_signals() -> Vec<i32> {
    let ignored = ignored();
    [SIGTERM, SIGINT, SIGHUP].into_iter().filter(|number| !is_in(ignored, *number)).collect()
}

/// The signals that this process ignores, a bit each (proc_pid_status(5), `SigIgn`); none if that cannot be read.
fn ignored() -> u64 {
    let mut text = [0; 4 << 10];
    let read = File::open("/proc/self/status").and_then(|mut file| file.read(&mut text)).unwrap_or_default();
    let text = String::from_utf8_lossy(text.get(..read).unwrap_or_default());
    let digits = text.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or_default()
}

fn is_in(mask: u64, number: i32) -> bool {
    mask >> (number - 1) & 1 == 1
}
