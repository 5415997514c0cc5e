//! The host end of a container's veth: its name, which DEL can compute from network, container and ifname alone, and
//! its alias, which identifies the attachment.
//!
//! DEL and GC identify the link by the alias. The name only saves them from searching all links.

use std::fmt::Write;
use std::hash::{BuildHasher, Hasher, RandomState};

use cni_spec::collection::Sweep;
use cni_spec::{Attachment, NetworkName};
use netops::error::Result;
use netops::link::{self, Kind, Link};
use netops::{Kernel, pair};
use sha2::{Digest, Sha512};

/// The longest alias (`IFALIASZ` less the final NUL).
const ALIAS_BYTES_MAX: usize = 255;

/// The host end's name: `veth` and 8 hexadecimal digits that depend on nothing but the attachment.
#[must_use]
pub fn name(attachment: &Attachment) -> String {
    let Attachment { network, container_id, ifname } = attachment;
    format!("veth{}", hex(&format!("{network}\0{container_id}\0{ifname}"), 4))
}

/// The alias of an attachment's host end, `cni:NETWORK/CONTAINER/IFNAME`.
#[must_use]
pub fn alias(attachment: &Attachment) -> String {
    let prefix = prefix(&attachment.network);
    let alias = format!("{prefix}{}/{}", attachment.container_id, attachment.ifname);
    if alias.len() <= ALIAS_BYTES_MAX {
        return alias;
    }
    // An alias that is too long is replaced by a hash of it. `#` cannot occur in a container ID.
    format!("{prefix}#{}", hex(&alias, 32))
}

/// Whether the link is the attachment's host end.
#[must_use]
pub fn is_of(attachment: &Attachment, link: &Link) -> bool {
    link.kind == Kind::Veth && link.alias.as_deref() == Some(alias(attachment).as_str())
}

/// The attachment's host end. All links are searched only if another link has the computed name: ADD chose another name
/// then.
///
/// # Errors
/// As [`link::find`].
pub fn find(net: &Kernel, attachment: &Attachment) -> Result<Option<Link>> {
    match link::find(net, &name(attachment))? {
        Some(link) if !is_of(attachment, &link) => find_among_all(net, attachment),
        found => Ok(found),
    }
}

/// The attachment's host end, if the container's end is in a namespace that exists.
///
/// # Errors
/// As [`find`]; the kernel does not say whether the namespace exists.
pub fn find_living(net: &Kernel, attachment: &Attachment) -> Result<Option<Link>> {
    let Some(link) = find(net, attachment)? else { return Ok(None) };
    Ok(pair::leads_to_a_namespace(net, &link)?.then_some(link))
}

/// Finds the attachment's host end by its alias, whatever its name. Reads all links.
///
/// # Errors
/// As [`link::list`].
pub fn find_among_all(net: &Kernel, attachment: &Attachment) -> Result<Option<Link>> {
    Ok(link::list(net, None)?.into_iter().find(|link| is_of(attachment, link)))
}

/// The attachment that a link's alias names, if it belongs to this network. `None`: the link has no alias, or the alias
/// is a hash.
#[must_use]
pub fn find_attachment(network: &NetworkName, link: &Link) -> Option<Attachment> {
    find_in_mark(network, link.alias.as_deref()?)
}

/// As [`find_attachment`], of the alias alone.
#[must_use]
pub fn find_in_mark(network: &NetworkName, alias: &str) -> Option<Attachment> {
    let (container_id, ifname) = alias.strip_prefix(&prefix(network))?.split_once('/')?;
    Attachment::parse(network.as_str(), container_id, ifname).ok()
}

/// The prefix of all aliases of a network. A long network name is hashed, as a long alias is.
fn prefix(network: &NetworkName) -> String {
    let prefix = format!("cni:{network}/");
    if prefix.len() <= ALIAS_BYTES_MAX - 80 {
        return prefix;
    }
    format!("cni:#{}/", hex(&prefix, 32))
}

/// Whether the alias is of our form, whichever attachment it names.
#[must_use]
pub fn is_marked(link: &Link) -> bool {
    link.alias.as_deref().is_some_and(|alias| alias.starts_with("cni:") && alias.contains('/'))
}

