//! What an IPAM plugin gave. It must be released when anything fails afterwards (SPEC 4).

use cni_spec::{AddResult, CniError, Code};
use skel::Delegate;

/// Asks the IPAM plugin for addresses.
///
/// The caller pushes the release as undo *before* the call: a delegate that fails half-way, or is cut off, may hold
/// an address already, and releasing nothing is no error.
///
/// # Errors
/// The IPAM plugin's own; code 110 if it gave no address.
pub async fn add(ipam: &Delegate<'_>) -> Result<AddResult, CniError> {
    let lease = ipam.add().await?;
    if lease.ips.is_empty() {
        let msg = format!("cannot use the result of IPAM plugin {}: it has no addresses", ipam.name());
        return Err(CniError::new(Code::UNUSABLE_RESULT, msg));
    }
    Ok(lease)
}
