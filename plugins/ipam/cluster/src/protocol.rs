//! The records of a network's cluster, and every change of them, as pure functions: a state in, the next state out.
//!
//! PROTOCOL.md says who may write which record and when; `tests/it/model.rs` tries these very functions in every
//! interleaving of three machines. Nothing here reads a clock, a file or a socket.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use host_local::address::Address;
use host_local::conf::Barred;
use host_local::range::Span;
use serde::{Deserialize, Serialize};

pub mod claims;

/// All records of one network. A release that does not know a field does not write: it would drop what another one has recorded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct State {
    /// The number of writes so far. Each write adds one, so that no two states of a store are equal.
    pub writes: u64,
    /// The nodes by name.
    pub nodes: BTreeMap<String, Member>,
    /// The runs of addresses, in order; none overlaps another.
    pub runs: Vec<Run>,
    /// The claims by name, and the nodes that hold each; a claim's addresses are runs of its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, BTreeSet<String>>,
}

/// A node that may own runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Member {
    /// The number of the node's data folder.
    pub store_id: String,
    /// The kernel's number of the node's boot.
    pub boot: String,
    /// The Ethernet addresses of the machine's own interfaces.
    pub macs: BTreeSet<String>,
    /// How long the node trusts what it has read, in seconds.
    pub trust_seconds: u32,
    /// The time of the node's last write, in seconds since 1970 by its own clock; it is written anew after half of `trust_seconds`. For people
    /// only: nothing depends on it.
    #[serde(default)]
    pub heard_at: u64,
    /// Whether an operator has begun to forget the node: nothing is confirmed to it any more.
    pub leaving: bool,
}

/// The owner of a run, for people.
#[must_use]
pub fn owner(node: &str) -> String {
    node.strip_prefix(claims::PREFIX).map_or_else(|| format!("node {node}"), |claim| format!("claim {claim}"))
}

/// Addresses that one node gives to its containers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The first address.
    pub first: IpAddr,
    /// The last address.
    pub last: IpAddr,
    /// The name of the node; of a claim's address `claim/` and the name of the claim, as no node is called.
    pub node: String,
}

impl Member {
    /// The time for which nothing was heard of the node, in seconds, if that is longer than a node with any ADD is silent: it may be lost, cut off or
    /// idle, which only an operator can know.
    #[must_use]
    pub fn silence(&self, now: u64) -> Option<u64> {
        let silence = now.saturating_sub(self.heard_at);
        (silence > 2 * u64::from(self.trust_seconds)).then_some(silence)
    }
}

impl Run {
    /// The owner, for people.
    #[must_use]
    pub fn owner(&self) -> String {
        owner(&self.node)
    }

    /// The run's addresses.
    #[must_use]
    pub fn span(&self) -> Span {
        Span { first: self.first.into(), last: self.last.into() }
    }
}

/// The caller of a change: this machine, as it is now.
#[derive(Debug, Clone)]
pub struct Me {
    /// The node's name.
    pub name: String,
    /// The number in the data folder.
    pub store_id: String,
    /// Whether the data folder had that number before this call.
    pub is_known: bool,
    /// Whether the data folder is a copy that was made in this boot of the kernel.
    pub is_copy: bool,
    /// The kernel's number of the boot.
    pub boot: String,
    /// The Ethernet addresses of the machine's own interfaces.
    pub macs: BTreeSet<String>,
    /// How long the node trusts what it has read, in seconds.
    pub trust_seconds: u32,
    /// The time of day, in seconds since 1970.
    pub now: u64,
}

/// Why a machine gets nothing under its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The records have the name, and the data folder has no number: it was emptied, or another machine has the name.
    Emptied,
    /// The records have another number for the name: another machine has it, or the folder is an old copy.
    OtherFolder,
    /// The number is the recorded one, and the machine is not: a clone.
    Clone,
    /// An operator is forgetting the node.
    Leaving,
    /// The records of the node are not the ones that it has left: the store was restored from a copy.
    Restored,
}

