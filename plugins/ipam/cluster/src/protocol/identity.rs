//! The identity of a node: whether a machine may use the records of its name, and whether they are the ones that it has left.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{Member, State, claims};

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
