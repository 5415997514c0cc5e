//! Observability for runtimes: a `tracing` span for each operation on a pod or on the node, around `libcni`'s spans
//! `operation` (of one network) and `plugin`, whose last events report how those ended.

use crate::lock::Operation;
use crate::pod::PodId;
use tracing::Instrument;

/// Runs a pod's operation in a span `pod` with its operation, namespace, name, uid and sandbox.
pub(crate) async fn pod<T>(operation: Operation, pod: &PodId, work: impl Future<Output = T>) -> T {
    let PodId { namespace, name, uid, sandbox } = pod;
    let span = tracing::info_span!("pod", %operation, namespace, name, uid, sandbox = sandbox.as_str());
    // An operation's state is tens of kilobytes, which callers would have on their stacks.
    Box::pin(work).instrument(span).await
}

/// Runs a collection in a span `node`.
pub(crate) async fn node<T>(operation: Operation, live: usize, work: impl Future<Output = T>) -> T {
    Box::pin(work).instrument(tracing::info_span!("node", %operation, live)).await
}
