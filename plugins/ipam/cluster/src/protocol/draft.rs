//! A change in the making: the records that were read, as they are to be written; and what the node remembers of them after.

use std::collections::BTreeMap;
use std::net::IpAddr;

use cluster_keys::Memory;
use host_local::address::Address;
use host_local::range::Span;

use super::shard::{base_of, whole};
use super::{Cards, Claim, Key, Network, Node, Record, Run, Shard};

/// Forgets in a memory what another one does not have. What an earlier write without an answer has brought counts only when the store has confirmed
/// it: until then the message of a still earlier one may take it away.
pub fn keep(memory: &mut Memory, other: &Memory) {
    let cut = |own: Span| other.spans().filter_map(move |left| super::shard::intersection(own, left));
    memory.runs = memory.spans().flat_map(cut).map(|span| (span.first.ip(), span.last.ip())).collect();
    memory.claims.retain(|claim, own| {
        other.claims.get(claim).is_some_and(|left| {
            own.retain(|address| left.contains(address));
            true
        })
    });
}

/// A record as it was read, and as it is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Loaded {
    version: u64,
    read: Option<Record>,
    now: Option<Record>,
    /// Whether the record is written although nothing of it has changed: a write of before, which may still be on its way, names an old version then.
    is_forced: bool,
}

/// A write of one record: it is done if the record still has the version. `None`: the record is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The record's key.
    pub key: Key,
    /// The version that it must have; 0: there is none.
    pub version: u64,
    /// The new record.
    pub record: Option<Record>,
}

/// The records that a change has read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Draft {
    records: BTreeMap<Key, Loaded>,
}

impl Draft {
    /// Has a memory take over what is the node's own: what was written, or about to be.
    pub fn fill(&self, memory: &mut Memory, name: &str) {
        for (key, loaded) in &self.records {
            match (key, &loaded.now) {
                (Key::Runs(base), now) => {
                    let whole = whole(*base);
                    memory.runs.retain(|(first, _)| !whole.contains((*first).into()));
                    if let Some(Record::Runs(shard)) = now {
                        memory.runs.extend(shard.of(name).map(|run| (run.first.ip(), run.last.ip())));
                    }
                }
                (Key::Claim(claim), Some(Record::Claim(record))) if record.holders.contains(name) => {
                    let (owner, known) = (super::claims::owner(claim), memory.claims.remove(claim).unwrap_or_default());
                    // The claim's record is the intent: the runs say whose an address is.
                    let is_confirmed = |ip: &&IpAddr| match self.has(&Key::Runs(base_of((**ip).into()))) {
                        true => self.find((**ip).into()).is_some_and(|run| run.owner == owner),
                        false => known.contains(ip),
                    };
                    let confirmed = record.addresses.iter().filter(is_confirmed).copied().collect();
                    memory.claims.insert(claim.clone(), confirmed);
                }
                (Key::Claim(claim), _) => drop(memory.claims.remove(claim)),
                _ => {}
            }
        }
    }

    /// Has a memory forget runs and claims that are taken from the node: they leave the memory before they leave the store.
    pub fn leave(&self, memory: &mut Memory, name: &str) {
        let mut next = memory.clone();
        self.fill(&mut next, name);
        keep(memory, &next);
    }

    /// Adds a record as the store has it.
    pub fn load(&mut self, key: Key, version: u64, record: Option<Record>) {
        self.records.entry(key).or_insert(Loaded { version, read: record.clone(), now: record, is_forced: false });
    }

    /// Whether the record was read.
    #[must_use]
    pub fn has(&self, key: &Key) -> bool {
        self.records.contains_key(key)
    }

    /// Lets a record be written, changed or not.
    pub fn force(&mut self, key: &Key) {
        if let Some(loaded) = self.records.get_mut(key) {
            loaded.is_forced = true;
        }
    }

    /// The version that a record had when it was read.
    #[must_use]
    pub fn version(&self, key: &Key) -> u64 {
        self.records.get(key).map_or(0, |loaded| loaded.version)
    }

    fn get(&self, key: &Key) -> Option<&Record> {
        self.records.get(key)?.now.as_ref()
    }

