//! DEL and GC: filter rules, links, spoof guard, addresses, in this order, each by its attachment alone.
//!
//! No namespace, no prevResult and no record of ours is needed; where there is one, what the reference plugins made is
//! found, too. An address is freed last, and only when no rule and no link may use it: its next owner would be
//! masqueraded for the old one, or meet it on the network.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use cni_filter::{Filter, RemovalHints};
use cni_spec::gc::Sweep;
use cni_spec::{AddResult, Attachment, CniError, ConfObject, FromAnyConf, NetConf, NetworkName};
use netops::error::Result as OpResult;
use netops::link::{self, Link};
use netops::link_removal::{self, Left};
use netops::{Errno, Kernel, Netns, OpError, addr, veth_peer};
use skel::{DelRequest, Delegate, Entry, GcRequest, Serve, Timer, Work};

use crate::alias::Mark;
use crate::link_owner::Evidence;
use crate::owner_by_reservation::Reserved;
use crate::plugin::{InterfacePlugin, Uncollected, other_form};
use crate::{failed, lease, sides, veth};

/// What DEL knows when it removes links. Only the attachment is needed; the rest is not trusted.
pub struct Detaching<'a> {
    pub attachment: &'a Attachment,
    /// The result of ADD and of the plugins after it.
    pub prev: Option<&'a AddResult>,
    pub netns: Option<&'a Netns>,
    pub reserved: &'a Reserved,
    /// The address plugin has no address for the attachment, and no result shows its link: a link without a mark is then
    /// another attachment's.
    pub holds_none: bool,
    /// The file that a child process keeps open while it waits for the kernel ([`link_removal::remove`]).
    pub held: Option<BorrowedFd<'a>>,
    /// Folders of iptables' programs, for a node whose rules are in legacy tables.
    pub search_path: &'a str,
}

impl Detaching<'_> {
    /// The evidence for the owner of a link in this namespace.
    pub fn evidence<'a>(&'a self, netns: &'a Netns) -> Evidence<'a> {
        let Self { attachment, prev, reserved, holds_none, .. } = *self;
        Evidence { attachment, prev, netns, reserved, holds_none }
    }
}

/// Removes the attachment, as much of it as there is.
pub(crate) async fn del(plugin: &dyn DynRemoval, request: &DelRequest) -> Result<(), CniError> {
    let DelRequest { attachment, netns: asked_netns, conf: net, raw, .. } = request;
    let asked_netns = asked_netns.as_ref();
    let prev = net.find_prev_result();
    let prev = prev.as_ref();
    let reserved = Reserved::of(net.object());
    let mut errors = Vec::new();
    let (netns, is_gone) = match sides::find_netns(asked_netns) {
        Ok(netns) => {
            let is_gone = netns.is_none() && asked_netns.is_some();
            (netns, is_gone)
        }
        Err(error) => {
            errors.push(error);
            (None, false)
        }
    };
    // The network may have had another `type` at ADD, which makes pairs and rules.
    let may_have_other_pair = !plugin.filters() && prev.is_none_or(|prev| veth::host_end(prev, attachment).is_some());
    let mut filter = find_filter(plugin.filters() || may_have_other_pair, raw.search_path()).unwrap_or_else(|error| {
        errors.push(failed(error));
        None
    });
    // What was refused for lack of rights.
    let mut unread = Vec::new();
    // Before links and addresses: an address must not be given out again while it is still masqueraded for the old owner.
    let timer = Timer::start();
    if let Some(filter) = &mut filter {
        let held = || if is_gone { Some(Vec::new()) } else { held_by_others(attachment, netns.as_ref()?) };
        let refused = remove_rules(filter, attachment, prev, &held, &reserved, raw.search_path());
        sort_out(refused, &mut unread, &mut errors);
        timer.end("remove masquerade");
    }
    // The release of a DHCP lease goes out by the link. The daemon's error is no reason to keep the link.
    let releases_first =
        errors.is_empty() && unread.is_empty() && raw.ipam(net).is_some_and(|ipam| ipam.releases_by_link());
    if releases_first {
        errors.extend(raw.release(net).await.err());
    }
    let is_in_question = netns.is_some() && veth::mac_of_result(attachment, prev).is_none();
    let holds_none = match raw.ipam(net).filter(|_| is_in_question) {
        Some(ipam) => lease::holds_none(&ipam).await,
        None => false,
    };
    let held = filter.as_ref().map(AsFd::as_fd);
    let netns = netns.as_ref();
    let search_path = raw.search_path();
    let detaching = Detaching { attachment, prev, netns, reserved: &reserved, holds_none, held, search_path };
    let timer = Timer::start();
    if may_have_other_pair {
        errors.extend(veth::remove(&detaching, veth::Unmarked::OfAnotherType).err().map(failed));
    }
    errors.extend(plugin.remove_link(&detaching).err().map(failed));
    timer.end("remove link");
    // Behind links: the container is guarded as long as it can send.
    if let Some(filter) = &mut filter {
        let timer = Timer::start();
        sort_out(filter.remove_spoof_guard(attachment.into()).err(), &mut unread, &mut errors);
        timer.end("remove spoof guard");
    }
    if !unread.is_empty() && errors.is_empty() && prev.is_none() && has_no_address(raw, net).await {
        unread.clear();
    }
    errors.extend(unread);
    match errors.pop() {
        None if releases_first => {}
        None => errors.extend(raw.release(net).await.err()),
        Some(last) if releases_first => errors.push(last),
        Some(last) => {
            errors.push(last.detail("Its addresses, if it has any, stay held until DEL or GC has removed the rest."));
        }
    }
    CniError::join(errors).map_or(Ok(()), Err)
}

