//! The bandwidth plugin: limits what a container receives and sends, by token buckets at the host's end of its veth.
//!
//! What it receives leaves the host's end, so that has the bucket. What it sends comes in there, where nothing can be queued: it
//! is redirected to a link of kind ifb, which has the other bucket. A direction without limit has neither.

pub mod conf;
pub mod ifb;

use std::fmt;

use chained::{Call, ChainedPlugin, Collecting, Removing, Site, Txn, Undo, differs, failed};
use cni_spec::{AddResult, CniError, Code, Interface};
use interface::host_veth;
use interface::pod::Pod;
use interface::status::try_out;
use netops::link::{self, Kind, Link, LinkName, NewLink, Settings};
use netops::tc::{self, Qdisc, Tbf};
use netops::txn::NodeUndo;
use netops::{Errno, Kernel, pair, unlink};

use crate::conf::{Conf, Limit};

/// The bandwidth plugin.
#[derive(Debug)]
pub struct Bandwidth;

chained::plugin!(Bandwidth);

impl ChainedPlugin for Bandwidth {
    const NAME: &'static str = "bandwidth";
    type Conf = Conf;
    type Removal = Conf;

    async fn add(call: &Call<'_, Conf>, txn: &Txn, result: &mut AddResult) -> Result<(), CniError> {
        let Conf { ingress, egress } = call.conf.own;
        if ingress.is_none() && egress.is_none() {
            return Ok(());
        }
        let pod = call.site.pod()?;
        let veth = call.attached.host_end(pod)?;
        if let Some(limit) = ingress {
            warn_if_small("ingressBurst", limit, &veth);
            txn.push(Box::new(DeleteQdisc { link: veth.clone(), qdisc: Qdisc::Tbf(limit.tbf()) }));
            shape(&pod.host, &veth, limit.tbf())?;
        }
        txn.checkpoint().await;
        if let Some(limit) = egress {
            warn_if_small("egressBurst", limit, &veth);
            let ifb = create_ifb(call, pod, txn, &veth)?;
            shape(&pod.host, &ifb, limit.tbf())?;
            let up = Settings { up: Some(true), ..Settings::default() };
            pod.host.run(link::set(&(&ifb).into(), &up)).map_err(failed)?;
            redirect(&pod.host, txn, &veth, &ifb)?;
            let mac = ifb.mac.map(|mac| mac.to_string()).unwrap_or_default();
            result.interfaces.push(Interface { name: ifb.name, mac, ..Interface::default() });
        }
        Ok(())
    }

    async fn check(call: &Call<'_, Conf>) -> Result<(), CniError> {
        let Conf { ingress, egress } = call.conf.own;
        if ingress.is_none() && egress.is_none() {
            return Ok(());
        }
        let pod = call.site.pod()?;
        let veth = call.attached.host_end(pod)?;
        if let Some(limit) = ingress {
            compare(&pod.host, &veth, limit)?;
        }
        if let Some(limit) = egress {
            let found = ifb::find(&pod.host, call.attachment, Some(call.attached)).map_err(failed)?;
            let [name, _] = ifb::names(call.attachment);
            let ifb = found.into_iter().next().ok_or_else(|| differs(format!("ifb {name}"), "it is not found"))?;
            compare(&pod.host, &ifb, limit)?;
            if !ifb.up {
                return Err(differs(format!("ifb {}", ifb.name), "it is down"));
            }
            let to = tc::find_redirect(&pod.host, &veth).map_err(failed)?;
            if to != Some(ifb.index) {
                return Err(differs(format!("link {}", veth.name), format!("its packets do not go to {}", ifb.name)));
            }
        }
        Ok(())
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
        ifbs.iter().filter_map(|link| unlink::remove(link, None).err()).map(failed).collect()
    }

