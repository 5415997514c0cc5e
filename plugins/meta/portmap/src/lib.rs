//! portmap: forwards ports of the node to a container.

pub mod conditions;
pub mod conf;
pub mod forwards;

mod backend;
mod pod_ports;

mod accept;
mod iptables;
mod nftables;
mod other_entries;
mod port_holder;
mod put_back;
mod shared;

mod route_localnet;

pub use forwards::{inventory, words};

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use chained::{AddOrCheck, ChainedPlugin, Collecting, Preview, Removing, Shown, Timer, Txn, all, differs, failed};
use cni_filter::iptables::{Edit, Table, TableName};
use cni_filter::{Filter, OfNetwork, Stale};
use cni_spec::{AddResult, Attachment, CniError, Code};
use interface::owner_by_reservation::Reserved;
use netops::nft::Family;
use netops::nft::conntrack::{self, Flow};
use netops::{Kernel, OpError, route};

use accept::Accepted;
use backend::{choose, with_table};
use conf::{Backend, Conf, OnPortInUse};
use pod_ports::{FAMILIES, Forwarded, KnownAddresses, PodPorts, names};
use port_holder::{Contest, Holder, Replaced};
use put_back::Unmap;
use route_localnet::Enabled;

#[derive(Debug)]
pub struct Portmap;

impl ChainedPlugin for Portmap {
    const NAME: &'static str = "portmap";
    const ADD_REPAIRS: bool = true;
    type Conf = Conf;
    type Removal = ();

    async fn add(call: &AddOrCheck<'_>, conf: &Conf, txn: &Txn, _result: &mut AddResult) -> Result<(), CniError> {
        if conf.mappings.is_empty() {
            return Ok(());
        }
        if conf.is_shared {
            return shared::add(call, conf, txn);
        }
        let mut filter = open(call.raw.search_path())?;
        let mut pods = pods(call, conf);
        if pods.iter().all(|pod| pod.mappings().is_empty()) {
            let ifname = call.attachment.ifname.as_str();
            tracing::warn!(
                ifname,
                "no port is forwarded: prevResult has no address of their family on an interface in the container"
            );
        }
        port_holder::refuse_programs(&mut pods, conf.on_port_in_use == OnPortInUse::Error)?;
        for pod in &pods {
            let mut contest = contest(call, conf);
            let (accepted, enabled) = (Accepted::default(), Rc::<RefCell<Enabled>>::default());
            txn.push(Box::new(Unmap {
                attachment: call.attachment.clone(),
                conf: conf.clone(),
                address: pod.address,
                replaced: Rc::clone(&contest.replaced),
                accepted: Rc::clone(&accepted),
                enabled: Rc::clone(&enabled),
                search_path: call.raw.search_path().to_owned(),
            }));
            let timer = Timer::start();
            let added = with_table(&mut filter, pod, &mut |table, backend| match backend {
                Backend::Iptables => iptables::add(table, pod, &mut contest),
                Backend::Nftables => nftables::add(table, pod, &mut contest),
            });
            timer.end("forward ports");
            added?;
            report(&contest)?;
            accept(&mut filter, pod, &accepted)?;
            route_localnet::enable(call, pod, &enabled)?;
            redirect_flows(pod, &contest);
            txn.checkpoint().await;
        }
        if conf.accept_forwarded == Some(false) {
            // Last: these are not put back.
            for pod in pods {
                accept_no_more(&mut filter, &pod)?;
            }
        }
        Ok(())
    }

    fn preview(call: &AddOrCheck<'_>, conf: &Conf, preview: &mut Preview) -> Result<(), CniError> {
        if conf.mappings.is_empty() {
            return Ok(());
        }
        if conf.is_shared {
            return shared::preview(call, conf, preview);
        }
        let mut pods = pods(call, conf);
        if pods.is_empty() {
            preview
                .unknown
                .push("the rules that forward ports: the container's address is not known before".to_owned());
        }
        port_holder::refuse_programs(&mut pods, conf.on_port_in_use == OnPortInUse::Error)?;
        let mut filter = open(call.raw.search_path())?;
        for pod in pods {
            let mut contest = contest(call, conf);
            with_table(&mut filter, &pod, &mut |table, backend| {
                let (edits, present) = match backend {
                    Backend::Iptables => (iptables::edits(table, &pod, &mut contest)?, iptables::present(table)?),
                    Backend::Nftables => (nftables::edits(table, &pod, &mut contest)?, Vec::new()),
                };
                for edit in present {
                    preview.push(Shown::new(table.command(&edit)).so_if(true));
                }
                for edit in edits {
                    let shown = Shown::new(table.command(&edit));
                    preview.push(if is_compared(&edit) { shown } else { shown.uncompared() });
                }
                Ok(())
            })?;
            report(&contest)?;
            if let Some(mut table) = accepting(&mut filter, &pod)? {
                for edit in accept::edits(&mut table, &pod, &Accepted::default()).map_err(failed)? {
                    preview.push(Shown::new(table.command(&edit)).uncompared());
                }
            }
            if route_localnet::is_needed(&pod) {
                preview.push(Shown::new(route_localnet::text(&pod)).uncompared());
            }
        }
        Ok(())
    }

