//! The attachment that an object belongs to: comments and chain names that identify it, including those of the reference
//! plugins.

use std::fmt::Write;

use cni_spec::gc::{Sweep, SweptKeys};
use sha2::{Digest, Sha512};

/// The longest comment that nft(8) accepts, in bytes (libnftnl's `NFTNL_UDATA_COMMENT_MAXLEN`).
const NFT_COMMENT_MAX: usize = 128;
/// The longest chain name (`NFT_NAME_MAXLEN` less the final NUL).
const CHAIN_NAME_MAX: usize = 255;

/// The comments and chain names of one [`cni_spec::Attachment`]'s objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Names<'a> {
    /// The network's name.
    pub network: &'a str,
    /// The container's ID.
    pub container: &'a str,
    /// The interface's name inside the container.
    pub ifname: &'a str,
}

impl<'a> From<&'a cni_spec::Attachment> for Names<'a> {
    fn from(attachment: &'a cni_spec::Attachment) -> Self {
        let cni_spec::Attachment { network, container_id, ifname } = attachment;
        Self { network: network.as_str(), container: container_id.as_str(), ifname: ifname.as_str() }
    }
}

impl Names<'_> {
    /// `<N>-<I>`: N is computed from the network's name, I from ifname and container ID. Every comment of an nft object
    /// starts with it; the reference plugins use the same.
    #[must_use]
    pub fn key(&self) -> String {
        let interface = hex(&[self.ifname, ":", self.container], 16);
        format!("{}{interface}", network_prefix(self.network))
    }

    /// The complete comment of an object, readable in a listed ruleset, at most 128 bytes. As a rule's note
    /// ([`crate::iptables::NewRule`]), iptables does not show it. [`Owner`] and [`Stale`] read it.
    #[must_use]
    pub fn comment(&self) -> String {
        let Self { network, container, ifname } = self;
        let mut text = format!("{}, net: {network}, if: {ifname}, id: {container}", self.key());
        text.truncate(text.floor_char_boundary(NFT_COMMENT_MAX));
        text
    }

    /// Recognises this attachment's objects; one hash is enough for any number of them.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner(self.key())
    }

    /// The names of a spoof guard's objects: the reference's names, if they fit and are unambiguous.
    pub(crate) fn spoof_names(&self) -> SpoofNames {
        let is_ambiguous = self.has_ambiguous_spoof_names();
        let mut id = self.spoof_id();
        if is_ambiguous || id.len() > SPOOF_ID_MAX {
            // Neither container IDs nor interface names contain `/`.
            let digits = hex(&[self.container, if is_ambiguous { "/" } else { "-" }, self.ifname], 32);
            id.truncate(id.floor_char_boundary(SPOOF_ID_MAX - digits.len() - 1));
            id = format!("{id}-{digits}");
        }
        SpoofNames::of(&id)
    }

    /// The reference's names of a spoof guard's objects, if they differ from ours. Other attachments may have the same
    /// names.
    pub(crate) fn ambiguous_spoof_names(&self) -> Option<SpoofNames> {
        let id = self.spoof_id();
        // With longer names the reference's ADD fails.
        (self.has_ambiguous_spoof_names() && id.len() <= SPOOF_ID_MAX).then(|| SpoofNames::of(&id))
    }

    /// In all other IDs the last `-` separates container and interface, and no chain name equals the second chain's
    /// name of another attachment.
    fn has_ambiguous_spoof_names(&self) -> bool {
        self.ifname.contains('-') || self.ifname == "mac"
    }

    fn spoof_id(&self) -> String {
        format!("{}-{}", self.container, self.ifname)
    }

    /// The iptables chain of the reference plugins. It does not depend on ifname: all attachments of a container to a
    /// network share it.
    pub(crate) fn iptables_chain(&self) -> String {
        self.iptables_chain_of("")
    }

    /// The same with a plugin's own infix, such as `DN-`: `CNI-`, the infix and digits, 28 characters in total.
    #[must_use]
    pub fn iptables_chain_of(&self, word: &str) -> String {
        let digits = 24_usize.saturating_sub(word.len());
        let mut hash = hex(&[self.network, self.container], 24);
        hash.truncate(digits);
        format!("CNI-{word}{hash}")
    }
}

const SPOOF_COMMENT: &str = "macspoofchk-";
const SPOOF_IFACE: &str = "cni-br-iface-";
const SPOOF_MAC: &str = "-mac";
/// The kernel's, with the final NUL.
const IFNAMSIZ: usize = 16;
/// The longest ID that fits into the names of both chains.
const SPOOF_ID_MAX: usize = CHAIN_NAME_MAX - SPOOF_IFACE.len() - SPOOF_MAC.len();

/// The names of one attachment's spoof guard. They contain container and interface, but no network.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SpoofNames {
    /// The comment of all its rules.
    pub(crate) comment: String,
    /// The chain for its port.
    pub(crate) iface: String,
    /// The chain that matches its hardware address.
    pub(crate) mac: String,
}

impl SpoofNames {
    fn of(id: &str) -> Self {
        let iface = format!("{SPOOF_IFACE}{id}");
        Self { comment: format!("{SPOOF_COMMENT}{id}"), mac: Self::mac_of(&iface), iface }
    }

    /// Returns whether this is the comment of a spoof guard.
    pub(crate) fn is_comment(comment: &str) -> bool {
        comment.starts_with(SPOOF_COMMENT)
    }

    /// The container and interface in a comment; `None` if a hash follows the ID, so it cannot be separated into the two.
    pub(crate) fn owner_of(comment: &str) -> Option<(&str, &str)> {
        let (container, ifname) = comment.strip_prefix(SPOOF_COMMENT)?.rsplit_once('-')?;
        let is_whole = Names { network: "", container, ifname }.spoof_names().comment == comment;
        (is_whole && ifname.len() < IFNAMSIZ).then_some((container, ifname))
    }

