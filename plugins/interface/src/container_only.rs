//! A link that exists in the container only: how DEL finds it. The kernel deletes it with its namespace.

use netops::error::Result;
use netops::link::{self, Place};
use netops::{Kernel, unlink};

use crate::detach::Detaching;
use crate::{host_veth, veth};

/// Deletes the container's link, if it belongs to the attachment.
///
/// An alias in our form names the attachment. A link without an alias (the reference sets none) is deleted if it is of
/// this kind and the namespace is known to be the container's.
///
/// # Errors
/// The link is still there, or could not be read.
pub fn remove<R>(detaching: &Detaching<'_, R>, kind: &str) -> Result<()> {
    let Detaching { attachment, prev, netns: Some(netns), .. } = *detaching else { return Ok(()) };
    let inside = Kernel::in_netns(netns)?;
    let Some(found) = link::find(&inside, attachment.ifname.as_str())?.filter(|link| link.kind.name() == kind) else {
        return Ok(());
    };
    let is_own = match host_veth::is_marked(&found) {
        true => found.alias.as_deref() == Some(&*host_veth::alias(attachment)),
        false => veth::is_credible(attachment, prev, netns, &found),
    };
    if !is_own {
        return Ok(());
    }
    unlink::remove_in(Place { netns, kernel: &inside }, &found)
}
