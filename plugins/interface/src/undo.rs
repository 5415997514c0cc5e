//! How a failed ADD rolls back what belongs to its attachment alone: lease, filter rules, links. A plugin adds its own
//! kinds of undo by [`OwnUndo`].
//!
//! Objects that attachments share (a bridge, its addresses and flags) stay, as after DEL and as in the reference.

use std::cell::Cell;
use std::fmt;

use cni_filter::RemovalHints;
use cni_spec::{Attachment, CniError, Code};
use netops::link::{self, Link};
use netops::txn::{DeleteLink, Failed, Undoer, Why};
use netops::{Errno, Kernel, OpError, link_removal};
use skel::Delegate;

use crate::plugin::LinkKind;
use crate::sides::Sides;
use crate::{alias, host_veth};

#[derive(Debug)]
pub enum Undo {
    /// Releases the addresses that an IPAM plugin may hold although it was killed before it answered.
    Request,
    Lease,
    /// Removes the masquerade rules and the spoof guard.
    Filter,
    HostLink(DeleteLink),
    ContainerLink(Link),
    /// Undoes a change that only this plugin makes.
    Own(Box<dyn OwnUndo>),
}

/// The undo of a change that only one plugin makes.
pub trait OwnUndo: fmt::Debug {
    /// Returns the words for it in the error's `details`, among what was undone.
    fn text(&self) -> String;

    /// Undoes the change. A change that never happened, or that is already gone, counts as undone.
    /// Errors: what is left on the node, and why.
    fn run(&self, sides: &Sides) -> Result<(), Left>;
}

/// A change that an undo could not take back. Its text appears in the error's `details` among what was left behind.
#[derive(Debug)]
pub enum Left {
    /// Operations on the node that failed, each with its object and errno.
    Refused(Vec<OpError>),
    /// A call that failed: the namespace cannot be opened, or the address plugin refused.
    Failed(CniError),
    /// An object that was kept, or that a program of the node did not remove: the sentence has the reason.
    Kept(String),
}

impl From<OpError> for Left {
    fn from(error: OpError) -> Self {
        Self::Refused(vec![error])
    }
}

impl From<CniError> for Left {
    fn from(error: CniError) -> Self {
        Self::Failed(error)
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(errors) => {
                f.write_str(&errors.iter().map(OpError::to_string).collect::<Vec<String>>().join("; "))
            }
            Self::Failed(error) => error.fmt(f),
            Self::Kept(sentence) => f.write_str(sentence),
        }
    }
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request | Self::Lease => f.write_str("addresses released"),
            Self::Filter => f.write_str("masquerade and spoof guard removed"),
            Self::HostLink(link) => link.fmt(f),
            Self::ContainerLink(link) => write!(f, "link {} deleted in the container", link.name),
            Self::Own(own) => f.write_str(&own.text()),
        }
    }
}

/// Undoes the changes of one ADD. The addresses stay leased while any other part of the attachment is left.
pub(crate) struct AddUndoer<'a> {
    pub(crate) attachment: &'a Attachment,
    pub(crate) sides: &'a Sides,
    pub(crate) link: LinkKind,
    pub(crate) ipam: Option<&'a Delegate<'a>>,
    /// `PATH`, for iptables.
    pub(crate) search_path: &'a str,
    pub(crate) made: Cell<MadeLinks>,
    /// A rule or a link of the attachment is still there.
    pub(crate) is_left: Cell<bool>,
}

impl Undoer for AddUndoer<'_> {
    type Undo = Undo;
    type Left = Left;

    async fn undo(&self, undo: &Undo) -> Result<(), Left> {
        let undone = match undo {
            Undo::Request if self.ipam.is_some_and(Delegate::is_all_or_nothing) => Ok(()),
            Undo::Filter if self.lives(self.made.get()) => {
                Err(Left::Kept(format!("masquerade and spoof guard stay {OTHERS}")))
            }
            Undo::Request | Undo::Lease if !self.releases_by_link() && self.lives(self.made.get()) => {
                Err(Left::Kept(format!("the addresses stay held {OTHERS}")))
            }
            // Undone last. DEL releases in the same order.
            Undo::Request | Undo::Lease if self.is_left.get() => {
                Err(Left::Kept("the addresses stay held for what is left".to_owned()))
            }
            Undo::Request | Undo::Lease => self.release().await.map_err(Left::from),
            Undo::Filter => {
                let known = RemovalHints { search_path: self.search_path, ..RemovalHints::default() };
                let mut errors = cni_filter::remove_all(self.attachment.into(), known);
                // Without the right to read rules there was none to make them either.
                errors.retain(|error| self.made.get().may_have_rules || error.os_errno() != Some(Errno::EPERM));
                if errors.is_empty() { Ok(()) } else { Err(Left::Refused(errors)) }
            }
            Undo::HostLink(link) => link.run(&self.sides.host).map_err(Left::from),
            Undo::ContainerLink(link) => {
                let netns = &self.sides.netns;
                let removed = Kernel::in_netns(netns).and_then(|net| link_removal::remove_in(netns, net, link));
                removed.map_err(Left::from)
            }
            Undo::Own(own) => own.run(self.sides),
        };
        self.is_left.set(self.is_left.get() || undone.is_err());
        undone
    }
}

/// Why a rollback leaves what has only the attachment's name.
const OTHERS: &str = "for a link of this attachment that another ADD made";

/// The links that an ADD has made, and whether it may have made rules.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MadeLinks {
    pub(crate) has_host_end: bool,
    pub(crate) container: Option<u32>,
    pub(crate) may_have_rules: bool,
}

impl AddUndoer<'_> {
    /// Whether the attachment has a link beside those that this ADD has made: then rules and addresses are that link's.
    /// Where the links cannot be read, it may have one.
    pub(crate) fn lives(&self, made: MadeLinks) -> bool {
        self.has_link_beside(made).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot see whether the attachment has another link");
            true
        })
    }

    /// Asks by new connections whether the attachment has another link: a connection that has failed may still have an answer to what it
    /// was asked.
    fn has_link_beside(&self, made: MadeLinks) -> netops::error::Result<bool> {
        match self.link {
            LinkKind::Veth if made.has_host_end => Ok(false),
            LinkKind::Veth => Ok(host_veth::find_living(&Kernel::host()?, self.attachment)?.is_some()),
            LinkKind::ContainerOnly(_) => {
                let alias = alias::of(self.attachment);
                let is_other = |link: &Link| Some(link.index) != made.container && link.alias.as_ref() == Some(&alias);
                Ok(link::list(&Kernel::in_netns(&self.sides.netns)?, None)?.iter().any(is_other))
            }
        }
    }

    /// The release goes out by the link of this ADD, before that is deleted.
    fn releases_by_link(&self) -> bool {
        self.ipam.is_some_and(Delegate::releases_by_link)
    }

    async fn release(&self) -> Result<(), CniError> {
        match self.ipam {
            Some(ipam) => ipam.del().await,
            None => Ok(()),
        }
    }
}

/// The error that stopped ADD, or code 109 if ADD was interrupted; `details` lists what was undone and what is left.
pub fn not_done(failed: Failed<CniError>) -> CniError {
    let aftermath = failed.aftermath();
    let error = match failed.why {
        Why::Error(error) => error,
        Why::Cancelled => CniError::new(Code::INTERRUPTED, "cannot finish ADD: a signal asked the process to end"),
    };
    error.detail(aftermath)
}
