//! `check --probe`: asks the network who answers for the addresses, and compares that with the records.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cni_spec::{CniError, Code};
use host_local::address::Address;
use host_local::inventory::Holder;
use host_local::range::Span;
use netops::OpError;
use netops::link::{self, Kind, Link, LinkName, Mac, NewLink, Place, macvlan};
use netops::netlink_connection::Kernel;
use netops::netns::Netns;
use netops::probe_neighbours::{self, Stations};
use serde_json::{Value, json};

use super::wait;
use crate::protocol::{Records, claims};
use crate::reservations;
use crate::store::AnyStore;
use cluster_keys::Conf;

/// Addresses that one command asks for: more take longer than an operator waits (15 s for these).
const ADDRESSES_MAX: usize = 8192;
/// Faults that are told one by one.
const SHOWN_MAX: usize = 20;
/// The macvlan that asks, in a namespace of its own.
const NAME: &str = "probe0";

/// The answers of the network, and sentences about them.
pub(super) struct Findings {
    pub(super) faults: Vec<String>,
    /// Sentences that are no fault by themselves.
    pub(super) notes: Vec<String>,
    pub(super) value: Value,
}

/// Asks and compares. Reservations and records are read before and after it: a fault is one by both.
pub(super) fn probe(conf: &Conf, store: &AnyStore, object: &Value, link: Option<&str>) -> Result<Findings, CniError> {
    let (before, all) = (sides(conf, store)?, addresses(conf));
    let of_nodes = before.store.runs.iter().filter(|run| conf.is_in_a_set(run.span.first));
    let owned = of_nodes.flat_map(|run| each(run.span)).filter(|ip| conf.local.barred.end((*ip).into()).is_none());
    let mut asked = BTreeSet::new();
    // This node's containers first, then what nodes have, then the rest.
    let order = before.held.keys().copied().chain(owned).chain(all.iter().copied().flat_map(each));
    let order = order.filter(|ip| conf.local.barred.end((*ip).into()).is_none()).filter(|ip| asked.insert(*ip));
    let order: Vec<IpAddr> = order.take(ADDRESSES_MAX).collect();
    let station = Station::open(object, link)?;
    tracing::info!(
        "asking for {} addresses on {}, at most {} s",
        order.len(),
        station.name,
        probe_neighbours::duration(order.len()).as_secs() + 1
    );
    let stations =
        wait(probe_neighbours::scan(&station.netns, &station.link, &order))?.map_err(|error| unusable(&error))?;
    let after = sides(conf, store)?;
    Ok(compare(conf, &Seen { stations, before, after, asked: order, total: total(conf), station }))
}

/// Asks who answers for addresses of runs; a sentence for each answer.
pub(super) fn answers(conf: &Conf, object: &Value, runs: impl Iterator<Item = Span>) -> Result<Vec<String>, CniError> {
    let is_given = |ip: &IpAddr| conf.local.barred.end((*ip).into()).is_none();
    let asked: Vec<IpAddr> = runs.flat_map(each).filter(is_given).take(ADDRESSES_MAX).collect();
    let station = Station::open(object, None)?;
    let found =
        wait(probe_neighbours::scan(&station.netns, &station.link, &asked))?.map_err(|error| unusable(&error))?;
    let told = |macs: &BTreeSet<Mac>| macs.iter().map(Mac::to_string).collect::<Vec<_>>().join(" and ");
    let mut told: Vec<String> = found.iter().map(|(ip, macs)| format!("{ip} is answered by {}", told(macs))).collect();
    if told.len() > SHOWN_MAX {
        let more = told.len() - SHOWN_MAX;
        told.truncate(SHOWN_MAX);
        told.push(format!("and {more} more"));
    }
    Ok(told)
}

/// The records of the store and of the node.
struct Sides {
    store: Records,
    /// The node's reservations.
    held: BTreeMap<IpAddr, Option<Holder>>,
    node: String,
}

struct Seen {
    stations: Stations,
    before: Sides,
    after: Sides,
    asked: Vec<IpAddr>,
    total: u128,
    station: Station,
}

fn sides(conf: &Conf, store: &AnyStore) -> Result<Sides, CniError> {
    let store = super::records(store)?;
    let held = reservations::held(conf)?.iter().map(|held| (held.address, held.holder().cloned())).collect();
    Ok(Sides { store, held, node: crate::this_node::name(conf)? })
}

fn addresses(conf: &Conf) -> Vec<Span> {
    conf.local.sets.iter().flat_map(Conf::spans).collect()
}

fn total(conf: &Conf) -> u128 {
    addresses(conf).into_iter().map(|span| conf.local.barred.count_allowed(span)).sum()
}

fn each(span: Span) -> impl Iterator<Item = IpAddr> {
    let next = move |address: &Address| address.next().filter(|next| span.contains(*next));
    std::iter::successors(Some(span.first), next).map(Address::ip)
}

