//! A link that exists in the container only: how DEL finds it. The kernel deletes it with its namespace.

use cni_spec::{AddResult, Attachment};
use netops::error::Result;
use netops::link::{self, Kind, Link};
use netops::{Kernel, addr, link_removal};

use crate::alias::{self, Mark};
use crate::detach::{self, Detaching};
use crate::link_owner::Evidence;
use crate::{link_by_name, veth};

/// Deletes the container's link, if it belongs to the attachment. Returns whether one was deleted.
///
/// An alias in our form names the attachment, also where the container has renamed the link or the network had another `type` at
/// ADD. A link with another alias, or without one (the reference sets none), is deleted if it has the interface's name and is the
/// attachment's by what else shows it ([`crate::link_owner`]): a pair of the reference, too.
///
/// The container can change name and alias, and put another link in their place. Where nothing that was found has the Ethernet
/// address of ADD's result, one that has is looked for. `kind` is what DEL's plugin makes; `None`: pairs.
/// Errors: the link is still there, or could not be read.
pub fn remove(detaching: &Detaching<'_>, kind: Option<&str>) -> Result<bool> {
    let Detaching { attachment, prev, netns: Some(netns), .. } = *detaching else { return Ok(false) };
    let container = Kernel::in_netns(netns)?;
    let alias = alias::of(attachment);
    let is_marked_own = |link: &Link| link.alias.as_deref() == Some(&*alias);
    let mac = veth::mac_of_result(attachment, prev);
    let evidence = detaching.evidence(netns);
    let is_it = |link: &Link| if mac.is_some() { link.mac == mac } else { is_marked_own(link) };
    let (mut is_removed, mut is_found) = (false, false);
    let named = link::find(&container, attachment.ifname.as_str())?.filter(|link| !link.loopback);
    match named {
        Some(named) if is_marked_own(&named) && is_it(&named) && kind == Some(named.kind.name()) => {
            return link_removal::remove_in(netns, container, &named).map(|()| true);
        }
        // The network had another `type` at ADD, or nothing marks the link.
        Some(named) if link_by_name::remove_own(detaching, netns, &container, &named)? => {
            is_removed = true;
            is_found = is_it(&named) || mac.is_none() && kind != Some(named.kind.name());
        }
        Some(_) | None => {}
    }
    let links = link::list_of_container(&container)?;
    let (own, others): (Vec<Link>, Vec<Link>) = links.into_iter().partition(is_marked_own);
    for link in &own {
        is_found |= is_it(link);
        is_removed |= link_by_name::remove_marked(detaching, netns, &container, link)?;
    }
    if is_found {
        return Ok(true);
    }
    Ok(Lost { evidence, container: &container, kind }.remove_among(&others)? || is_removed)
}

/// An attachment whose link has neither its name nor its alias: the container may have changed both, and the link would keep
/// the address on the network.
struct Lost<'a> {
    evidence: Evidence<'a>,
    container: &'a Kernel,
    kind: Option<&'a str>,
}

impl Lost<'_> {
    /// Deletes the links that have the Ethernet address of ADD's result, unless the alias names another attachment. If no link has
    /// it, nothing is guessed: a warning names those of the kind that no alias explains.
    fn remove_among(&self, links: &[Link]) -> Result<bool> {
        let mut is_removed = false;
        let Evidence { attachment, prev, netns: entered, .. } = self.evidence;
        let (netns, is_mounted) = (entered.path().display(), matches!(entered.is_by_process(), Ok(false)));
        for link in links.iter().filter(|link| may_be_of_a_plugin(link)) {
            let (name, alias) = (&link.name, &link.alias);
            let is_anothers = may_be_anothers(attachment, link, is_mounted);
            match is_of_result(self.container, attachment, prev, link)? {
                true if is_anothers => tracing::warn!(
                    link = name, alias, %netns,
                    "left alone: it has the Ethernet address of this attachment, but its alias names another one"
                ),
                true if !self.evidence.whose(self.container, link, None)?.or_warn(link, entered) => {}
                true => {
                    let why = "the container has changed its name and alias";
                    tracing::warn!(link = name, alias, %netns, "removed by its Ethernet address: {why}");
                    link_removal::remove_in(entered, Kernel::in_netns(entered)?, link)?;
                    is_removed = true;
                }
                false if is_mounted && !is_anothers && self.kind == Some(link.kind.name()) => tracing::warn!(
                    link = name, alias, %netns,
                    "left: no alias says whose {} this is, and the interface of this attachment was not found", link.kind
                ),
                false => {}
            }
        }
        Ok(is_removed)
    }
}

