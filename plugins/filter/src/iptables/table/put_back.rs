//! Rules as they were before a change: a change that is taken back puts them back in their places.

use netops::error::Result;
use netops::nft::{self, Base, Cmp, Expr, Meta, Name};

use super::edit::PutBack;
use super::{Dialect, Edit, FoundRule, Id, Table};

/// Chosen rules of some chains, and the order of all rules of these chains.
#[derive(Debug, Clone, Default)]
pub struct Before {
    chains: Vec<ChainBefore>,
}

#[derive(Debug, Clone)]
struct ChainBefore {
    name: String,
    order: Vec<Key>,
    kept: Vec<FoundRule>,
}

/// Identifies a rule in its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    Handle(Option<u64>),
    Words(String),
}

impl Before {
    /// Keeps those of a chain's rules that `is_kept` selects. `all` has the rules of the chain in their order.
    pub fn keep(&mut self, chain: &str, all: &[FoundRule], is_kept: impl Fn(&FoundRule) -> bool) {
        let kept: Vec<FoundRule> = all.iter().filter(|found| is_kept(found)).cloned().collect();
        let order = if kept.is_empty() { Vec::new() } else { all.iter().map(FoundRule::key).collect() };
        self.chains.push(ChainBefore { name: chain.to_owned(), order, kept });
    }

    /// The kept rules.
    pub fn rules(&self) -> impl Iterator<Item = &FoundRule> {
        self.chains.iter().flat_map(|chain| &chain.kept)
    }

    /// The names of the chains.
    pub fn chains(&self) -> impl Iterator<Item = &str> {
        self.chains.iter().map(|chain| chain.name.as_str())
    }

    /// Whether no rule is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules().next().is_none()
    }

    /// Returns whether this rule is kept: the same one, not one that is equal.
    #[must_use]
    pub fn has(&self, found: &FoundRule) -> bool {
        self.rules().any(|kept| kept.key() == found.key())
    }
}

impl Table<'_> {
    /// Makes the chains of `before` as they were: deletes the rules that `is_made` selects and that are not kept, and puts
    /// the kept ones that are gone back in their places. The other rules stay, those of other processes since among them.
    ///
    /// # Errors
    /// The refusal of the kernel.
    pub fn put_back(&mut self, before: &Before, is_made: impl Fn(&str, &FoundRule) -> bool) -> Result<Vec<Edit>> {
        let mut edits = Vec::new();
        for chain in &before.chains {
            let now = match self.list(&chain.name)? {
                Some(now) => now,
                None if chain.kept.is_empty() => continue,
                None => {
                    edits.push(Edit::CreateChain(chain.name.clone()));
                    Vec::new()
                }
            };
            let (made, left): (Vec<_>, Vec<_>) =
                now.into_iter().partition(|found| is_made(&chain.name, found) && !before.has(found));
            edits.extend(made.into_iter().map(Edit::Delete));
            edits.extend(chain.lost(left.iter().map(FoundRule::key).collect()).into_iter().map(Edit::PutBack));
        }
        Ok(edits)
    }
}

impl ChainBefore {
    /// The kept rules that are not among `now`, each with its place.
    fn lost(&self, mut now: Vec<Key>) -> Vec<PutBack> {
        let there = now.clone();
        let mut lost = Vec::new();
        for (place, key) in self.order.iter().enumerate() {
            let Some(rule) = self.kept.iter().find(|rule| rule.key() == *key) else { continue };
            if now.contains(key) {
                continue;
            }
            if let Some(set) = rule.set_of_its_own() {
                tracing::warn!(chain = self.name, set, "a rule with a set of its own cannot be put back");
                continue;
            }
            let at_now = |key: &Key| now.iter().position(|now| now == key);
            let (earlier, later) = self.order.split_at(place);
            let next = later.iter().find_map(at_now);
            let at = next.or_else(|| earlier.iter().rev().find_map(at_now).map(|at| at + 1)).unwrap_or(now.len());
            let next = now.iter().skip(at).find_map(|key| match key {
                Key::Handle(handle) if there.contains(key) => *handle,
                Key::Handle(_) | Key::Words(_) => None,
            });
            lost.push(PutBack { rule: rule.clone(), at, next });
            now.insert(at, key.clone());
        }
        lost
    }
}

impl FoundRule {
    /// Returns whether both are the same rule of the table, and not only equal.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.key() == other.key()
    }

    fn key(&self) -> Key {
        match &self.id {
            Id::Handle(rule) => Key::Handle(rule.handle),
            Id::Words(words) => Key::Words(words.clone()),
        }
    }

    pub(super) fn handle(&self) -> Option<u64> {
        match &self.id {
            Id::Handle(rule) => rule.handle,
            Id::Words(_) => None,
        }
    }

    /// A set without a name of its own, which the kernel deletes with its rule.
    fn set_of_its_own(&self) -> Option<&str> {
        let Id::Handle(rule) = &self.id else { return None };
        let set = |expr| match expr {
            &Expr::InSet(ref set, _) | &Expr::VerdictMap(ref set, _) => Some(set),
            _ => None,
        };
        rule.exprs.iter().find_map(set).map(Name::as_ref).filter(|name| name.starts_with("__"))
    }
}

impl Dialect {
    /// A rule of the kernel as one to add again: with what the kernel does not report.
    pub(super) fn as_it_was(self, rule: nft::Rule) -> nft::Rule {
        let extension_protocol = match self {
            Self::Iptables(_) => Some(protocol(&rule.exprs)),
            Self::Native(_) => None,
        };
        nft::Rule { handle: None, extension_protocol, ..rule }
    }
}

/// The transport protocol that a rule of iptables is for; 0 for none.
fn protocol(exprs: &[Expr]) -> u8 {
    let pairs = exprs.iter().zip(exprs.iter().skip(1));
    let compared = |(load, compare): (&Expr, &Expr)| match (load, compare) {
        // The field of the protocol: by its meaning, or at its place in the IPv4 header, as older versions have it.
        (
            Expr::Meta(Meta::L4Proto, _) | Expr::Payload { base: Base::Network, offset: 9, length: 1, .. },
            Expr::Cmp(Cmp::Eq, _, value),
        ) => value.first().copied(),
        _ => None,
    };
    pairs.filter_map(|(load, compare)| compared((load, compare))).next().unwrap_or_default()
}
