//! STATUS: whether the node has an address to give, or the store a run for it.

use cni_spec::{CniError, Code};
use netops::lock::Lock;

use crate::node_view::{self, View};
use crate::reservations::exhausted;
use crate::store::{self, Store};
use crate::transaction::{LockedStore, Purpose, Work};
use cluster_keys::Conf;

/// Asks the store only where the node could not give an address without it.
pub(crate) async fn status(conf: &Conf) -> Result<(), CniError> {
    let view = View::read(conf.folder())?;
    if let Some(view) = &view
        && view.is_trusted_now()?
        && conf.node.as_ref().is_none_or(|name| *name == view.node)
        && let Some(within) = view.within(conf)
        && host_local::find_full(&within)?.is_none()
    {
        return host_local::status(&within).await;
    }
    host_local::status(&conf.local).await?;
    let unavailable = |error: CniError| CniError { code: Code::NOT_AVAILABLE, ..error };
    view.unwrap_or_default().check_away().map_err(unavailable)?;
    let Err(error) = could_serve(conf).await else { return Ok(()) };
    if error.code != Code::STATE {
        return Err(unavailable(error));
    }
    // Another call may have changed view and store between the two readings.
    let _locked = LockedStore::lock(conf)?;
    could_serve(conf).await.map_err(unavailable)
}

/// STATUS without room of the node's own: whether the store would serve it. Writes nothing to the store.
///
/// # Errors
/// The reason.
async fn could_serve(conf: &Conf) -> Result<(), CniError> {
    let store = store::open(conf);
    let served = async {
        let mut work = Work::begin(conf, &store).await?;
        work.admit(Purpose::Plain).await?;
        work.come_back().await?;
        for (index, set) in conf.local.sets.iter().enumerate() {
            match work.find_room(&Conf::spans(set), conf.claim_size).await? {
                Some(_) => {}
                None if conf.local.report_exhausted => return Err(exhausted(conf, index, &work.view)),
                None => tracing::warn!(%set, "the next ADD may fail: all addresses of a range set are in runs"),
            }
        }
        store.check_writable().await
    };
    let served = served.await;
    if let (Err(error), true) = (&served, store.is_away() && View::path(conf.folder()).exists()) {
        // Who has the lock finds it out, too.
        let lock = Lock::try_take(&View::lock(conf.folder()), 0o600).map_err(|error| node_view::fault(&error))?;
        if lock.is_some() {
            View::note_away(conf, error)?;
        }
    }
    served
}
