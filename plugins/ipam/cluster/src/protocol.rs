//! The records of a network's cluster, and every change of them, as pure functions on a [`Draft`]: what was read in, what is to be written out.
//!
//! The records are here, the changes in the modules. PROTOCOL.md says who may write which record, in which order and when; `tests/it/model.rs` runs these
//! very functions in many orders of events. Nothing here reads a clock, a file or a socket.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use host_local::address::{Address, Family};
use host_local::range::Span;
use serde::{Deserialize, Serialize};

pub mod claims;
mod draft;
mod forget;
mod identity;
mod repair;
mod room;
mod shard;

pub use cluster_keys::Memory;
pub use draft::{Draft, Write, keep};
pub use forget::{begin_to_forget, begin_to_free, cancel, end_to_forget, erase, reopen, wait_to_forget};
pub use identity::{Me, Refusal, compare, enter, is_proven, recall, shared};
pub use repair::{adopt, come_back, restore};
pub use room::{Room, Shards, WHOLE, give_back, give_back_outside, is_high, room, size};
pub use shard::{Run, Shard, base_of, bases_of, cut};

/// The key of a record. A transaction writes in this order, so the node's own record is the last one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The network itself.
    Network,
    /// A claim, by its name.
    Claim(String),
    /// The runs of 256 addresses, by the first of these.
    Runs(Address),
    /// What a node was refused.
    Want(String),
    /// The Ethernet addresses that prove nothing.
    Cards,
    /// A node, by its name.
    Node(String),
}

/// What the keys of one kind begin with.
pub const NODES: &str = "nodes/";
/// What the keys of runs begin with.
pub const RUNS: &str = "runs/";
/// What the keys of claims begin with.
pub const CLAIMS: &str = "claims/";
/// What the keys of wants begin with.
pub const WANTS: &str = "wants/";

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network => f.write_str("network"),
            Self::Cards => f.write_str("cards"),
            Self::Claim(name) => write!(f, "{CLAIMS}{name}"),
            Self::Runs(base) => write!(f, "{RUNS}{base}"),
            Self::Want(node) => write!(f, "{WANTS}{node}"),
            Self::Node(name) => write!(f, "{NODES}{name}"),
        }
    }
}

impl Key {
    /// Reads a key as it is displayed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = match text {
            "network" => return Some(Self::Network),
            "cards" => return Some(Self::Cards),
            text => text.split_once('/')?,
        };
        match kind {
            "claims" => Some(Self::Claim(name.to_owned())),
            "runs" => Address::from_file_name(name).map(Self::Runs),
            "wants" => Some(Self::Want(name.to_owned())),
            "nodes" => Some(Self::Node(name.to_owned())),
            _ => None,
        }
    }
}

/// A record. A release that does not know a field does not write: it would drop what another one has recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// See [`Network`].
    Network(Network),
    /// See [`Claim`].
    Claim(Claim),
    /// See [`Shard`].
    Runs(Shard),
    /// See [`Want`].
    Want(Want),
    /// See [`Cards`].
    Cards(Cards),
    /// See [`Node`].
    Node(Node),
}

/// The network itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Network {
    /// The form of the records.
    pub form: u32,
    /// The number of this history of records: an emptied store gets another one.
    pub id: String,
    /// How many nodes were forgotten so far. A node that is not recorded was forgotten only if this has grown.
    pub forgotten: u64,
    /// Why no run is given at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<Closed>,
}

/// The form of the records that this release writes.
pub const FORM: u32 = 2;

/// Why no run is given at present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Closed {
    /// The store was restored from a copy: these nodes have not written back yet.
    Repair(BTreeSet<String>),
    /// Nodes write down what they gave before they had this store, until an operator ends that.
    Adopt,
}

/// A node that may own runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Node {
    /// The number of the node's data folder.
    pub store_id: String,
    /// The kernel's number of the node's boot.
    pub boot: String,
    /// The permanent Ethernet addresses of the machine's own interfaces.
    pub macs: BTreeSet<String>,
    /// How long the node trusts its last write here, in seconds.
    pub trust_seconds: u32,
    /// The number of the node's changes of runs and claims so far: by it the node knows its own history again.
    pub changes: u64,
    /// The time of the node's last write, in seconds since 1970 by its own clock. For people only: nothing depends on it.
    pub heard_at: u64,
    /// Whether an operator has begun to forget the node: it cannot write any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// Whether its runs are being freed by that, which cannot be cancelled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub freeing: bool,
}

