//! Rules of nf_tables that look a value up in a set or map, as rules that compare: one for each element.

use netops::nft::{Base, Cmp, ElementInfo, Expr, Meta, Name, Register, Verdict};
use nix::net::if_::if_indextoname;

use super::{concatenated, xt};

/// Elements of one set that are spelled out; a rule with a longer set stays as it is.
pub(super) const ELEMENTS_MAX: usize = 256;

/// `IFNAMSIZ` of linux/if.h.
const NAME_BYTES: usize = 16;

/// The size of an interface's index.
const INDEX_BYTES: usize = 4;

/// The expressions with the names of links in place of their indexes, as far as the links are there.
pub(super) fn with_names(mut exprs: Vec<Expr>) -> Vec<Expr> {
    for at in 1..exprs.len() {
        let Some([Expr::Meta(meta, _), Expr::Cmp(_, _, value)]) = exprs.get_mut(at - 1..=at) else { continue };
        let named = match meta {
            Meta::Iif => Meta::IifName,
            Meta::Oif => Meta::OifName,
            _ => continue,
        };
        let index = value.as_slice().try_into().map(u32::from_ne_bytes).unwrap_or_default();
        let Ok(name) = if_indextoname(index) else { continue };
        let mut name = name.into_bytes();
        name.resize(NAME_BYTES, 0);
        (*meta, *value) = (named, name);
    }
    exprs
}

/// The set or map of the first look-up at or behind a place among a rule's expressions, and its place.
pub(super) fn first(exprs: &[Expr], from: usize) -> Option<(usize, &Name)> {
    exprs.iter().enumerate().skip(from).find_map(|(at, expr)| match expr {
        Expr::InSet(set, _) | Expr::VerdictMap(set, _) => Some((at, set)),
        _ => None,
    })
}

/// The expressions in place of the look-up at `at`, for each element. Of a verdict map, a rule with conditions that cannot
/// be spelled keeps the look-up. `None`: the elements are of a kind that cannot be spelled at all.
pub(super) fn spelled(exprs: &[Expr], at: usize, elements: &[ElementInfo]) -> Option<Vec<Vec<Expr>>> {
    let (Expr::InSet(set, from) | Expr::VerdictMap(set, from)) = exprs.get(at)? else { return None };
    let loads = |expr: &&Expr| match expr {
        Expr::Meta(_, to) | Expr::Payload { to, .. } | Expr::CtState(to) => to == from,
        _ => false,
    };
    let is_map = matches!(exprs.get(at), Some(Expr::VerdictMap(..)));
    if let Some(spelled) = concatenated::spelled(exprs.get(..at)?, *from, elements, is_map) {
        return Some(spelled);
    }
    let unread = || Expr::InSet(set.clone(), *from);
    match exprs.get(..at)?.iter().rev().find(loads)? {
        Expr::CtState(_) => states(*from, elements, is_map, &unread),
        Expr::Meta(Meta::IifName | Meta::OifName, _) if elements.iter().any(|element| element.is_interval_end) => {
            names(*from, elements).filter(|_| !is_map)
        }
        Expr::Meta(Meta::IifName | Meta::OifName, _) => each(elements, NAME_BYTES, is_map, |key| equal(*from, key)),
        Expr::Meta(Meta::Iif | Meta::Oif, _) => each(elements, INDEX_BYTES, is_map, |key| equal(*from, key)),
        &Expr::Payload { base: Base::Network, length, .. }
            if elements.iter().any(|element| element.is_interval_end) =>
        {
            let bytes = usize::try_from(length).ok().filter(|bytes| matches!(bytes, 4 | 16))?;
            intervals(*from, elements, bytes).filter(|_| !is_map)
        }
        &Expr::Payload { base: Base::Network, length, .. } => {
            each(elements, usize::try_from(length).ok()?, is_map, |key| equal(*from, key))
        }
        _ => None,
    }
}

fn equal(register: Register, key: &[u8]) -> Vec<Expr> {
    vec![Expr::Cmp(Cmp::Eq, register, key.to_vec())]
}

