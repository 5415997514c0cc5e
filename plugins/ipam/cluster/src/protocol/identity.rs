//! The identity of a node: whether a machine may use the records of its name, and whether they are the ones that it has left.

use std::collections::{BTreeMap, BTreeSet};

use super::{Cards, Draft, Key, Memory, Node, Record};

/// The caller of a change: this machine, as it is now.
#[derive(Debug, Clone)]
pub struct Me {
    /// The node's name.
    pub name: String,
    /// The number in the data folder.
    pub store_id: String,
    /// Whether the store has ever recorded that number, as far as the data folder knows.
    pub is_recorded: bool,
    /// Whether the data folder is a copy that was made in this boot of the kernel.
    pub is_copy: bool,
    /// The kernel's number of the boot.
    pub boot: String,
    /// The permanent Ethernet addresses of the machine's own interfaces.
    pub macs: BTreeSet<String>,
    /// The addresses that records of other nodes have, each with one of these nodes: they prove nothing.
    pub shared: BTreeMap<String, String>,
    /// How long the node trusts its last write, in seconds.
    pub trust_seconds: u32,
    /// The time of day, in seconds since 1970.
    pub now: u64,
}

/// Why a machine gets nothing under its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The records have the name, and the data folder knows of no record: it was emptied, or another machine has the name.
    Emptied,
    /// The records have another number for the name, or a later history: another machine has it, or the folder is an old copy.
    OtherFolder,
    /// The number is the recorded one, and the machine is not: a clone.
    Clone,
    /// An operator is forgetting the node.
    Leaving,
    /// The records of the node are older than what it has left: the store was restored from a copy.
    Restored,
}

/// The record of a machine, as it is to be written. `recorded` is what the store has of its name.
///
/// # Errors
/// Why the machine may not use the records of its name.
pub fn enter(recorded: Option<&Node>, me: &Me) -> Result<Node, Refusal> {
    let mut node = Node {
        store_id: me.store_id.clone(),
        boot: me.boot.clone(),
        macs: me.macs.clone(),
        trust_seconds: me.trust_seconds,
        changes: 0,
        heard_at: me.now,
        leaving: false,
        freeing: false,
    };
    let Some(recorded) = recorded else { return Ok(node) };
    // Nothing lives any more of what an earlier boot has given, and a folder in memory has ended with it.
    let is_anew = !me.is_recorded && recorded.boot != me.boot && is_same(recorded, me);
    if recorded.store_id != me.store_id && !is_anew {
        return Err(if me.is_recorded { Refusal::OtherFolder } else { Refusal::Emptied });
    }
    if !is_same(recorded, me) {
        return Err(Refusal::Clone);
    }
    if recorded.leaving {
        return Err(Refusal::Leaving);
    }
    node.changes = recorded.changes;
    Ok(node)
}

/// Whether the machine is the recorded one. Two machines of one layer-2 network cannot have the same Ethernet address, but for those that somebody else has,
/// too, as of a management controller's card. A boot that is over needs that proof, of all cards but one, and of more than were replaced; within a boot
/// only addresses that contradict it count.
fn is_same(recorded: &Node, me: &Me) -> bool {
    let own = |macs: &BTreeSet<String>| {
        macs.iter().filter(|mac| !me.shared.contains_key(*mac)).cloned().collect::<BTreeSet<_>>()
    };
    let (before, now) = (own(&recorded.macs), own(&me.macs));
    let agree = before.intersection(&now).count();
    let gone = before.len() - agree;
    match recorded.boot == me.boot {
        true if before.is_empty() || now.is_empty() => !me.is_copy,
        true => agree > 0,
        false => agree > gone && gone <= 1,
    }
}

/// Addresses that [`Cards`] has at most, so that its record stays below 64 KiB: with as many, a node that was started again reads all records.
const CARDS_MAX: usize = 1000;

/// Whether a machine that was started again is the recorded one by what it has `compared`, without the records of other nodes: no card is gone, and one was
/// in no other record, neither when this node compared its cards, nor when another one did that later.
#[must_use]
pub fn is_proven(recorded: &Node, me: &Me, compared: &BTreeSet<String>, noted: &Cards) -> bool {
    let is_complete = noted.shared.len() < CARDS_MAX && recorded.macs.is_subset(compared);
    is_complete && recorded.macs.is_subset(&me.macs) && !recorded.macs.is_subset(&noted.shared)
}

/// Notes which cards of a node's record are in another one, too, and returns what was compared. The node's record was in the store before the others were
/// read, so of two machines that come at once one sees the other.
pub fn compare<'a>(
    draft: &mut Draft,
    name: &str,
    all: impl Iterator<Item = (&'a Key, &'a Record)> + Clone,
) -> BTreeSet<String> {
    let own = |(key, record): (&Key, &Record)| match (key, record) {
        (Key::Node(own), Record::Node(node)) if own == name => Some(node.macs.clone()),
        _ => None,
    };
    let macs = all.clone().find_map(own).unwrap_or_default();
    let (mut cards, others) = (draft.cards(), shared(all, name));
    let room = CARDS_MAX.saturating_sub(cards.shared.len());
    let is_new = |mac: &&String| others.contains_key(*mac) && !cards.shared.contains(*mac);
    let found: Vec<String> = macs.iter().filter(is_new).take(room).cloned().collect();
    if !found.is_empty() {
        cards.shared.extend(found);
        draft.set(&Key::Cards, Some(Record::Cards(cards)));
    }
    macs
}

/// The addresses that records of other nodes have, each with one of these nodes.
pub fn shared<'a>(all: impl Iterator<Item = (&'a Key, &'a Record)>, name: &str) -> BTreeMap<String, String> {
    let of_node = |(key, record): (&'a Key, &'a Record)| match (key, record) {
        (Key::Node(other), Record::Node(node)) if other != name => Some((other, &node.macs)),
        _ => None,
    };
    all.filter_map(of_node).flat_map(|(other, macs)| macs.iter().map(|mac| (mac.clone(), other.clone()))).collect()
}

/// Compares a node's record with its memory: only the node itself counts its changes, one at a time.
///
/// # Errors
/// Another history was put into the place of the store, or of the folder.
pub fn recall(recorded: &Node, memory: &Memory) -> Result<(), Refusal> {
    let open = u64::from(!memory.pending.is_empty());
    match recorded.changes {
        older if older < memory.changes => Err(Refusal::Restored),
        newer if newer > memory.changes + open => Err(Refusal::OtherFolder),
        _ => Ok(()),
    }
}
