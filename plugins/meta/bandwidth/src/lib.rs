//! The bandwidth plugin: limits what a container receives and sends, by token buckets at the host's end of its veth.
//!
//! Packets to the container leave by the host's end, so that has the bucket. Packets from the container come in there,
//! where nothing can be queued: they are redirected to a link of kind ifb, which has the other bucket. A direction
//! without limit has neither.

pub mod conf;
pub mod ifb;
pub mod shaper;

use crate::conf::{Conf, Limit, Queue};
use crate::shaper::Shaper;
use chained::{
    AddOrCheck, ChainedPlugin, Collecting, DeleteIngress, Preview, Removing, Shown, Timer, Txn, all, differs, failed,
};
use cni_spec::{AddResult, CniError, Code, Interface, NetworkName, SpecVersion};
use interface::inventory::{Item, Owner, Sign};
use interface::sides::Sides;
use interface::status::try_out;
use interface::{alias, host_veth};
use netops::link::{self, Kind, Link, LinkName, NewLink, Settings};
use netops::tc::htb::End;
use netops::tc::{self, Qdisc, Redirect};
use netops::txn::DeleteLink;
use netops::{Errno, Kernel, link_removal, veth_peer};

#[derive(Debug)]
pub struct Bandwidth;

impl ChainedPlugin for Bandwidth {
    const NAME: &'static str = "bandwidth";
    const ADD_REPAIRS: bool = true;
    /// Older results have no interfaces, whose host's end gets the limits.
    const VERSIONS: &'static [SpecVersion] = SpecVersion::V0_3_0.and_later();
    type Conf = Conf;
    type Removal = Conf;

    async fn add(call: &AddOrCheck<'_>, keys: &Conf, txn: &Txn, result: &mut AddResult) -> Result<(), CniError> {
        let Conf { ingress, egress, .. } = *keys;
        if ingress.is_none() && egress.is_none() {
            return Ok(());
        }
        let sides = call.sides.open()?;
        let veth = call.attached.host_end(sides)?;
        if let Some(limit) = ingress {
            warn_if_small("ingressBurst", limit, &veth);
            let timer = Timer::start();
            shaper::put(&sides.host, txn, &veth, &keys.shaper(limit, End::Source))?;
            timer.end("limit what it receives");
        }
        txn.checkpoint().await;
        if let Some(limit) = egress {
            warn_if_small("egressBurst", limit, &veth);
            let timer = Timer::start();
            let stale = ifb::find(&sides.host, call.attachment, Some(call.attached)).map_err(failed)?;
            let replaced = prepare(&sides.host, txn, &veth, &stale)?;
            let ifb = ensure_ifb(call, sides, txn, &veth, &stale)?;
            shaper::put(&sides.host, txn, &ifb, &keys.shaper(limit, End::Destination))?;
            shaper::set_queue(&sides.host, &ifb, keys, limit)?;
            let up = Settings { up: Some(true), ..Settings::default() };
            sides.host.run(link::set(&(&ifb).into(), &up)).map_err(failed)?;
            redirect(&sides.host, &veth, &ifb, &replaced)?;
            remove_others(&stale, &ifb);
            timer.end("limit what it sends");
            let mac = ifb.mac.map(|mac| mac.to_string()).unwrap_or_default();
            let own = Interface::new(ifb.name).mac(mac);
            // After a repeated ADD prevResult has it already; addresses refer to interfaces by their places.
            match result.interfaces.iter_mut().find(|entry| entry.name == own.name && entry.sandbox.is_empty()) {
                Some(entry) => *entry = own,
                None => result.interfaces.push(own),
            }
        }
        // Last: the queue that was there before is not put back.
        ingress.map_or(Ok(()), |limit| shaper::set_queue(&sides.host, &veth, keys, limit))
    }

    fn preview(call: &AddOrCheck<'_>, keys: &Conf, preview: &mut Preview) -> Result<(), CniError> {
        let Conf { ingress, egress, queue, .. } = *keys;
        if ingress.is_none() && egress.is_none() {
            return Ok(());
        }
        let veth = call.attached.previewed_host_end(call.attachment)?;
        let shape = |preview: &mut Preview, link: &str, limit: Limit, end: &str| {
            shaper::preview(preview, keys, link, limit, end);
            if queue == Queue::FqCodel {
                preview.step(format!("tc qdisc add dev {link} parent 1:1 fq_codel"));
            }
        };
        if let Some(limit) = ingress {
            shape(preview, &veth, limit, "src");
        }
        if let Some(limit) = egress {
            let host = Kernel::host().map_err(failed)?;
            let name = ifb::free_name(&host, call.attachment).map_err(failed)?;
            preview.push(Shown::new(format!("tc qdisc add dev {veth} ingress")).uncompared());
            preview.step(format!("ip link add {name} type ifb"));
            shape(preview, &name, limit, "dst");
            preview.step(format!("ip link set {name} up"));
            let action = format!("action mirred egress redirect dev {name}");
            preview.step(format!("tc filter add dev {veth} parent ffff: matchall {action}"));
            preview.result.interfaces.push(Interface::new(name));
        }
        Ok(())
    }

