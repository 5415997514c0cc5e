//! Lists a network's objects in the packet filter: what GC would remove.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netops::Errno;
use netops::error::Result;
use netops::nft::Family;

use crate::iptables::FoundRule;
use crate::names_and_comments::{Names, OfNetwork};
use crate::spoof_guard::{self, Idle};
use crate::{Filter, iptables, nftables_masquerade, shared};

/// An object of a network, with what its comment says about the attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// [`Names::key`]; empty for iptables rules and spoof guards, whose comments have no key.
    pub key: String,
    /// The container, if the comment has room for the complete ID.
    pub container: Option<String>,
    /// The container's interface. The comments of iptables rules do not always name it.
    pub ifname: Option<String>,
    /// The address that the object is for.
    pub address: Option<IpAddr>,
    /// A description for people.
    pub object: String,
    /// The program by whose rules it masquerades packets; `None`: it does something else.
    pub masquerades_by: Option<By>,
}

/// The program by whose rules packets are masqueraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Rules of nftables.
    Nftables,
    /// Rules of iptables, as the reference has them, too.
    Iptables,
}

/// The objects of all networks, as one reading of the packet filter found them.
#[derive(Debug, Default)]
pub struct AllRules {
    /// The comments of masquerades in nftables, with the addresses.
    own: Vec<(String, Option<IpAddr>)>,
    /// The rules of iptables that lead to chains of masquerade.
    jumps: Vec<FoundRule>,
    idle: Vec<Idle>,
}

