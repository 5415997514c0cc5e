//! A container's veth: making it, and finding it for DEL.
//!
//! Ours bears the attachment's mark, whatever prevResult or the container says. What the reference made has none: it is known
//! by prevResult and what it is a port of, or by the container's end.

use cni_spec::gc::Sweep;
use cni_spec::{AddResult, Attachment, CniError, Code, Interface, NetworkName};
use netops::error::Result;
use netops::link::{self, Kind, Link, Mac};
use netops::sysctl::{self, Key, Need};
use netops::{Errno, Kernel, OpError, link_removal};

use crate::apply::Stage;
use crate::detach::Detaching;
use crate::plan::Veth;
use crate::sides::Sides;
use crate::{alias, container_only, failed, host_veth};

/// Makes the pair. A host's name that another link has is replaced by a random one.
pub(crate) fn create(stage: &Stage<'_>, veth: &Veth) -> std::result::Result<Link, CniError> {
    let Sides { host, netns, .. } = stage.sides;
    let name = stage.names.host.as_str();
    let new = link::Veth {
        name,
        master: stage.master.as_ref().map(|master| master.index),
        alias: &stage.names.alias,
        mtu_bytes: veth.mtu_bytes,
        up: veth.up,
        mac: Some(Mac::random()),
        peer_name: &stage.names.container,
        peer_mac: veth.mac,
        peer_netns: Some(netns),
        queues: None,
    };
    let made = match stage.is_host_name_free {
        true => link::create_free_veth(host, &new),
        false => link::create_veth(host, &new),
    };
    let error = match made {
        Ok(link) => return Ok(link),
        Err(error) if error.os_errno() == Some(Errno::EEXIST) => error,
        Err(error) => return Err(explain(error, stage.master.as_ref())),
    };
    stage.sides.refuse_taken(&stage.attachment.ifname)?;
    let random = host_veth::random_name();
    let name = match link::find(host, name).map_err(failed)? {
        // Ours, of a container that died with its namespace and is not all gone yet.
        Some(stale) if host_veth::is_of(stage.attachment, &stale) => {
            refuse_living(host, stage.attachment)?;
            link_removal::remove(&stale, None).map_err(failed)?;
            name
        }
        Some(_) => &random,
        None => return Err(failed(error)),
    };
    link::create_veth(host, &link::Veth { name, ..new }).map_err(|error| explain(error, stage.master.as_ref()))
}

/// Refuses an attachment that has a host's end whose other end is in a namespace that exists.
pub(crate) fn refuse_living(host: &Kernel, attachment: &Attachment) -> std::result::Result<(), CniError> {
    let Some(link) = host_veth::find_living(host, attachment).map_err(failed)? else { return Ok(()) };
    let Attachment { network, container_id, ifname } = attachment;
    let msg = format!(
        "cannot attach interface {ifname} of container {container_id} to network {network}: link {} has it already, in a \
         namespace that exists",
        link.name
    );
    Err(CniError::new(Code::EXISTS, msg)
        .detail("Call DEL for this attachment first: ADD removes no link of a container that lives."))
}

fn explain(error: OpError, master: Option<&Link>) -> CniError {
    let full = error.os_errno() == Some(Errno::EXFULL);
    let error = failed(error);
    match master.filter(|_| full) {
        Some(bridge) => error.detail(format!(
            "Bridge {} has as many ports as the kernel allows, 1023: remove some, run GC, or use another bridge.",
            bridge.name
        )),
        None => error,
    }
}

/// CVE-2020-10749: a container must not become the node's router by sending router advertisements.
/// Errors: the value could not be written, and is needed; a kernel without IPv6 has no such key.
pub fn refuse_advertisements(name: &str, need: Need) -> Result<()> {
    sysctl::set(&Key::of_link("ipv6", name, "accept_ra")?, "0", need)
}

/// Whether a link refuses router advertisements already.
/// Errors: the value cannot be read.
pub fn advertisements_are_refused(name: &str) -> Result<bool> {
    sysctl::is(&Key::of_link("ipv6", name, "accept_ra")?, "0")
}

/// The host ends of a network's attachments that GC removes. Looks at all links.
pub(crate) fn list_stale(network: &NetworkName, sweep: &Sweep<&Attachment>) -> Result<Vec<Link>> {
    host_veth::list_stale(&Kernel::host()?, network, sweep)
}

/// Where the host's end of a pair of the reference's is, which has no mark.
#[derive(Debug, Clone, Copy)]
pub enum Unmarked<'a> {
    /// The host's end is a port of the bridge of this name; without a name the bridge is not known.
    PortOf(Option<&'a str>),
    /// The host's end is a port of nothing.
    Alone,
    /// DEL's plugin makes no pairs: the network may have had another `type` at ADD.
    OfAnotherType,
}

