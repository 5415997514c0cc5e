//! Which links of the node are an attachment's, and their removal.
//!
//! Ours bears the attachment's mark, whatever prevResult or the container says. What the reference made has none: it is known
//! by prevResult and its bridge, or by the container's end.

use std::os::fd::BorrowedFd;

use cni_spec::{AddResult, Interface};
use interface::host_veth::{self, Owner};
use netops::error::Result;
use netops::link::{self, Kind, Link, Mac};
use netops::{Kernel, Netns, pair, unlink};

/// What a runtime says of an attachment whose links are asked for. None of it is needed, and none is believed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hints<'a> {
    /// What ADD and the plugins after it told.
    pub(crate) prev: Option<&'a AddResult>,
    /// The bridge's name.
    pub(crate) bridge: Option<&'a str>,
    /// The container's namespace.
    pub(crate) netns: Option<&'a Netns>,
}

/// Removes the attachment's pair. A child process that may be left to wait for the kernel keeps `held` open.
///
/// # Errors
/// What is still there, or could not be looked at.
pub(crate) fn remove(owner: &Owner<'_>, hints: Hints<'_>, held: Option<BorrowedFd<'_>>) -> Result<()> {
    let host = Kernel::host()?;
    match find(&host, owner, hints)? {
        Some(link) => unlink::remove(&link, held),
        None => Ok(()),
    }
}

fn find(host: &Kernel, owner: &Owner<'_>, hints: Hints<'_>) -> Result<Option<Link>> {
    if let Some(link) = owner.find(host)? {
        return Ok(Some(link));
    }
    let told = hints.prev.and_then(|prev| host_end(prev, owner));
    if let Some(link) = told.map(|told| find_told(host, owner, told, hints.bridge)).transpose()?.flatten() {
        return Ok(Some(link));
    }
    if let Some(link) =
        hints.netns.map(|netns| find_in_container(host, owner, hints.prev, netns)).transpose()?.flatten()
    {
        return Ok(Some(link));
    }
    // ADD takes another name where another link has the owner's. It says so in its result; without that, all are looked at.
    match told {
        Some(told) if told.name == owner.name() => Ok(None),
        _ => owner.find_among_all(host),
    }
}

/// Where the result has the container's end.
fn container_end(prev: &AddResult, owner: &Owner<'_>) -> Option<usize> {
    prev.interfaces.iter().position(|entry| entry.name == owner.ifname.as_str() && !entry.sandbox.is_empty())
}

/// The entry before the container's, which is where we and the reference put the host's end; if a link can have that name.
pub(crate) fn host_end<'a>(prev: &'a AddResult, owner: &Owner<'_>) -> Option<&'a Interface> {
    let entry = prev.interfaces.get(container_end(prev, owner)?.checked_sub(1)?)?;
    (entry.sandbox.is_empty() && link::is_name(&entry.name)).then_some(entry)
}

/// The host's end as a result has it: ours under a random name, or the reference's, which has no mark and is known by its
/// address and its bridge.
fn find_told(host: &Kernel, owner: &Owner<'_>, told: &Interface, bridge: Option<&str>) -> Result<Option<Link>> {
    let Some(link) = link::find(host, &told.name)? else { return Ok(None) };
    if owner.owns(&link) {
        return Ok(Some(link));
    }
    let same_mac = link.mac.is_some() && told.mac.parse::<Mac>().ok() == link.mac;
    // The other end of a container's veth is in another namespace.
    let unmarked_veth = link.kind == Kind::Veth && link.peer_netns_id.is_some() && !host_veth::is_marked(&link);
    let bridge = bridge.map(|name| link::find(host, name)).transpose()?.flatten();
    let on_bridge = link.master.is_some() && link.master == bridge.map(|bridge| bridge.index);
    Ok((unmarked_veth && same_mac && on_bridge).then_some(link))
}