    /// Replaces a record that was read.
    pub fn set(&mut self, key: &Key, record: Option<Record>) {
        if let Some(loaded) = self.records.get_mut(key) {
            loaded.now = record;
        }
    }

    /// The network.
    #[must_use]
    pub fn network(&self) -> Option<&Network> {
        match self.get(&Key::Network) {
            Some(Record::Network(network)) => Some(network),
            _ => None,
        }
    }

    /// A node.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        match self.get(&Key::Node(name.to_owned())) {
            Some(Record::Node(node)) => Some(node),
            _ => None,
        }
    }

    /// The Ethernet addresses that prove nothing.
    #[must_use]
    pub fn cards(&self) -> Cards {
        match self.get(&Key::Cards) {
            Some(Record::Cards(cards)) => cards.clone(),
            _ => Cards::default(),
        }
    }

    /// A claim.
    #[must_use]
    pub fn claim(&self, name: &str) -> Option<&Claim> {
        match self.get(&Key::Claim(name.to_owned())) {
            Some(Record::Claim(claim)) => Some(claim),
            _ => None,
        }
    }

    /// The runs of a shard; none if it was not read.
    #[must_use]
    pub fn shard(&self, base: Address) -> Shard {
        match self.get(&Key::Runs(base)) {
            Some(Record::Runs(shard)) => shard.clone(),
            _ => Shard::default(),
        }
    }

    /// The shards that were read.
    pub fn bases(&self) -> impl Iterator<Item = Address> {
        self.records.keys().filter_map(|key| if let Key::Runs(base) = key { Some(*base) } else { None })
    }

    /// The names of the claims that were read.
    #[must_use]
    pub fn claims(&self) -> Vec<String> {
        let name = |key: &Key| if let Key::Claim(name) = key { Some(name.clone()) } else { None };
        self.records.keys().filter_map(name).collect()
    }

    /// An owner gets exactly these addresses, whose shards were read.
    ///
    /// # Errors
    /// A run that has one of them.
    pub fn take(&mut self, span: Span, owner: &str) -> Result<(), Run> {
        for base in super::bases_of(span, usize::MAX) {
            let mut shard = self.shard(base);
            if let Some(part) = super::shard::intersection(span, whole(base)) {
                shard.take(part, owner)?;
            }
            self.set(&Key::Runs(base), Some(Record::Runs(shard)));
        }
        Ok(())
    }

    /// An owner has these addresses of one shard no longer.
    pub fn release(&mut self, span: Span, owner: &str) {
        let base = base_of(span.first);
        let mut shard = self.shard(base);
        shard.release(span, owner);
        self.set(&Key::Runs(base), Some(Record::Runs(shard)));
    }

    /// The run that has an address, whose shard was read.
    #[must_use]
    pub fn find(&self, address: Address) -> Option<Run> {
        self.shard(base_of(address)).find(address).cloned()
    }

    /// Whether runs or claims are written.
    #[must_use]
    pub fn changes_runs(&self) -> bool {
        self.writes().iter().any(|write| matches!(write.key, Key::Runs(_) | Key::Claim(_)))
    }

    /// The writes that make the store what the draft is, in their order. Each may be the last one that the store gets.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        let mut writes = Vec::new();
        for (key, loaded) in &self.records {
            let is_empty = |record: &Record| matches!(record, Record::Runs(shard) if *shard == Shard::default());
            let now = loaded.now.clone().filter(|now| loaded.read.is_some() || !is_empty(now));
            if now == loaded.read && !loaded.is_forced {
                continue;
            }
            let record = match now {
                Some(Record::Runs(shard)) => Some(Record::Runs(Shard { writes: shard.writes + 1, ..shard })),
                Some(Record::Claim(claim)) => Some(Record::Claim(Claim { writes: claim.writes + 1, ..claim })),
                // A record that is forced and missing is made, so that a write of before finds it.
                None if loaded.is_forced && loaded.read.is_none() && matches!(key, Key::Runs(_)) => {
                    Some(Record::Runs(Shard { writes: 1, runs: Vec::new() }))
                }
                other => other,
            };
            if record.is_some() || loaded.read.is_some() {
                writes.push(Write { key: key.clone(), version: loaded.version, record });
            }
        }
        writes
    }
}