/// Whether the link is what ADD's result describes. Links that have their master's Ethernet address share it with all the
/// others on it: one of these must have an address of the result, too.
fn is_of_result(container: &Kernel, attachment: &Attachment, prev: Option<&AddResult>, link: &Link) -> Result<bool> {
    let is_shared = matches!(link.kind, Kind::Ipvlan(_) | Kind::Vlan(_));
    let Some(prev) = prev.filter(|prev| veth::is_of_result(attachment, Some(prev), link)) else {
        return Ok(false);
    };
    let wanted = detach::addresses_of(prev, attachment);
    Ok(!is_shared || addr::list(container, link)?.iter().any(|address| wanted.contains(&address.net.ip())))
}

/// Whether the alias names another attachment that may be in this namespace: one of this container, or any where the namespace
/// was found by a process and may be another container's. A hash in it names any.
fn may_be_anothers(attachment: &Attachment, link: &Link, is_mounted: bool) -> bool {
    let Some(mark) = Mark::of_link(link) else { return false };
    match mark.attachment() {
        Some(named) => !is_mounted || named.container_id == attachment.container_id,
        None => mark.is_hashed(),
    }
}

/// Whether a plugin may have made such a link in the container alone: on top of one outside it, a dummy, or a tap, no tun.
fn may_be_of_a_plugin(link: &Link) -> bool {
    match &link.kind {
        Kind::Macvlan(_) | Kind::Ipvlan(_) | Kind::Vlan(_) => link.peer_netns_id.is_some(),
        Kind::Tun(tun) => tun.is_tap,
        Kind::Dummy => true,
        Kind::None | Kind::Bridge(_) | Kind::Veth | Kind::Vrf(_) | Kind::Ifb | Kind::Other(_) => false,
    }
}

/// Whether the link's alias is the mark of another attachment. The container can write any.
pub(crate) fn has_mark_of_another(attachment: &Attachment, link: &Link) -> bool {
    if link.alias.as_deref() == Some(&*alias::of(attachment)) {
        return false;
    }
    Mark::of_link(link).is_some_and(|mark| mark.is_hashed() || mark.attachment().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_of_another_container_network_or_interface_is_anothers() {
        let own = Attachment::parse("net", "c1", "eth0").unwrap();
        let is_anothers = |alias: &str| {
            let link = Link { name: "eth0".into(), alias: Some(alias.into()), ..Link::default() };
            has_mark_of_another(&own, &link)
        };
        for mark in ["cni:other/c1/eth0", "cni:other/c2/eth0", "cni:net/c2/eth0", "cni:net/c1/eth1", "cni:#0/#1"] {
            assert!(is_anothers(mark), "{mark}");
        }
        for none in ["cni:net/c1/eth0", "cni:x/y", "free text", ""] {
            assert!(!is_anothers(none), "{none}");
        }
    }

    #[test]
    fn only_an_alias_of_this_container_keeps_a_lost_link() {
        let own = Attachment::parse("net", "c1", "eth0").unwrap();
        let keeps = |alias: &str, is_mounted: bool| {
            let link = Link { name: "evil".into(), alias: Some(alias.into()), ..Link::default() };
            may_be_anothers(&own, &link, is_mounted)
        };
        for alias in ["cni:other/c1/eth0", "cni:net/c1/net1", "cni:net/#12ab", "cni:#12ab/c1/eth0"] {
            assert!(keeps(alias, true) && keeps(alias, false), "{alias}");
        }
        assert!(!keeps("cni:net/c2/eth0", true) && keeps("cni:net/c2/eth0", false));
        for alias in ["", "x", "cni:x/y", "cni:a/b/c/d#"] {
            assert!(!keeps(alias, true), "{alias}");
        }
    }
}