/// The host's end by the container's: what the reference made has no mark. A marked end that is not the owner's
/// belongs to another attachment, whose interface has this name: that ADD failed for it, and so does its DEL leave it.
fn find_in_container(
    host: &Kernel,
    owner: &Owner<'_>,
    prev: Option<&AddResult>,
    netns: &Netns,
) -> Result<Option<Link>> {
    let inside = Kernel::in_netns(netns)?;
    let Some(container) = link::find(&inside, owner.ifname.as_str())?.filter(|link| link.kind == Kind::Veth) else {
        return Ok(None);
    };
    match pair::find_host_end(host, &inside, netns, &container)? {
        Some(end) if owner.owns(&end) => Ok(Some(end)),
        Some(end) if host_veth::is_marked(&end) => Ok(None),
        _ if !is_credible(owner, prev, netns, &container) => Ok(None),
        Some(end) => Ok(Some(end)),
        // Its other end is not the node's. What is the container's is deleted there, by its index there.
        None => match inside.run(unlink::request(&(&container).into())) {
            Err(error) if !error.is_absent() => Err(error),
            Ok(()) | Err(_) => Ok(None),
        },
    }
}

/// Whether a link without a mark, in the namespace that the runtime names, is the owner's. A mounted namespace is its
/// container's. One that was found by a process may be another container's, as numbers of processes are used again: there
/// only a link with the Ethernet address that ADD's result has is. What is left else ends with its namespace.
fn is_credible(owner: &Owner<'_>, prev: Option<&AddResult>, netns: &Netns, container: &Link) -> bool {
    if matches!(netns.is_by_process(), Ok(false)) {
        return true;
    }
    let entry = prev.and_then(|prev| prev.interfaces.get(container_end(prev, owner)?));
    let mac = entry.and_then(|entry| entry.mac.parse::<Mac>().ok());
    let is_known = mac.is_some() && mac == container.mac;
    if !is_known {
        let (link, netns) = (&container.name, netns.path().display());
        tracing::warn!(link, %netns, "left alone: nothing shows that it is this container's");
    }
    is_known
}

/// Removes the host ends of attachments that are gone; returns those that are still there.
pub(crate) fn remove_stale(stale: &[Link]) -> Vec<unlink::Left> {
    for link in stale {
        tracing::info!(link = link.name, alias = link.alias, "removing the host end of an attachment that is gone");
    }
    unlink::remove_all(stale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cni_spec::{ContainerId, IfName, NetworkName};

    fn entry(name: &str, sandbox: &str) -> Interface {
        Interface { name: name.into(), sandbox: sandbox.into(), ..Interface::default() }
    }

    #[test]
    fn the_hosts_end_stands_before_the_containers() {
        let (network, container_id) = (NetworkName::parse("n").unwrap(), ContainerId::parse("c").unwrap());
        let owner = Owner { network: &network, container_id: &container_id, ifname: &IfName::parse("eth0").unwrap() };
        let of = |interfaces: Vec<Interface>| {
            let prev = AddResult { interfaces, ..AddResult::default() };
            host_end(&prev, &owner).map(|entry| entry.name.clone())
        };
        let other = entry("vethother", "");
        let ours = vec![entry("br0", ""), entry("vethours", ""), entry("eth0", "/ns")];
        assert_eq!(of(ours.clone()), Some("vethours".into()));
        assert_eq!(of([vec![other, entry("eth1", "/ns")], ours].concat()), Some("vethours".into()));
        assert_eq!(of(vec![entry("eth0", "/ns")]), None);
        assert_eq!(of(vec![entry("eth1", "/ns"), entry("eth0", "/ns")]), None);
        assert_eq!(of(vec![]), None);
        for no_name in ["sixteen-letters-", "", "a/b", "a b", &"v".repeat(70_000)] {
            assert_eq!(of(vec![entry(no_name, ""), entry("eth0", "/ns")]), None);
        }
    }
}
