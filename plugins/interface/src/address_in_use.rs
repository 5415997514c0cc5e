//! Whether a container uses addresses that are reserved for it, as far as namespaces show it.

use std::net::IpAddr;

use cni_spec::{Attachment, ContainerId, IfName, NetworkName};
use netops::all_namespaces::AllNamespaces;

use crate::alias::{self, Mark};

/// Whether a namespace has one of the addresses, or a link with the attachment's mark: a virtual machine behind that link may
/// have the address. Without `ifname` any interface of the container counts. `None`: unknown, as not all namespaces could be
/// searched.
pub fn find(
    places: &AllNamespaces,
    (network, container_id, ifname): (&NetworkName, &ContainerId, Option<&IfName>),
    addresses: &[IpAddr],
) -> Option<bool> {
    let is_marked = match ifname.cloned() {
        Some(ifname) => {
            let (network, container_id) = (network.clone(), container_id.clone());
            places.has_alias(&alias::of(&Attachment { network, container_id, ifname }))
        }
        None => {
            let is_its =
                |mark: Mark<'_>| mark.attachment_to(network).is_some_and(|of| of.container_id == *container_id);
            places.aliases().filter_map(Mark::parse).any(is_its)
        }
    };
    if is_marked { Some(true) } else { places.find(addresses) }
}
