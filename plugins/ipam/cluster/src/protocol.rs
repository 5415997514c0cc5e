//! The records of a network's cluster, and every change of them, as pure functions: a state in, the next state out.
//!
//! The records are here, the changes in the modules. PROTOCOL.md says who may write which record and when; `tests/it/model.rs` tries these very functions in every
//! interleaving of three machines. Nothing here reads a clock, a file or a socket.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use host_local::range::Span;
use serde::{Deserialize, Serialize};

pub mod claims;
mod forget;
mod identity;
mod repair;
mod runs;

pub use forget::{begin_to_forget, end_forgetting, wait_to_forget};
pub use identity::{Me, Memory, Refusal, enter, recall};
pub use repair::{adopt, come_back, repair};
pub use runs::{claim, give_back, share, take};

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