/// Removes the attachment's pair.
/// Errors: the pair still exists, or could not be looked up.
pub fn remove(detaching: &Detaching<'_>, unmarked: Unmarked<'_>) -> Result<()> {
    let host = Kernel::host()?;
    match find(&host, detaching, unmarked)? {
        Some(link) => link_removal::remove_by(host, &link, detaching.held),
        None => Ok(()),
    }
}

fn find(host: &Kernel, detaching: &Detaching<'_>, unmarked: Unmarked<'_>) -> Result<Option<Link>> {
    let Detaching { attachment, prev, netns, .. } = *detaching;
    if let Some(link) = host_veth::find(host, attachment)? {
        return Ok(Some(link));
    }
    let listed = prev.and_then(|prev| host_end(prev, attachment));
    if let Some(link) = listed.map(|listed| find_listed(host, attachment, listed, unmarked)).transpose()?.flatten() {
        return Ok(Some(link));
    }
    // DEL's own plugin removes what is in the container alone: host-device brings it home.
    if !matches!(unmarked, Unmarked::OfAnotherType) && container_only::remove(detaching, None)? {
        return Ok(None);
    }
    // ADD takes another name where another link has the owner's. It says so in its result; without that, all are looked at.
    match listed {
        Some(listed) if listed.name == host_veth::name(attachment) => Ok(None),
        None if matches!(unmarked, Unmarked::OfAnotherType) && netns.is_some() => Ok(None),
        _ => host_veth::find_among_all(host, attachment),
    }
}

/// Where the result has the container's end.
fn container_end(prev: &AddResult, attachment: &Attachment) -> Option<usize> {
    prev.interfaces.iter().position(|entry| entry.name == attachment.ifname.as_str() && !entry.sandbox.is_empty())
}

/// The entry before the container's, which is where we and the reference put the host's end; if a link can have that name.
pub(crate) fn host_end<'a>(prev: &'a AddResult, attachment: &Attachment) -> Option<&'a Interface> {
    let entry = prev.interfaces.get(container_end(prev, attachment)?.checked_sub(1)?)?;
    (entry.sandbox.is_empty() && link::is_name(&entry.name)).then_some(entry)
}

/// The host's end as a result has it: ours under a random name, or the reference's, which has no mark and is known by its
/// address and what it is a port of.
fn find_listed(
    host: &Kernel,
    attachment: &Attachment,
    listed: &Interface,
    unmarked: Unmarked<'_>,
) -> Result<Option<Link>> {
    let Some(link) = link::find(host, &listed.name)? else { return Ok(None) };
    if host_veth::is_of(attachment, &link) {
        return Ok(Some(link));
    }
    let same_mac = link.mac.is_some() && listed.mac.parse::<Mac>().ok() == link.mac;
    // The other end of a container's veth is in another namespace.
    let is_unmarked = link.kind == Kind::Veth && link.peer_netns_id.is_some() && !alias::is_marked(&link);
    let is_in_place = match unmarked {
        Unmarked::PortOf(None) | Unmarked::OfAnotherType => false,
        Unmarked::PortOf(Some(name)) => link::find(host, name)?.is_some_and(|bridge| link.master == Some(bridge.index)),
        Unmarked::Alone => link.master.is_none(),
    };
    Ok((is_unmarked && same_mac && is_in_place).then_some(link))
}

/// Whether the link has the Ethernet address of the container's interface in ADD's result.
pub(crate) fn is_of_result(attachment: &Attachment, prev: Option<&AddResult>, link: &Link) -> bool {
    let mac = mac_of_result(attachment, prev);
    mac.is_some() && mac == link.mac
}

/// The Ethernet address of the container's interface in ADD's result.
pub(crate) fn mac_of_result(attachment: &Attachment, prev: Option<&AddResult>) -> Option<Mac> {
    let prev = prev?;
    prev.interfaces.get(container_end(prev, attachment)?)?.mac.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_end_that_no_link_can_be_is_none() {
        let attachment = Attachment::parse("n", "c", "eth0").unwrap();
        for (name, end) in [("vethours", Some("vethours")), ("sixteen-letters-", None), ("", None), ("a/b", None)] {
            let inside = Interface::new("eth0").sandbox("/ns");
            let prev = AddResult::default().interface(Interface::new(name)).interface(inside);
            assert_eq!(host_end(&prev, &attachment).map(|entry| entry.name.as_str()), end, "{name:?}");
        }
    }
}
