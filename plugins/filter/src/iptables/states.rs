//! Rules for packets by the state of their connection, or for ICMP, as rules that [`Rule`](super::Rule) can express: one for
//! each state, with further options of iptables in words.

use netops::nft::{Cmp, Expr, Meta};

use super::xt;

/// `-m conntrack --ctstate NEW`, as [`Rule::words`](super::Rule) has it.
pub const BEGINS: [&str; 4] = ["-m", "conntrack", "--ctstate", "NEW"];
/// `-p icmpv6`, as [`Rule::words`](super::Rule) has it.
pub const ICMPV6: [&str; 2] = ["-p", "icmpv6"];

/// Bits of states in nf_tables and in xtables (`NF_CT_STATE_INVALID_BIT`, `NF_CT_STATE_BIT`, `NF_CT_STATE_UNTRACKED_BIT`,
/// `XT_CONNTRACK_STATE_DNAT`).
const INVALID: u32 = 1;
const ESTABLISHED: u32 = 2;
const RELATED: u32 = 4;
const NEW: u32 = 8;
const UNTRACKED: u32 = 64;
const DNAT: u32 = 128;
/// Each packet has one of these.
const ALL: u32 = INVALID | ESTABLISHED | RELATED | NEW | UNTRACKED;

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The states of a condition, negated or not.
fn meant(bits: u32, is_negated: bool) -> u32 {
    if is_negated { ALL & !bits } else { bits }
}

/// The rule for each state of connections that a rule's condition names, with words for what is not in the expressions. Before
/// packets are tracked, all have the state `invalid`.
pub(super) fn parts(exprs: &[Expr], is_tracked: bool) -> Option<Vec<(Vec<Expr>, Vec<String>)>> {
    let (at, length, bits) = exprs.iter().enumerate().find_map(|(at, expr)| {
        let (length, bits) = condition(expr, exprs.get(at + 1..)?)?;
        Some((at, length, bits))
    })?;
    let with = |instead: Option<Expr>| {
        let before = exprs.get(..at).into_iter().flatten().cloned();
        before.chain(instead).chain(exprs.get(at + length..).into_iter().flatten().cloned()).collect::<Vec<_>>()
    };
    if !is_tracked {
        return Some((bits & INVALID != 0).then(|| (with(None), Vec::new())).into_iter().collect());
    }
    let answers = (bits & ESTABLISHED != 0).then(|| (with(Some(Expr::Match(xt::established()))), Vec::new()));
    let translated = (bits & DNAT != 0).then(|| (with(Some(Expr::Match(xt::translated()))), Vec::new()));
    let begins = (bits & NEW != 0).then(|| (with(None), owned(&BEGINS)));
    Some([answers, translated, begins].into_iter().flatten().collect())
}

/// The number of expressions of a condition on the state that begins with this one, and the states.
fn condition(expr: &Expr, behind: &[Expr]) -> Option<(usize, u32)> {
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_ne_bytes);
    match (expr, behind) {
        (Expr::Match(extension), _) => {
            let (bits, is_negated) = xt::states(extension)?;
            Some((1, meant(bits.into(), is_negated)))
        }
        (Expr::CtState(_), [Expr::Mask(_, mask), Expr::Cmp(cmp, _, value), ..]) => {
            (number(value)? == 0).then_some((3, meant(number(mask)?, *cmp == Cmp::Eq)))
        }
        (Expr::CtState(_), [Expr::Cmp(cmp, _, value), ..]) => Some((2, meant(number(value)?, *cmp == Cmp::Neq))),
        _ => None,
    }
}

/// The rule for packets of ICMPv6, with words for that.
pub(super) fn of_icmp(exprs: &[Expr]) -> Option<Vec<(Vec<Expr>, Vec<String>)>> {
    // IPPROTO_ICMPV6 of linux/in6.h.
    let is_it =
        |pair: &[Expr]| matches!(pair, [Expr::Meta(Meta::L4Proto, _), Expr::Cmp(Cmp::Eq, _, value)] if *value == [58]);
    let at = exprs.windows(2).position(is_it)?;
    let others = exprs.iter().take(at).chain(exprs.iter().skip(at + 2)).cloned().collect();
    Some(vec![(others, owned(&ICMPV6))])
}

/// As [`parts`], of a rule in iptables' words.
pub(super) fn parts_of_words(words: &str, is_tracked: bool) -> Option<Vec<(String, Vec<String>)>> {
    let (before, is_negated, behind) = [
        (" -m conntrack --ctstate ", false),
        (" -m conntrack ! --ctstate ", true),
        (" -m state --state ", false),
        (" -m state ! --state ", true),
    ]
    .into_iter()
    .find_map(|(option, is_negated)| words.split_once(option).map(|(before, behind)| (before, is_negated, behind)))?;
    let (states, behind) = behind.split_once(' ')?;
    let bits = states.split(',').map(|state| match state {
        "INVALID" => Some(INVALID),
        "ESTABLISHED" => Some(ESTABLISHED),
        "RELATED" => Some(RELATED),
        "NEW" => Some(NEW),
        "UNTRACKED" => Some(UNTRACKED),
        "DNAT" => Some(DNAT),
        _ => None,
    });
    let bits = meant(bits.sum::<Option<u32>>()?, is_negated);
    let with = |instead: &str| format!("{before}{instead} {behind}");
    if !is_tracked {
        return Some((bits & INVALID != 0).then(|| (with(""), Vec::new())).into_iter().collect());
    }
    let answers = (bits & ESTABLISHED != 0).then(|| (with(" -m conntrack --ctstate RELATED,ESTABLISHED"), Vec::new()));
    let translated = (bits & DNAT != 0).then(|| (with(" -m conntrack --ctstate DNAT"), Vec::new()));
    let begins = (bits & NEW != 0).then(|| (with(""), owned(&BEGINS)));
    Some([answers, translated, begins].into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_of_several_states_is_one_for_each() {
        let of = |words: &str| {
            let parts = parts_of_words(words, true).unwrap_or_default();
            parts.into_iter().map(|(text, words)| format!("{text}|{}", words.join(" "))).collect::<Vec<_>>()
        };
        assert_eq!(
            of("A -s 10.1.0.0/24 -m conntrack --ctstate NEW -j DROP"),
            ["A -s 10.1.0.0/24 -j DROP|-m conntrack --ctstate NEW"]
        );
        assert_eq!(
            of("A -m conntrack ! --ctstate RELATED,ESTABLISHED -j DROP"),
            ["A -j DROP|-m conntrack --ctstate NEW"]
        );
        assert_eq!(of("A -m state --state INVALID -j DROP"), [""; 0]);
        assert_eq!(
            of("A -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT"),
            ["A -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT|", "A -m conntrack --ctstate DNAT -j ACCEPT|"]
        );
    }
}
