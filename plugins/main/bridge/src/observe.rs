//! What ADD, CHECK and DEL look at before they do anything.

use cni_spec::{CniError, Code, ContainerId, IfName, NetworkName};
use interface::host_veth::Owner;
use interface::{error, failed};
use netops::link::{self, Kind, Link};
use netops::{Kernel, Netns};
use skel::NetnsPath;

/// The node and one container.
pub(crate) struct Places {
    /// The node.
    pub(crate) host: Kernel,
    /// The container's namespace.
    pub(crate) netns: Netns,
    /// The container.
    pub(crate) inside: Kernel,
}

impl Places {
    pub(crate) fn open(netns: &NetnsPath) -> Result<Self, CniError> {
        let netns = error::open_netns(netns)?;
        let inside = Kernel::in_netns(&netns).map_err(failed)?;
        Ok(Self { host: Kernel::host().map_err(failed)?, netns, inside })
    }

    /// A taken name must be told before anything is done, IPAM included.
    pub(crate) fn refuse_taken(&self, ifname: &IfName) -> Result<(), CniError> {
        match link::find(&self.inside, ifname.as_str()).map_err(failed)? {
            None => Ok(()),
            Some(link) => {
                let kind = if link.kind == Kind::None { "link" } else { link.kind.name() };
                let place = self.inside.place();
                Err(CniError::new(
                    Code::EXISTS,
                    format!("cannot create interface {ifname} in {place}: a {kind} of that name already exists"),
                )
                .detail("Call DEL for the attachment that has it, or use another CNI_IFNAME."))
            }
        }
    }
}

/// The bridge of this name, if there is one.
///
/// # Errors
/// Code 103: a link of another kind has the name.
pub(crate) fn find_bridge(host: &Kernel, name: &str) -> Result<Option<Link>, CniError> {
    match link::find(host, name).map_err(failed)? {
        Some(link) if !link.kind.is_bridge() => {
            let msg =
                format!("cannot use bridge {name} on {}: {name} already exists and is a {}", host.place(), link.kind);
            Err(CniError::new(Code::EXISTS, msg).detail("Choose another name by key bridge."))
        }
        found => Ok(found),
    }
}

/// Whose attachment a request is about.
pub(crate) fn owner<'a>(network: &'a NetworkName, container_id: &'a ContainerId, ifname: &'a IfName) -> Owner<'a> {
    Owner { network, container_id, ifname }
}
