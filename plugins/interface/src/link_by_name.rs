//! The link of the interface's name in the container, of whatever kind: where the `type` of a network has changed since ADD, DEL
//! is another plugin's.

use cni_filter::RemovalHints;
use cni_spec::Attachment;
use netops::error::Result;
use netops::link::{self, Kind, Link};
use netops::{Kernel, Netns, OpError, link_removal, veth_peer};
use std::path::{Path, PathBuf};

use crate::alias::hex;
use crate::detach::{self, Detaching};
use crate::{alias, host_veth};

/// Removes the link, if it is the attachment's ([`crate::link_owner`]); one that is not is named in a warning. Returns whether it
/// was removed.
/// Errors: the link is still there, or could not be read. A device that host-device has moved is not deleted.
pub(crate) fn remove_own(detaching: &Detaching<'_>, netns: &Netns, inside: &Kernel, link: &Link) -> Result<bool> {
    let end = veth_peer::find_host_end(&Kernel::host()?, inside, netns, link)?;
    if !detaching.evidence(netns).whose(inside, link, end.as_ref())?.or_warn(link, netns) {
        return Ok(false);
    }
    refuse(detaching.attachment, netns, link, is_marked(detaching, link, end.as_ref()))?;
    remove(detaching, netns, link, end.as_ref())?;
    Ok(true)
}

/// Removes the link, if its mark names the attachment. Returns whether it was removed.
/// Errors: as the removal of an own link of the plugin's kind.
pub fn remove_marked(detaching: &Detaching<'_>, netns: &Netns, inside: &Kernel, link: &Link) -> Result<bool> {
    let end = veth_peer::find_host_end(&Kernel::host()?, inside, netns, link)?;
    if !is_marked(detaching, link, end.as_ref()) {
        return Ok(false);
    }
    refuse(detaching.attachment, netns, link, true)?;
    remove(detaching, netns, link, end.as_ref())?;
    Ok(true)
}

/// Removes the container's links with the attachment's mark, whatever the container has named them. Returns whether one was
/// removed.
pub fn remove_renamed(detaching: &Detaching<'_>, netns: &Netns, inside: &Kernel) -> Result<bool> {
    let mut is_removed = false;
    for link in link::list_of_container(inside)?.iter().filter(|link| is_marked(detaching, link, None)) {
        is_removed |= remove_marked(detaching, netns, inside, link)?;
    }
    Ok(is_removed)
}

/// Whether the mark of the attachment is on the host's end of a veth, or on another link.
fn is_marked(Detaching { attachment, .. }: &Detaching<'_>, link: &Link, end: Option<&Link>) -> bool {
    match end {
        Some(end) => host_veth::is_of(attachment, end),
        None => link.alias.as_deref() == Some(&*alias::of(attachment)),
    }
}

fn remove(detaching: &Detaching<'_>, netns: &Netns, link: &Link, end: Option<&Link>) -> Result<()> {
    let Some(end) = end else { return link_removal::remove_in(netns, Kernel::in_netns(netns)?, link) };
    if detaching.held.is_some() {
        return link_removal::remove_by(Kernel::host()?, end, detaching.held);
    }
    // The plugin has no rules, but that which made the pair has: before the link, by which a repeated DEL finds them, and the spoof
    // guard behind it.
    remove_rules(detaching)?;
    link_removal::remove_by(Kernel::host()?, end, None)?;
    remove_rules(detaching)
}

fn remove_rules(Detaching { attachment, prev, search_path, .. }: &Detaching<'_>) -> Result<()> {
    let addresses = prev.map(|prev| detach::addresses_of(prev, attachment)).unwrap_or_default();
    let known = RemovalHints { addresses: &addresses, search_path, ..RemovalHints::default() };
    cni_filter::remove_all((*attachment).into(), known).into_iter().next().map_or(Ok(()), Err)
}

/// The folder of host-device's records. It ends with the boot, as devices' places do.
pub const RECORDS: &str = "/run/cni/host-device";

/// The file of an attachment's record: `of` is network, container and interface. These can be longer than a file's name, which is
/// a hash of all three.
pub fn record_path(of: [&str; 3]) -> PathBuf {
    Path::new(RECORDS).join(hex(&of.join("\0"), 16))
}

/// Refuses to delete a link that host-device brings home: hardware, which the kernel does not delete, and the device of the
/// attachment's record.
pub(crate) fn refuse(attachment: &Attachment, netns: &Netns, link: &Link, is_marked: bool) -> Result<()> {
    let Attachment { network, container_id, ifname } = attachment;
    let has_record = || record_path([network.as_str(), container_id.as_str(), ifname.as_str()]).exists();
    if link.kind != Kind::None && (is_marked || !has_record()) {
        return Ok(());
    }
    let why = "it is a device of the node, which DEL of plugin host-device brings home: set the network's type to host-device, \
               with the keys that ADD had, and repeat DEL";
    Err(OpError::state("remove", format!("link {} in {}", link.name, netns.path().display()), why))
}