/// The commands for a shell that remove a container's masquerade in a network from iptables: the jumps to its chain, then the chain.
/// Empty: there is none. Changes nothing.
///
/// # Errors
/// As [`AllRules::read`].
pub fn masquerade_removal(network: &str, container: &str, search_path: &str) -> Result<Vec<String>> {
    let mut nft = match Filter::open(search_path) {
        Ok(filter) => filter.nft,
        Err(error) if error.os_errno() == Some(Errno::EPROTONOSUPPORT) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let chain = Names { network, container, ifname: "" }.iptables_chain();
    let mut commands = Vec::new();
    for (family, found) in iptables::masquerade::postrouting(&mut nft, search_path)? {
        let program = if family == Family::Ip { "iptables" } else { "ip6tables" };
        let rules = found.into_iter().filter(|found| found.goes_to() == Some(&*chain)).filter_map(|found| found.rule);
        let jumps: Vec<String> = rules.map(|rule| format!("{program} -w -t nat -D POSTROUTING{rule}")).collect();
        if !jumps.is_empty() {
            commands.extend(jumps);
            commands.extend(["-F", "-X"].map(|verb| format!("{program} -w -t nat {verb} {chain}")));
        }
    }
    Ok(commands)
}

/// The names of the networks in the comments of masquerade rules, of iptables rules for ports of the node, and in their notes.
/// A comment that was cut in the name names none. Changes nothing.
///
/// # Errors
/// As [`AllRules::read`].
pub fn networks(search_path: &str) -> Result<BTreeSet<String>> {
    let mut nft = match Filter::open(search_path) {
        Ok(filter) => filter.nft,
        Err(error) if error.os_errno() == Some(Errno::EPROTONOSUPPORT) => return Ok(BTreeSet::new()),
        Err(error) => return Err(error),
    };
    let mut own = nftables_masquerade::list(&mut nft)?;
    own.extend(shared::masquerade::list(&mut nft)?);
    let mut comments: Vec<String> = own.into_iter().map(|(comment, _)| comment).collect();
    comments.extend(iptables::masquerade::comments(&mut nft, search_path)?);
    Ok(comments.iter().filter_map(|comment| network_of(comment)).map(str::to_owned).collect())
}

/// The network in a comment of [`Names::comment`]'s form, or of the reference's.
fn network_of(comment: &str) -> Option<&str> {
    let between = |start: &str, end: &str| Some(comment.split_once(start)?.1.split_once(end)?.0);
    between(", net: ", ", if: ").or_else(|| between("name: \"", "\" id: \""))
}

impl AllRules {
    /// Reads the packet filter. Changes nothing. `search_path` is `PATH`, for iptables of the legacy variant.
    ///
    /// # Errors
    /// The refusal of the kernel or iptables. A kernel without a packet filter is no error.
    pub fn read(search_path: &str) -> Result<Self> {
        let Some(Filter { mut nft, .. }) = Filter::find(search_path)? else { return Ok(Self::default()) };
        let mut own = nftables_masquerade::list(&mut nft)?;
        own.extend(shared::masquerade::list(&mut nft)?);
        let jumps = iptables::masquerade::list_jumps(&mut nft, search_path)?;
        Ok(Self { own, jumps, idle: spoof_guard::list_idle(&mut nft)? })
    }

    /// Lists what GC of a network would remove if no attachment were valid. For spoof guards that is every guard whose port
    /// is gone: guards do not name their network.
    #[must_use]
    pub fn of(&self, network: &str) -> Vec<Noted> {
        let of = OfNetwork::new(network);
        let noted = |comment: Option<&str>, address, object| Noted::of(&of, comment, address, object);
        let own = self.own.iter().filter_map(|(comment, address)| {
            let object = address.map_or("masquerade".to_owned(), |address| format!("masquerade of {address}"));
            let found = noted(Some(comment), *address, object)?;
            Some(Noted { masquerades_by: Some(By::Nftables), ..found })
        });
        let jumps = iptables::masquerade::jumps_of(&self.jumps, network).map(|jump| {
            let (container, address) = (jump.container, jump.address);
            let object =
                address.map_or("iptables masquerade".to_owned(), |address| format!("iptables masquerade of {address}"));
            let by_note = noted(jump.note.as_deref(), address, object.clone());
            let unnamed = Noted { key: String::new(), container, ifname: None, address, object, masquerades_by: None };
            Noted { masquerades_by: Some(By::Iptables), ..by_note.unwrap_or(unnamed) }
        });
        let idle = self.idle.iter().cloned().map(|Idle { container, ifname, port }| {
            let (container, ifname) = (Some(container), Some(ifname));
            let object = port.map_or("spoof guard".to_owned(), |port| format!("spoof guard of {port}, which is gone"));
            Noted { key: String::new(), container, ifname, address: None, object, masquerades_by: None }
        });
        own.chain(jumps).chain(idle).collect()
    }
}

impl Noted {
    /// The object, if its comment begins with a key of the network.
    #[must_use]
    pub fn of(network: &OfNetwork, comment: Option<&str>, address: Option<IpAddr>, object: String) -> Option<Self> {
        let (key, network) = (network.key(comment)?, &*network.name);
        let clear = comment?.split_once(", if: ").and_then(|(_, rest)| rest.split_once(", id: "));
        // The comment was cut if the container that it names does not match the key.
        let is_whole = |(ifname, container): &(&str, &str)| Names { network, container, ifname }.key() == key;
        let (ifname, container) = clear.filter(is_whole).unzip();
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let (container, ifname) = (owned(container), owned(ifname));
        Some(Self { key: key.to_owned(), container, ifname, address, object, masquerades_by: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_names_its_network_unless_it_was_cut_there() {
        let attachment = Names { network: "office", container: "c1", ifname: "eth0" };
        assert_eq!(network_of(&attachment.comment()), Some("office"));
        for comment in [r#"name: "office" id: "c1""#, r#"dnat name: "office" id: "c1""#, r#"name: "office" id: "c"#] {
            assert_eq!(network_of(comment), Some("office"), "{comment}");
        }
        for comment in ["", r#"name: "office"#, "a rule of the administrator", &attachment.comment()[..40]] {
            assert_eq!(network_of(comment), None, "{comment}");
        }
    }

    #[test]
    fn a_comment_names_the_attachment_unless_it_was_cut() {
        let attachment = Names { network: "office", container: "c1", ifname: "eth0" };
        let noted = |comment: &str| Noted::of(&OfNetwork::new("office"), Some(comment), None, String::new());
        let found = noted(&attachment.comment()).unwrap();
        assert_eq!((found.container.as_deref(), found.ifname.as_deref()), (Some("c1"), Some("eth0")));
        assert_eq!(found.key, attachment.key());
        let long = Names { container: &"c".repeat(100), ..attachment };
        let found = noted(&long.comment()).unwrap();
        assert_eq!((found.container, found.ifname, found.key), (None, None, long.key()));
        assert_eq!(noted(&Names { network: "other", ..attachment }.comment()), None);
        assert_eq!(noted("a rule of the administrator"), None);
    }
}