/// Tells errors of a plugin that may not read the packet filter from others.
fn sort_out(refused: impl IntoIterator<Item = OpError>, unread: &mut Vec<CniError>, errors: &mut Vec<CniError>) {
    for error in refused {
        let is_unread = error.os_errno() == Some(Errno::EPERM);
        if is_unread { &mut *unread } else { &mut *errors }.push(failed(error));
    }
}

/// Whether the attachment has no address that rules could be for: as after an ADD that was refused for lack of rights.
async fn has_no_address(raw: &skel::Call, net: &NetConf) -> bool {
    match raw.ipam(net) {
        Some(ipam) => lease::holds_none(&ipam).await,
        None => true,
    }
}

fn find_filter(filters: bool, search_path: &str) -> OpResult<Option<Filter>> {
    if filters { Filter::find(search_path) } else { Ok(None) }
}

fn remove_rules(
    filter: &mut Filter,
    attachment: &Attachment,
    prev: Option<&AddResult>,
    held: &dyn Fn() -> Option<Vec<IpAddr>>,
    reserved: &Reserved,
    search_path: &str,
) -> Vec<OpError> {
    let addresses: Vec<IpAddr> = prev.map(|prev| addresses_of(prev, attachment)).unwrap_or_default();
    let is_others = |address| reserved.is_of_other_interface(attachment, address);
    let known = RemovalHints { addresses: &addresses, held: Some(held), is_others: Some(&is_others), search_path };
    filter.remove_masquerade(attachment.into(), known)
}

/// The addresses that only other interfaces of the container have, whose rules stay; `None` if they cannot be read. An
/// address that the attachment's interface has, too, is the attachment's: the rules are of one network, where it is given
/// once.
pub fn held_by_others(attachment: &Attachment, netns: &Netns) -> Option<Vec<IpAddr>> {
    let container = Kernel::in_netns(netns).ok()?;
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for link in link::list(&container, None).ok()? {
        let held = if link.name == attachment.ifname.as_str() { &mut own } else { &mut others };
        held.extend(addr::list(&container, &link).ok()?.into_iter().map(|address| address.net.ip()));
    }
    others.retain(|address| !own.contains(address));
    Some(others)
}

/// The addresses that the result has for the attachment's interface.
pub(crate) fn addresses_of(prev: &AddResult, attachment: &Attachment) -> Vec<IpAddr> {
    let is_ours = |index: usize| {
        let entry = prev.interfaces.get(index);
        entry.is_some_and(|entry| entry.name == attachment.ifname.as_str() && !entry.sandbox.is_empty())
    };
    prev.ips.iter().filter(|ip| ip.interface.is_some_and(is_ours)).map(|ip| ip.address.ip()).collect()
}

