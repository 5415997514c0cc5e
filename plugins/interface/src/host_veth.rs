//! The host end of a container's veth: a name that DEL can compute from network, container and ifname alone, and a
//! mark that says whose it is.
//!
//! DEL and GC go by the mark (the link's alias); the name only saves them from searching all links.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::hash::{BuildHasher, Hasher, RandomState};

use cni_spec::{Attachment, ContainerId, IfName, NetworkName};
use netops::Kernel;
use netops::error::Result;
use netops::link::{self, Kind, Link};
use sha2::{Digest, Sha512};

/// The longest alias (`IFALIASZ` less the final NUL).
const ALIAS_BYTES_MAX: usize = 255;

/// Whose veth it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner<'a> {
    /// The network.
    pub network: &'a NetworkName,
    /// The container.
    pub container_id: &'a ContainerId,
    /// The container's interface.
    pub ifname: &'a IfName,
}

impl Owner<'_> {
    /// The host end's name: `veth` and 8 hexadecimal digits that depend on nothing but the owner.
    #[must_use]
    pub fn name(&self) -> String {
        let text = format!("{}\0{}\0{}", self.network, self.container_id, self.ifname);
        format!("veth{}", hex(&text, 4))
    }

    /// The host end's mark, `cni:NETWORK/CONTAINER/IFNAME`. None of the three contains a slash.
    #[must_use]
    pub fn alias(&self) -> String {
        let alias = format!("{}{}/{}", prefix(self.network), self.container_id, self.ifname);
        if alias.len() <= ALIAS_BYTES_MAX {
            return alias;
        }
        // A mark that does not fit: what makes it unique goes into a hash. `#` is in no container ID.
        format!("{}#{}", prefix(self.network), hex(&alias, 32))
    }

    /// Whether this link is the owner's.
    #[must_use]
    pub fn owns(&self, link: &Link) -> bool {
        link.kind == Kind::Veth && link.alias.as_deref() == Some(self.alias().as_str())
    }

    /// The owner's host end. All links are looked at only where another link has the owner's name, as ADD gave
    /// the end another one then.
    ///
    /// # Errors
    /// As [`link::find`].
    pub fn find(&self, net: &Kernel) -> Result<Option<Link>> {
        match link::find(net, &self.name())? {
            Some(link) if !self.owns(&link) => self.find_among_all(net),
            found => Ok(found),
        }
    }

    /// The owner's host end by its mark, whatever its name. Looks at all links.
    ///
    /// # Errors
    /// As [`link::list`].
    pub fn find_among_all(&self, net: &Kernel) -> Result<Option<Link>> {
        Ok(link::list(net, None)?.into_iter().find(|link| self.owns(link)))
    }
}

/// Whose host end of this network a link is, as its mark has it. `None`: it has none, or one too long to have it in clear.
#[must_use]
pub fn find_owner(network: &NetworkName, link: &Link) -> Option<Attachment> {
    let (container_id, ifname) = link.alias.as_deref()?.strip_prefix(&prefix(network))?.split_once('/')?;
    Some(Attachment { container_id: ContainerId::parse(container_id).ok()?, ifname: IfName::parse(ifname).ok()? })
}

/// What all marks of a network begin with. A long network name is hashed like a long mark.
fn prefix(network: &NetworkName) -> String {
    let prefix = format!("cni:{network}/");
    if prefix.len() <= ALIAS_BYTES_MAX - 80 {
        return prefix;
    }
    format!("cni:#{}/", hex(&prefix, 32))
}

/// Whether the mark is one of ours, whosever.
#[must_use]
pub fn is_marked(link: &Link) -> bool {
    link.alias.as_deref().is_some_and(|alias| alias.starts_with("cni:") && alias.contains('/'))
}

