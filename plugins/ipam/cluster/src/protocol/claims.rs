//! Claims: addresses with a name of their own, which outlive the containers that have them.
//!
//! A claim's addresses are runs whose owner is the claim, so no node gives them to other containers. A node that has a
//! container with the claim holds it: two nodes at most, as a container that moves is on both for a while. A claim that no node
//! holds keeps its addresses until an operator releases it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use host_local::address::Address;
use host_local::conf::Barred;
use host_local::range::Span;

use super::runs::find_free;
use super::{Memory, Run, State, take};

/// What the owner of a claim's run begins with: no node's name has a slash.
pub const PREFIX: &str = "claim/";
/// The node that a container leaves, and the one that it moves to.
const HOLDERS_MAX: usize = 2;

/// Why a claim is not held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Two other nodes hold it.
    Held(BTreeSet<String>),
    /// The range set of this number has no address that is in no run.
    NoAddress(usize),
    /// A requested address is another owner's.
    Taken(Run),
}

fn owner(claim: &str) -> String {
    format!("{PREFIX}{claim}")
}

/// The addresses of a claim.
#[must_use]
pub fn addresses(state: &State, claim: &str) -> BTreeSet<IpAddr> {
    let owner = owner(claim);
    state.runs.iter().filter(|run| run.node == owner).map(|run| run.first).collect()
}

/// The claims that a node holds, with their addresses.
#[must_use]
pub fn of(state: &State, node: &str) -> BTreeMap<String, BTreeSet<IpAddr>> {
    let held = state.claims.iter().filter(|(_, holders)| holders.contains(node)).map(|(claim, _)| claim);
    held.map(|claim| (claim.clone(), addresses(state, claim))).collect()
}

/// Whether a run is of a claim that the node holds.
pub(super) fn is_held(state: &State, node: &str, run: &Run) -> bool {
    let claim = run.node.strip_prefix(PREFIX).and_then(|claim| state.claims.get(claim));
    claim.is_some_and(|holders| holders.contains(node))
}

/// A node holds a claim, which gets an address of each range set where it has none: the requested one, or a free one.
///
/// # Errors
/// Why it does not.
pub fn hold(
    state: &State,
    node: &str,
    claim: &str,
    wanted: &[Address],
    sets: &[Vec<Span>],
    barred: &Barred,
) -> Result<State, Refusal> {
    let mut next = state.clone();
    let holders = next.claims.entry(claim.to_owned()).or_default();
    if !holders.contains(node) && holders.len() >= HOLDERS_MAX {
        return Err(Refusal::Held(holders.clone()));
    }
    holders.insert(node.to_owned());
    for (number, set) in sets.iter().enumerate() {
        let is_in_set = |address: Address| set.iter().any(|span| span.contains(address));
        if addresses(&next, claim).iter().any(|address| is_in_set((*address).into())) {
            continue;
        }
        let wanted = wanted.iter().copied().find(|address| is_in_set(*address) && barred.end(*address).is_none());
        let span = match wanted {
            Some(address) => Span { first: address, last: address },
            None => find_free(&next, set, 1, barred).ok_or(Refusal::NoAddress(number))?,
        };
        next = take(&next, &owner(claim), span).map_err(Refusal::Taken)?;
    }
    Ok(next)
}

/// A node holds these claims no longer; their addresses stay theirs.
#[must_use]
pub fn leave(state: &State, node: &str, claims: &[String]) -> State {
    let mut next = state.clone();
    for claim in claims {
        if let Some(holders) = next.claims.get_mut(claim) {
            holders.remove(node);
        }
    }
    next
}

/// Frees a claim's addresses. `None`: there is no such claim.
///
/// # Errors
/// The nodes that hold it.
pub fn release(state: &State, claim: &str) -> Option<Result<State, BTreeSet<String>>> {
    let holders = state.claims.get(claim)?;
    if !holders.is_empty() {
        return Some(Err(holders.clone()));
    }
    let (mut next, owner) = (state.clone(), owner(claim));
    next.claims.remove(claim);
    next.runs.retain(|run| run.node != owner);
    Some(Ok(next))
}

/// Addresses that were given by others become a claim that no node holds.
///
/// # Errors
/// The run that has one of them, and is not the claim's.
pub fn import(state: &State, claim: &str, addresses: &[Address]) -> Result<State, Run> {
    let (mut next, owner) = (state.clone(), owner(claim));
    next.claims.entry(claim.to_owned()).or_default();
    for address in addresses {
        next = match take(&next, &owner, Span { first: *address, last: *address }) {
            Err(run) if run.node == owner => next,
            taken => taken?,
        };
    }
    Ok(next)
}

/// Writes back the claims that a node remembers: those whose addresses no one else has, and that others do not hold twice.
pub(super) fn write_back(state: &State, node: &str, memory: &Memory) -> State {
    let mut next = state.clone();
    for (claim, own) in &memory.claims {
        let wanted: Vec<Address> = own.iter().copied().map(Address::from).collect();
        let Ok(mut with) = import(&next, claim, &wanted) else { continue };
        let holders = with.claims.entry(claim.clone()).or_default();
        if addresses(&next, claim).is_subset(own) && (holders.contains(node) || holders.len() < HOLDERS_MAX) {
            holders.insert(node.to_owned());
            next = with;
        }
    }
    next
}
