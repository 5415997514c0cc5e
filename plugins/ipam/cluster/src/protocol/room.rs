//! Where a node takes its next run, and how long that is.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use host_local::address::Address;
use host_local::conf::Barred;
use host_local::range::Span;

use super::shard::{SIZE_BITS, base_of, cut, intersection, whole};
use super::{Draft, Shard, claims};

/// Nodes begin in one of so many shards, so that few of them write the same record.
const STARTS_MAX: u128 = 4096;

/// A part that is smaller is few: a node that needs no more soon would keep them from the others.
const FEW: u128 = 4;

/// No node takes more of a shard at once, so that a longer `claimSize` does not look for what no shard has.
pub const WHOLE: u32 = 1 << (SIZE_BITS - 2);

/// The shards of a range set in the order in which a node looks for room: from a place of its own, once round.
#[derive(Debug)]
pub struct Shards {
    spans: Vec<(Address, u128)>,
    total: u128,
    first: u128,
    done: u128,
}

impl Shards {
    /// The order of a node; from `cursor`, where it found room before.
    #[must_use]
    pub fn new(set: &[Span], node: &str, cursor: Option<Address>) -> Self {
        let bits = |span: &Span| (base_of(span.last).bits - base_of(span.first).bits) >> SIZE_BITS;
        let spans: Vec<_> = set.iter().map(|span| (base_of(span.first), bits(span) + 1)).collect();
        let total = spans.iter().map(|(_, count)| count).sum();
        let mut hasher = DefaultHasher::new();
        node.hash(&mut hasher);
        let (mut before, mut first) = (0, u128::from(hasher.finish()) % STARTS_MAX.min(total).max(1));
        for (base, count) in &spans {
            let offset = cursor.and_then(|at| Some(at.bits.checked_sub(base.bits)? >> SIZE_BITS));
            if let Some(offset) = offset.filter(|offset| offset < count) {
                first = before + offset;
            }
            before += count;
        }
        Self { spans, total, first, done: 0 }
    }
}

impl Iterator for Shards {
    type Item = Address;

    fn next(&mut self) -> Option<Address> {
        let mut at = (self.first + self.done) % self.total.max(1);
        if self.done >= self.total {
            return None;
        }
        self.done += 1;
        for (base, count) in &self.spans {
            match at.checked_sub(*count) {
                Some(rest) => at = rest,
                None => return Some(Address { bits: base.bits + (at << SIZE_BITS), ..*base }),
            }
        }
        None
    }
}

/// What a range set has left in some of its shards, and among how many nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Room {
    /// The addresses that are in no run.
    pub left: u128,
    /// The nodes that have runs there.
    pub nodes: BTreeSet<String>,
    /// The longest rows of addresses in no run, cut to the most that is wanted; the first of equal ones.
    pub best: Option<(u128, Span)>,
}

impl Room {
    /// Adds what another shard has.
    pub fn add(&mut self, other: Self) {
        self.left = self.left.saturating_add(other.left);
        self.nodes.extend(other.nodes);
        if other.best.is_some_and(|(count, _)| self.best.is_none_or(|(most, _)| count > most)) {
            self.best = other.best;
        }
    }
}

/// The room of one shard in a range set, for rows of at most `most` addresses.
#[must_use]
pub fn room(base: Address, shard: &Shard, set: &[Span], most: u128, barred: &Barred) -> Room {
    let mut room = Room::default();
    for gap in set.iter().filter_map(|span| intersection(*span, whole(base))).flat_map(|span| shard.gaps(span)) {
        room.left = room.left.saturating_add(barred.count_allowed(gap));
        if room.best.is_none_or(|(count, _)| count < most)
            && let Some(span) = cut(gap, most, barred)
        {
            let count = barred.count_allowed(span);
            if room.best.is_none_or(|(most, _)| count > most) {
                room.best = Some((count, span));
            }
        }
    }
    room.nodes =
        shard.runs.iter().map(|run| run.owner.clone()).filter(|owner| !owner.starts_with(claims::PREFIX)).collect();
    room
}

