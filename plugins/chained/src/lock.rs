//! A lock for what calls of a plugin in one container would choose alike at the same time, such as a routing table.

use std::time::Duration;

use cni_spec::CniError;
use interface::failed;
use netops::Netns;
use netops::error::Cause;
use netops::lock::Lock;

/// Each of those that wait before takes some milliseconds; on an emulated processor a second.
const DEADLINE: Duration = Duration::from_secs(30);

/// Takes the lock of a plugin in a container, a byte of `/run/cni/PLUGIN.lock`. `None`: the file cannot be made, as where the
/// node's root is read-only; calls go on without it then, as the reference's do.
/// Errors: code 11: another process held it for 30 s.
pub fn lock(plugin: &str, netns: &Netns) -> Result<Option<Lock>, CniError> {
    match Lock::of_netns(plugin, netns, DEADLINE) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if matches!(error.cause, Cause::Held(_)) => Err(failed(error)),
        Err(error) => {
            tracing::warn!(%error, "going on without a lock: another call for this container may choose the same table");
            Ok(None)
        }
    }
}