    /// Returns whether this is the name of a spoof guard's port chain.
    pub(crate) fn is_iface(chain: &str) -> bool {
        chain.starts_with(SPOOF_IFACE)
    }

    /// The name of the second chain, computed from that of the first.
    pub(crate) fn mac_of(iface: &str) -> String {
        format!("{iface}{SPOOF_MAC}")
    }
}

/// Identifies an attachment's objects.
#[derive(Debug)]
pub struct Owner(String);

impl Owner {
    /// Whether an object with this comment belongs to the attachment.
    #[must_use]
    pub fn owns(&self, comment: Option<&str>) -> bool {
        comment.and_then(key_of) == Some(&self.0)
    }
}

/// `<N>-`, the start of the keys of all attachments to this network.
pub(crate) fn network_prefix(network: &str) -> String {
    hex(&[network], 16) + "-"
}

/// The `<N>-<I>` in a comment.
pub(crate) fn key_of(comment: &str) -> Option<&str> {
    let key = comment.split(',').next()?;
    (key.len() == 33).then_some(key)
}

/// The objects of a network, of whichever attachment to it.
#[derive(Debug)]
pub struct OfNetwork {
    pub(crate) name: String,
    prefix: String,
}

impl OfNetwork {
    /// The objects of this network.
    #[must_use]
    pub fn new(network: &str) -> Self {
        Self { name: network.to_owned(), prefix: network_prefix(network) }
    }

    /// Whether an object with this comment belongs to the network.
    #[must_use]
    pub fn has(&self, comment: Option<&str>) -> bool {
        self.key(comment).is_some()
    }

    /// The [`Names::key`] in the comment of an object of the network.
    pub(crate) fn key<'a>(&self, comment: Option<&'a str>) -> Option<&'a str> {
        comment.and_then(key_of).filter(|key| key.starts_with(&self.prefix))
    }
}

/// The objects of a network that GC removes.
#[derive(Debug)]
pub struct Stale {
    network: OfNetwork,
    keys: SweptKeys<String>,
}

impl Stale {
    /// The objects of this network's attachments that GC removes.
    #[must_use]
    pub fn new(network: &str, sweep: &Sweep<Names<'_>>) -> Self {
        Self { network: OfNetwork::new(network), keys: sweep.by(Names::key) }
    }

    /// Whether GC removes an object with this comment.
    #[must_use]
    pub fn has(&self, comment: Option<&str>) -> bool {
        self.network.key(comment).is_some_and(|key| self.keys.has(key))
    }
}

/// The first hexadecimal digits of the SHA-512 of the concatenated parts.
fn hex(parts: &[&str], digits: usize) -> String {
    let mut sha = Sha512::new();
    parts.iter().for_each(|part| sha.update(part));
    let mut text = String::new();
    for byte in sha.finalize().iter().take(digits / 2) {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETH0: Names<'_> = Names { network: "br1", container: "c1", ifname: "eth0" };

    #[test]
    fn names_are_those_of_the_reference() {
        assert_eq!(ETH0.iptables_chain(), "CNI-30c3d21661b09680d9d23573");
        // sha512sum of "br1" and of "eth0:c1".
        assert_eq!(ETH0.comment(), format!("{}, net: br1, if: eth0, id: c1", ETH0.key()));
        assert_eq!(ETH0.key(), "5c8f854e072f6b28-f4d01f2ef4b92245");
    }

    #[test]
    fn a_spoof_guards_names_are_the_references_as_long_as_they_fit() {
        let names = ETH0.spoof_names();
        assert_eq!(names.comment, "macspoofchk-c1-eth0");
        assert_eq!((&*names.iface, &*names.mac), ("cni-br-iface-c1-eth0", "cni-br-iface-c1-eth0-mac"));
        let of = |length: usize| {
            let container = "c".repeat(length);
            Names { container: &container, ..ETH0 }.spoof_names()
        };
        // 13 bytes before the ID, 9 after the container's.
        assert_eq!(of(233).mac, format!("cni-br-iface-{}-eth0-mac", "c".repeat(233)));
        let (one, two) = (of(234), of(300));
        assert_eq!((one.mac.len(), two.mac.len()), (CHAIN_NAME_MAX, CHAIN_NAME_MAX));
        assert_ne!(one, two);
        let é = Names { ifname: "é", container: &"c".repeat(204), ..ETH0 };
        assert!(é.spoof_names().mac.len() <= CHAIN_NAME_MAX);
    }

    #[test]
    fn a_comment_that_was_cut_still_identifies_its_attachment() {
        let long = "é".repeat(100);
        let attachment = Names { container: &long, ..ETH0 };
        let comment = attachment.comment();
        assert!((127..=128).contains(&comment.len()), "{comment}");
        assert!(attachment.owner().owns(Some(&comment)));
        assert!(!ETH0.owner().owns(Some(&comment)));
        assert!(!ETH0.owner().owns(None));
        assert!(!ETH0.owner().owns(Some("")));
    }

    #[test]
    fn a_stale_object_belongs_to_the_network_and_to_no_valid_attachment() {
        let net1 = Names { ifname: "net1", ..ETH0 };
        let other = Names { network: "br2", ..ETH0 };
        let stale = Stale::new("br1", &(&[ETH0]).into());
        assert!(!stale.has(Some(&ETH0.comment())));
        assert!(stale.has(Some(&net1.comment())));
        assert!(!stale.has(Some(&other.comment())));
        assert!(!stale.has(Some("a rule of another program")));
    }
}