/// How many addresses a node takes at once, and keeps without using them: `most`, and less when few are left, as other nodes need them. 0: it takes
/// one, and keeps none.
#[must_use]
pub fn size(left: u128, nodes: usize, most: u32) -> u128 {
    let part = left / (4 * nodes.max(1) as u128);
    if part < FEW { 0 } else { part.min(most.into()) }
}

/// Whether a node has so many free addresses that it gives some back.
#[must_use]
pub fn is_high(keeps: u128, free: u128) -> bool {
    free > 2 * keeps
}

/// A node gives back what it does not use of a range set, if that is much; `keeps` stay. Its shards were read; `held` are the addresses of its
/// containers. Returns how many were free.
pub fn give_back(
    draft: &mut Draft,
    node: &str,
    set: &[Span],
    held: &BTreeSet<Address>,
    keeps: u128,
    barred: &Barred,
) -> u128 {
    let count = |span: &Span| barred.count_allowed(*span);
    let mut free = free(draft, node, set, held);
    let all: u128 = free.iter().map(count).sum();
    if !is_high(keeps, all) {
        return all;
    }
    // The longest rows go first: what is left is in few runs.
    free.sort_by_key(|span| std::cmp::Reverse(count(span)));
    let mut surplus = all - keeps;
    for span in free {
        let stays = count(&span).saturating_sub(surplus);
        // The beginning stays, as the node has what is before it.
        let after = |kept: Span| kept.last.next().map(|first| Span { first, ..span });
        let gone = if stays == 0 { Some(span) } else { cut(span, stays, barred).and_then(after) };
        surplus -= count(&span) - stays;
        if let Some(gone) = gone.filter(|gone| gone.first <= gone.last) {
            draft.release(gone, node);
        }
    }
    all
}

/// A node gives back what it does not use outside these ranges, which are narrower than they were. Its shards were read.
pub fn give_back_outside(draft: &mut Draft, node: &str, ranges: &[Span], held: &BTreeSet<Address>) {
    let all: Vec<Span> = draft.bases().flat_map(|base| draft.shard(base).of(node).collect::<Vec<_>>()).collect();
    for free in free(draft, node, &all, held) {
        let rest =
            ranges.iter().fold(vec![free], |rest, range| rest.iter().flat_map(|span| without(*span, *range)).collect());
        rest.into_iter().for_each(|span| draft.release(span, node));
    }
}

/// The parts of a span before and behind another one.
fn without(span: Span, other: Span) -> impl Iterator<Item = Span> {
    let common = intersection(span, other);
    let before = common
        .filter(|common| span.first < common.first)
        .map(|common| Span { last: Address { bits: common.first.bits - 1, ..common.first }, ..span });
    let behind = common
        .and_then(|common| common.last.next())
        .filter(|first| *first <= span.last)
        .map(|first| Span { first, ..span });
    [before, behind, Some(span).filter(|_| common.is_none())].into_iter().flatten()
}

/// The addresses of a node's runs in a set that no container has.
fn free(draft: &Draft, node: &str, set: &[Span], held: &BTreeSet<Address>) -> Vec<Span> {
    let is_of_set = |run: &Span| set.iter().any(|span| intersection(*span, *run).is_some());
    let mut free = Vec::new();
    for run in draft.bases().flat_map(|base| draft.shard(base).of(node).collect::<Vec<_>>()).filter(is_of_set) {
        let mut from = Some(run.first);
        for address in held.range(run.first..=run.last) {
            if let Some(first) = from.filter(|first| first < address) {
                free.push(Span { first, last: Address { bits: address.bits - 1, ..*address } });
            }
            from = address.next();
        }
        free.extend(from.filter(|first| *first <= run.last).map(|first| Span { first, last: run.last }));
    }
    free
}
