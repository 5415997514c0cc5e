//! Whose an object is: the comments and chain names that tell, the reference plugins' included.

use std::fmt::Write;

use sha2::{Digest, Sha512};

/// What nft(8) accepts as a comment, in bytes (libnftnl's `NFTNL_UDATA_COMMENT_MAXLEN`).
const NFT_COMMENT_MAX: usize = 128;

/// One container's membership in one network under one interface name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attachment<'a> {
    /// The network's name.
    pub network: &'a str,
    /// The container's ID.
    pub container: &'a str,
    /// The interface's name inside the container.
    pub ifname: &'a str,
}

impl Attachment<'_> {
    /// `<N>-<I>`: N from the network's name, I from ifname and container ID. Every comment of an
    /// nft object starts with it; the reference plugins use the same.
    #[must_use]
    pub fn key(&self) -> String {
        let interface = hex(&[self.ifname, ":", self.container], 16);
        format!("{}{interface}", network_prefix(self.network))
    }

    /// The whole comment, with `note` behind the key, in clear for whoever lists the ruleset.
    pub(crate) fn comment(&self, note: &str) -> String {
        let Self { network, container, ifname } = self;
        let mut text = format!("{}, {note}net: {network}, if: {ifname}, id: {container}", self.key());
        text.truncate(text.floor_char_boundary(NFT_COMMENT_MAX));
        text
    }

    /// Tells this attachment's objects from others', many at the cost of one hash.
    pub(crate) fn owner(&self) -> Owner {
        Owner(self.key())
    }

    /// The iptables chain of the reference plugins. It does not depend on ifname: attachments of one
    /// container to one network share it.
    pub(crate) fn iptables_chain(&self) -> String {
        format!("CNI-{}", hex(&[self.network, self.container], 24))
    }
}

/// Whose objects are asked for.
#[derive(Debug)]
pub(crate) struct Owner(String);

impl Owner {
    /// Whether an object with this comment is the attachment's.
    pub(crate) fn owns(&self, comment: Option<&str>) -> bool {
        comment.and_then(key_of) == Some(&self.0)
    }
}

/// `<N>-`, which the keys of all attachments to this network start with.
pub(crate) fn network_prefix(network: &str) -> String {
    hex(&[network], 16) + "-"
}

/// The `<N>-<I>` of a comment.
pub(crate) fn key_of(comment: &str) -> Option<&str> {
    let key = comment.split(',').next()?;
    (key.len() == 33).then_some(key)
}

/// Which objects GC removes: this network's, but for those of valid attachments.
#[derive(Debug)]
pub(crate) struct Stale {
    prefix: String,
    valid: Vec<String>,
}

impl Stale {
    pub(crate) fn new(network: &str, valid: &[Attachment<'_>]) -> Self {
        let valid = valid.iter().map(Attachment::key).collect();
        Self { prefix: network_prefix(network), valid }
    }

    /// Whether an object with this comment goes.
    pub(crate) fn has(&self, comment: Option<&str>) -> bool {
        let key = comment.and_then(key_of).filter(|key| key.starts_with(&self.prefix));
        key.is_some_and(|key| self.valid.iter().all(|valid| valid != key))
    }
}

/// The first digits of the SHA-512 of the parts, one behind the other.
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

    const ETH0: Attachment<'_> = Attachment { network: "br1", container: "c1", ifname: "eth0" };

    #[test]
    fn names_are_the_references() {
        assert_eq!(ETH0.iptables_chain(), "CNI-30c3d21661b09680d9d23573");
        // sha512sum of "br1" and of "eth0:c1".
        assert_eq!(ETH0.comment(""), format!("{}, net: br1, if: eth0, id: c1", ETH0.key()));
        assert_eq!(ETH0.key(), "5c8f854e072f6b28-f4d01f2ef4b92245");
    }

    #[test]
    fn a_comment_is_cut_and_still_tells_its_owner() {
        let long = "é".repeat(100);
        let attachment = Attachment { container: &long, ..ETH0 };
        let comment = attachment.comment("");
        assert!((127..=128).contains(&comment.len()), "{comment}");
        assert!(attachment.owner().owns(Some(&comment)));
        assert!(!ETH0.owner().owns(Some(&comment)));
        assert!(!ETH0.owner().owns(None));
        assert!(!ETH0.owner().owns(Some("")));
    }

    #[test]
    fn what_is_stale_belongs_to_the_network_and_to_nobody() {
        let net1 = Attachment { ifname: "net1", ..ETH0 };
        let other = Attachment { network: "br2", ..ETH0 };
        let stale = Stale::new("br1", &[ETH0]);
        assert!(!stale.has(Some(&ETH0.comment(""))));
        assert!(stale.has(Some(&net1.comment(""))));
        assert!(!stale.has(Some(&other.comment(""))));
        assert!(!stale.has(Some("a rule of somebody else")));
    }
}
