//! The alias of an attachment's link, which is the suite's mark: on the node, it is that of a veth's host end; a link that is in the
//! container alone has it there.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;

use cni_spec::gc::Sweep;
use cni_spec::{Attachment, NetworkName};
use netops::Kernel;
use netops::all_namespaces::AllNamespaces;
use netops::error::Result;
use netops::link::{self, Kind, Link};
use sha2::{Digest, Sha512};

use crate::Names;

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
    pub fn is_hashed(self) -> bool {
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
///
/// # Errors
/// The errors of [`link::list`].
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
pub fn hex(text: &str, bytes: usize) -> String {
    Sha512::digest(text).iter().take(bytes).fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// Whether the container of an object with this comment, which is for `address`, may live. `own`: the attachment that asks has the
/// address itself.
///
/// A container writes the addresses of its namespace, and the node the marks of the links that lead there. What leaves no link on the
/// node has its mark in the container, whose root can at most have an object of one that has ended stay its.
#[must_use]
pub fn may_live(places: &AllNamespaces, comment: &str, address: IpAddr, own: Option<Names<'_>>) -> bool {
    let is_itself = || own.is_some_and(|own| id_of(comment) == Some(own.container));
    let is_marked = places.leading().chain(places.aliases()).any(|alias| is_of(alias, comment));
    let are_anothers = || places.find_aliases(address).is_some_and(|aliases| are_anothers(aliases, comment));
    is_marked && !is_itself()
        || own.is_none() && places.find(&[address]) != Some(false) && (places.may_be_behind(address) || !are_anothers())
}

/// The container that a comment or note names.
fn id_of(comment: &str) -> Option<&str> {
    Some(comment.rsplit_once("id: ")?.1.trim_matches('"'))
}

/// Whether links with these aliases, our marks, lead to other containers than the rule's, whose comment this is.
fn are_anothers(aliases: &BTreeSet<String>, comment: &str) -> bool {
    /// Comments are cut off beyond this.
    const SURELY_WHOLE: usize = 100;
    let Some(id) = id_of(comment) else { return false };
    let id = id.trim_end_matches('.');
    let is_anothers = |alias: &String| {
        let container = Mark::parse(alias).and_then(Mark::container_id);
        container.is_some_and(|found| found != id && !(id.len() > SURELY_WHOLE && found.starts_with(id)))
    };
    !aliases.is_empty() && aliases.iter().all(is_anothers)
}

/// The length of the shortest comment that may be cut off.
const CUT_OFF: usize = 120;

/// Whether a link with this alias, our mark, belongs to the network and container of a rule with this comment or note:
/// `dnat name: "NETWORK" id: "CONTAINER"`, or `KEY, net: NETWORK, if: IFNAME, id: CONTAINER`. Long ones are cut off. The
/// reference's in nf_tables, `id: CONTAINER`, have no network.
fn is_of(alias: &str, comment: &str) -> bool {
    let between = |from: &str, to: &str| Some(comment.split_once(from)?.1.split_once(to)?.0);
    let network = between("name: \"", "\" id: ").or_else(|| between("net: ", ", if: "));
    let Some(id) = id_of(comment) else { return false };
    let is_cut = comment.len() >= CUT_OFF;
    let is_it =
        |mark: &Mark<'_>, network| NetworkName::parse(network).is_ok_and(|network| mark.is_of_network(&network));
    let is_network = |mark: &Mark<'_>| network.is_none_or(|network| is_it(mark, network));
    let container = Mark::parse(alias).filter(is_network).and_then(Mark::container_id);
    container.is_some_and(|found| found == id || is_cut && found.starts_with(id.trim_end_matches('.')))
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

    #[test]
    fn a_mark_with_a_hash_names_no_other_container() {
        let are_anothers =
            |alias: &str| are_anothers(&BTreeSet::from([alias.to_owned()]), "dnat name: \"net\" id: \"c1\"");
        assert!(are_anothers("cni:net/c2/eth0") && are_anothers("cni:#12/c2/eth0"));
        assert!(!are_anothers("cni:net/c1/eth0") && !are_anothers("cni:net/#12") && !are_anothers("vlan"));
    }

    #[test]
    fn a_mark_is_of_the_rules_network_and_container() {
        let long = "c".repeat(200);
        for comment in ["dnat name: \"net\" id: \"c1\"", "0123-4567, net: net, if: eth0, id: c1"] {
            assert!(is_of("cni:net/c1/eth0", comment), "{comment}");
            for other in ["cni:net/c12/eth0", "cni:net2/c1/eth0", "cni:#12/c1/eth0", "c1", ""] {
                assert!(!is_of(other, comment), "{comment} {other}");
            }
        }
        assert!(is_of("cni:net/c1/eth0", "id: c1") && !is_of("cni:net/c12/eth0", "id: c1"));
        let cut = format!("0123-4567, net: net, if: eth0, id: {}", &long[..100]);
        assert!(is_of(&format!("cni:net/{long}/eth0"), &cut) && !is_of("cni:net/d/eth0", &cut));
    }
}