    async fn check(call: &AddOrCheck<'_>, conf: &Conf) -> Result<(), CniError> {
        if conf.mappings.is_empty() {
            return Ok(());
        }
        shared::check(call, conf, &|conf| check_rules(call, conf))
    }

    /// The marks of iptables, by which answers come back through the node, and what 127.0.0.1 needs.
    fn lost(call: &AddOrCheck<'_>, conf: &Conf) -> Result<Vec<String>, CniError> {
        let mut lost = Vec::new();
        if conf.mappings.is_empty() {
            return Ok(lost);
        }
        let mut filter = open(call.raw.search_path())?;
        for pod in pods(call, conf) {
            let mut contest = contest(call, conf);
            with_table(&mut filter, &pod, &mut |table, backend| {
                if backend == Backend::Iptables && !conf.is_shared {
                    let all = iptables::edits(table, &pod, &mut contest)?;
                    let edits = all.iter().filter(|edit| iptables::is_of_marks(edit));
                    lost.extend(edits.map(|edit| format!("this is lost: {}", table.command(edit))));
                    lost.extend(all.iter().filter_map(iptables::other_content));
                }
                Ok(())
            })?;
            let is_off = |key| format!("this is lost: {key}=1");
            lost.extend(route_localnet::lost(call, &pod).map_err(failed)?.map(is_off));
        }
        Ok(lost)
    }

    async fn del(removing: &Removing<'_, ()>) -> Vec<CniError> {
        let of_interface = |attached: &chained::Attached| attached.ips().map(|ip| ip.address.ip()).collect();
        let addresses: Vec<IpAddr> = removing.attached.map(of_interface).unwrap_or_default();
        let held = || {
            // A namespace that is gone, or that the runtime does not name, shows no addresses.
            let Some(netns) = removing.find_netns().ok()? else {
                return Some(Reserved::of(removing.object).of_other_interfaces(removing.attachment));
            };
            interface::detach::held_by_others(removing.attachment, &netns)
        };
        let known = KnownAddresses { addresses: &addresses, held: &held };
        let timer = Timer::start();
        let search_path = removing.raw.search_path();
        let mut left = unmap(removing.attachment, search_path, &known);
        left.extend(route_localnet::forget(&names(removing.attachment).key(), search_path).err());
        timer.end("remove rules");
        left.into_iter().map(failed).collect()
    }

    async fn gc(collecting: &Collecting<'_, ()>) -> Vec<CniError> {
        let sweep = collecting.sweep.map(|attachment| names(attachment));
        let network = collecting.network.as_str();
        let (stale, of) = (Stale::new(network, &sweep), OfNetwork::new(network));
        let work = &mut |table: &mut Table<'_>, backend| match backend {
            Backend::Iptables => iptables::gc(table, network, &sweep),
            Backend::Nftables => nftables::gc(table, network, &sweep),
        };
        let search_path = collecting.raw.search_path();
        let by_shared = &mut |filter: &mut Filter| Ok(Forwarded::of_shared(&filter.gc_ports(&stale)?));
        let mut left = each(search_path, work, &mut |table| accept::gc(table, &of, &stale), by_shared);
        left.extend(route_localnet::gc(&stale, search_path).err());
        left.into_iter().map(failed).collect()
    }

    fn status(conf: &Conf, search_path: &str) -> Result<(), CniError> {
        let mut filter = open(search_path)?;
        if conf.is_shared {
            return filter.probe_ports().map_err(failed);
        }
        let (table, backend) = choose(&mut filter, conf, Family::Ip)?;
        let mut table = table;
        match backend {
            Backend::Iptables => iptables::probe(&mut table),
            Backend::Nftables => nftables::probe(&mut table),
        }
        .map_err(failed)
    }
}