/// The host ends of a network, and whose each is: `None` where the mark is a hash. Looks at all links.
///
/// # Errors
/// As [`link::list`].
pub fn list(net: &Kernel, network: &NetworkName) -> Result<Vec<(Link, Option<Attachment>)>> {
    let prefix = prefix(network);
    let owned = |link: Link| {
        let rest = link.alias.as_deref()?.strip_prefix(&prefix).filter(|_| link.kind == Kind::Veth)?;
        let attachment = rest.split_once('/').and_then(|(container, ifname)| {
            Some(Attachment { container_id: ContainerId::parse(container).ok()?, ifname: IfName::parse(ifname).ok()? })
        });
        Some((link, attachment))
    };
    Ok(link::list(net, None)?.into_iter().filter_map(owned).collect())
}

/// The host ends of a network that belong to none of `valid`. Looks at all links: for GC.
///
/// # Errors
/// As [`link::list`].
pub fn list_stale(net: &Kernel, network: &NetworkName, valid: &[Attachment]) -> Result<Vec<Link>> {
    let alias = |attachment: &Attachment| {
        Owner { network, container_id: &attachment.container_id, ifname: &attachment.ifname }.alias()
    };
    let keep: BTreeSet<String> = valid.iter().map(alias).collect();
    let prefix = prefix(network);
    let is_stale = |link: &Link| {
        let alias = link.alias.as_deref().unwrap_or_default();
        link.kind == Kind::Veth && alias.starts_with(&prefix) && !keep.contains(alias)
    };
    let mut links = link::list(net, None)?;
    links.retain(is_stale);
    Ok(links)
}

/// Another name, for when somebody else has the owner's.
#[must_use]
pub fn random_name() -> String {
    // Keyed anew from the kernel's random numbers.
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

    fn owned<T>(network: &str, container: &str, test: impl FnOnce(Owner<'_>) -> T) -> T {
        let (network, container_id) = (NetworkName::parse(network).unwrap(), ContainerId::parse(container).unwrap());
        test(Owner { network: &network, container_id: &container_id, ifname: &IfName::parse("eth0").unwrap() })
    }

    #[test]
    fn names_and_marks_depend_on_the_whole_owner() {
        let name = owned("net", "c1", |owner| owner.name());
        assert_eq!((name.len(), &name[..4]), (12, "veth"));
        assert_eq!(name, owned("net", "c1", |owner| owner.name()));
        assert_ne!(name, owned("net", "c2", |owner| owner.name()));
        assert_ne!(owned("a", "bc", |owner| owner.name()), owned("ab", "c", |owner| owner.name()));
        assert_eq!(owned("net", "c1", |owner| owner.alias()), "cni:net/c1/eth0");
        let marked = Link { alias: Some("cni:net/c1/eth0".into()), ..Link::default() };
        let owner = find_owner(&NetworkName::parse("net").unwrap(), &marked).unwrap();
        assert_eq!((owner.container_id.as_str(), owner.ifname.as_str()), ("c1", "eth0"));
        assert_eq!(find_owner(&NetworkName::parse("ne").unwrap(), &marked), None);
    }

    #[test]
    fn long_names_still_fit_and_differ() {
        for (network, container) in [(4, 255), (255, 255), (255, 4), (170, 70)] {
            let network = "n".repeat(network);
            let one = owned(&network, &"c".repeat(container), |owner| owner.alias());
            let two = owned(&network, &format!("{}d", "c".repeat(container - 1)), |owner| owner.alias());
            assert!(one.len() <= ALIAS_BYTES_MAX && one != two, "{one}");
            // A mark that has its owner in clear has the right one.
            let marked = Link { alias: Some(one.clone()), ..Link::default() };
            let name = NetworkName::parse(&network).unwrap();
            if let Some(Attachment { container_id, ifname }) = find_owner(&name, &marked) {
                assert_eq!(Owner { network: &name, container_id: &container_id, ifname: &ifname }.alias(), one);
            }
            assert!(one.starts_with(&prefix(&NetworkName::parse(&network).unwrap())));
        }
    }

    #[test]
    fn another_veth_by_that_name_is_not_owned() {
        owned("net", "c1", |owner| {
            let mine = Link { kind: Kind::Veth, alias: Some(owner.alias()), ..Link::default() };
            assert!(owner.owns(&mine));
            assert!(!owner.owns(&Link { alias: None, ..mine.clone() }));
            assert!(!owner.owns(&Link { kind: Kind::Dummy, ..mine }));
        });
    }
}