/// Removes links, rules and addresses of all attachments to the network that are not valid.
pub(crate) async fn gc(plugin: &dyn DynRemoval, request: &GcRequest) -> Result<(), CniError> {
    let GcRequest { valid, conf: net, raw, .. } = request;
    let (sweep, network) = (&request.sweep(), &net.name);
    let names = || sweep.map(|attachment| cni_filter::Names::from(*attachment));
    let timer = Timer::start();
    // Whatever the plugin makes: the network may have had another `type` at ADD.
    let mut errors: Vec<CniError> =
        cni_filter::gc(network.as_str(), names(), raw.search_path()).into_iter().map(failed).collect();
    timer.end("collect rules");
    let timer = Timer::start();
    // The attachments of which something is left; `None` may be any.
    let mut left: Vec<Option<Attachment>> = errors.iter().map(|_| None).collect();
    for Uncollected { attachment, error } in plugin.collect(network, sweep) {
        left.push(attachment);
        errors.push(failed(error));
    }
    match veth::list_stale(network, sweep) {
        Ok(stale) => {
            for Left { link, error } in remove_stale(&stale) {
                left.push(Mark::of_link(&link).and_then(|mark| mark.attachment_to(network)));
                errors.push(failed(error));
            }
        }
        Err(error) => {
            left.push(None);
            errors.push(failed(error));
        }
    }
    let kept = left.into_iter().collect();
    timer.end("collect links");
    // Behind links, as in DEL.
    errors.extend(cni_filter::gc_spoof_guards(&names().valid).into_iter().map(failed));
    if let Some(ipam) = raw.ipam(net) {
        match plugin.list_unmarked().and_then(|links| without_seen(links, &ipam)) {
            Ok(links) if links.is_empty() => errors.extend(lease::collect(&ipam, valid, kept).await.err()),
            Ok(links) => tracing::warn!(
                links = links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>().join(" "),
                "no address is collected: containers have veths without a mark, as the reference makes them, and it is not \
                 known which addresses they use; when those containers are deleted, repeat GC"
            ),
            Err(error) => errors.push(failed(error)),
        }
    }
    netops::helper_process::remove_ended_records();
    CniError::join(errors).map_or(Ok(()), Err)
}

/// Links without a mark whose containers' addresses the address plugin might free. Ours frees no address that a
/// namespace has; where a namespace has none, a virtual machine in it may have one.
fn without_seen(links: Vec<Link>, ipam: &Delegate<'_>) -> OpResult<Vec<Link>> {
    if links.is_empty() || !ipam.is_of_this_build() {
        return Ok(links);
    }
    let host = Kernel::host()?;
    let mut silent = Vec::new();
    for link in links {
        if veth_peer::leads_to_none_with_addresses(&host, &link)? {
            silent.push(link);
        }
    }
    Ok(silent)
}

/// Removes links of attachments that are gone; returns those that are still there.
fn remove_stale(stale: &[Link]) -> Vec<Left> {
    for link in stale {
        tracing::info!(link = link.name, alias = link.alias, "removing the link of an attachment that is gone");
    }
    link_removal::remove_all(stale)
}

pub(crate) trait DynRemoval {
    fn filters(&self) -> bool;
    fn remove_link(&self, detaching: &Detaching<'_>) -> Result<(), OpError>;
    fn collect(&self, network: &NetworkName, sweep: &Sweep<&Attachment>) -> Vec<Uncollected>;
    fn list_unmarked(&self) -> Result<Vec<Link>, OpError>;
}

struct RemovalKeys<P: InterfacePlugin>(P::Removal);

pub(crate) fn keys<P: InterfacePlugin>(object: &ConfObject) -> Box<dyn skel::Detach> {
    if let Some(Entry { serve: Serve::Verbs { detach, .. }, .. }) = other_form::<P>(object) {
        return detach(object);
    }
    Box::new(RemovalKeys::<P>(P::Removal::from_any_conf(object)))
}

impl<P: InterfacePlugin> skel::Detach for RemovalKeys<P> {
    fn del<'a>(&'a self, request: &'a DelRequest) -> Work<'a, Result<(), CniError>> {
        Box::pin(del(self, request))
    }

    fn gc<'a>(&'a self, request: &'a GcRequest) -> Work<'a, Result<(), CniError>> {
        Box::pin(gc(self, request))
    }
}

impl<P: InterfacePlugin> DynRemoval for RemovalKeys<P> {
    fn filters(&self) -> bool {
        P::FILTERS
    }

    fn remove_link(&self, detaching: &Detaching<'_>) -> Result<(), OpError> {
        P::remove_link(detaching, &self.0)
    }

    fn collect(&self, network: &NetworkName, sweep: &Sweep<&Attachment>) -> Vec<Uncollected> {
        P::collect(network, sweep)
    }

    fn list_unmarked(&self) -> Result<Vec<Link>, OpError> {
        P::list_unmarked(&self.0)
    }
}
