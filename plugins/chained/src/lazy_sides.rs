//! The node and the container's namespace, opened once, when a plugin first asks: some change the node alone.

use std::cell::OnceCell;
use std::time::Duration;

use cni_spec::CniError;
use interface::failed;
use interface::sides::Sides;
use netops::Netns;
use netops::error::Cause;
use netops::lock::Lock;
use skel::NetnsPath;

/// The node and the container's namespace of a call.
#[derive(Debug)]
pub struct LazySides<'a> {
    netns: &'a NetnsPath,
    sides: OnceCell<Sides>,
}

impl<'a> LazySides<'a> {
    pub(crate) fn new(netns: &'a NetnsPath) -> Self {
        Self { netns, sides: OnceCell::new() }
    }

    pub(crate) fn netns(&self) -> &'a NetnsPath {
        self.netns
    }

    /// The node and the container, with a connection to each.
    pub fn open(&self) -> Result<&Sides, CniError> {
        match self.sides.get() {
            Some(sides) => Ok(sides),
            None => {
                let sides = Sides::open(self.netns)?;
                Ok(self.sides.get_or_init(|| sides))
            }
        }
    }
}

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
