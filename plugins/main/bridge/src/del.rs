//! DEL: packet filter, links, addresses, each by its owner alone. No namespace, no prevResult and no record of ours
//! is needed; where there is one, what the reference plugins made is found, too.

use std::net::IpAddr;

use cni_spec::{AddResult, CniError, IfName};
use filter::Known;
use interface::host_veth::{self, Owner};
use interface::{error, failed};
use netops::error::Result;
use netops::link::{self, Link, Mac};
use netops::{Kernel, Netns, OpError, addr, unlink};
use skel::DelRequest;

use crate::conf::Removal;
use crate::observe::owner;
use crate::undo::attachment;

/// Removes the attachment, as much of it as there is.
///
/// # Errors
/// What could not be removed, together.
pub async fn del(request: &DelRequest<Removal>) -> std::result::Result<(), CniError> {
    let owner = owner(&request.conf.name, &request.container_id, &request.ifname);
    let prev = request.conf.find_prev_result();
    let prev = prev.as_ref();
    let mut errors = Vec::new();
    let (netns, is_gone) = match error::find_netns(request.netns.as_ref()) {
        Ok(netns) => {
            let is_gone = netns.is_none() && request.netns.is_some();
            (netns, is_gone)
        }
        Err(error) => {
            errors.push(error);
            (None, false)
        }
    };
    // Rules before links and addresses: an address must not be given out again while it is still masqueraded for
    // the old owner, nor a port's name while it is guarded.
    let held = || if is_gone { Some(Vec::new()) } else { held_by_others(&owner, netns.as_ref()?) };
    errors.extend(remove_rules(&owner, prev, &held, request.raw.search_path()).into_iter().map(failed));
    if let Err(error) = remove_links(&owner, prev, request.conf.own.bridge.as_ref(), netns.as_ref()) {
        errors.push(failed(error));
    }
    errors.extend(request.release().await.err());
    CniError::join(errors).map_or(Ok(()), Err)
}

fn remove_rules(
    owner: &Owner<'_>,
    prev: Option<&AddResult>,
    held: &dyn Fn() -> Option<Vec<IpAddr>>,
    search_path: &str,
) -> Vec<OpError> {
    let addresses: Vec<IpAddr> = prev.map(|prev| addresses_of(prev, owner)).unwrap_or_default();
    let deterministic = owner.name();
    let host_veth = prev.and_then(|prev| host_end(prev, owner));
    let host_veth = Some(host_veth.unwrap_or(&deterministic));
    let known = Known { addresses: &addresses, host_veth, held: Some(held), search_path };
    filter::remove_all(attachment(owner), known)
}

/// The addresses of the container's other interfaces, whose rules stay; `None` if they cannot be read.
fn held_by_others(owner: &Owner<'_>, netns: &Netns) -> Option<Vec<IpAddr>> {
    let inside = Kernel::in_netns(netns).ok()?;
    let others = link::list(&inside, None).ok()?.into_iter().filter(|link| link.name != owner.ifname.as_str());
    let addresses = others.map(|link| addr::list(&inside, &link).ok());
    Some(addresses.collect::<Option<Vec<_>>>()?.into_iter().flatten().map(|address| address.net.ip()).collect())
}

/// The addresses that the result has for the owner's interface.
fn addresses_of(prev: &AddResult, owner: &Owner<'_>) -> Vec<IpAddr> {
    let is_ours = |index: usize| {
        let entry = prev.interfaces.get(index);
        entry.is_some_and(|entry| entry.name == owner.ifname.as_str() && !entry.sandbox.is_empty())
    };
    prev.ips.iter().filter(|ip| ip.interface.is_some_and(is_ours)).map(|ip| ip.address.ip()).collect()
}

/// Where the result has the container's end.
fn container_end(prev: &AddResult, owner: &Owner<'_>) -> Option<usize> {
    prev.interfaces.iter().position(|entry| entry.name == owner.ifname.as_str() && !entry.sandbox.is_empty())
}

