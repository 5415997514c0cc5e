//! All objects of a network on the node, of any runtime: GC needs them before it decides which attachments are valid.
//!
//! A cache knows the attachments of its own runtime. Another runtime, or another cache folder, may have attached
//! containers to the same network, and plugins remove what is not in the list that they get. So a caller that makes
//! that list has to look at the node first, or say that it does not. This crate knows nothing of networking: an [`Inventory`] does.

use crate::attachment::AttachmentId;
use crate::conflist::NetworkConf;
use cni_spec::CniError;
use std::fmt;

pub use crate::gc::keep::Survey;

/// Lists what is on the node.
pub trait Inventory {
    /// Everything that GC of the network's plugins would remove if no attachment were valid. `known` are the
    /// attachments that the caller knows of: some marks can be decoded only with them.
    ///
    /// # Errors
    /// The node's state cannot be read.
    fn list(&self, network: &NetworkConf, known: &[AttachmentId]) -> Result<Vec<OnNode>, CniError>;
}

/// The objects of one attachment on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnNode {
    /// The attachment; `None` if the mark does not identify it.
    pub id: Option<AttachmentId>,
    /// Links, addresses and rules, as text for people.
    pub objects: Vec<String>,
    /// Whether the object's container lives.
    pub life: Life,
}

/// Whether the container of an object on the node lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Life {
    /// No sign of life.
    Gone,
    /// The object was created less than a minute ago: an ADD may be in progress.
    Young,
    /// Whether the container lives cannot be determined.
    Unknown,
    /// The object is used by a network namespace that exists.
    Lives,
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Life::Gone => "no container was found that uses it",
            Life::Young => "it is younger than a minute",
            Life::Unknown => "it is unknown whether its container lives",
            Life::Lives => "a network namespace uses it",
        })
    }
}
