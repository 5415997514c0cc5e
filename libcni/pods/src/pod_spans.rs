//! Observability for runtimes: a `tracing` span for each operation on a pod or on the node, around `libcni`'s spans
//! `operation` (of one network) and `plugin`. The last event in each reports how it ended.

use crate::lock::Operation;
use crate::pod::PodId;
use std::fmt::Display;
use std::time::Instant;
use tracing::{Instrument, Span};

/// Runs a pod's operation in a span `pod` with its operation, namespace, name, uid and sandbox.
pub(crate) async fn pod<T, E: Display>(
    operation: Operation,
    pod: &PodId,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let PodId { namespace, name, uid, sandbox } = pod;
    let span = tracing::info_span!("pod", %operation, namespace, name, uid, sandbox = sandbox.as_str());
    recorded(span, work).await
}

/// Runs a collection in a span `node`.
pub(crate) async fn node<T, E: Display>(
    operation: Operation,
    live: usize,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    recorded(tracing::info_span!("node", %operation, live), work).await
}

async fn recorded<T, E: Display>(span: Span, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    // An operation's state is tens of kilobytes, which callers would have on their stacks.
    let work = Box::pin(work);
    async {
        let mut ending = Ending { begin: Instant::now(), is_recorded: false };
        let outcome = work.await;
        ending.record(outcome.as_ref().map_or_else(|_| "error", |_| "ok"), outcome.as_ref().err());
        outcome
    }
    .instrument(span)
    .await
}

/// The last event: `duration_us`, `outcome` (`ok`, `error`, or `dropped` where the future was dropped), and the error.
struct Ending {
    begin: Instant,
    is_recorded: bool,
}

impl Ending {
    fn record<E: Display>(&mut self, outcome: &str, error: Option<&E>) {
        self.is_recorded = true;
        let duration_us = u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX);
        match error {
            Some(error) => tracing::warn!(duration_us, outcome, %error, "ended"),
            None => tracing::info!(duration_us, outcome, "ended"),
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.record("dropped", None::<&String>);
        }
    }
}
