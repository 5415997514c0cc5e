//! SIGTERM and SIGINT, so that an interrupted ADD can take back what it has done.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use signal_hook::consts::{SIGINT, SIGTERM};
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Set when the work needs to wait and cannot.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Completes [`interrupted`] without a signal.
pub(crate) fn give_up() {
    GIVEN_UP.store(true, Ordering::SeqCst);
}

/// Completes when the process is asked to end. Listening begins with the call, not with the first poll; from then
/// on neither signal ends the process by itself.
///
/// A signal that cannot be listened for keeps its default action, which ends the process at once: the runtime's
/// DEL then finds what is left by name.
pub fn interrupted() -> impl Future<Output = ()> {
    let flag = Arc::new(AtomicBool::new(false));
    for number in [SIGTERM, SIGINT] {
        if let Err(error) = signal_hook::flag::register(number, Arc::clone(&flag)) {
            tracing::debug!(%error, number, "cannot listen for a signal");
        }
    }
    async move {
        let asked = || flag.load(Ordering::SeqCst) || GIVEN_UP.load(Ordering::SeqCst);
        // Without an event loop nobody waits yet, and each checkpoint of the work looks here.
        poll_fn(|_| if asked() || Handle::try_current().is_ok() { Poll::Ready(()) } else { Poll::Pending }).await;
        if asked() {
            return;
        }
        let [terminate, interrupt] = [SignalKind::terminate(), SignalKind::interrupt()].map(|kind| signal(kind).ok());
        // One that came before these two listened.
        if asked() {
            return;
        }
        tokio::select! {
            () = next(terminate) => {}
            () = next(interrupt) => {}
        }
    }
}

async fn next(signal: Option<Signal>) {
    if let Some(mut signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    std::future::pending().await
}
