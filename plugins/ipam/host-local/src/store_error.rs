//! Converts the store's errors to the error object.

use cni_spec::CniError;
use interface::error::{On, failed_on};
use netops::OpError;

/// The error object of a failed operation on the store.
pub(crate) fn store_error(error: &OpError) -> CniError {
    failed_on(On::Files("dataDir"), error)
}
