//! The alias of an attachment's link, which is the suite's mark: on the node, it is that of a veth's host end; a link that is in the
//! container alone has it there.

use std::fmt::Write;

use cni_spec::gc::Sweep;
use cni_spec::{Attachment, NetworkName};
use netops::Kernel;
use netops::error::Result;
use netops::link::{self, Kind, Link};
use sha2::{Digest, Sha512};

/// The longest alias (`IFALIASZ` less the final NUL).
const ALIAS_BYTES_MAX: usize = 255;

/// The alias of an attachment's link, `cni:NETWORK/CONTAINER/IFNAME`.
#[must_use]
pub fn of(attachment: &Attachment) -> String {
    let prefix = prefix(&attachment.network);
    let alias = format!("{prefix}{}/{}", attachment.container_id, attachment.ifname);
    if alias.len() <= ALIAS_BYTES_MAX {
        return alias;
    }
    // An alias that is too long is replaced by a hash of it. `#` cannot occur in a container ID.
    format!("{prefix}#{}", hex(&alias, 32))
}

/// The attachment that a link's alias names, if it belongs to this network. `None`: the link has no alias, or the alias
/// is a hash.
#[must_use]
pub fn find_attachment(network: &NetworkName, link: &Link) -> Option<Attachment> {
    find_in_alias(network, link.alias.as_deref()?)
}

/// As [`find_attachment`], of the alias alone.
#[must_use]
pub fn find_in_alias(network: &NetworkName, alias: &str) -> Option<Attachment> {
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
    let stale = sweep.by(|attachment| of(attachment));
    let is_stale = |link: &&Link| stale.has(link.alias.as_deref().unwrap_or_default());
    let links = link::list(net, None)?;
    Ok(marked(&links, kind, network).filter(is_stale).cloned().collect())
}

/// The first bytes of a text's SHA-512, in hexadecimal.
pub(crate) fn hex(text: &str, bytes: usize) -> String {
    Sha512::digest(text).iter().take(bytes).fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(network: &str, container: &str) -> Attachment {
        Attachment::parse(network, container, "eth0").unwrap()
    }

    #[test]
    fn an_alias_names_its_attachment() {
        assert_eq!(of(&attachment("net", "c1")), "cni:net/c1/eth0");
        let marked = Link { alias: Some("cni:net/c1/eth0".into()), ..Link::default() };
        assert_eq!(find_attachment(&NetworkName::parse("net").unwrap(), &marked), Some(attachment("net", "c1")));
        assert_eq!(find_attachment(&NetworkName::parse("ne").unwrap(), &marked), None);
    }

    #[test]
    fn long_names_still_fit_and_differ() {
        for (network, container) in [(4, 255), (255, 255), (255, 4), (170, 70)] {
            let network = "n".repeat(network);
            let one = of(&attachment(&network, &"c".repeat(container)));
            let two = of(&attachment(&network, &format!("{}d", "c".repeat(container - 1))));
            assert!(one.len() <= ALIAS_BYTES_MAX && one != two, "{one}");
            // An alias that contains its attachment in plain text contains the right one.
            let marked = Link { alias: Some(one.clone()), ..Link::default() };
            let name = NetworkName::parse(&network).unwrap();
            if let Some(attachment) = find_attachment(&name, &marked) {
                assert_eq!(of(&attachment), one);
            }
            assert!(one.starts_with(&prefix(&name)));
        }
    }
}