    async fn check(call: &AddOrCheck<'_>, keys: &Conf) -> Result<(), CniError> {
        let Conf { ingress, egress, .. } = *keys;
        if ingress.is_none() && egress.is_none() {
            return Ok(());
        }
        let sides = call.sides.open()?;
        let veth = call.attached.host_end(sides)?;
        let compare = |limit| shaper::compare(&sides.host, &veth, keys, limit, End::Source);
        let received = ingress.map_or(Ok(()), compare);
        let sent = egress.map_or(Ok(()), |limit| compare_sent(call, sides, &veth, (keys, limit)));
        all([received, sent])
    }

    /// Removes the shapers from the veth, if that is there, and then the ifb.
    async fn del(removing: &Removing<'_, Conf>) -> Vec<CniError> {
        let look = || {
            let host = Kernel::host()?;
            let ifbs = ifb::find(&host, removing.attachment, removing.attached)?;
            Ok((host, ifbs))
        };
        let (host, ifbs) = match look() {
            Ok(found) => found,
            Err(error) => return vec![failed(error)],
        };
        let again = |_| unshape(&Kernel::host().map_err(failed)?, removing, &ifbs);
        // The veth is about to be removed, with what is on it. A passing failure, such as one of memory, is not the end of it.
        if let Err(error) = unshape(&host, removing, &ifbs).or_else(again) {
            tracing::warn!(%error, "the veth keeps its limits");
        }
        let timer = Timer::start();
        let left = ifbs.iter().filter_map(|link| link_removal::remove(link, None).err()).map(failed).collect();
        timer.end("remove ifb");
        left
    }

    async fn gc(collecting: &Collecting<'_, Conf>) -> Vec<CniError> {
        let stale = Kernel::host()
            .and_then(|host| alias::list_stale_of(&host, &Kind::Ifb, collecting.network, collecting.sweep));
        match stale {
            Ok(links) => link_removal::remove_all(&links).into_iter().map(|left| failed(left.error)).collect(),
            Err(error) => vec![failed(error)],
        }
    }

    fn status(conf: &Conf, _search_path: &str) -> Result<(), CniError> {
        let Some(limit) = conf.ingress.or(conf.egress) else { return Ok(()) };
        // The numbers too: the kernel refuses some.
        let tbf = limit.tbf();
        let queue = if conf.queue == Queue::FqCodel { "-fq-codel" } else { "" };
        let way = if conf.egress.is_some() { "-egress" } else { "" };
        let kind = if conf.subnets.is_some() { "htb" } else { "tbf" };
        let what = format!("{kind}-{}-{}-{}{queue}{way}", tbf.rate_bytes, tbf.limit_bytes, tbf.buffer_ticks);
        try_out(&what, |host| {
            let [one, other] = ["trial0", "trial1"].map(LinkName::parse);
            let (Ok(one), Ok(other)) = (one, other) else { return Ok(()) };
            let ifb = link::create(host, &NewLink::new(&one, Kind::Ifb), None)?;
            conf.shaper(limit, End::Source).add(host, &ifb)?;
            if conf.queue == Queue::FqCodel {
                host.run(tc::add(&ifb, &Qdisc::FqCodel))?;
            }
            if conf.egress.is_some() {
                let veth = link::create(host, &NewLink::new(&other, Kind::Ifb), None)?;
                host.run_all(vec![tc::add(&veth, &Qdisc::Ingress), tc::redirect_all(&veth, &ifb)])?;
            }
            Ok(())
        })
    }
}

/// ADD accepts, as the reference's, a burst that no full packet fits into.
fn warn_if_small(key: &str, limit: Limit, veth: &Link) {
    if limit.is_below(veth.mtu_bytes) {
        tracing::warn!(key, mtu = veth.mtu_bytes, "the burst is smaller than a packet: large packets are dropped");
    }
}

/// Removes from the host's end of the veth what ADD put there: the redirection to one of these links, and a bucket with the
/// config's numbers.
fn unshape(host: &Kernel, removing: &Removing<'_, Conf>, ifbs: &[Link]) -> Result<(), CniError> {
    let Some(veth) = find_veth(host, removing)? else { return Ok(()) };
    if let Some(limit) = removing.removal.ingress
        && let wanted = removing.removal.shaper(limit, End::Source)
        && Shaper::find(host, &veth).map_err(failed)?.as_ref() == Some(&wanted)
    {
        host.run(tc::delete(&veth, &wanted.root())).map_err(failed)?;
    }
    let own = own_redirects(host, &veth, ifbs)?;
    host.run_all(own.iter().map(|redirect| tc::delete_redirect(&veth, redirect)).collect()).map_err(failed)?;
    // Without a filter it has no effect: a call that was killed has left it.
    let may_be_left = !own.is_empty() || removing.removal.egress.is_some();
    if may_be_left
        && tc::find_ingress(host, &veth).map_err(failed)? == Some(Qdisc::Ingress)
        && !tc::has_filters(host, &veth).map_err(failed)?
    {
        host.run(tc::delete(&veth, &Qdisc::Ingress)).map_err(failed)?;
    }
    Ok(())
}