/// Compares the rules of the config's backend.
fn check_rules(call: &AddOrCheck<'_>, conf: &Conf) -> Result<(), CniError> {
    let mut filter = open(call.raw.search_path())?;
    all(pods(call, conf).into_iter().map(|pod| {
        let difference = with_table(&mut filter, &pod, &mut |table, backend| match backend {
            Backend::Iptables => iptables::check(table, &pod),
            Backend::Nftables => nftables::check(table, &pod),
        })?;
        let difference = match (difference, conf.accept_forwarded, accepting(&mut filter, &pod)?) {
            // Where the key is absent, docker may have come, or gone, since.
            (None, Some(true), Some(mut table)) => accept::check(&mut table, &pod).map_err(failed)?,
            (difference, ..) => difference,
        };
        match difference {
            Some(difference) => Err(differs(format_args!("forwarding to {}", pod.address.ip()), difference)),
            None => Ok(()),
        }
    }))
}

fn open(search_path: &str) -> Result<Filter, CniError> {
    Filter::open(search_path).map_err(failed)
}

/// Whether CHECK looks for what this edit makes: the container's own rules, and those that lead there.
fn is_compared(edit: &Edit) -> bool {
    match edit {
        Edit::Append(new) | Edit::Prepend(new) => {
            new.note.is_some() || new.rule.to_local || new.chain.starts_with(iptables::OWN)
        }
        Edit::CreateChain(chain) => chain.starts_with(iptables::OWN),
        Edit::PutBack(_) | Edit::Delete(_) | Edit::FlushChain(_) | Edit::DeleteChain(_) => false,
    }
}

/// The forwarded ports of the first IPv4 and the first IPv6 address of the container's interface.
fn pods<'a>(call: &AddOrCheck<'a>, conf: &'a Conf) -> Vec<PodPorts<'a>> {
    forwards::targets(call.attached).map(|address| PodPorts::new(call.attachment, conf, address)).collect()
}

/// The table of iptables that has to accept the container's forwarded connections, if one has to.
fn accepting<'a>(filter: &'a mut Filter, pod: &PodPorts<'_>) -> Result<Option<Table<'a>>, CniError> {
    let is_wanted = match pod.conf.accept_forwarded {
        Some(is_wanted) => is_wanted,
        None => {
            let mut has_docker = false;
            let look = &mut |table: &mut Table<'_>| {
                has_docker |= accept::has_docker(table)?;
                Ok(())
            };
            filter.each_iptables(pod.family, TableName::Filter, look).map_err(failed)?;
            has_docker
        }
    };
    if !is_wanted {
        return Ok(None);
    }
    filter.iptables(pod.family, TableName::Filter).map_err(failed)
}

fn accept(filter: &mut Filter, pod: &PodPorts<'_>, replaced: &Accepted) -> Result<(), CniError> {
    match accepting(filter, pod)? {
        Some(mut table) => table.change(|table| accept::edits(table, pod, replaced)).map_err(failed),
        None if pod.conf.accept_forwarded == Some(true) => {
            let family = pod.family;
            tracing::warn!(%family, "key acceptForwarded has no effect: this node can have no rules of iptables");
            Ok(())
        }
        None => Ok(()),
    }
}

/// Removes the rules of an ADD before this one that had another value of the key.
fn accept_no_more(filter: &mut Filter, pod: &PodPorts<'_>) -> Result<(), CniError> {
    let remove = &mut |table: &mut Table<'_>| accept::remove(table, pod.names);
    filter.each_iptables(pod.family, TableName::Filter, remove).map_err(failed)
}

fn contest<'a>(call: &AddOrCheck<'a>, conf: &Conf) -> Contest<'a> {
    let refuse = conf.on_port_in_use == OnPortInUse::Error;
    Contest { refuse, search_path: call.raw.search_path(), holders: Vec::new(), replaced: Replaced::default() }
}