/// A rule for each element, which has a key of this length.
fn each(
    elements: &[ElementInfo],
    bytes: usize,
    is_map: bool,
    compare: impl Fn(&[u8]) -> Vec<Expr>,
) -> Option<Vec<Vec<Expr>>> {
    let rule = |element: &ElementInfo| {
        let verdict = element.verdict.clone().map(Expr::Verdict);
        let is_whole = element.key.len() == bytes && !element.is_interval_end && verdict.is_some() == is_map;
        is_whole.then(|| compare(&element.key).into_iter().chain(verdict).collect())
    };
    elements.iter().map(rule).collect()
}

/// States of connections: those of a set as one mask; of a map, that which established and related ones have in common.
fn states(
    register: Register,
    elements: &[ElementInfo],
    is_map: bool,
    unread: &dyn Fn() -> Expr,
) -> Option<Vec<Vec<Expr>>> {
    let answers = u32::from(xt::ESTABLISHED_OR_RELATED);
    let bits = |element: &ElementInfo| Some(u32::from_ne_bytes(element.key.as_slice().try_into().ok()?));
    let is_answer = |element: &&ElementInfo| bits(element).is_some_and(|bits| bits & answers != 0);
    let mask = Expr::Mask(register, answers.to_ne_bytes().to_vec());
    let of_answers = vec![mask, Expr::Cmp(Cmp::Neq, register, vec![0; 4])];
    if !is_map {
        let all = elements.iter().map(bits).sum::<Option<u32>>()?;
        let mask = Expr::Mask(register, all.to_ne_bytes().to_vec());
        return Some(vec![vec![mask, Expr::Cmp(Cmp::Neq, register, vec![0; 4])]]);
    }
    let accepts = |element: &&ElementInfo| element.verdict == Some(Verdict::Accept);
    let answered = elements.iter().filter(is_answer).filter(accepts).count() == 2;
    let rule = of_answers.into_iter().chain([Expr::Verdict(Verdict::Accept)]).collect();
    let others = elements.iter().filter(|element| !(answered && is_answer(element)));
    let others = others.filter_map(|element| Some(vec![unread(), Expr::Verdict(element.verdict.clone()?)]));
    Some(answered.then_some(rule).into_iter().chain(others).collect())
}

/// Ranges of addresses as prefixes. The kernel has the first address of each, and that behind its last.
fn intervals(register: Register, elements: &[ElementInfo], bytes: usize) -> Option<Vec<Vec<Expr>>> {
    let width = u32::try_from(bytes * 8).ok()?;
    let number =
        |key: &[u8]| (key.len() == bytes).then(|| key.iter().fold(0, |all, byte| all << 8 | u128::from(*byte)));
    let mut bounds: Vec<(u128, bool)> = elements
        .iter()
        .map(|element| Some((number(&element.key)?, !element.is_interval_end)))
        .collect::<Option<_>>()?;
    // An end comes before a beginning at the same address.
    bounds.sort_unstable();
    let highest = u128::MAX >> (128 - width);
    let (mut rules, mut open) = (Vec::new(), None);
    for (bound, begins) in bounds {
        match (open.take(), begins) {
            (None, true) => open = Some(bound),
            (Some(first), false) => rules.extend(prefixes(first, bound.checked_sub(1)?, width)),
            (Some(first), true) => {
                rules.extend(prefixes(first, bound.checked_sub(1)?, width));
                open = Some(bound);
            }
            (None, false) => {}
        }
    }
    rules.extend(open.into_iter().flat_map(|first| prefixes(first, highest, width)));
    let key = |number: u128| number.to_be_bytes().into_iter().skip(16 - bytes).collect::<Vec<u8>>();
    let rule = |(network, length): (u128, u32)| {
        let mask = highest.checked_shl(width - length).unwrap_or(0) & highest;
        let compare = Expr::Cmp(Cmp::Eq, register, key(network));
        if length == width { vec![compare] } else { vec![Expr::Mask(register, key(mask)), compare] }
    };
    (rules.len() <= ELEMENTS_MAX).then(|| rules.into_iter().map(rule).collect())
}

