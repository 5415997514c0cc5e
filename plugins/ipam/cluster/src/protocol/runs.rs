//! Which addresses a node claims as its next run, and how many; and the end of a run.

use std::net::IpAddr;

use host_local::address::Address;
use host_local::conf::Barred;
use host_local::range::Span;

use super::{Run, State};

/// The addresses of `within` that are in no run, in order.
pub(super) fn gaps(state: &State, within: Span) -> Vec<Span> {
    let mut gaps = Vec::new();
    let mut from = Some(within.first);
    for run in state.runs.iter().map(Run::span).filter(|run| run.first <= within.last && within.first <= run.last) {
        let Some(first) = from else { return gaps };
        if first < run.first {
            gaps.push(Span { first, last: Address { bits: run.first.bits - 1, ..run.first } });
        }
        from = run.last.next();
    }
    let rest = from.map(|first| Span { first, last: within.last }).filter(|rest| rest.first <= rest.last);
    gaps.extend(rest.filter(|rest| rest.first >= within.first));
    gaps
}

/// The first part of `gap` with `size` addresses that may be given, or all of it. It begins and ends with such an address;
/// `None` if the gap has none.
fn cut(gap: Span, size: u128, barred: &Barred) -> Option<Span> {
    let mut first = gap.first;
    while let Some(end) = barred.end(first) {
        first = end.next().filter(|next| gap.contains(*next))?;
    }
    let (mut at, mut last, mut count) = (first, first, 0);
    loop {
        match barred.end(at) {
            Some(end) => match end.next().filter(|next| gap.contains(*next)) {
                Some(next) => at = next,
                None => break,
            },
            None => {
                (last, count) = (at, count + 1);
                match at.next().filter(|next| count < size && gap.contains(*next)) {
                    Some(next) => at = next,
                    None => break,
                }
            }
        }
    }
    Some(Span { first, last })
}

/// How many addresses of a range set a node claims at once: `size`, and less when they become few. A node that has used up a
/// run goes on up to an equal part of the set; else half of what is left stays for the other nodes, and the last ones are claimed
/// one by one.
#[must_use]
pub fn share(state: &State, node: &str, set: &[Span], size: u32, barred: &Barred) -> u128 {
    let count = |spans: &mut dyn Iterator<Item = Span>| {
        spans.fold(0_u128, |sum, span| sum.saturating_add(barred.count_allowed(span)))
    };
    let left = count(&mut set.iter().flat_map(|span| gaps(state, *span)));
    let nodes = state.nodes.len().max(1) as u128;
    let in_set = |run: &&Run| set.iter().any(|span| span.contains(run.first.into()));
    let of_nodes = || state.runs.iter().filter(in_set).filter(|run| state.nodes.contains_key(&run.node));
    let own = count(&mut of_nodes().filter(|run| run.node == node).map(Run::span));
    let equal = left.saturating_add(count(&mut of_nodes().map(Run::span))) / nodes;
    // The first node leaves room for the second: of a small range, a run could be all.
    let careful = if nodes == 1 { left.div_ceil(4).max(2) } else { left / (2 * (nodes - 1)) };
    let up_to_equal = if own == 0 { 0 } else { equal.saturating_sub(own) };
    careful.max(up_to_equal).clamp(1, size.max(1).into())
}

/// Claims the next free addresses of a range set for a node: the first [`share`] in a row; where no row is that long, the
/// longest. `None` if the set has no free address.
#[must_use]
pub fn claim(state: &State, node: &str, set: &[Span], size: u32, barred: &Barred) -> Option<(State, Span)> {
    let size = share(state, node, set, size, barred);
    let found = find_free(state, set, size, barred)?;
    Some((take(state, node, found).ok()?, found))
}

/// The first `size` free addresses in a row; where no row is that long, the longest.
pub(super) fn find_free(state: &State, set: &[Span], size: u128, barred: &Barred) -> Option<Span> {
    let mut best: Option<(u128, Span)> = None;
    for gap in set.iter().flat_map(|span| gaps(state, *span)) {
        let Some(found) = cut(gap, size, barred) else { continue };
        let count = barred.count_allowed(found);
        if best.is_none_or(|(most, _)| count > most) {
            best = Some((count, found));
        }
        if count >= size {
            break;
        }
    }
    best.map(|(_, found)| found)
}

/// Claims exactly these addresses for a node.
///
/// # Errors
/// A run that has one of them.
pub fn take(state: &State, node: &str, span: Span) -> Result<State, Run> {
    let overlaps = |run: &&Run| run.span().first <= span.last && span.first <= run.span().last;
    if let Some(run) = state.runs.iter().find(overlaps) {
        return Err(run.clone());
    }
    let mut next = state.clone();
    let run = Run { first: span.first.ip(), last: span.last.ip(), node: node.to_owned() };
    let at = next.runs.partition_point(|other| other.span().first < span.first);
    next.runs.insert(at, run);
    Ok(next)
}

/// Gives a node's run back, by its first address.
#[must_use]
pub fn give_back(state: &State, node: &str, first: IpAddr) -> State {
    let mut next = state.clone();
    next.runs.retain(|run| run.node != node || run.first != first);
    next
}
