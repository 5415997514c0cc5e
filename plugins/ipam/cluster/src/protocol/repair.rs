//! Records of a node that the store lacks: after it was restored from a copy, or after the node was forgotten.

use std::collections::BTreeSet;
use std::net::IpAddr;

use host_local::address::Address;
use host_local::range::Span;

use super::runs::{gaps, take};
use super::{Memory, Run, State, claims};

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
