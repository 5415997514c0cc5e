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

/// What every mark begins with.
const PREFIX: &str = "cni:";

/// The alias of an attachment's link, `cni:NETWORK/CONTAINER/IFNAME`. [`Mark::parse`] takes it apart.
pub fn of(attachment: &Attachment) -> String {
    let prefix = format!("{PREFIX}{}/", network_word(&attachment.network));
    let alias = format!("{prefix}{}/{}", attachment.container_id, attachment.ifname);
    if alias.len() <= ALIAS_BYTES_MAX {
        return alias;
    }
    // An alias that is too long is replaced by a hash of it. `#` cannot occur in a container ID.
    format!("{prefix}#{}", hex(&alias, 32))
}

/// The network's name, as the aliases of its links have it. A long one is hashed, as a long alias is.
fn network_word(network: &NetworkName) -> String {
    let prefix = format!("{PREFIX}{network}/");
    if prefix.len() <= ALIAS_BYTES_MAX - 80 {
        return network.to_string();
    }
    format!("#{}", hex(&prefix, 32))
}

/// The mark that an alias is, taken apart; it may name any attachment, also one that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark<'a> {
    /// The network's name, or `#` and a hash of a long one.
    network: &'a str,
    /// `CONTAINER/IFNAME`, or `#` and a hash of a long alias.
    rest: &'a str,
}

impl<'a> Mark<'a> {
    /// The mark that an alias is. `None`: the alias is not of this form.
    pub fn parse(alias: &'a str) -> Option<Self> {
        let (network, rest) = alias.strip_prefix(PREFIX)?.split_once('/')?;
        Some(Self { network, rest })
    }

    /// The mark that a link's alias is.
    pub fn of_link(link: &'a Link) -> Option<Self> {
        Self::parse(link.alias.as_deref()?)
    }

    /// The network that the mark names. `None`: the mark has a hash in its place.
    pub fn network(self) -> Option<NetworkName> {
        NetworkName::parse(self.network).ok()
    }

    /// Whether the mark is of an attachment to the network.
    pub fn is_of_network(self, network: &NetworkName) -> bool {
        self.network == network_word(network)
    }

    /// The attachment that the mark names. `None`: a part of the mark is a hash.
    pub fn attachment(self) -> Option<Attachment> {
        self.attachment_to(&self.network()?)
    }

    /// The attachment that the mark names, if it belongs to this network. `None` also for a hash in place of container and
    /// interface.
    pub fn attachment_to(self, network: &NetworkName) -> Option<Attachment> {
        let (container_id, ifname) = self.rest.split_once('/').filter(|_| self.is_of_network(network))?;
        Attachment::parse(network.as_str(), container_id, ifname).ok()
    }

    /// The container ID. `None`: the mark has a hash in its place.
    pub fn container_id(self) -> Option<&'a str> {
        Some(self.rest.split_once('/')?.0)
    }

    /// Whether a part was too long to be written out.
    pub(crate) fn is_hashed(self) -> bool {
        self.network.starts_with('#') || self.rest.starts_with('#')
    }
}

/// Whether the alias is of our form, whichever attachment it names.
pub fn is_marked(link: &Link) -> bool {
    Mark::of_link(link).is_some()
}

/// The links of a kind that bear the mark of an attachment to the network: those that GC removes, if the attachment
/// is not valid. [`Mark::attachment_to`] is the attachment of each.
pub fn marked<'a>(links: &'a [Link], kind: &'a Kind, network: &NetworkName) -> impl Iterator<Item = &'a Link> {
    let word = network_word(network);
    let is_marked = move |link: &&Link| Mark::of_link(link).is_some_and(|mark| mark.network == word);
    links.iter().filter(move |link| link.kind == *kind).filter(is_marked)
}

/// The links of a kind that bear the mark of an attachment to the network that GC removes. Reads all links: for GC only.
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
        let mark = Mark::parse("cni:net/c1/eth0").unwrap();
        assert_eq!(mark.attachment(), Some(attachment("net", "c1")));
        assert_eq!(mark.attachment_to(&NetworkName::parse("ne").unwrap()), None);
    }

    #[test]
    fn long_names_still_fit_and_differ() {
        for (network, container) in [(4, 255), (255, 255), (255, 4), (170, 70)] {
            let network = "n".repeat(network);
            let one = of(&attachment(&network, &"c".repeat(container)));
            let two = of(&attachment(&network, &format!("{}d", "c".repeat(container - 1))));
            assert!(one.len() <= ALIAS_BYTES_MAX && one != two, "{one}");
            // An alias that contains its attachment in plain text contains the right one.
            let (name, mark) = (NetworkName::parse(&network).unwrap(), Mark::parse(&one).unwrap());
            match mark.attachment_to(&name) {
                Some(attachment) => assert_eq!(of(&attachment), one),
                None => assert!(mark.is_hashed(), "{one}"),
            }
            assert!(mark.is_of_network(&name), "{one}");
        }
    }
}
