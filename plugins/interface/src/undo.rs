//! How a failed ADD takes back what is its attachment's alone: lease, filter rules, links. A plugin adds kinds of its own
//! by [`OwnUndo`].
//!
//! What attachments share (a bridge, its addresses and flags) stays, as it does after DEL and as the reference leaves it.

use std::cell::Cell;
use std::fmt;
use std::net::IpAddr;

use cni_spec::{Attachment, CniError, Code};
use filter::Known;
use netops::OpError;
use netops::link::{Link, Place};
use netops::txn::{Failed, NodeUndo, Undoer, Why};
use netops::unlink;
use skel::Delegate;

use crate::pod::Pod;

/// A change of ADD, as what takes it back.
#[derive(Debug)]
pub enum Undo {
    /// Releases what an IPAM plugin may hold that was cut off.
    Request,
    /// Releases the addresses.
    Lease,
    /// Removes masquerade of these addresses, and the spoof guard.
    Filter(Vec<IpAddr>),
    /// Takes back a change of the node.
    Node(NodeUndo),
    /// Deletes a link of the container.
    Inside(Link),
    /// A plugin's own.
    Own(Box<dyn OwnUndo>),
}

/// What takes back a change that only one plugin makes. Its text is what `details` says was undone.
pub trait OwnUndo: fmt::Display + fmt::Debug {
    /// Takes the change back. One that never happened, or is already gone, is taken back.
    ///
    /// # Errors
    /// What is left on the node, and why.
    fn run(&self, pod: &Pod) -> Result<(), String>;
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request | Self::Lease => f.write_str("addresses released"),
            Self::Filter(_) => f.write_str("masquerade and spoof guard removed"),
            Self::Node(change) => change.fmt(f),
            Self::Inside(link) => write!(f, "link {} deleted in the container", link.name),
            Self::Own(own) => own.fmt(f),
        }
    }
}

/// Takes back the changes of one ADD. The addresses stay held while anything else of it is left.
pub(crate) struct AddUndoer<'a> {
    /// What was to be made.
    pub(crate) attachment: &'a Attachment,
    /// Where.
    pub(crate) pod: &'a Pod,
    /// The address plugin.
    pub(crate) ipam: Option<Delegate<'a>>,
    /// `PATH`, for iptables.
    pub(crate) search_path: &'a str,
    /// A rule or a link of the attachment is still there.
    pub(crate) is_left: Cell<bool>,
}

impl Undoer for AddUndoer<'_> {
    type Undo = Undo;

    async fn undo(&self, undo: &Undo) -> Result<(), String> {
        let undone = match undo {
            Undo::Request if self.ipam.as_ref().is_some_and(Delegate::waits_before_changes) => Ok(()),
            // Pushed first, so undone last; as DEL does, which finds it.
            Undo::Lease if self.is_left.get() => Err("the addresses stay held for what is left".to_owned()),
            Undo::Request | Undo::Lease => self.release().await.map_err(|error| error.to_string()),
            Undo::Filter(addresses) => {
                let known = Known { addresses, search_path: self.search_path, ..Known::default() };
                first_error(filter::remove_all(self.attachment.into(), known))
            }
            Undo::Node(change) => change.run(&self.pod.host).map_err(|error| error.to_string()),
            Undo::Inside(link) => {
                let Pod { netns, inside, .. } = self.pod;
                unlink::remove_in(Place { netns, kernel: inside }, link).map_err(|error| error.to_string())
            }
            Undo::Own(own) => own.run(self.pod),
        };
        self.is_left.set(self.is_left.get() || undone.is_err());
        undone
    }
}

impl AddUndoer<'_> {
    async fn release(&self) -> Result<(), CniError> {
        match &self.ipam {
            Some(ipam) => ipam.del().await,
            None => Ok(()),
        }
    }
}

fn first_error(errors: Vec<OpError>) -> Result<(), String> {
    let texts: Vec<String> = errors.iter().map(OpError::to_string).collect();
    if texts.is_empty() { Ok(()) } else { Err(texts.join("; ")) }
}

/// The error that stopped ADD, or code 109 if it was interrupted, with what was undone and what is left.
pub(crate) fn not_done(failed: Failed<CniError>) -> CniError {
    let aftermath = failed.aftermath();
    let error = match failed.why {
        Why::Error(error) => error,
        Why::Cancelled => CniError::new(Code::INTERRUPTED, "cannot finish ADD: the process was told to end"),
    };
    error.detail(aftermath)
}
