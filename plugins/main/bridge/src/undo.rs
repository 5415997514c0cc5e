//! How a failed ADD takes its changes back.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use cni_spec::CniError;
use filter::{Attachment, Known};
use interface::host_veth::Owner;
use netops::lock::{Lock, Mode};
use netops::txn::{NodeUndo, Undoer};
use netops::{Kernel, OpError, link, netns};
use skel::AddRequest;

use crate::conf::Conf;

/// How long a rollback waits for ADDs under way before it leaves an empty bridge to them.
const LOCK_DEADLINE: Duration = Duration::from_secs(5);

/// A change of ADD, as what takes it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Undo {
    /// Releases the addresses.
    Lease,
    /// Removes masquerade and spoof guard.
    Filter,
    /// A change that only this attachment uses.
    Own(NodeUndo),
    /// A change that other attachments may use by now: taken back only if the bridge has no ports but these.
    Shared {
        /// The bridge's name.
        bridge: String,
        /// The ports it had before.
        ports: BTreeSet<u32>,
        /// The change.
        change: NodeUndo,
    },
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease => f.write_str("addresses released"),
            Self::Filter => f.write_str("masquerade and spoof guard removed"),
            Self::Own(change) | Self::Shared { change, .. } => change.fmt(f),
        }
    }
}

/// What the undos need.
pub(crate) struct BridgeUndoer<'a> {
    /// The call that failed.
    pub(crate) request: &'a AddRequest<Conf>,
    /// The node.
    pub(crate) host: &'a Kernel,
    /// Whose attachment it is.
    pub(crate) owner: &'a Owner<'a>,
}

impl Undoer for BridgeUndoer<'_> {
    type Undo = Undo;

    async fn undo(&self, undo: &Undo) -> Result<(), String> {
        match undo {
            Undo::Lease => self.release().await.map_err(|error| error.to_string()),
            Undo::Filter => first_error(filter::remove_all(attachment(self.owner), Known::default())),
            Undo::Own(change) => change.run(self.host).map_err(|error| error.to_string()),
            Undo::Shared { bridge, ports, change } => self.undo_shared(bridge, ports, change),
        }
    }
}

impl BridgeUndoer<'_> {
    async fn release(&self) -> Result<(), CniError> {
        match self.request.ipam() {
            Some(ipam) => ipam.del().await,
            None => Ok(()),
        }
    }

    /// Alone: an ADD under way may have seen the change already and count on it.
    fn undo_shared(&self, bridge: &str, ports: &BTreeSet<u32>, change: &NodeUndo) -> Result<(), String> {
        let left = |why: String| Err(format!("{}: {why}", change.what_stays()));
        let _alone = match lock(Mode::Exclusive) {
            Ok(lock) => lock,
            Err(error) => return left(error.to_string()),
        };
        let joined = link::find(self.host, bridge)
            .and_then(|link| link.map_or(Ok(Vec::new()), |link| link::list(self.host, Some(link.index))))
            .map_err(|error| error.to_string())?;
        if let Some(port) = joined.iter().find(|port| !ports.contains(&port.index)) {
            return left(format!("{} uses it", port.name));
        }
        change.run(self.host).map_err(|error| error.to_string())
    }
}

fn first_error(errors: Vec<OpError>) -> Result<(), String> {
    let texts: Vec<String> = errors.iter().map(OpError::to_string).collect();
    if texts.is_empty() { Ok(()) } else { Err(texts.join("; ")) }
}

/// Locks the bridges of this node: its namespace's own file, so that there is none to make or to leave.
///
/// ADDs share it from their look at the bridge until they have a port there.
pub(crate) fn lock(mode: Mode) -> Result<Lock, OpError> {
    let file = netns::own_file();
    Lock::take_existing(Path::new(file), mode, LOCK_DEADLINE).map_err(|error| OpError {
        object: "the lock of the node's bridges".to_owned(),
        request: format!("{} {file}", error.request),
        ..error
    })
}

/// The filter's name for the owner.
pub(crate) fn attachment<'a>(owner: &Owner<'a>) -> Attachment<'a> {
    Attachment {
        network: owner.network.as_str(),
        container: owner.container_id.as_str(),
        ifname: owner.ifname.as_str(),
    }
}
