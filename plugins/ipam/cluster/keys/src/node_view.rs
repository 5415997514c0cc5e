//! What a node's copy of its records, `cluster/view` in the network's data folder, tells other programs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use host_local::range::Span;
use serde::{Deserialize, Serialize};

/// What a node remembers of its own records, and only the node changes: also an operator's `forget`, which first forbids the node to write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// The number of changes that its record had.
    pub changes: u64,
    /// First and last address of its runs; none is longer than a shard.
    pub runs: BTreeSet<(IpAddr, IpAddr)>,
    /// The claims that it holds, with their addresses.
    pub claims: BTreeMap<String, BTreeSet<IpAddr>>,
    /// The keys of records that the node has tried to write, without knowing whether the store has got that.
    pub pending: BTreeSet<String>,
}

impl Memory {
    pub fn spans(&self) -> impl Iterator<Item = Span> {
        self.runs.iter().map(|(first, last)| Span { first: (*first).into(), last: (*last).into() })
    }

    /// The runs, and the addresses of the claims.
    pub fn held(&self) -> Vec<Span> {
        let claimed = self.claims.values().flatten().map(|address| (*address).into());
        self.spans().chain(claimed.map(|address| Span { first: address, last: address })).collect()
    }
}

/// How a node stands with the store.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Standing {
    /// Whether the store has ever recorded the number of the data folder.
    pub is_recorded: bool,
    /// When the last write to the store began, in seconds since 1970.
    pub read_at_s: u64,
    /// The time for which that is trusted.
    pub trust_seconds: u32,
    /// Until when the store is known to be away, in milliseconds since the machine's start; 0: it is not.
    pub away_until_ms: u64,
    pub away_why: String,
}

/// The part of the file that other programs read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct NodeView {
    /// The number of addresses that the store had left when the node last looked for room. Not within what is flattened, where serde has no numbers of this length.
    #[serde(default)]
    pub left: u128,
    #[serde(flatten)]
    pub memory: Memory,
    #[serde(flatten)]
    pub standing: Standing,
}