/// What a node remembers of its own records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// The node's runs: first and last address of each.
    pub runs: BTreeSet<(IpAddr, IpAddr)>,
    /// The claims that it holds, with their addresses.
    pub claims: BTreeMap<String, BTreeSet<IpAddr>>,
}

impl Memory {
    /// The records of a node.
    #[must_use]
    pub fn of(state: &State, node: &str) -> Self {
        let runs = state.runs.iter().filter(|run| run.node == node).map(|run| (run.first, run.last));
        Self { runs: runs.collect(), claims: claims::of(state, node) }
    }
}

/// Compares a node's records with its memory. A write whose outcome it does not know (`is_open`) may have added to them; only
/// the node itself changes them otherwise, or an operator who forgets it.
///
/// # Errors
/// They are others: another history was put into the store's place.
pub fn recall(state: &State, node: &str, memory: &Memory, is_open: bool) -> Result<(), Refusal> {
    let recorded = Memory::of(state, node);
    let is_same = match is_open {
        true => {
            let has = |(claim, addresses)| recorded.claims.get(claim) == Some(addresses);
            memory.runs.is_subset(&recorded.runs) && memory.claims.iter().all(has)
        }
        false => *memory == recorded,
    };
    if is_same || !state.nodes.contains_key(node) { Ok(()) } else { Err(Refusal::Restored) }
}

/// The machine's place in the records; the next state if that is to be written.
///
/// # Errors
/// Why the machine may not use the records of its name.
pub fn enter(state: &State, me: &Me) -> Result<Option<State>, Refusal> {
    let member = Member {
        store_id: me.store_id.clone(),
        boot: me.boot.clone(),
        macs: me.macs.clone(),
        trust_seconds: me.trust_seconds,
        heard_at: me.now,
        leaving: false,
    };
    if let Some(recorded) = state.nodes.get(&me.name) {
        if !me.is_known {
            return Err(Refusal::Emptied);
        }
        if recorded.store_id != me.store_id {
            return Err(Refusal::OtherFolder);
        }
        // Two machines of one layer-2 network cannot have the same Ethernet address. A boot that is over needs that
        // proof; within a boot only addresses that contradict it count.
        let is_same = match recorded.boot == me.boot {
            true if recorded.macs.is_empty() || me.macs.is_empty() => !me.is_copy,
            true => !recorded.macs.is_disjoint(&me.macs),
            false => !recorded.macs.is_disjoint(&me.macs),
        };
        if !is_same {
            return Err(Refusal::Clone);
        }
        if recorded.leaving {
            return Err(Refusal::Leaving);
        }
        let is_recent = recorded.heard_at.abs_diff(me.now) <= u64::from(me.trust_seconds / 2);
        if is_recent && *recorded == (Member { heard_at: recorded.heard_at, ..member.clone() }) {
            return Ok(None);
        }
    }
    let mut next = state.clone();
    next.nodes.insert(me.name.clone(), member);
    Ok(Some(next))
}

/// The addresses of `within` that are in no run, in order.
fn gaps(state: &State, within: Span) -> Vec<Span> {
    let mut gaps = Vec::new();
    let mut from = Some(within.first);
    for run in state.runs.iter().map(Run::span).filter(|run| run.first <= within.last && within.first <= run.last) {
        let Some(first) = from else { return gaps };
        if first < run.first {
            gaps.push(Span { first, last: Address { bits: run.first.bits - 1, ..run.first } });
        }
        from = run.last.next();
    }
    let rest = from.map(|first| Span { first, last: within.last }).filter(|rest| rest.first <= rest.last);
    gaps.extend(rest.filter(|rest| rest.first >= within.first));
    gaps
}

/// The first part of `gap` with `size` addresses that may be given, or all of it. It begins and ends with such an address;
/// `None` if the gap has none.
fn cut(gap: Span, size: u128, barred: &Barred) -> Option<Span> {
    let mut first = gap.first;
    while let Some(end) = barred.end(first) {
        first = end.next().filter(|next| gap.contains(*next))?;
    }
    let (mut at, mut last, mut count) = (first, first, 0);
    loop {
        match barred.end(at) {
            Some(end) => match end.next().filter(|next| gap.contains(*next)) {
                Some(next) => at = next,
                None => break,
            },
            None => {
                (last, count) = (at, count + 1);
                match at.next().filter(|next| count < size && gap.contains(*next)) {
                    Some(next) => at = next,
                    None => break,
                }
            }
        }
    }
    Some(Span { first, last })
}

