//! What an IPAM plugin gave an attachment. It must be released when anything fails afterwards (SPEC 4).

use cni_spec::{AddResult, Attachment, CniError, Code, Interface};
use netops::txn::Txn;
use skel::Delegate;

use crate::undo::Undo;

/// Asks the IPAM plugin for addresses. The release is pushed as undo *before* the call: a delegate that fails half-way, or
/// is cut off, may hold an address already, and releasing nothing is no error.
///
/// # Errors
/// The IPAM plugin's own; code 110 if it gave no address.
pub(crate) async fn take(ipam: Option<Delegate<'_>>, txn: &Txn<Undo>) -> Result<Option<AddResult>, CniError> {
    let Some(ipam) = ipam else { return Ok(None) };
    txn.push(Undo::Request);
    let answer = add(&ipam).await;
    // It has come to its end, whatever it says.
    txn.forget_newest();
    txn.push(Undo::Lease);
    match answer {
        Ok(lease) => Ok(Some(lease)),
        Err(error) => {
            // A delegate that was cut off is for the rollback; one that answered is called with DEL here (SPEC 4).
            if !matches!(error.code, Code::TIMEOUT | Code::UNUSABLE_RESULT) {
                release_after(&error, &ipam).await;
                txn.forget_newest();
            }
            Err(error)
        }
    }
}

async fn add(ipam: &Delegate<'_>) -> Result<AddResult, CniError> {
    let lease = ipam.add().await?;
    if lease.ips.is_empty() {
        let msg = format!("cannot use the result of IPAM plugin {}: it has no addresses", ipam.name());
        return Err(CniError::new(Code::UNUSABLE_RESULT, msg));
    }
    Ok(lease)
}

/// DEL of a delegate whose ADD failed with an error. It has told what is wrong, so that DEL fails is only logged: the
/// runtime calls it again.
async fn release_after(error: &CniError, ipam: &Delegate<'_>) {
    // It did not even begin, and would refuse DEL in the same words.
    let refused = matches!(
        error.code,
        Code::INCOMPATIBLE_VERSION
            | Code::UNSUPPORTED_FIELD
            | Code::INVALID_ENVIRONMENT
            | Code::DECODING
            | Code::INVALID_CONFIG
    );
    if refused || !ipam.is_installed() {
        return;
    }
    if let Err(left) = ipam.del().await {
        tracing::warn!(%left, "DEL after the failed ADD of {} failed, too", ipam.name());
    }
}

/// The part of a result that IPAM gave for this interface.
pub(crate) fn of_result(prev: &AddResult, entry: &Interface) -> AddResult {
    let mut lease = prev.clone();
    lease.ips.retain(|ip| ip.interface.and_then(|index| prev.interfaces.get(index)) == Some(entry));
    lease
}

/// Has IPAM collect. An address stays held while a rule or a link of its attachment may be there: `kept` are the
/// attachments with such, `None` where those are not known one by one, so that all addresses stay.
pub(crate) async fn collect(
    ipam: &Delegate<'_>,
    valid: &[Attachment],
    kept: Option<Vec<Attachment>>,
) -> Result<(), CniError> {
    match kept {
        None => {
            Err(CniError::new(Code::KERNEL, "cannot collect addresses: it is not known whose rules or links are left")
                .detail("Repeat GC when what is said before is mended."))
        }
        Some(kept) if kept.is_empty() => ipam.gc().await,
        Some(kept) => ipam.gc_but(&[valid, &kept].concat()).await,
    }
}