    async fn gc(collecting: &Collecting<'_, Conf>) -> Vec<CniError> {
        let stale = Kernel::host()
            .and_then(|host| host_veth::list_stale_of(&host, &Kind::Ifb, collecting.network, collecting.valid));
        match stale {
            Ok(links) => unlink::remove_all(&links).into_iter().map(|left| failed(left.error)).collect(),
            Err(error) => vec![failed(error)],
        }
    }

    fn status(conf: &Conf, _search_path: &str) -> Result<(), CniError> {
        let Some(limit) = conf.ingress.or(conf.egress) else { return Ok(()) };
        try_out(|host| {
            let [one, other] = ["trial0", "trial1"].map(LinkName::parse);
            let (Ok(one), Ok(other)) = (one, other) else { return Ok(()) };
            let ifb = link::create(host, &NewLink::new(&one, Kind::Ifb), None)?;
            host.run(tc::add(&ifb, &Qdisc::Tbf(limit.tbf())))?;
            if conf.egress.is_some() {
                let veth = link::create(host, &NewLink::new(&other, Kind::Ifb), None)?;
                host.run_all(vec![tc::add(&veth, &Qdisc::Ingress), tc::redirect_all(&veth, &ifb)])?;
            }
            Ok(())
        })
    }
}

/// As the reference, ADD accepts a burst that no full packet fits into.
fn warn_if_small(key: &str, limit: Limit, veth: &Link) {
    if limit.is_below(veth.mtu_bytes) {
        tracing::warn!(key, mtu = veth.mtu_bytes, "the burst is smaller than a packet: large packets are dropped");
    }
}

/// Puts a bucket on a link. One that an earlier ADD put there is changed.
fn shape(host: &Kernel, link: &Link, tbf: Tbf) -> Result<(), CniError> {
    let qdisc = Qdisc::Tbf(tbf);
    let refused = match host.run(tc::add(link, &qdisc)) {
        Err(error) if error.os_errno() == Some(Errno::EEXIST) => error,
        done => return done.map_err(failed),
    };
    match tc::find_root(host, link).map_err(failed)? {
        Some(Qdisc::Tbf(_)) => host.run(tc::replace(link, &qdisc)).map_err(failed),
        _ => Err(failed(refused).detail("Another process shapes this link: end that, or give the container no limit.")),
    }
}

/// Removes from the host's end of the veth what ADD put there: the redirection to one of these links, and a bucket with the
/// config's numbers.
fn unshape(host: &Kernel, removing: &Removing<'_, Conf>, ifbs: &[Link]) -> Result<(), CniError> {
    let Some(veth) = find_veth(host, removing)? else { return Ok(()) };
    if let Some(limit) = removing.removal.ingress
        && tc::find_root(host, &veth).map_err(failed)? == Some(Qdisc::Tbf(limit.tbf()))
    {
        host.run(tc::delete(&veth, &Qdisc::Tbf(limit.tbf()))).map_err(failed)?;
    }
    // 0: the link is gone, by GC.
    let is_own = |target: u32| target == 0 || ifbs.iter().any(|ifb| ifb.index == target);
    let has_own = tc::find_redirect(host, &veth).map_err(failed)?.is_some_and(is_own);
    if has_own {
        host.run(tc::delete_redirect(&veth)).map_err(failed)?;
    }
    // Without a filter it has no effect: a call that was killed has left it.
    let may_be_left = has_own || removing.removal.egress.is_some();
    if may_be_left
        && tc::find_ingress(host, &veth).map_err(failed)? == Some(Qdisc::Ingress)
        && !tc::has_filters(host, &veth).map_err(failed)?
    {
        host.run(tc::delete(&veth, &Qdisc::Ingress)).map_err(failed)?;
    }
    Ok(())
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
    let found = link::find(&inside, removing.attachment.ifname.as_str()).map_err(failed)?;
    let end = |link: Link| pair::find_host_end(host, &inside, &netns, &link);
    Ok(found.map(end).transpose().map_err(failed)?.flatten())
}

