//! A lock of the node, for what calls of a plugin would choose alike at the same time, such as a routing table.
//!
//! It is in a folder of root's: what a container can open, such as its own namespace, it could lock for ever.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use cni_spec::CniError;
use interface::failed;
use netops::OpError;
use netops::lock::Lock;

const FOLDER: &str = "/run/cni";
/// Each of those that wait before takes some milliseconds; on an emulated processor a second.
const DEADLINE: Duration = Duration::from_secs(30);

/// Takes the lock of a plugin, `/run/cni/PLUGIN.lock`.
///
/// # Errors
/// Code 11: another process held it for 30 s; code 100: it cannot be made.
pub fn lock(plugin: &str) -> Result<Lock, CniError> {
    let folder = Path::new(FOLDER);
    let made = DirBuilder::new().recursive(true).mode(0o755).create(folder);
    let made = made.map_err(|error| OpError::io("create", FOLDER, &error));
    made.and_then(|()| Lock::take(&folder.join(format!("{plugin}.lock")), 0o600, DEADLINE)).map_err(failed)
}
