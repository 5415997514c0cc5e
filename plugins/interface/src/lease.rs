//! The addresses that an IPAM plugin gave an attachment. They must be released if anything fails afterwards (SPEC 4).

use std::fmt;

use cni_spec::error::DUPLICATE_ALLOCATION;
use cni_spec::{AddResult, Attachment, CniError, Code, Interface};
use netops::txn::Txn;
use skel::Delegate;

use crate::undo::Undo;

/// Asks the IPAM plugin for addresses. The release is pushed as undo *before* the call: a delegate that fails half-way
/// or is killed may already hold an address, and releasing none is no error. It is the last undo of all: an address is
/// not free as long as a link may have it.
///
/// A failed call is followed by no release where the addresses may be another ADD's: `lives` says whether the attachment has
/// a link that this ADD has not made.
/// Errors: the IPAM plugin's own; code 110 if it gave no address.
pub(crate) async fn take(
    ipam: Option<&Delegate<'_>>,
    txn: &Txn<Undo>,
    lives: &dyn Fn() -> bool,
) -> Result<Option<AddResult>, CniError> {
    let Some(ipam) = ipam else { return Ok(None) };
    txn.set_last(Some(Undo::Request));
    let answer = add(ipam).await;
    // The IPAM plugin has ended, whether it succeeded or not.
    txn.set_last(Some(Undo::Lease));
    match answer {
        Ok(lease) => {
            // Before the link is removed: the release goes out by it.
            if ipam.releases_by_link() {
                txn.set_last(None);
                txn.push(Undo::Lease);
            }
            Ok(Some(lease))
        }
        Err(error) => {
            // The rollback releases for a delegate that was killed; for one that answered with an error, DEL is called
            // here (SPEC 4).
            if !matches!(error.code, Code::TIMEOUT | Code::UNUSABLE_RESULT) {
                if !ipam.is_all_or_nothing() && !is_duplicate(&error) && !lives() {
                    release_after(&error, ipam).await;
                }
                txn.set_last(None);
            }
            Err(error)
        }
    }
}

async fn add(ipam: &Delegate<'_>) -> Result<AddResult, CniError> {
    let lease = ipam.add().await?;
    refuse_empty(&lease, ipam.name())?;
    Ok(lease)
}

/// Errors: code 110: the lease of this IPAM plugin has no address.
pub(crate) fn refuse_empty(lease: &AddResult, ipam: impl fmt::Display) -> Result<(), CniError> {
    match lease.ips.is_empty() {
        true => {
            let msg = format!("cannot use the result of IPAM plugin {ipam}: it has no addresses");
            Err(CniError::new(Code::UNUSABLE_RESULT, msg))
        }
        false => Ok(()),
    }
}

/// Whether host-local of another build, or the reference's, refused a second address for the attachment: it has reserved nothing, and DEL
/// would release the first one.
fn is_duplicate(error: &CniError) -> bool {
    error.msg.contains(DUPLICATE_ALLOCATION)
}

/// Calls DEL of a delegate whose ADD failed. ADD's error is already reported, so a failure of DEL is only logged: the
/// runtime calls DEL again.
async fn release_after(error: &CniError, ipam: &Delegate<'_>) {
    // The delegate did not even start: it would refuse DEL with the same error.
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

/// Whether the address plugin says that it has no address for the attachment: host-local of this build, which reserves by
/// attachment. Others need not know.
pub(crate) async fn holds_none(ipam: &Delegate<'_>) -> bool {
    ipam.is_all_or_nothing() && matches!(ipam.check().await, Err(error) if error.code == Code::CHECK_FAILED)
}

/// The part of a result that IPAM gave for this interface.
pub(crate) fn of_result(prev: &AddResult, entry: &Interface) -> AddResult {
    let mut lease = prev.clone();
    lease.ips.retain(|ip| ip.interface.and_then(|index| prev.interfaces.get(index)) == Some(entry));
    lease
}

/// Calls GC of the IPAM plugin. An address stays leased while a rule or a link of its attachment may still exist:
/// `kept` lists the attachments with such objects. `None` means that they are not known one by one, so all addresses
/// stay leased.
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
