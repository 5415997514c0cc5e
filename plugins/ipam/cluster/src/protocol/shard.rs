//! The runs of 256 addresses: one record, so that a compare-and-swap of it decides who owns an address.

use std::collections::BTreeMap;

use host_local::address::Address;
use host_local::conf::Barred;
use host_local::range::Span;
use serde::{Deserialize, Serialize};

use super::last_of;

/// The addresses of a shard: those of a /24. With an owner for each, its record has 12 KB, and with names of 230 characters 64 KiB. Larger ones
/// would be written by more nodes at once.
const SIZE: u128 = 1 << SIZE_BITS;
pub(super) const SIZE_BITS: u32 = 8;

/// Addresses that one owner gives to containers: a node, or a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The addresses.
    pub span: Span,
    /// The name of the node; of a claim's address `claim/` and the name of the claim, as no node is called.
    pub owner: String,
}

/// The runs of one shard, in order; none overlaps another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shard {
    /// The number of writes so far, so that no two states are equal.
    pub writes: u64,
    /// The runs.
    pub runs: Vec<Run>,
}

/// A shard as it is stored: of each owner the first and the last address of its runs, counted from the shard's first.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    writes: u64,
    runs: BTreeMap<String, Vec<(u16, u16)>>,
}

/// The first address of the shard that an address is in.
#[must_use]
pub fn base_of(address: Address) -> Address {
    Address { bits: address.bits & !(SIZE - 1), ..address }
}

/// The addresses of a shard.
pub(super) fn whole(base: Address) -> Span {
    Span { first: base, last: Address { bits: base.bits.saturating_add(SIZE - 1).min(last_of(base.family)), ..base } }
}

/// The shards that a span is in, at most so many.
pub fn bases_of(span: Span, most: usize) -> impl Iterator<Item = Address> {
    let next = move |base: &Address| whole(*base).last.next().filter(|next| *next <= span.last);
    std::iter::successors(Some(base_of(span.first)), next).take(most)
}

/// The part of a span that is within another.
pub(super) fn intersection(one: Span, other: Span) -> Option<Span> {
    let (first, last) = (one.first.max(other.first), one.last.min(other.last));
    (one.first.family == other.first.family && first <= last).then_some(Span { first, last })
}

impl Shard {
    /// Reads a record.
    ///
    /// # Errors
    /// Why it cannot be one.
    pub fn decode(base: Address, bytes: &[u8]) -> Result<Self, String> {
        let stored: Stored = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let at = |offset: u16| Address { bits: base.bits + u128::from(offset), ..base };
        let mut runs = Vec::new();
        for (owner, spans) in stored.runs {
            for (first, last) in spans {
                if first > last || u128::from(last) >= SIZE || at(last).bits > last_of(base.family) {
                    return Err(format!("the run {first} to {last} of {owner} is none"));
                }
                runs.push(Run { span: Span { first: at(first), last: at(last) }, owner: owner.clone() });
            }
        }
        runs.sort_by_key(|run| run.span.first);
        match runs.windows(2).find(|pair| pair[1].span.first <= pair[0].span.last) {
            Some(pair) => {
                Err(format!("runs of {} and {} overlap", super::owner(&pair[0].owner), super::owner(&pair[1].owner)))
            }
            None => Ok(Self { writes: stored.writes, runs }),
        }
    }

    /// The record as it is stored.
    ///
    /// # Errors
    /// A run is not of this shard.
    pub fn encode(&self, base: Address) -> Result<String, String> {
        let mut stored = Stored { writes: self.writes, runs: BTreeMap::new() };
        for run in &self.runs {
            let offset = |address: Address| u16::try_from(address.bits - base.bits).map_err(|error| error.to_string());
            let span = (offset(run.span.first)?, offset(run.span.last)?);
            stored.runs.entry(run.owner.clone()).or_default().push(span);
        }
        serde_json::to_string(&stored).map_err(|error| error.to_string())
    }

    /// The runs of an owner.
    pub fn of<'a>(&'a self, owner: &'a str) -> impl Iterator<Item = Span> + 'a {
        self.runs.iter().filter(move |run| run.owner == owner).map(|run| run.span)
    }

    /// The run that has an address.
    #[must_use]
    pub fn find(&self, address: Address) -> Option<&Run> {
        self.runs.iter().find(|run| run.span.contains(address))
    }

    /// The addresses of `within` that are in no run, in order.
    #[must_use]
    pub fn gaps(&self, within: Span) -> Vec<Span> {
        let (mut gaps, mut from) = (Vec::new(), Some(within.first));
        for run in self.runs.iter().map(|run| run.span).filter(|run| intersection(*run, within).is_some()) {
            let Some(first) = from else { return gaps };
            if first < run.first {
                gaps.push(Span { first, last: Address { bits: run.first.bits - 1, ..run.first } });
            }
            from = run.last.next();
        }
        gaps.extend(from.map(|first| Span { first, last: within.last }).filter(|rest| rest.first <= rest.last));
        gaps
    }

    /// An owner gets exactly these addresses.
    ///
    /// # Errors
    /// A run that has one of them.
    pub fn take(&mut self, span: Span, owner: &str) -> Result<(), Run> {
        if let Some(run) = self.runs.iter().find(|run| intersection(run.span, span).is_some()) {
            return Err(run.clone());
        }
        let at = self.runs.partition_point(|run| run.span.first < span.first);
        self.runs.insert(at, Run { span, owner: owner.to_owned() });
        self.join();
        Ok(())
    }

    /// An owner has these addresses no longer; what it has around them stays its own.
    pub fn release(&mut self, span: Span, owner: &str) {
        let cut = |run: Run| {
            let Some(gone) = intersection(run.span, span).filter(|_| run.owner == owner) else { return vec![run] };
            let before = (run.span.first < gone.first)
                .then(|| Span { last: Address { bits: gone.first.bits - 1, ..gone.first }, ..run.span });
            let after = gone.last.next().filter(|next| *next <= run.span.last).map(|first| Span { first, ..run.span });
            before.into_iter().chain(after).map(|span| Run { span, owner: run.owner.clone() }).collect()
        };
        self.runs = std::mem::take(&mut self.runs).into_iter().flat_map(cut).collect();
    }

    /// Runs of one owner that follow each other become one.
    fn join(&mut self) {
        self.runs.dedup_by(|next, run| {
            let follows = run.owner == next.owner && run.span.last.next() == Some(next.span.first);
            if follows {
                run.span.last = next.span.last;
            }
            follows
        });
    }
}

/// The first part of `gap` with `size` addresses that may be given, or all of it. It begins and ends with such an address;
/// `None` if the gap has none.
#[must_use]
pub fn cut(gap: Span, size: u128, barred: &Barred) -> Option<Span> {
    let mut first = gap.first;
    while let Some(end) = barred.end(first) {
        first = end.next().filter(|next| gap.contains(*next))?;
    }
    let (mut at, mut last, mut count) = (first, first, 0);
    loop {
        let next = match barred.end(at) {
            Some(end) => end.next(),
            None => {
                (last, count) = (at, count + 1);
                at.next().filter(|_| count < size)
            }
        };
        match next.filter(|next| gap.contains(*next)) {
            Some(next) => at = next,
            None => return Some(Span { first, last }),
        }
    }
}
