//! SIGTERM and SIGINT, so that an interrupted ADD can take back what it has done.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Completes when the process is asked to end. Listening begins with the call, not with the first poll; from then
/// on neither signal ends the process by itself.
///
/// A signal that cannot be listened for keeps its default action, which ends the process at once: the runtime's
/// DEL then finds what is left by name.
pub fn interrupted() -> impl Future<Output = ()> {
    let signals = [SignalKind::terminate(), SignalKind::interrupt()].map(|kind| signal(kind).ok());
    async move {
        let [terminate, interrupt] = signals;
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
