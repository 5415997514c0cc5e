//! Records of a node that the store lacks: after it was restored from a copy, after the node was forgotten, or before it had a store.

use std::collections::BTreeSet;

use host_local::address::Address;
use host_local::range::Span;

use super::{Draft, Memory, base_of, claims};

/// Whether an owner of runs is the node, or a claim that it holds.
fn is_of(draft: &Draft, node: &str, owner: &str) -> bool {
    let claim = owner.strip_prefix(claims::PREFIX).and_then(|claim| draft.claim(claim));
    owner == node || claim.is_some_and(|claim| claim.holders.contains(node))
}

/// A node claims the addresses that its folder holds already, rows of them as one run; their shards were read. Addresses of others are
/// returned with that owner, for people.
pub fn adopt(draft: &mut Draft, node: &str, held: &[Address]) -> Vec<(Address, String)> {
    let (mut conflicts, mut own) = (Vec::new(), BTreeSet::new());
    for address in held {
        match draft.find(*address) {
            Some(run) if is_of(draft, node, &run.owner) => {}
            Some(run) => conflicts.push((*address, super::owner(&run.owner))),
            None => drop(own.insert(*address)),
        }
    }
    for address in own {
        // No one has it in this draft.
        let _taken = draft.take(Span { first: address, last: address }, node);
    }
    conflicts
}

/// What a node that was forgotten holds when it comes back: its claims that have a container here and that no other node holds, and as [`adopt`]. The
/// claims of its memory were read, and the shards of all addresses.
pub fn come_back(draft: &mut Draft, node: &str, memory: &Memory, held: &[Address]) -> Vec<(Address, String)> {
    for (claim, own) in &memory.claims {
        let is_used = held.iter().any(|address| own.contains(&address.ip()));
        let is_own = draft.claim(claim).is_some_and(|record| record.addresses.iter().all(|ip| own.contains(ip)));
        if is_used && is_own {
            // Held by another node meanwhile: its addresses are conflicts.
            let _held = claims::hold(draft, node, claim, false);
        }
    }
    adopt(draft, node, held)
}

/// Writes a node's own records anew, after the store was restored from a copy: of its runs and claims what no one else has. A run that it gave back after
/// the copy was made is free, and so is an address in it that an ADD has reserved by an earlier view: that ADD undoes it. All shards and claims were read.
/// Addresses that the folder holds and the node has not are returned with who has them.
pub fn restore(draft: &mut Draft, node: &str, memory: &Memory, held: &[Address]) -> Vec<(Address, String)> {
    let bases: Vec<Address> = draft.bases().collect();
    for base in bases {
        let owned: Vec<Span> = draft.shard(base).of(node).collect();
        owned.into_iter().for_each(|span| draft.release(span, node));
    }
    for span in memory.spans() {
        for gap in draft.shard(base_of(span.first)).gaps(span) {
            let _taken = draft.take(gap, node);
        }
    }
    let others: Vec<String> = draft.claims().into_iter().filter(|claim| !memory.claims.contains_key(claim)).collect();
    claims::leave(draft, node, &others);
    for (claim, own) in &memory.claims {
        for address in own {
            // An address that another has got is named below, if a container has it.
            let _granted = claims::grant(draft, claim, (*address).into());
        }
        let _held = claims::hold(draft, node, claim, true);
    }
    let not_own = |address: &Address| match draft.find(*address) {
        Some(run) if is_of(draft, node, &run.owner) => None,
        Some(run) => Some((*address, super::owner(&run.owner))),
        None => Some((*address, "no one, by this node's view".to_owned())),
    };
    held.iter().filter_map(not_own).collect()
}