/// The redirections at the veth to these links, or to one that is gone, by GC.
fn own_redirects(host: &Kernel, veth: &Link, ifbs: &[Link]) -> Result<Vec<Redirect>, CniError> {
    let mut all = tc::list_redirects(host, veth).map_err(failed)?;
    all.retain(|redirect| redirect.to == 0 || ifbs.iter().any(|ifb| ifb.index == redirect.to));
    Ok(all)
}

/// The host's end of the container's veth: by our mark, or by the container's end.
fn find_veth(host: &Kernel, removing: &Removing<'_, Conf>) -> Result<Option<Link>, CniError> {
    if let Some(veth) = link::find(host, &host_veth::name(removing.attachment)).map_err(failed)?
        && host_veth::is_of(removing.attachment, &veth)
    {
        return Ok(Some(veth));
    }
    let Some(netns) = removing.find_netns()? else { return Ok(None) };
    let inside = Kernel::in_netns(&netns).map_err(failed)?;
    let Some(link) = removing.find_link(&netns, &inside).map_err(failed)? else { return Ok(None) };
    let Some(veth) = veth_peer::find_host_end(host, &inside, &netns, &link).map_err(failed)? else { return Ok(None) };
    if leads_to_anothers(host, removing, &veth)? {
        tracing::warn!(veth = veth.name, "left alone: its ifb is another attachment's");
        return Ok(None);
    }
    Ok(Some(veth))
}

