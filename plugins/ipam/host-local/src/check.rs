//! CHECK: the container's interface holds an address in this network.

use cni_spec::{Attachment, CniError, Code};

use crate::conf::Conf;
use crate::store::Store;
use crate::store_error::store_error;

/// CHECK: `owner` holds an address.
pub async fn check(conf: &Conf, owner: &Attachment) -> Result<(), CniError> {
    let Some(mut store) = Store::find(&conf.place).await.map_err(|error| store_error(&error))? else {
        return Err(missing(conf, owner));
    };
    let held = store.owned_by_for_certain(owner);
    store.finish();
    match held.map_err(|error| store_error(&error))?.is_empty() {
        true => Err(missing(conf, owner)),
        false => Ok(()),
    }
}

fn missing(conf: &Conf, owner: &Attachment) -> CniError {
    let text = format!("host-local: Failed to find address added by container {}", owner.container_id);
    CniError::new(Code::CHECK_FAILED, text).detail(format!(
        "No file in {} names it with interface {}.",
        conf.place.folder.display(),
        owner.ifname
    ))
}
