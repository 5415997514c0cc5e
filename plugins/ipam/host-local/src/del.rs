//! DEL: releases what the container's interface holds in this network, of all sets at once.

use cni_spec::{Attachment, CniError};

use crate::conf::Removal;
use crate::store::{Store, released};
use crate::store_error::store_error;

/// DEL: releases all that `owner` holds.
pub async fn del(conf: &Removal, owner: &Attachment) -> Result<(), CniError> {
    let Some(mut store) = Store::find(&conf.place).await.map_err(|error| store_error(&error))? else { return Ok(()) };
    let outcome = store.release_all(owner);
    if let Ok(addresses) = &outcome
        && !addresses.is_empty()
        && !conf.cool_down.is_zero()
        && let Err(error) = released::note(store.private_files(), addresses, owner)
    {
        tracing::warn!(%error, "cannot note that addresses were released: they do not cool down");
    }
    store.finish();
    outcome.map(drop).map_err(|error| store_error(&error))
}
