//! An attachment: one interface of one container in one network (SPEC 2, Attachment).

use crate::error::CniError;
use crate::names::{ContainerId, IfName, NetworkName};
use std::fmt;

/// An attachment. The names of a plugin's objects (links, chains, files) are functions of these three names, in the
/// crate that makes those objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attachment {
    /// The network.
    pub network: NetworkName,
    /// The container.
    pub container_id: ContainerId,
    /// The container's interface.
    pub ifname: IfName,
}

impl Attachment {
    /// The attachment with these names.
    ///
    /// # Errors
    /// Code 4 or 7 for a name that the specification does not allow.
    pub fn parse(network: &str, container_id: &str, ifname: &str) -> Result<Self, CniError> {
        Ok(Self {
            network: NetworkName::parse(network)?,
            container_id: ContainerId::parse(container_id)?,
            ifname: IfName::parse(ifname)?,
        })
    }
}

impl fmt::Display for Attachment {
    /// `NETWORK/CONTAINER/IFNAME`; none of the three contains a slash.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { network, container_id, ifname } = self;
        write!(f, "{network}/{container_id}/{ifname}")
    }
}