/// The network that a mark names. `None`: the link has no mark, or one with a hash.
#[must_use]
pub fn find_network(link: &Link) -> Option<NetworkName> {
    let (network, _) = link.alias.as_deref()?.strip_prefix("cni:")?.split_once('/')?;
    NetworkName::parse(network).ok()
}

/// The links of a kind that bear the mark of an attachment to the network: those that GC removes, if the attachment
/// is not valid. [`find_attachment`] finds the attachment of each.
pub fn marked<'a>(links: &'a [Link], kind: &'a Kind, network: &NetworkName) -> impl Iterator<Item = &'a Link> {
    let prefix = prefix(network);
    let is_marked = move |link: &&Link| link.alias.as_deref().is_some_and(|alias| alias.starts_with(&prefix));
    links.iter().filter(move |link| link.kind == *kind).filter(is_marked)
}

/// The host ends of a network's attachments that GC removes. Reads all links: for GC only.
///
/// # Errors
/// As [`link::list`].
pub fn list_stale(net: &Kernel, network: &NetworkName, sweep: &Sweep<&Attachment>) -> Result<Vec<Link>> {
    list_stale_of(net, &Kind::Veth, network, sweep)
}

/// The links of a kind that bear the mark of an attachment to the network that GC removes. Reads all links: for GC only.
///
/// # Errors
/// As [`link::list`].
pub fn list_stale_of(
    net: &Kernel,
    kind: &Kind,
    network: &NetworkName,
    sweep: &Sweep<&Attachment>,
) -> Result<Vec<Link>> {
    let stale = sweep.by(|attachment| alias(attachment));
    let is_stale = |link: &&Link| stale.has(link.alias.as_deref().unwrap_or_default());
    let links = link::list(net, None)?;
    Ok(marked(&links, kind, network).filter(is_stale).cloned().collect())
}

/// Another name, for the case that another link has the computed one.
#[must_use]
pub fn random_name() -> String {
    // The hasher's key is random in each process.
    let random = RandomState::new().build_hasher().finish();
    format!("veth{:08x}", random & 0xffff_ffff)
}

fn hex(text: &str, bytes: usize) -> String {
    Sha512::digest(text).iter().take(bytes).fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(network: &str, container: &str) -> Attachment {
        Attachment::parse(network, container, "eth0").unwrap()
    }

    #[test]
    fn names_and_marks_depend_on_the_whole_attachment() {
        let one = name(&of("net", "c1"));
        assert_eq!((one.len(), &one[..4]), (12, "veth"));
        assert_eq!(one, name(&of("net", "c1")));
        assert_ne!(one, name(&of("net", "c2")));
        assert_ne!(name(&of("a", "bc")), name(&of("ab", "c")));
        assert_eq!(alias(&of("net", "c1")), "cni:net/c1/eth0");
        let marked = Link { alias: Some("cni:net/c1/eth0".into()), ..Link::default() };
        assert_eq!(find_attachment(&NetworkName::parse("net").unwrap(), &marked), Some(of("net", "c1")));
        assert_eq!(find_attachment(&NetworkName::parse("ne").unwrap(), &marked), None);
    }

    #[test]
    fn long_names_still_fit_and_differ() {
        for (network, container) in [(4, 255), (255, 255), (255, 4), (170, 70)] {
            let network = "n".repeat(network);
            let one = alias(&of(&network, &"c".repeat(container)));
            let two = alias(&of(&network, &format!("{}d", "c".repeat(container - 1))));
            assert!(one.len() <= ALIAS_BYTES_MAX && one != two, "{one}");
            // An alias that contains its attachment in plain text contains the right one.
            let marked = Link { alias: Some(one.clone()), ..Link::default() };
            let name = NetworkName::parse(&network).unwrap();
            if let Some(attachment) = find_attachment(&name, &marked) {
                assert_eq!(alias(&attachment), one);
            }
            assert!(one.starts_with(&prefix(&name)));
        }
    }

    #[test]
    fn another_veth_by_that_name_is_not_the_attachments() {
        let attachment = of("net", "c1");
        let own = Link { kind: Kind::Veth, alias: Some(alias(&attachment)), ..Link::default() };
        assert!(is_of(&attachment, &own));
        assert!(!is_of(&attachment, &Link { alias: None, ..own.clone() }));
        assert!(!is_of(&attachment, &Link { kind: Kind::Dummy, ..own }));
    }
}