/// Addresses with a name of their own. The record says what is wanted; whose the addresses are, the runs say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Claim {
    /// The number of writes so far, so that no two states are equal.
    pub writes: u64,
    /// The nodes that have a container with the claim.
    pub holders: BTreeSet<String>,
    /// The addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Whether an operator releases the claim: no node may hold it any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
}

/// An ADD was refused, as no address was in no run: others give back what they do not use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Want {
    /// The first address of each range set that had none; or the requested addresses, which were another node's.
    pub sets: BTreeSet<IpAddr>,
    /// When, in seconds since 1970 by the node's own clock.
    pub at: u64,
}

/// Ethernet addresses that nodes have found in records of others, when they compared their own. None is removed, as it may be found again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cards {
    /// The addresses.
    pub shared: BTreeSet<String>,
}

impl Node {
    /// Whether the node was heard just now: one with calls writes after a quarter of its trust.
    #[must_use]
    pub fn is_heard(&self, now: u64) -> bool {
        now.abs_diff(self.heard_at) < u64::from(self.trust_seconds) / 2
    }

    /// The time for which nothing was heard of the node, in seconds, if that is longer than a node with any call is silent.
    #[must_use]
    pub fn silence(&self, now: u64) -> Option<u64> {
        let silence = now.saturating_sub(self.heard_at);
        (silence > 2 * u64::from(self.trust_seconds)).then_some(silence)
    }
}

/// The owner of a run, for people.
#[must_use]
pub fn owner(name: &str) -> String {
    name.strip_prefix(claims::PREFIX).map_or_else(|| format!("node {name}"), |claim| format!("claim {claim}"))
}

/// All records of a network, for an operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Records {
    /// The network.
    pub network: Network,
    /// The nodes.
    pub nodes: BTreeMap<String, Node>,
    /// The runs, in order.
    pub runs: Vec<Run>,
    /// The claims.
    pub claims: BTreeMap<String, Claim>,
    /// What nodes were refused.
    pub wants: BTreeMap<String, Want>,
}

impl Records {
    /// Sorts records by their keys.
    #[must_use]
    pub fn of(all: impl IntoIterator<Item = (Key, Record)>) -> Self {
        let mut records = Self::default();
        for (key, record) in all {
            match (key, record) {
                (_, Record::Network(network)) => records.network = network,
                (_, Record::Runs(shard)) => records.runs.extend(shard.runs),
                (Key::Node(name), Record::Node(node)) => drop(records.nodes.insert(name, node)),
                (Key::Claim(name), Record::Claim(claim)) => drop(records.claims.insert(name, claim)),
                (Key::Want(name), Record::Want(want)) => drop(records.wants.insert(name, want)),
                _ => {}
            }
        }
        records.runs.sort_by_key(|run| run.span.first);
        records
    }

    /// The runs of an owner.
    pub fn runs_of<'a>(&'a self, owner: &'a str) -> impl Iterator<Item = Span> + 'a {
        self.runs.iter().filter(move |run| run.owner == owner).map(|run| run.span)
    }

    /// The run that has the address.
    #[must_use]
    pub fn find(&self, address: Address) -> Option<&Run> {
        self.runs.iter().find(|run| run.span.contains(address))
    }

    /// The faults, a sentence each: an owner that is not recorded has a run, which no one gives, until `forget` or `release` of that name.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let is_recorded = |run: &&Run| match run.owner.strip_prefix(claims::PREFIX) {
            Some(claim) => self.claims.contains_key(claim),
            None => self.nodes.contains_key(&run.owner),
        };
        let lost = self.runs.iter().filter(|run| !is_recorded(run));
        let mut faults: Vec<String> =
            lost.map(|run| format!("{} belongs to {}, which is not recorded", run.span, owner(&run.owner))).collect();
        for (claim, record) in &self.claims {
            for node in record.holders.iter().filter(|node| !self.nodes.contains_key(*node)) {
                faults.push(format!("claim {claim} is held by node {node}, which is not recorded"));
            }
        }
        faults
    }
}

/// The last address of a family.
fn last_of(family: Family) -> u128 {
    match family {
        Family::V4 => u32::MAX.into(),
        Family::V6 => u128::MAX,
    }
}

#[cfg(test)]
mod tests;
