//! How a failed ADD rolls back what belongs to its attachment alone: lease, filter rules, links. A plugin adds its own
//! kinds of undo by [`OwnUndo`].
//!
//! Objects that attachments share (a bridge, its addresses and flags) stay, as after DEL and as in the reference.

use std::cell::Cell;
use std::fmt;

use cni_spec::{Attachment, CniError, Code};
use filter::Known;
use netops::link::Link;
use netops::txn::{Failed, NodeUndo, Undoer, Why};
use netops::{Kernel, OpError, unlink};
use skel::Delegate;

use crate::pod::Pod;

/// The undo of one change of ADD.
#[derive(Debug)]
pub enum Undo {
    /// Releases the addresses that an IPAM plugin may hold although it was killed before it answered.
    Request,
    /// Releases the addresses.
    Lease,
    /// Removes the masquerade rules and the spoof guard.
    Filter,
    /// Undoes a change of the node.
    Node(NodeUndo),
    /// Deletes a link of the container.
    ContainerLink(Link),
    /// Undoes a change that only this plugin makes.
    Own(Box<dyn OwnUndo>),
}

/// The undo of a change that only one plugin makes. Its text appears in `details` among what was undone.
pub trait OwnUndo: fmt::Display + fmt::Debug {
    /// Undoes the change. A change that never happened, or that is already gone, counts as undone.
    ///
    /// # Errors
    /// Says what is left on the node, and why.
    fn run(&self, pod: &Pod) -> Result<(), String>;
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request | Self::Lease => f.write_str("addresses released"),
            Self::Filter => f.write_str("masquerade and spoof guard removed"),
            Self::Node(change) => change.fmt(f),
            Self::ContainerLink(link) => write!(f, "link {} deleted in the container", link.name),
            Self::Own(own) => own.fmt(f),
        }
    }
}

/// Undoes the changes of one ADD. The addresses stay leased while any other part of the attachment is left.
pub(crate) struct AddUndoer<'a> {
    /// The plan of that ADD.
    pub(crate) attachment: &'a Attachment,
    /// The namespaces that it changed.
    pub(crate) pod: &'a Pod,
    /// The IPAM plugin.
    pub(crate) ipam: Option<&'a Delegate<'a>>,
    /// `PATH`, for iptables.
    pub(crate) search_path: &'a str,
    /// A rule or a link of the attachment is still there.
    pub(crate) is_left: Cell<bool>,
}

impl Undoer for AddUndoer<'_> {
    type Undo = Undo;

    async fn undo(&self, undo: &Undo) -> Result<(), String> {
        let undone = match undo {
            Undo::Request if self.ipam.is_some_and(Delegate::waits_before_changes) => Ok(()),
            // Undone last. DEL releases in the same order.
            Undo::Request | Undo::Lease if self.is_left.get() => {
                Err("the addresses stay held for what is left".to_owned())
            }
            Undo::Request | Undo::Lease => self.release().await.map_err(|error| error.to_string()),
            Undo::Filter => {
                let known = Known { search_path: self.search_path, ..Known::default() };
                first_error(filter::remove_all(self.attachment.into(), known))
            }
            Undo::Node(change) => change.run(&self.pod.host).map_err(|error| error.to_string()),
            Undo::ContainerLink(link) => {
                let netns = &self.pod.netns;
                let removed = Kernel::in_netns(netns).and_then(|net| unlink::remove_in(netns, net, link));
                removed.map_err(|error| error.to_string())
            }
            Undo::Own(own) => own.run(self.pod),
        };
        self.is_left.set(self.is_left.get() || undone.is_err());
        undone
    }
}

impl AddUndoer<'_> {
    async fn release(&self) -> Result<(), CniError> {
        match self.ipam {
            Some(ipam) => ipam.del().await,
            None => Ok(()),
        }
    }
}

fn first_error(errors: Vec<OpError>) -> Result<(), String> {
    let texts: Vec<String> = errors.iter().map(OpError::to_string).collect();
    if texts.is_empty() { Ok(()) } else { Err(texts.join("; ")) }
}

/// The error that stopped ADD, or code 109 if ADD was interrupted; `details` lists what was undone and what is left.
#[must_use]
pub fn not_done(failed: Failed<CniError>) -> CniError {
    let aftermath = failed.aftermath();
    let error = match failed.why {
        Why::Error(error) => error,
        Why::Cancelled => CniError::new(Code::INTERRUPTED, "cannot finish ADD: a signal asked the process to end"),
    };
    error.detail(aftermath)
}
