//! Claims: addresses with a name of their own, which outlive the containers that have them.
//!
//! A claim's addresses are runs whose owner is the claim, so no node gives them to other containers. A node that has a
//! container with the claim holds it: one, or two while the container moves. A claim that no node holds keeps its addresses until an
//! operator releases it. The claim's record is written before the runs: what it names and the runs do not confirm is chosen anew.

use std::collections::BTreeSet;
use std::net::IpAddr;

use host_local::address::Address;
use host_local::range::Span;

use super::{Claim, Draft, Key, Record, Run};

/// What the owner of a claim's run begins with: no node's name has a slash.
pub const PREFIX: &str = "claim/";

/// Why a node does not hold a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Other nodes hold it.
    Held(BTreeSet<String>),
    /// An operator releases it.
    Leaving,
}

/// The owner of a claim's runs.
#[must_use]
pub fn owner(claim: &str) -> String {
    format!("{PREFIX}{claim}")
}

fn set(draft: &mut Draft, claim: &str, record: Claim) {
    draft.set(&Key::Claim(claim.to_owned()), Some(Record::Claim(record)));
}

/// A node holds a claim, which was read with the shards of its addresses. `moves`: beside one other node. Returns the claim's addresses: one that
/// another owner has got meanwhile is the claim's no longer.
///
/// # Errors
/// Why it does not.
pub fn hold(draft: &mut Draft, node: &str, claim: &str, moves: bool) -> Result<BTreeSet<IpAddr>, Refusal> {
    let mut record = draft.claim(claim).cloned().unwrap_or_default();
    if record.leaving {
        return Err(Refusal::Leaving);
    }
    if !record.holders.contains(node) && record.holders.len() > usize::from(moves) {
        return Err(Refusal::Held(record.holders));
    }
    record.holders.insert(node.to_owned());
    record.addresses.retain(|address| confirm(draft, claim, (*address).into()).is_ok());
    let addresses = record.addresses.clone();
    set(draft, claim, record);
    Ok(addresses)
}

/// A claim has an address, whose shard was read.
fn confirm(draft: &mut Draft, claim: &str, address: Address) -> Result<(), Run> {
    let owner = owner(claim);
    match draft.find(address) {
        Some(run) if run.owner == owner => Ok(()),
        Some(run) => Err(run),
        None => draft.take(Span { first: address, last: address }, &owner),
    }
}

/// A claim gets an address, whose shard was read.
///
/// # Errors
/// The run that has it.
pub fn grant(draft: &mut Draft, claim: &str, address: Address) -> Result<(), Run> {
    confirm(draft, claim, address)?;
    let mut record = draft.claim(claim).cloned().unwrap_or_default();
    record.addresses.insert(address.ip());
    set(draft, claim, record);
    Ok(())
}

/// A node holds these claims no longer; their addresses stay theirs.
pub fn leave(draft: &mut Draft, node: &str, claims: &[String]) {
    for claim in claims {
        if let Some(mut record) = draft.claim(claim).cloned()
            && record.holders.remove(node)
        {
            set(draft, claim, record);
        }
    }
}

/// Begins to release a claim: no node can hold it any more. `None`: there is no such claim.
///
/// # Errors
/// The nodes that hold it.
pub fn begin_to_release(draft: &mut Draft, claim: &str) -> Option<Result<(), BTreeSet<String>>> {
    let record = draft.claim(claim)?.clone();
    if !record.holders.is_empty() {
        return Some(Err(record.holders));
    }
    set(draft, claim, Claim { leaving: true, ..record });
    Some(Ok(()))
}

/// Frees the addresses of a claim that is being released, in the shards that were read.
pub fn end_to_release(draft: &mut Draft, claim: &str) {
    let owner = owner(claim);
    let owned: Vec<_> = draft.bases().flat_map(|base| draft.shard(base).of(&owner).collect::<Vec<_>>()).collect();
    owned.into_iter().for_each(|span| draft.release(span, &owner));
}
