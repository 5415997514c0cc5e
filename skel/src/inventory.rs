//! The objects that a plugin has left on the node: a runtime has to know before GC what GC would remove, and whose it is.
//!
//! A plugin that leaves things outside the container has a function that lists them, from the same code by which its GC
//! finds them. Nothing in here is used by ADD or DEL.

use cni_spec::{Attachment, ContainerId, IfName};
use std::net::IpAddr;
use std::path::PathBuf;

/// An object on the node that GC would remove if no attachment were valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The object's owner.
    pub owner: Owner,
    /// The object, as text for people.
    pub object: String,
    /// The object's signs of the container. Empty: none, so the attachment's other items decide.
    pub signs: Vec<Sign>,
}

/// The owner of an object, as far as the object itself says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// The interface of a container.
    Attachment(ContainerId, IfName),
    /// An interface of this container.
    Container(ContainerId),
    /// The attachment of which a function of the plugin makes this word, such as a hash.
    Word(String),
}

/// The sign by which to see whether a container lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sign {
    /// The container lives as long as this namespace exists.
    Namespace {
        /// The namespace's path when it was recorded.
        path: PathBuf,
        /// The namespace's device and inode, which count; the path may lead to another namespace.
        numbers: [u64; 2],
    },
    /// The container has this address.
    Address(IpAddr),
    /// The other end of the host's link with this index is in the container.
    Link(u32),
    /// The container may live, and nothing can be seen of it.
    Unknown,
    /// The thing has no sign, though its container may live: counts as [`Sign::Unknown`] where no other item of the attachment
    /// has a sign.
    Undecided,
}

impl From<&Attachment> for Owner {
    fn from(attachment: &Attachment) -> Self {
        Self::Attachment(attachment.container_id.clone(), attachment.ifname.clone())
    }
}