/// How many addresses of a range set a node claims at once: `size`, and less when they become few. A node that has used up a
/// run goes on up to an equal part of the set; else half of what is left stays for the other nodes, and the last ones are claimed
/// one by one.
#[must_use]
pub fn share(state: &State, node: &str, set: &[Span], size: u32, barred: &Barred) -> u128 {
    let count = |spans: &mut dyn Iterator<Item = Span>| {
        spans.fold(0_u128, |sum, span| sum.saturating_add(barred.count_allowed(span)))
    };
    let left = count(&mut set.iter().flat_map(|span| gaps(state, *span)));
    let nodes = state.nodes.len().max(1) as u128;
    let in_set = |run: &&Run| set.iter().any(|span| span.contains(run.first.into()));
    let of_nodes = || state.runs.iter().filter(in_set).filter(|run| state.nodes.contains_key(&run.node));
    let own = count(&mut of_nodes().filter(|run| run.node == node).map(Run::span));
    let equal = left.saturating_add(count(&mut of_nodes().map(Run::span))) / nodes;
    // The first node leaves room for the second: of a small range, a run could be all.
    let careful = if nodes == 1 { left.div_ceil(4).max(2) } else { left / (2 * (nodes - 1)) };
    let up_to_equal = if own == 0 { 0 } else { equal.saturating_sub(own) };
    careful.max(up_to_equal).clamp(1, size.max(1).into())
}

/// Claims the next free addresses of a range set for a node: the first [`share`] in a row; where no row is that long, the
/// longest. `None` if the set has no free address.
#[must_use]
pub fn claim(state: &State, node: &str, set: &[Span], size: u32, barred: &Barred) -> Option<(State, Span)> {
    let size = share(state, node, set, size, barred);
    let found = find_free(state, set, size, barred)?;
    Some((take(state, node, found).ok()?, found))
}

/// The first `size` free addresses in a row; where no row is that long, the longest.
fn find_free(state: &State, set: &[Span], size: u128, barred: &Barred) -> Option<Span> {
    let mut best: Option<(u128, Span)> = None;
    for gap in set.iter().flat_map(|span| gaps(state, *span)) {
        let Some(found) = cut(gap, size, barred) else { continue };
        let count = barred.count_allowed(found);
        if best.is_none_or(|(most, _)| count > most) {
            best = Some((count, found));
        }
        if count >= size {
            break;
        }
    }
    best.map(|(_, found)| found)
}

/// Claims exactly these addresses for a node.
///
/// # Errors
/// A run that has one of them.
pub fn take(state: &State, node: &str, span: Span) -> Result<State, Run> {
    let overlaps = |run: &&Run| run.span().first <= span.last && span.first <= run.span().last;
    if let Some(run) = state.runs.iter().find(overlaps) {
        return Err(run.clone());
    }
    let mut next = state.clone();
    let run = Run { first: span.first.ip(), last: span.last.ip(), node: node.to_owned() };
    let at = next.runs.partition_point(|other| other.span().first < span.first);
    next.runs.insert(at, run);
    Ok(next)
}

/// Claims the addresses that a node's folder holds already, rows of them as one run. Addresses that another node owns are
/// returned with that owner, for people.
#[must_use]
pub fn adopt(state: &State, node: &str, held: &[Address]) -> (State, Vec<(Address, String)>) {
    let mut sorted = held.to_vec();
    sorted.sort_unstable();
    let (mut next, mut conflicts, mut rows) = (state.clone(), Vec::new(), Vec::<Span>::new());
    for address in sorted {
        match state.runs.iter().find(|run| run.span().contains(address)) {
            Some(run) if run.node == node || claims::is_held(state, node, run) => {}
            Some(run) => conflicts.push((address, run.owner())),
            None => match rows.last_mut() {
                Some(row) if row.last.next() == Some(address) => row.last = address,
                _ => rows.push(Span { first: address, last: address }),
            },
        }
    }
    for row in rows {
        next = take(&next, node, row).unwrap_or(next);
    }
    (next, conflicts)
}