fn report(Contest { refuse, holders, .. }: &Contest<'_>) -> Result<(), CniError> {
    for holder in holders {
        match holder.other {
            None => tracing::warn!("{holder}, which keeps it until its DEL"),
            Some(_) if *refuse => {}
            Some(_) => tracing::warn!(
                "{holder}: which of the two containers answers is not decided, it depends on which backend made its chains \
                 first; use one backend for all networks"
            ),
        }
    }
    match holders.first() {
        Some(holder) if *refuse => {
            let without = match holder.other {
                None => "the first container keeps it",
                Some(_) => "it is not decided which container answers, as backends do not know each other's order",
            };
            Err(CniError::new(Code::EXISTS, format!("cannot forward ports: {holder}"))
                .detail(format!("Delete that container, or use another port. Without key onPortInUse {without}.")))
        }
        _ => Ok(()),
    }
}

/// Has the next packets of UDP flows to the container's ports forwarded by the rules as they are now. These are flows to the
/// node's own addresses, which the rules are for. Those of a container that holds a port stay, unless it holds the port by the
/// other backend, whose order is not known.
fn redirect_flows(pod: &PodPorts<'_>, contest: &Contest<'_>) {
    let forwarded = Forwarded::of_pod(pod);
    let mut host = None;
    let mut local: BTreeMap<IpAddr, bool> = BTreeMap::new();
    let mut is_local = |address: IpAddr| {
        let mut look = || {
            let host = match &mut host {
                Some(host) => host,
                none @ None => none.insert(Kernel::host()?),
            };
            route::leads_to_host(host, address)
        };
        *local.entry(address).or_insert_with(|| look().unwrap_or(false))
    };
    let holds = |holder: &Holder, flow: &Flow| holder.other.is_none() && holder.address == flow.server;
    let is_held = |flow: &Flow| contest.holders.iter().any(|holder| holds(holder, flow));
    forget_flows(&forwarded, &mut |flow| {
        forwarded.iter().any(|to| to.takes(flow)) && !is_held(flow) && is_local(flow.address)
    });
}

/// A failure is only logged: the rules are right, and a client that has kept quiet for a while starts a new flow.
fn forget_flows(forwarded: &[Forwarded], is_meant: &mut dyn FnMut(&Flow) -> bool) {
    let mut families = FAMILIES.to_vec();
    families.retain(|family| forwarded.iter().any(|to| to.family() == *family));
    match conntrack::delete_udp(&families, is_meant) {
        Ok(0) => {}
        Ok(count) => tracing::info!(count, "deleted UDP flows that older rules forwarded"),
        Err(error) => tracing::warn!(%error, "UDP flows that older rules forward go on"),
    }
}

/// Works on the rules of each backend, family and variant, and on shared ones; returns all errors.
fn each(
    search_path: &str,
    work: &mut dyn FnMut(&mut Table<'_>, Backend) -> netops::error::Result<Vec<Forwarded>>,
    accepted: &mut dyn FnMut(&mut Table<'_>) -> netops::error::Result<()>,
    shared: &mut dyn FnMut(&mut Filter) -> netops::error::Result<Vec<Forwarded>>,
) -> Vec<OpError> {
    Filter::sweep(search_path, &mut |filter| {
        let (mut errors, mut forwarded) = (Vec::new(), Vec::new());
        for family in FAMILIES {
            let done = filter.each_iptables(family, TableName::Nat, &mut |table| {
                forwarded.extend(work(table, Backend::Iptables)?);
                Ok(())
            });
            errors.extend(done.err());
            match work(&mut filter.native(nftables::table(family)), Backend::Nftables) {
                Ok(ports) => forwarded.extend(ports),
                Err(error) => errors.push(error),
            }
            errors.extend(filter.each_iptables(family, TableName::Filter, accepted).err());
        }
        match shared(filter) {
            Ok(ports) => forwarded.extend(ports),
            Err(error) => errors.push(error),
        }
        // A client that keeps sending to a container that is gone must reach the next one.
        forget_flows(&forwarded, &mut |flow| forwarded.iter().any(|to| to.answers(flow)));
        errors
    })
}

fn unmap(attachment: &Attachment, search_path: &str, known: &KnownAddresses<'_>) -> Vec<OpError> {
    let work = &mut |table: &mut Table<'_>, backend| match backend {
        Backend::Iptables => iptables::remove(table, names(attachment), known),
        Backend::Nftables => nftables::remove(table, names(attachment), known),
    };
    let accepted = &mut |table: &mut Table<'_>| accept::remove(table, names(attachment));
    each(search_path, work, accepted, &mut |filter| Ok(Forwarded::of_shared(&filter.remove_ports(names(attachment))?)))
}