/// Names of links, and beginnings of such names (`veth*`): each range has all names that begin with its first bytes.
fn names(register: Register, elements: &[ElementInfo]) -> Option<Vec<Vec<Expr>>> {
    let mut bounds: Vec<(&[u8], bool)> =
        elements.iter().map(|element| (element.key.as_slice(), !element.is_interval_end)).collect();
    bounds.sort_unstable();
    let rule = |(first, end): (&[u8], &[u8])| {
        let length = (1..=NAME_BYTES).find(|length| {
            let (begin, rest) = first.split_at(*length);
            rest.iter().all(|byte| *byte == 0) && next(begin).is_some_and(|next| end.starts_with(&next))
        })?;
        Some(equal(register, first.get(..length)?))
    };
    let is_pair = |pair: &[(&[u8], bool)]| matches!(pair, [(_, true), (_, false)]);
    let has_length = |(key, _): &(&[u8], bool)| key.len() == NAME_BYTES;
    // A set that is all ranges begins with the end of what is before the first one.
    let from = usize::from(bounds.first().is_some_and(|(_, begins)| !begins));
    let bounds = bounds.get(from..)?;
    (bounds.iter().all(has_length) && bounds.chunks(2).all(is_pair)).then_some(())?;
    bounds.chunks(2).map(|pair| rule((pair.first()?.0, pair.get(1)?.0))).collect()
}

/// The number behind one of some bytes, the highest first.
fn next(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut next = bytes.to_vec();
    for byte in next.iter_mut().rev() {
        (*byte, _) = byte.overflowing_add(1);
        if *byte != 0 {
            return Some(next);
        }
    }
    None
}

/// The prefixes, as network and length, that a range of addresses is made of.
pub(super) fn prefixes(first: u128, last: u128, width: u32) -> Vec<(u128, u32)> {
    let (mut found, mut next) = (Vec::new(), Some(first));
    while let Some(from) = next.filter(|from| *from <= last && found.len() <= ELEMENTS_MAX) {
        let aligned = from.trailing_zeros().min(width);
        // The size of all addresses of IPv6 has no number.
        let fits = |bits: &u32| last - from >= 1_u128.checked_shl(*bits).map_or(u128::MAX, |size| size - 1);
        let bits = (0..=aligned).rev().find(fits).unwrap_or(0);
        found.push((from, width - bits));
        next = 1_u128.checked_shl(bits).and_then(|size| from.checked_add(size));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_names_is_what_they_begin_with() {
        let key = |name: &[u8]| [name, &[0; NAME_BYTES]].concat().get(..NAME_BYTES).unwrap().to_vec();
        let element =
            |key: Vec<u8>, is_interval_end| ElementInfo { key, key_end: None, is_interval_end, verdict: None };
        let mut behind = key(b"cni0");
        *behind.last_mut().unwrap() = 1;
        let of = |elements: &[ElementInfo]| names(Register::R1, elements);
        let elements = [
            element(key(b""), true),
            element(key(b"cni0"), false),
            element(behind, true),
            element(key(b"veth"), false),
            element(key(b"veti"), true),
        ];
        let cmp = |bytes: &[u8]| vec![Expr::Cmp(Cmp::Eq, Register::R1, bytes.to_vec())];
        assert_eq!(of(&elements), Some(vec![cmp(&key(b"cni0")), cmp(b"veth")]));
        // A range that is no beginning of names is not read.
        assert_eq!(of(&[element(key(b"eth0"), false), element(key(b"eth3"), true)]), None);
    }

    #[test]
    fn a_range_is_the_prefixes_that_it_is_made_of() {
        let of = |first: u128, last: u128| prefixes(first, last, 32);
        assert_eq!(of(0x0a50_0000, 0x0a50_00ff), [(0x0a50_0000, 24)]);
        assert_eq!(of(0x0a50_0001, 0x0a50_0004), [(0x0a50_0001, 32), (0x0a50_0002, 31), (0x0a50_0004, 32)]);
        assert_eq!(of(0, 0xffff_ffff), [(0, 0)]);
    }
}
