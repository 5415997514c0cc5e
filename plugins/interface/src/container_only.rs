//! A link that exists in the container only: how DEL finds it. The kernel deletes it with its namespace.

use netops::error::Result;
use netops::link::{self, Link};
use netops::{Kernel, unlink};

use crate::detach::Detaching;
use crate::{host_veth, veth};

/// Deletes the container's link, if it belongs to the attachment.
///
/// An alias in our form names the attachment, also where the container has renamed the link. A link without an alias (the
/// reference sets none) is deleted if it has the interface's name, is of this kind, and the namespace is known to be the
/// container's.
///
/// # Errors
/// The link is still there, or could not be read.
pub fn remove<R>(detaching: &Detaching<'_, R>, kind: &str) -> Result<()> {
    let Detaching { attachment, prev, netns: Some(netns), .. } = *detaching else { return Ok(()) };
    let container = Kernel::in_netns(netns)?;
    let alias = host_veth::alias(attachment);
    let is_marked_own = |link: &Link| link.kind.name() == kind && link.alias.as_deref() == Some(&*alias);
    let named = link::find(&container, attachment.ifname.as_str())?.filter(|link| link.kind.name() == kind);
    match named {
        Some(named) if is_marked_own(&named) => return unlink::remove_in(netns, container, &named),
        Some(named) if !host_veth::is_marked(&named) && veth::is_credible(attachment, prev, netns, &named) => {
            unlink::remove_in(netns, Kernel::in_netns(netns)?, &named)?;
        }
        Some(_) | None => {}
    }
    link::list(&container, None)?
        .iter()
        .filter(|link| is_marked_own(link))
        .try_for_each(|link| unlink::remove_in(netns, Kernel::in_netns(netns)?, link))
}
