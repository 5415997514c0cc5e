//! SIGTERM, SIGINT and SIGHUP: an interrupted ADD is rolled back.

use std::fs::File;
use std::future::poll_fn;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures::future::select_all;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::event_loop;

/// Set when the work has to wait and cannot.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Completes [`interrupted`] without a signal.
pub(crate) fn give_up() {
    GIVEN_UP.store(true, Ordering::SeqCst);
}

/// Makes a write beyond the limit of a file's size (`RLIMIT_FSIZE`) fail with `EFBIG`, so that ADD rolls back;
/// otherwise SIGXFSZ would end the process. Delegates start with the default action, and do the same for themselves.
pub(crate) fn survive_file_size_limit() {
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
    let flag = Arc::new(AtomicBool::new(false));
    let heard = ending_signals();
    for number in &heard {
        if let Err(error) = signal_hook::flag::register(*number, Arc::clone(&flag)) {
            tracing::debug!(%error, number, "cannot listen for a signal");
        }
    }
    async move {
        let asked = || flag.load(Ordering::SeqCst) || GIVEN_UP.load(Ordering::SeqCst);
        // Without an event loop no task is waiting yet, and each checkpoint of the work checks this.
        let mut looped = std::pin::pin!(event_loop::ready());
        poll_fn(|context| if asked() { Poll::Ready(()) } else { looped.as_mut().poll(context) }).await;
        if asked() {
            return;
        }
        let streams: Vec<Signal> =
            heard.iter().filter_map(|number| signal(SignalKind::from_raw(*number)).ok()).collect();
        // A signal that came before these handlers were installed.
        if asked() {
            return;
        }
        match streams.is_empty() {
            true => std::future::pending().await,
            false => drop(select_all(streams.into_iter().map(|stream| Box::pin(next(stream)))).await),
        }
    }
}

/// SIGTERM, SIGINT and SIGHUP, without those that this process ignores.
#[must_use]
pub fn ending_signals() -> Vec<i32> {
    let ignored = ignored();
    [SIGTERM, SIGINT, SIGHUP].into_iter().filter(|number| !is_in(ignored, *number)).collect()
}

async fn next(mut signal: Signal) {
    if signal.recv().await.is_none() {
        std::future::pending().await
    }
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
