//! The link that shapes what a container sends: its name, and whose it is.
//!
//! The reference's name is a hash of network and container, so two interfaces of one container would share a link. The first one
//! gets that name, for the reference's CHECK and DEL; another one a name with its own digits. The alias, the attachment's
//! mark as on host veths, says whose each is.

use cni_spec::Attachment;
use interface::alias;
use netops::Kernel;
use netops::error::Result;
use netops::link::{self, Kind, Link};
use sha2::{Digest, Sha512};
use std::fmt::Write;

use chained::Attached;

/// The reference's name, and the one for a container's further interfaces.
pub fn names(attachment: &Attachment) -> [String; 2] {
    let Attachment { network, container_id, ifname } = attachment;
    [hashed(&format!("{network}{container_id}")), hashed(&format!("{network}\0{container_id}\0{ifname}"))]
}

/// Names of all attachments' ifbs begin with it, as the reference's.
const PREFIX: &str = "bwp";

/// The prefix and 12 hexadecimal digits: 15 bytes, the longest name of a link.
fn hashed(text: &str) -> String {
    Sha512::digest(text).iter().take(6).fold(PREFIX.to_owned(), |mut name, byte| {
        // Writing to a String cannot fail.
        let _infallible = write!(name, "{byte:02x}");
        name
    })
}

/// The owner of a link with the attachment's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The link has the mark, or an ADD was killed before it set the mark: such a link is down still.
    Own,
    /// The reference's have no mark, and are up.
    Unmarked,
    Another,
}

fn owner(attachment: &Attachment, link: &Link) -> Owner {
    match &link.alias {
        _ if link.kind != Kind::Ifb => Owner::Another,
        None if link.up => Owner::Unmarked,
        None => Owner::Own,
        Some(alias) if *alias == alias::of(attachment) => Owner::Own,
        Some(_) => Owner::Another,
    }
}

/// Whether a link is the ifb of another attachment, by its name or by its mark. Other programs' ifbs are no attachment's.
pub fn is_anothers(attachment: &Attachment, link: &Link) -> bool {
    let is_ifb = link.kind == Kind::Ifb && link.name.starts_with(PREFIX);
    is_ifb && (!names(attachment).contains(&link.name) || owner(attachment, link) == Owner::Another)
}

/// The attachment's links: one at most, unless calls were killed. `attached` is the result, if there is one.
///
/// A link without mark may be that of another interface of the container. It is not the attachment's if the result does not
/// have it, or the attachment has a marked one.
pub fn find(host: &Kernel, attachment: &Attachment, attached: Option<&Attached>) -> Result<Vec<Link>> {
    let mut found = Vec::new();
    for name in names(attachment) {
        found.extend(link::find(host, &name)?);
    }
    let has_own = found.iter().any(|link| owner(attachment, link) == Owner::Own);
    let is_told =
        |link: &Link| attached.is_none_or(|prev| prev.result.interfaces.iter().any(|entry| entry.name == link.name));
    found.retain(|link| match owner(attachment, link) {
        Owner::Own => true,
        Owner::Unmarked => !has_own && is_told(link),
        Owner::Another => false,
    });
    Ok(found)
}

/// The name for a new link: the reference's, if it is free.
pub fn free_name(host: &Kernel, attachment: &Attachment) -> Result<String> {
    let [first, further] = names(attachment);
    Ok(if link::find(host, &first)?.is_none() { first } else { further })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_the_first_is_the_references() {
        let attachment = Attachment::parse("net", "c1", "eth0").unwrap();
        let [first, further] = names(&attachment);
        // printf netc1 | sha512sum
        assert_eq!(first, REFERENCE);
        assert!(first != further && further.len() == 15);
    }

    #[test]
    fn an_ifb_named_after_another_attachment_is_anothers() {
        let [own, other] = ["c1", "c2"].map(|id| Attachment::parse("net", id, "eth0").unwrap());
        let is_anothers = |name: &str, alias: Option<&str>, kind: Kind| {
            let link = Link { name: name.into(), alias: alias.map(Into::into), kind, up: true, ..Link::default() };
            super::is_anothers(&own, &link)
        };
        assert!(is_anothers(&names(&other)[0], None, Kind::Ifb));
        // The container's other interface may have the reference's name.
        assert!(is_anothers(&names(&own)[0], Some("cni:net/c1/eth1"), Kind::Ifb));
        for name in names(&own) {
            assert!(!is_anothers(&name, None, Kind::Ifb));
            assert!(!is_anothers(&name, Some(&alias::of(&own)), Kind::Ifb));
        }
        assert!(!is_anothers("ifb0", None, Kind::Ifb) && !is_anothers(&names(&other)[0], None, Kind::Veth));
    }

    const REFERENCE: &str = "bwp623e1c388032";
}