/// What a node that was forgotten holds when it comes back: its claims that have a container here and are not another's, and as [`adopt`].
#[must_use]
pub fn come_back(state: &State, node: &str, memory: &Memory, held: &[Address]) -> (State, Vec<(Address, String)>) {
    let is_used = |own: &BTreeSet<IpAddr>| held.iter().any(|address| own.contains(&address.ip()));
    let claims = memory.claims.iter().filter(|(_, own)| is_used(own));
    let claims = claims.map(|(claim, own)| (claim.clone(), own.clone())).collect();
    adopt(&claims::write_back(state, node, &Memory { claims, ..Memory::default() }), node, held)
}

/// Gives a node's run back, by its first address.
#[must_use]
pub fn give_back(state: &State, node: &str, first: IpAddr) -> State {
    let mut next = state.clone();
    next.runs.retain(|run| run.node != node || run.first != first);
    next
}

/// Begins to forget a node: from now on nothing is confirmed to it. `None` if there is no such node.
#[must_use]
pub fn begin_to_forget(state: &State, name: &str) -> Option<State> {
    let mut next = state.clone();
    next.nodes.get_mut(name)?.leaving = true;
    Some(next)
}

/// Ends what [`begin_to_forget`] has begun: the node's runs are free. `None` if the record is not the one of which that was begun: the node was
/// forgotten by another command, and may be back. The caller has waited until the node trusts nothing any more, or knows that it is off.
#[must_use]
pub fn end_forgetting(state: &State, name: &str, begun: &Member) -> Option<State> {
    state.nodes.get(name).filter(|member| member.leaving && *member == begun)?;
    let mut next = state.clone();
    next.nodes.remove(name);
    next.runs.retain(|run| run.node != name);
    for holders in next.claims.values_mut() {
        holders.remove(name);
    }
    Some(next)
}

/// Writes a node's own records anew, after the store was restored from a copy: of its runs what no one else has, and what its
/// folder holds. A run that it gave back after the copy was made is free. Addresses of others are returned with these.
#[must_use]
pub fn repair(state: &State, node: &str, memory: &Memory, held: &[Address]) -> (State, Vec<(Address, String)>) {
    let mut next = state.clone();
    let is_known = |run: &Run| run.node != node || memory.runs.contains(&(run.first, run.last));
    next.runs.retain(is_known);
    for (first, last) in &memory.runs {
        for gap in gaps(&next, Span { first: (*first).into(), last: (*last).into() }) {
            next = take(&next, node, gap).unwrap_or(next);
        }
    }
    for holders in next.claims.iter_mut().filter(|(claim, _)| !memory.claims.contains_key(*claim)).map(|(_, it)| it) {
        holders.remove(node);
    }
    adopt(&claims::write_back(&next, node, memory), node, held)
}

/// The faults of a state, a sentence each: no change here makes any.
#[must_use]
pub fn faults(state: &State) -> Vec<String> {
    let mut faults = Vec::new();
    for pair in state.runs.windows(2) {
        if let [one, two] = pair
            && two.span().first <= one.span().last
        {
            faults.push(format!("{} of {} and {} of {} overlap", one.span(), one.owner(), two.span(), two.owner()));
        }
    }
    for run in &state.runs {
        let is_recorded = match run.node.strip_prefix(claims::PREFIX) {
            Some(claim) => state.claims.contains_key(claim),
            None => state.nodes.contains_key(&run.node),
        };
        if !is_recorded {
            faults.push(format!("{} belongs to {}, which is not recorded", run.span(), run.owner()));
        }
        if run.span().first > run.span().last {
            faults.push(format!("the run {} of {} ends before it begins", run.span(), run.owner()));
        }
    }
    for (claim, holders) in &state.claims {
        for node in holders.iter().filter(|node| !state.nodes.contains_key(*node)) {
            faults.push(format!("claim {claim} is held by node {node}, which is not recorded"));
        }
    }
    faults
}

#[cfg(test)]
mod tests;
