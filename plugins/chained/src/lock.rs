//! A lock of the node, for what calls of a plugin would choose alike at the same time, such as a routing table.

use std::time::Duration;

use cni_spec::CniError;
use interface::failed;
use netops::lock::Lock;

/// Each of those that wait before takes some milliseconds; on an emulated processor a second.
const DEADLINE: Duration = Duration::from_secs(30);

/// Takes the lock of a plugin, `/run/cni/PLUGIN.lock`.
///
/// # Errors
/// Code 11: another process held it for 30 s; code 100: it cannot be made.
pub fn lock(plugin: &str) -> Result<Lock, CniError> {
    Lock::of_node(plugin, DEADLINE).map_err(failed)
}
