//! STATUS: whether the node has an address to give, or the store a run for it.

use cni_spec::{CniError, Code};

use crate::node_view::View;
use crate::protocol;
use crate::reservations::exhausted;
use crate::store::{self, Store};
use crate::this_node::identify;
use crate::transaction::confirm;
use cluster_keys::Conf;

/// Asks the store only where the node could not give an address without it.
pub(crate) async fn status(conf: &Conf) -> Result<(), CniError> {
    if let Some(view) = View::read(conf.folder())?
        && view.is_trusted_now()?
        && let Some(within) = view.within(conf)
        && host_local::find_full(&within)?.is_none()
    {
        return host_local::status(&within).await;
    }
    host_local::status(&conf.local).await?;
    could_serve(conf).await
}

/// STATUS without room of the node's own: whether the store would serve it. Writes nothing.
///
/// # Errors
/// Code 50 with the reason.
async fn could_serve(conf: &Conf) -> Result<(), CniError> {
    let unavailable = |error: CniError| CniError { code: Code::NOT_AVAILABLE, ..error };
    let (me, view) = identify(conf).map_err(unavailable)?;
    let (state, _) = store::open(conf).read().await.map_err(unavailable)?;
    let mut next = confirm(conf, &state, &me, &view, view.pending).map_err(unavailable)?;
    for (index, set) in conf.local.sets.iter().enumerate() {
        match protocol::claim(&next, &me.name, &Conf::spans(set), conf.claim_size, &conf.local.barred) {
            Some((claimed, _)) => next = claimed,
            None if conf.local.report_exhausted => return Err(unavailable(exhausted(conf, index, &view))),
            None => tracing::warn!(%set, "the next ADD may fail: all addresses of a range set are in runs"),
        }
    }
    Ok(())
}