/// Makes the attachment's ifb. What an earlier ADD of it left is removed first.
fn create_ifb(call: &Call<'_, Conf>, pod: &Pod, txn: &Txn, veth: &Link) -> Result<Link, CniError> {
    let host = &pod.host;
    for stale in ifb::find(host, call.attachment, Some(call.attached)).map_err(failed)? {
        unlink::remove(&stale, None).map_err(failed)?;
    }
    let name = ifb::free_name(host, call.attachment).map_err(failed)?;
    let name = LinkName::parse(&name).map_err(|error| CniError::new(Code::INTERNAL, error.to_string()))?;
    let alias = host_veth::alias(call.attachment);
    let new = NewLink { mtu_bytes: Some(veth.mtu_bytes), alias: Some(&alias), ..NewLink::new(&name, Kind::Ifb) };
    let made = link::create(host, &new, None);
    if made.is_err() {
        // The answer may be lost: the name was free.
        let there = link::find(host, name.as_str()).ok().flatten().filter(|link| link.kind == Kind::Ifb && !link.up);
        there
            .filter(|link| link.alias.is_none())
            .into_iter()
            .for_each(|link| txn.push(Box::new(NodeUndo::DeleteLink(link))));
    }
    let ifb = made.map_err(failed)?;
    txn.push(Box::new(NodeUndo::DeleteLink(ifb.clone())));
    Ok(ifb)
}

/// Sends all that comes in at the veth to the ifb. What an earlier ADD, whose ifb is gone, left there is replaced; filters of
/// other preferences stay.
fn redirect(host: &Kernel, txn: &Txn, veth: &Link, ifb: &Link) -> Result<(), CniError> {
    match host.run(tc::add(veth, &Qdisc::Ingress)) {
        Ok(()) => txn.push(Box::new(DeleteQdisc { link: veth.clone(), qdisc: Qdisc::Ingress })),
        Err(error) if error.os_errno() == Some(Errno::EEXIST) => {
            if tc::find_ingress(host, veth).map_err(failed)? != Some(Qdisc::Ingress) {
                return Err(failed(error).detail("Another process filters what comes in at this link."));
            }
            match host.run(tc::delete_redirect(veth)) {
                Err(error) if !error.is_absent() => return Err(failed(error)),
                Ok(()) | Err(_) => (),
            }
        }
        Err(error) => {
            txn.push(Box::new(DeleteQdisc { link: veth.clone(), qdisc: Qdisc::Ingress }));
            return Err(failed(error));
        }
    }
    host.run(tc::redirect_all(veth, ifb)).map_err(failed)
}

fn compare(host: &Kernel, link: &Link, limit: Limit) -> Result<(), CniError> {
    let differs = |how: String| Err(differs(format!("link {}", link.name), how));
    let Tbf { rate_bytes, limit_bytes, buffer_ticks } = limit.tbf();
    match tc::find_root(host, link).map_err(failed)? {
        Some(Qdisc::Tbf(found)) if found == limit.tbf() => Ok(()),
        Some(Qdisc::Tbf(found)) => differs(format!(
            "its bucket has rate {} limit {} buffer {}, not rate {rate_bytes} limit {limit_bytes} buffer {buffer_ticks}",
            found.rate_bytes, found.limit_bytes, found.buffer_ticks
        )),
        _ => differs("it has no token bucket".to_owned()),
    }
}

#[derive(Debug)]
struct DeleteQdisc {
    link: Link,
    qdisc: Qdisc,
}

impl fmt::Display for DeleteQdisc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "qdisc {} of {} deleted", self.qdisc.kind(), self.link.name)
    }
}

impl Undo for DeleteQdisc {
    fn run(&self, site: &Site<'_>) -> Result<(), String> {
        let pod = site.pod().map_err(|error| error.to_string())?;
        match pod.host.run(tc::delete(&self.link, &self.qdisc)) {
            // EINVAL: it was not made, or the link is gone.
            Err(error) if !error.is_absent() && error.os_errno() != Some(Errno::EINVAL) => Err(error.to_string()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
