//! The host end of a container's veth, and its name, which DEL can compute from network, container and ifname alone.
//!
//! DEL and GC identify the link by the alias. The name only saves them from searching all links.

use std::hash::{BuildHasher, Hasher, RandomState};

use cni_spec::gc::Sweep;
use cni_spec::{Attachment, NetworkName};
use netops::error::Result;
use netops::link::{self, Kind, Link};
use netops::{Kernel, veth_peer};

use crate::alias::{self, hex};

/// The host end's name: `veth` and 8 hexadecimal digits that depend on nothing but the attachment.
pub fn name(attachment: &Attachment) -> String {
    let Attachment { network, container_id, ifname } = attachment;
    format!("veth{}", hex(&format!("{network}\0{container_id}\0{ifname}"), 4))
}

/// Whether the link is the attachment's host end.
pub fn is_of(attachment: &Attachment, link: &Link) -> bool {
    link.kind == Kind::Veth && link.alias.as_deref() == Some(alias::of(attachment).as_str())
}

/// The attachment's host end. All links are searched only if another link has the computed name: ADD chose another name
/// then.
pub fn find(net: &Kernel, attachment: &Attachment) -> Result<Option<Link>> {
    match link::find(net, &name(attachment))? {
        Some(link) if !is_of(attachment, &link) => find_among_all(net, attachment),
        found => Ok(found),
    }
}

/// The attachment's host end, if the container's end is in a namespace that exists.
/// Errors: as [`find`]; the kernel does not say whether the namespace exists.
pub fn find_living(net: &Kernel, attachment: &Attachment) -> Result<Option<Link>> {
    let Some(link) = find(net, attachment)? else { return Ok(None) };
    Ok(veth_peer::leads_to_a_namespace(net, &link)?.then_some(link))
}

/// Finds the attachment's host end by its alias, whatever its name. Reads all links.
pub(crate) fn find_among_all(net: &Kernel, attachment: &Attachment) -> Result<Option<Link>> {
    Ok(link::list(net, None)?.into_iter().find(|link| is_of(attachment, link)))
}

/// The host ends of a network's attachments that GC removes. Reads all links: for GC only.
pub fn list_stale(net: &Kernel, network: &NetworkName, sweep: &Sweep<&Attachment>) -> Result<Vec<Link>> {
    alias::list_stale_of(net, &Kind::Veth, network, sweep)
}

/// Another name, for the case that another link has the computed one.
pub fn random_name() -> String {
    // The hasher's key is random in each process.
    let random = RandomState::new().build_hasher().finish();
    format!("veth{:08x}", random & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(network: &str, container: &str) -> Attachment {
        Attachment::parse(network, container, "eth0").unwrap()
    }

    #[test]
    fn names_depend_on_the_whole_attachment() {
        let one = name(&of("net", "c1"));
        assert_eq!((one.len(), &one[..4]), (12, "veth"));
        assert_eq!(one, name(&of("net", "c1")));
        assert_ne!(one, name(&of("net", "c2")));
        assert_ne!(name(&of("a", "bc")), name(&of("ab", "c")));
    }

    #[test]
    fn another_veth_by_that_name_is_not_the_attachments() {
        let attachment = of("net", "c1");
        let own = Link { kind: Kind::Veth, alias: Some(alias::of(&attachment)), ..Link::default() };
        assert!(is_of(&attachment, &own));
        assert!(!is_of(&attachment, &Link { alias: None, ..own.clone() }));
        assert!(!is_of(&attachment, &Link { kind: Kind::Dummy, ..own }));
    }
}
