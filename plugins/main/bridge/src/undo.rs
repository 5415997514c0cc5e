//! How a failed ADD takes back what is its attachment's alone.
//!
//! The bridge, its addresses and flags stay, as they do after DEL and as the reference leaves them: other ADDs count on
//! them from the moment that they see them. No order of netlink requests removes a bridge just when it has no port, and
//! a lock would be one more thing that ADD can fail or wait for.

use std::cell::Cell;
use std::fmt;
use std::net::IpAddr;

use cni_spec::CniError;
use filter::{Attachment, Known};
use interface::host_veth::Owner;
use netops::txn::{NodeUndo, Undoer};
use netops::{Kernel, OpError};
use skel::AddRequest;

use crate::conf::Conf;

/// A change of ADD, as what takes it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Undo {
    /// Releases what an IPAM plugin may hold that was cut off.
    Request,
    /// Releases the addresses.
    Lease,
    /// Removes masquerade of these addresses, and the spoof guard.
    Filter(Vec<IpAddr>),
    /// Takes back a change of the node.
    Node(NodeUndo),
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request | Self::Lease => f.write_str("addresses released"),
            Self::Filter(_) => f.write_str("masquerade and spoof guard removed"),
            Self::Node(change) => change.fmt(f),
        }
    }
}

/// What the undos need.
pub(crate) struct BridgeUndoer<'a> {
    /// The call that failed.
    request: &'a AddRequest<Conf>,
    /// The node.
    host: &'a Kernel,
    /// Whose attachment it is.
    owner: &'a Owner<'a>,
    /// A rule or a link of it is still there.
    speaks: Cell<bool>,
}

impl Undoer for BridgeUndoer<'_> {
    type Undo = Undo;

    async fn undo(&self, undo: &Undo) -> Result<(), String> {
        let undone = match undo {
            Undo::Request if self.request.ipam().is_some_and(|ipam| ipam.waits_before_changes()) => Ok(()),
            // Pushed first, so undone last; as DEL does, which finds it.
            Undo::Lease if self.speaks.get() => Err("the addresses stay held for what is left".to_owned()),
            Undo::Request | Undo::Lease => self.release().await.map_err(|error| error.to_string()),
            Undo::Filter(addresses) => {
                let search_path = self.request.raw.search_path();
                let known = Known { addresses, search_path, ..Known::default() };
                first_error(filter::remove_all(attachment(self.owner), known))
            }
            Undo::Node(change) => change.run(self.host).map_err(|error| error.to_string()),
        };
        self.speaks.set(self.speaks.get() || undone.is_err());
        undone
    }
}

impl<'a> BridgeUndoer<'a> {
    pub(crate) fn new(request: &'a AddRequest<Conf>, host: &'a Kernel, owner: &'a Owner<'a>) -> Self {
        Self { request, host, owner, speaks: Cell::new(false) }
    }

    async fn release(&self) -> Result<(), CniError> {
        match self.request.ipam() {
            Some(ipam) => ipam.del().await,
            None => Ok(()),
        }
    }
}

fn first_error(errors: Vec<OpError>) -> Result<(), String> {
    let texts: Vec<String> = errors.iter().map(OpError::to_string).collect();
    if texts.is_empty() { Ok(()) } else { Err(texts.join("; ")) }
}

/// The filter's name for the owner.
pub(crate) fn attachment<'a>(owner: &Owner<'a>) -> Attachment<'a> {
    Attachment {
        network: owner.network.as_str(),
        container: owner.container_id.as_str(),
        ifname: owner.ifname.as_str(),
    }
}
