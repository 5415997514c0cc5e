//! What GC removes of a network, and how it finds it.

use std::collections::BTreeSet;

use cni_filter::iptables::{Edit, FoundRule, Table};
use cni_filter::{Names, OfNetwork, Stale};
use cni_spec::gc::Sweep;
use netops::error::Result;

use super::{DNAT, OWN, chain_names, start_of};
use crate::pod_ports::Forwarded;

const CHAINS_AT_ONCE: usize = 100;

/// A container's chain that GC removes, if the attachment is not valid, and the rule that shows whose it is.
pub(crate) struct Traced {
    pub(crate) chain: String,
    /// A rule that leads to the chain; its first one, where none leads there.
    pub(crate) found: FoundRule,
}

/// Finds what the shared chain and the containers' chains have of a network.
pub(crate) struct Search {
    network: OfNetwork,
    /// What the comments of its rules begin with.
    comment: String,
}

impl Search {
    pub(crate) fn new(network: &str) -> Self {
        let whole = format!("dnat name: \"{network}\" id: \"");
        Self { network: OfNetwork::new(network), comment: start_of(&whole).to_owned() }
    }

    pub(crate) fn network(&self) -> &OfNetwork {
        &self.network
    }

    /// The chain that a rule of the shared chain leads to. Without a note, as in the legacy variant, the comment names the
    /// network.
    pub(crate) fn by_entry(&self, entry: FoundRule) -> Option<Traced> {
        let chain = entry.goes_to().filter(|chain| chain.starts_with(OWN))?.to_owned();
        let is_own = match &entry.note {
            Some(note) => self.network.has(Some(note)),
            None => entry.comment().is_some_and(|comment| comment.starts_with(&self.comment)),
        };
        is_own.then_some(Traced { chain, found: entry })
    }

    /// A chain that nothing leads to: an ADD left it that was killed while it filled it.
    pub(crate) fn by_first(&self, chain: String, first: FoundRule) -> Option<Traced> {
        let is_own = chain.starts_with(OWN) && self.network.has(first.note.as_deref());
        is_own.then_some(Traced { chain, found: first })
    }

    /// The container that a comment names in full; an empty text if the comment names none of the network.
    pub(crate) fn container<'a>(&self, comment: &'a str) -> &'a str {
        comment.strip_prefix(&*self.comment).and_then(|rest| rest.strip_suffix('"')).unwrap_or_default()
    }
}

/// Removes the rules of a network's attachments that GC removes; returns the UDP ports that they forwarded.
pub(crate) fn gc(table: &mut Table<'_>, network: &str, sweep: &Sweep<Names<'_>>) -> Result<Vec<Forwarded>> {
    let (search, stale) = (Search::new(network), Stale::new(network, sweep));
    let stale_chains = sweep.by_each(|names| chain_names(*names));
    let is_stale = |traced: &Traced| match &traced.found.note {
        Some(note) => stale.has(Some(note)),
        None => stale_chains.has(&traced.chain),
    };
    let mut forwarded = Vec::new();
    let mut is_over = false;
    while !is_over {
        let mut now = Vec::new();
        table.sweep(|table| {
            now.clear();
            let mut edits = Vec::new();
            let (mut gone, mut entered): (BTreeSet<String>, BTreeSet<String>) = Default::default();
            for entry in table.list(DNAT)?.unwrap_or_default() {
                entered.extend(entry.goes_to().map(str::to_owned));
                let Some(Traced { chain, found }) = search.by_entry(entry).filter(is_stale) else { continue };
                if gone.contains(&chain) || gone.len() < CHAINS_AT_ONCE {
                    edits.push(Edit::Delete(found));
                    gone.insert(chain);
                }
            }
            for chain in table.list_chains()? {
                let is_loose = chain.starts_with(OWN) && !entered.contains(&chain);
                if is_loose && gone.len() < CHAINS_AT_ONCE {
                    let first = table.list(&chain)?.unwrap_or_default().into_iter().next();
                    let traced = first.and_then(|first| search.by_first(chain, first)).filter(is_stale);
                    gone.extend(traced.map(|traced| traced.chain));
                }
            }
            is_over = gone.len() < CHAINS_AT_ONCE;
            for chain in gone {
                now.extend(table.list(&chain)?.unwrap_or_default().iter().filter_map(Forwarded::of_rule));
                edits.push(Edit::DeleteChain(chain));
            }
            Ok(edits)
        })?;
        forwarded.extend(now);
    }
    Ok(forwarded)
}
