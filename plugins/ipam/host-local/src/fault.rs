//! From what the store met to the error object: code, and what the operator can do.

use cni_spec::{CniError, Code};
use netops::{Errno, OpError};

/// The error object of a failed operation on the store.
pub(crate) fn fault(error: &OpError) -> CniError {
    let code = match error.os_errno() {
        // A lock that was not had in time is the one failure without an errno that waiting can mend.
        None if error.op == "take" => Code::TRY_AGAIN,
        Some(Errno::EACCES | Errno::EPERM) => Code::PERMISSION,
        None | Some(_) => Code::STATE,
    };
    let mut details = error.details();
    if !details.is_empty() {
        details.push('.');
    }
    CniError::new(code, error.to_string()).detail(details).detail(remedy(error))
}

fn remedy(error: &OpError) -> &'static str {
    match error.os_errno() {
        None if error.op == "take" => "Nothing was changed. Try again; if the holder hangs, end it.",
        Some(Errno::ENOSPC | Errno::EDQUOT) => "The file system of dataDir is full: make room, or move dataDir.",
        Some(Errno::EROFS) => "The file system of dataDir cannot be written to: mount it writable, or move dataDir.",
        Some(Errno::EACCES | Errno::EPERM) => "The plugin needs to own the folder, or be root.",
        None | Some(_) => "",
    }
}
