//! A link that exists in the container only: how DEL finds it. The kernel deletes it with its namespace.

use cni_spec::{AddResult, Attachment};
use netops::error::Result;
use netops::link::{self, Link};
use netops::{Kernel, unlink};

use crate::detach::Detaching;
use crate::{host_veth, veth};

/// Deletes the container's link, if it belongs to the attachment.
///
/// An alias in our form names the attachment, also where the container has renamed the link. A link with another alias, or
/// without one (the reference sets none), is deleted if it has the interface's name, is of this kind, and the namespace is
/// known to be the container's; unless it belongs to another network.
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
        Some(named) if belongs_to_another(attachment, prev, &named) => {
            let (link, alias, netns) = (&named.name, &named.alias, netns.path().display());
            tracing::warn!(link, alias, %netns, "left alone: its alias names another attachment of this container");
        }
        Some(named) if veth::is_credible(attachment, prev, netns, &named) => {
            unlink::remove_in(netns, Kernel::in_netns(netns)?, &named)?;
        }
        Some(_) | None => {}
    }
    link::list(&container, None)?
        .iter()
        .filter(|link| is_marked_own(link))
        .try_for_each(|link| unlink::remove_in(netns, Kernel::in_netns(netns)?, link))
}

/// Whether the link is the container's interface of this name in another network, whose alias it has: the runtime calls DEL
/// after an ADD that failed for the taken name.
///
/// The container can write any alias. Nothing that names another container or interface is believed, as such a link cannot be
/// here, and no alias of a link that has the Ethernet address of ADD's result.
fn belongs_to_another(attachment: &Attachment, prev: Option<&AddResult>, link: &Link) -> bool {
    let Some(named) = host_veth::find_network(link).and_then(|network| host_veth::find_attachment(&network, link))
    else {
        return false;
    };
    let is_here = named.container_id == attachment.container_id && named.ifname.as_str() == link.name;
    is_here && named.network != attachment.network && !veth::is_of_result(attachment, prev, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_alias_that_may_be_true_makes_a_link_anothers() {
        let own = Attachment::parse("net", "c1", "eth0").unwrap();
        let is_anothers = |alias: &str| {
            let link = Link { name: "eth0".into(), alias: Some(alias.into()), ..Link::default() };
            belongs_to_another(&own, None, &link)
        };
        assert!(is_anothers("cni:other/c1/eth0"));
        for lie in
            ["cni:other/c2/eth0", "cni:other/c1/eth1", "cni:net/c1/eth0", "cni:x/y", "cni:#0/#1", "free text", ""]
        {
            assert!(!is_anothers(lie), "{lie}");
        }
    }
}