/// The entry before the container's, which is where we and the reference put the host's end.
fn host_end<'a>(prev: &'a AddResult, owner: &Owner<'_>) -> Option<&'a str> {
    let container = container_end(prev, owner)?;
    let entry = prev.interfaces.get(container.checked_sub(1)?)?;
    entry.sandbox.is_empty().then_some(&entry.name)
}

fn remove_links(
    owner: &Owner<'_>,
    prev: Option<&AddResult>,
    bridge: Option<&IfName>,
    netns: Option<&Netns>,
) -> Result<()> {
    let host = Kernel::host()?;
    let mut links: Vec<Link> = owner.find(&host)?.into_iter().collect();
    if let Some(prev) = prev {
        links.extend(find_in_result(&host, owner, prev, bridge)?);
    }
    if links.is_empty()
        && let Some(netns) = netns
    {
        links.extend(find_in_container(&host, owner, prev, netns)?);
    }
    links.sort_by_key(|link| link.index);
    links.dedup_by_key(|link| link.index);
    unlink::remove_announced(&links)
}

/// The host's end as the result names it: ours under a random name, or the reference's, which has no mark and is
/// known by its address and its bridge.
fn find_in_result(host: &Kernel, owner: &Owner<'_>, prev: &AddResult, bridge: Option<&IfName>) -> Result<Option<Link>> {
    let Some(name) = host_end(prev, owner) else { return Ok(None) };
    let Some(link) = link::find(host, name)? else { return Ok(None) };
    if owner.owns(&link) {
        return Ok(Some(link));
    }
    let entry = prev.interfaces.iter().find(|entry| entry.name == name);
    let same_mac = entry.is_some_and(|entry| entry.mac.parse::<Mac>().ok() == link.mac && link.mac.is_some());
    let unmarked_veth = link.kind == "veth" && !host_veth::is_marked(&link);
    let bridge = bridge.map(|name| link::find(host, name.as_str())).transpose()?.flatten();
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
    let Some(container) = link::find(&inside, owner.ifname.as_str())?.filter(|link| link.kind == "veth") else {
        return Ok(None);
    };
    let peer = match container.peer {
        Some(index) => link::find_index(host, index)?,
        None => None,
    };
    let peer = peer.filter(|peer| peer.kind == "veth" && peer.peer == Some(container.index));
    match peer {
        Some(peer) if owner.owns(&peer) => Ok(Some(peer)),
        Some(peer) if host_veth::is_marked(&peer) => Ok(None),
        _ if !is_credible(owner, prev, netns, &container) => Ok(None),
        Some(peer) => Ok(Some(peer)),
        // Its other end is in neither namespace.
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

#[cfg(test)]
mod tests {
    use super::*;
    use cni_spec::{ContainerId, Interface, NetworkName};

    fn entry(name: &str, sandbox: &str) -> Interface {
        Interface { name: name.into(), sandbox: sandbox.into(), ..Interface::default() }
    }

    #[test]
    fn the_hosts_end_stands_before_the_containers() {
        let (network, container_id) = (NetworkName::parse("n").unwrap(), ContainerId::parse("c").unwrap());
        let owner = Owner { network: &network, container_id: &container_id, ifname: &IfName::parse("eth0").unwrap() };
        let of = |interfaces: Vec<Interface>| {
            host_end(&AddResult { interfaces, ..AddResult::default() }, &owner).map(str::to_owned)
        };
        let other = entry("vethother", "");
        let ours = vec![entry("br0", ""), entry("vethours", ""), entry("eth0", "/ns")];
        assert_eq!(of(ours.clone()), Some("vethours".into()));
        assert_eq!(of([vec![other, entry("eth1", "/ns")], ours].concat()), Some("vethours".into()));
        assert_eq!(of(vec![entry("eth0", "/ns")]), None);
        assert_eq!(of(vec![entry("eth1", "/ns"), entry("eth0", "/ns")]), None);
        assert_eq!(of(vec![]), None);
    }
}