fn compare(conf: &Conf, seen: &Seen) -> Findings {
    let (mut faults, mut notes) = (Vec::new(), Vec::new());
    for (address, macs) in &seen.stations {
        let told = macs.iter().map(Mac::to_string).collect::<Vec<_>>().join(" and ");
        let owner = [&seen.before, &seen.after].map(|sides| owner(&sides.store, *address));
        let is_held = [&seen.before, &seen.after].iter().any(|sides| sides.held.contains_key(address));
        if macs.len() > 1 {
            let count = if macs.len() == 2 { "two".to_owned() } else { macs.len().to_string() };
            match owner.iter().flatten().find_map(|owner| moving(&seen.after.store, owner)) {
                Some((claim, nodes)) if macs.len() <= nodes => notes
                    .push(format!("{address} is answered by {told}: two nodes hold claim {claim}, as while it moves")),
                Some((claim, nodes)) => faults.push(format!(
                    "{address} is answered by {told}: {count} stations have it, and {nodes} nodes hold claim {claim}"
                )),
                None => faults.push(format!("{address} is answered by {told}: {count} stations have it")),
            }
        } else if owner == [None, None] {
            faults
                .push(format!("{address} is answered by {told}, and is in no run: the store does not know who has it"));
        } else if owner.iter().flatten().any(|owner| **owner == seen.after.node) && !is_held {
            faults.push(format!(
                "{address} is answered by {told}, and is in a run of this node, which has no container with it"
            ));
        }
    }
    let silent: Vec<IpAddr> = seen.asked.iter().copied().filter(|ip| seen.after.held.contains_key(ip)).collect();
    let silent: Vec<IpAddr> = silent.into_iter().filter(|ip| !seen.stations.contains_key(ip)).collect();
    if !seen.station.sees_own && !silent.is_empty() {
        notes.push(format!(
            "of {}, this node's own containers do not answer the node: they were not asked",
            seen.station.name
        ));
    } else {
        for address in &silent {
            let who = seen.after.held.get(address).cloned().flatten();
            let who = who.map_or("an operator".to_owned(), |(container, _)| format!("container {container}"));
            notes.push(format!("{address} of {who} is held here, and no station answers"));
        }
    }
    let (asked, answered) = (seen.asked.len(), seen.stations.len());
    let first =
        format!("{asked} of {} addresses asked for on {}, {answered} are answered", seen.total, seen.station.name);
    notes.insert(0, first);
    let answers: BTreeMap<String, Vec<String>> =
        seen.stations.iter().map(|(ip, macs)| (ip.to_string(), macs.iter().map(Mac::to_string).collect())).collect();
    let value = json!({
        "network": conf.network, "link": seen.station.name, "asked": asked, "addresses": seen.total.to_string(), "answers": answers,
        "silent": silent, "faults": faults,
    });
    if faults.len() > SHOWN_MAX {
        let more = faults.len() - SHOWN_MAX;
        faults.truncate(SHOWN_MAX);
        faults.push(format!("and {more} more; if one Ethernet address answers for all, a router does so by proxy ARP"));
    }
    Findings { faults, notes, value }
}

/// The owner of the run that has the address.
fn owner(records: &Records, address: IpAddr) -> Option<&String> {
    records.find(address.into()).map(|run| &run.owner)
}

/// The claim of an owner, if two nodes hold it, and their number.
fn moving<'a>(records: &Records, owner: &'a str) -> Option<(&'a str, usize)> {
    let claim = owner.strip_prefix(claims::PREFIX)?;
    records.claims.get(claim).map(|claim| claim.holders.len()).filter(|nodes| *nodes > 1).map(|nodes| (claim, nodes))
}

/// The link that asks.
struct Station {
    /// The link's name, for people.
    name: String,
    netns: Netns,
    link: Link,
    /// Whether the node's own containers on it can answer.
    sees_own: bool,
}

impl Station {
    /// The link that the network's containers are on; of macvlans a further one beside them, in a namespace that ends with this process, as a node
    /// does not reach its own by the lower link.
    fn open(object: &Value, link: Option<&str>) -> Result<Self, CniError> {
        let kind = object["type"].as_str().unwrap_or_default();
        let key = |key: &str| object[key].as_str().filter(|name| !name.is_empty());
        let name = match (link, kind) {
            (Some(link), _) => link,
            (None, "bridge") => key("bridge").unwrap_or("cni0"),
            (None, _) => key("master").ok_or_else(|| {
                let text = format!("the configuration of {kind} names no link that all nodes share");
                CniError::new(Code::INVALID_CONFIG, text).detail("Name it: --probe --link LINK.")
            })?,
        };
        Self::on(name, kind).map_err(|error| unusable(&error))
    }

    fn on(name: &str, kind: &str) -> Result<Self, OpError> {
        let host = Kernel::host()?;
        let lower = link::get(&host, &link::Target::named(name))?;
        if kind == "macvlan" {
            match beside(&host, &lower) {
                Ok((netns, link)) => return Ok(Self { name: name.to_owned(), netns, link, sees_own: true }),
                Err(error) => tracing::warn!(%error, "this node's own containers cannot be asked"),
            }
        }
        let netns = Netns::current()
            .map_err(|error| OpError::state("open", "the node's network namespace", error.to_string()))?;
        Ok(Self { name: name.to_owned(), netns, link: lower, sees_own: kind == "bridge" })
    }
}

fn beside(host: &Kernel, lower: &Link) -> Result<(Netns, Link), OpError> {
    let netns = Netns::create()?;
    let kernel = Kernel::in_netns(&netns)?;
    let name = LinkName::parse(NAME).map_err(|error| OpError::state("name", NAME, error.to_string()))?;
    let new = NewLink {
        lower: Some(lower.index),
        up: true,
        ..NewLink::new(&name, Kind::Macvlan(macvlan::Macvlan::default()))
    };
    let link = link::create(host, &new, Some(Place { netns: &netns, kernel: &kernel }))?;
    Ok((netns, link))
}

fn unusable(error: &OpError) -> CniError {
    CniError::new(Code::IO, format!("cannot ask the network: {error}"))
        .detail("The command needs root, and a link that is up: --link LINK names another one.")
}
