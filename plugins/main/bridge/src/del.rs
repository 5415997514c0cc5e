//! DEL: links, packet filter, addresses, each by its owner alone. No namespace, no prevResult and no record of ours
//! is needed; where there is one, what the reference plugins made is found, too.

use std::net::IpAddr;
use std::os::fd::AsFd;

use cni_spec::{AddResult, CniError};
use filter::{Filter, Known};
use interface::host_veth::Owner;
use interface::{error, failed};
use netops::{Kernel, Netns, OpError, addr, link};
use skel::DelRequest;

use crate::conf::Removal;
use crate::links::{self, Hints};
use crate::observe::owner;
use crate::undo::attachment;

/// Removes the attachment, as much of it as there is. Its addresses stay held while a rule or a link of it may be there:
/// their next owner would be masqueraded for it, or meet it on the bridge.
///
/// # Errors
/// What could not be removed, together.
pub async fn del(request: &DelRequest<Removal>) -> Result<(), CniError> {
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
    let mut filter = Filter::find().unwrap_or_else(|error| {
        errors.push(failed(error));
        None
    });
    // Before links and addresses: an address must not be given out again while it is still masqueraded for the old owner.
    if let Some(filter) = &mut filter {
        let held = || if is_gone { Some(Vec::new()) } else { held_by_others(&owner, netns.as_ref()?) };
        errors.extend(remove_rules(filter, &owner, prev, &held, request.raw.search_path()).into_iter().map(failed));
    }
    let bridge = request.conf.own.bridge.as_ref().map(|name| name.as_str());
    let hints = Hints { prev, bridge, netns: netns.as_ref() };
    errors.extend(links::remove(&owner, hints, filter.as_ref().map(AsFd::as_fd)).err().map(failed));
    // Behind links: the container is guarded as long as it can send.
    if let Some(filter) = &mut filter {
        errors.extend(filter.remove_spoof_guard(attachment(&owner)).err().map(failed));
    }
    match errors.pop() {
        None => request.release().await,
        Some(last) => {
            errors.push(last.detail("Its addresses, if it has any, stay held until DEL or GC has removed the rest."));
            CniError::join(errors).map_or(Ok(()), Err)
        }
    }
}

fn remove_rules(
    filter: &mut Filter,
    owner: &Owner<'_>,
    prev: Option<&AddResult>,
    held: &dyn Fn() -> Option<Vec<IpAddr>>,
    search_path: &str,
) -> Vec<OpError> {
    let addresses: Vec<IpAddr> = prev.map(|prev| addresses_of(prev, owner)).unwrap_or_default();
    let known = Known { addresses: &addresses, held: Some(held), search_path };
    filter.remove_masquerade(attachment(owner), known)
}

/// The addresses that only other interfaces of the container have, whose rules stay; `None` if they cannot be read. An
/// address that the owner's interface has, too, is the owner's: the rules are of one network, where it is given once.
fn held_by_others(owner: &Owner<'_>, netns: &Netns) -> Option<Vec<IpAddr>> {
    let inside = Kernel::in_netns(netns).ok()?;
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for link in link::list(&inside, None).ok()? {
        let held = if link.name == owner.ifname.as_str() { &mut own } else { &mut others };
        held.extend(addr::list(&inside, &link).ok()?.into_iter().map(|address| address.net.ip()));
    }
    others.retain(|address| !own.contains(address));
    Some(others)
}

/// The addresses that the result has for the owner's interface.
fn addresses_of(prev: &AddResult, owner: &Owner<'_>) -> Vec<IpAddr> {
    let is_ours = |index: usize| {
        let entry = prev.interfaces.get(index);
        entry.is_some_and(|entry| entry.name == owner.ifname.as_str() && !entry.sandbox.is_empty())
    };
    prev.ips.iter().filter(|ip| ip.interface.is_some_and(is_ours)).map(|ip| ip.address.ip()).collect()
}