/// Whether a veth without our mark has another attachment's limits, which the name of its ifb shows.
fn leads_to_anothers(host: &Kernel, removing: &Removing<'_, Conf>, veth: &Link) -> Result<bool, CniError> {
    if host_veth::is_of(removing.attachment, veth) {
        return Ok(false);
    }
    for redirect in tc::list_redirects(host, veth).map_err(failed)?.iter().filter(|redirect| redirect.to != 0) {
        let to = link::find_index(host, redirect.to).map_err(failed)?;
        if to.is_some_and(|to| ifb::is_anothers(removing.attachment, &to)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The attachment's ifb: that of an earlier ADD, so that an ADD which fails leaves the limit of the earlier one; else a new one.
fn ensure_ifb(call: &AddOrCheck<'_>, sides: &Sides, txn: &Txn, veth: &Link, stale: &[Link]) -> Result<Link, CniError> {
    let host = &sides.host;
    if let Some(ifb) = stale.iter().find(|ifb| ifb.up) {
        let mtu = Settings { mtu_bytes: Some(veth.mtu_bytes), ..Settings::default() };
        return link::set_and_get(host, &ifb.into(), &mtu).map_err(failed);
    }
    // Links of calls that were killed before they were complete.
    for unfinished in stale {
        link_removal::remove(unfinished, None).map_err(failed)?;
    }
    let name = ifb::free_name(host, call.attachment).map_err(failed)?;
    let name = LinkName::parse(&name).map_err(|error| CniError::new(Code::INTERNAL, error.to_string()))?;
    let alias = alias::of(call.attachment);
    let new = NewLink { mtu_bytes: Some(veth.mtu_bytes), alias: Some(&alias), ..NewLink::new(&name, Kind::Ifb) };
    let made = link::create(host, &new, None);
    if made.is_err() {
        // The answer may be lost: the name was free.
        let there = link::find(host, name.as_str()).ok().flatten().filter(|link| link.kind == Kind::Ifb && !link.up);
        there.filter(|link| link.alias.is_none()).into_iter().for_each(|link| txn.push(Box::new(DeleteLink(link))));
    }
    let ifb = made.map_err(failed)?;
    txn.push(Box::new(DeleteLink(ifb.clone())));
    Ok(ifb)
}

/// Removes further links of the attachment, which nothing redirects to any more.
fn remove_others(stale: &[Link], ifb: &Link) {
    for other in stale.iter().filter(|other| other.index != ifb.index && other.up) {
        if let Err(error) = link_removal::remove(other, None) {
            tracing::warn!(%error, "left");
        }
    }
}

/// Makes the place for the redirection. Returns the redirections of an earlier ADD, which the new one replaces.
///
/// Another process's filters would not be reached any more, or keep packets from the limit: where there are some, the veth is
/// left alone, as by the reference.
fn prepare(host: &Kernel, txn: &Txn, veth: &Link, stale: &[Link]) -> Result<Vec<Redirect>, CniError> {
    let refused = match host.run(tc::add(veth, &Qdisc::Ingress)) {
        Err(error) if error.os_errno() == Some(Errno::EEXIST) => error,
        done => {
            // The answer may be lost: then it is an earlier ADD's, or a new one without filters.
            txn.push(Box::new(DeleteIngress { link: veth.clone(), is_in_container: false, is_new: done.is_ok() }));
            return done.map(|()| Vec::new()).map_err(failed);
        }
    };
    let own = own_redirects(host, veth, stale)?;
    let is_free = matches!(tc::find_ingress(host, veth).map_err(failed)?, Some(Qdisc::Ingress | Qdisc::Clsact))
        && (!own.is_empty() || !tc::has_filters(host, veth).map_err(failed)?);
    if is_free {
        return Ok(own);
    }
    let hint = "Another process filters what comes in at this link: end that, or give the container no egress limit.";
    Err(failed(refused).detail(hint))
}

/// Sends all that comes in at the veth to the ifb, in place of earlier redirections. One that leads there first stays.
fn redirect(host: &Kernel, veth: &Link, ifb: &Link, earlier: &[Redirect]) -> Result<(), CniError> {
    let is_there = earlier.first().is_some_and(|first| first.to == ifb.index);
    let replaced = earlier.iter().skip(usize::from(is_there));
    let mut requests: Vec<_> = replaced.map(|redirect| tc::delete_redirect(veth, redirect)).collect();
    if !is_there {
        requests.push(tc::redirect_all(veth, ifb));
    }
    host.run_all(requests).map_err(failed)
}

/// Compares what limits what the container sends: the ifb, and the way there.
fn compare_sent(
    call: &AddOrCheck<'_>,
    sides: &Sides,
    veth: &Link,
    (keys, limit): (&Conf, Limit),
) -> Result<(), CniError> {
    let found = ifb::find(&sides.host, call.attachment, Some(call.attached)).map_err(failed)?;
    let [name, _] = ifb::names(call.attachment);
    let ifb = found.into_iter().next().ok_or_else(|| differs(format!("ifb {name}"), "it is not found"))?;
    let up = if ifb.up { Ok(()) } else { Err(differs(format!("ifb {}", ifb.name), "it is down")) };
    let redirects = tc::list_redirects(&sides.host, veth).map_err(failed)?;
    let way = match redirects.first().is_some_and(|first| first.to == ifb.index) {
        true => Ok(()),
        false => Err(differs(format!("link {}", veth.name), format!("its packets do not go to {}", ifb.name))),
    };
    all([shaper::compare(&sides.host, &ifb, keys, limit, End::Destination), up, way])
}

/// Each ifb of the network, among all `links` of the host. Changes nothing.
///
/// The veth that an ifb serves says whether the container lives: one with the same mark, which is a mark of the attachment by
/// itself, or else the one whose packets are redirected to the ifb.
pub fn inventory(network: &NetworkName, links: &[Link]) -> Result<Vec<Item>, CniError> {
    let (mut items, mut redirects) = (Vec::new(), None);
    for ifb in alias::marked(links, &Kind::Ifb, network) {
        let alias = ifb.alias.clone().unwrap_or_default();
        let has_own_veth =
            alias::marked(links, &Kind::Veth, network).any(|veth| veth.alias.as_deref() == Some(&*alias));
        let mut signs = Vec::new();
        if !has_own_veth {
            let all = match &redirects {
                Some(all) => all,
                None => redirects.insert(unmarked_redirects(links)?),
            };
            signs.extend(all.iter().filter(|(_, to)| *to == ifb.index).map(|(veth, _)| Sign::Link(*veth)));
        }
        let owner = match alias::Mark::of_link(ifb).and_then(|mark| mark.attachment_to(network)) {
            Some(attachment) => (&attachment).into(),
            None => Owner::Word(alias),
        };
        items.push(Item { owner, object: format!("link {}", ifb.name), signs });
    }
    Ok(items)
}

/// Veths without a mark, as the reference's, and where their packets are redirected to.
fn unmarked_redirects(links: &[Link]) -> Result<Vec<(u32, u32)>, CniError> {
    let host = Kernel::host().map_err(failed)?;
    let mut found = Vec::new();
    for veth in links.iter().filter(|link| link.kind == Kind::Veth && !alias::is_marked(link)) {
        let redirects = match tc::list_redirects(&host, veth) {
            // The link has gone meanwhile.
            Err(error) if error.is_absent() => continue,
            redirects => redirects.map_err(failed)?,
        };
        found.extend(redirects.iter().map(|redirect| (veth.index, redirect.to)));
    }
    Ok(found)
}
