//! From a plan that did not succeed to CNI's error object.

use cni_spec::{CniError, Code};
use netops::txn::{Failed, Why};

/// The plan's error, or code 109 if it was interrupted, with what was undone and what was left behind.
#[must_use]
pub fn not_done(failed: Failed<CniError>) -> CniError {
    let aftermath = failed.aftermath();
    let error = match failed.why {
        Why::Error(error) => error,
        Why::Cancelled => CniError::new(Code::INTERRUPTED, "cannot finish ADD: the process was told to end"),
    };
    error.detail(aftermath)
}
