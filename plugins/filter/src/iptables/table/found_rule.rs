//! A rule that a table has, in either variant.

use super::super::{decode, parse, states, xt};
use crate::iptables::rule::{Rule, Target};
use netops::nft::{self, Cmp, Expr, Meta, Verdict};

/// The target of a rule that leaves packets out of connection tracking, as iptables writes it.
pub const UNTRACKED: &str = "NOTRACK";

/// The target of a rule that puts packets in another zone of connection tracking: their answers are tracked in that of all others.
pub const ZONED: &str = "CT --zone";

/// A rule in a table.
#[derive(Debug, Clone)]
pub struct FoundRule {
    /// The decoded rule; `None` if it contains anything that our rules do not have.
    pub rule: Option<Rule>,
    /// The private note of its creator. iptables does not show it; the legacy variant cannot store it.
    pub note: Option<String>,
    pub(super) id: Id,
}

/// A rule as its variant names it.
#[derive(Debug, Clone)]
pub(super) enum Id {
    Handle(nft::Rule),
    /// The text after `-A`.
    Words(String),
}

impl FoundRule {
    pub(super) fn from_nft(rule: nft::Rule) -> Self {
        Self { rule: decode::rule(&rule), note: rule.note.clone(), id: Id::Handle(rule) }
    }

    /// The chain it jumps to, whatever its conditions.
    #[must_use]
    pub fn goes_to(&self) -> Option<&str> {
        match &self.id {
            Id::Handle(rule) => rule.goes_to(),
            Id::Words(words) => parse::jump(words).or_else(|| parse::goes_on(words)),
        }
    }

    /// The rule's comment, whatever its conditions.
    #[must_use]
    pub fn comment(&self) -> Option<String> {
        match &self.id {
            Id::Handle(rule) => decode::comment(rule),
            Id::Words(words) => parse::comment(words),
        }
    }

    /// The rule, with [`Target::Reject`] for a refusal (`REJECT`, `reject`) and with a jump for `goto` and [`UNTRACKED`].
    fn refusing(&self) -> Option<Rule> {
        let refused = || match &self.id {
            Id::Handle(rule) => {
                let (last, others) = rule.exprs.split_last()?;
                let target = match last {
                    Expr::Verdict(Verdict::Goto(chain)) => Target::Jump(chain.to_string()),
                    last if is_refusal(last) => Target::Reject,
                    last => Target::Jump(tracking_of(last)?.to_owned()),
                };
                let conditions = decode::rule(&nft::Rule { exprs: others.to_vec(), ..rule.clone() })?;
                Some(Rule { target, ..conditions })
            }
            Id::Words(words) => {
                let (conditions, target) = match parse::goes_on(words) {
                    Some(chain) => (words.rsplit_once(" -g ")?.0, Target::Jump(chain.to_owned())),
                    None => (words.split_once(" -j REJECT")?.0, Target::Reject),
                };
                Some(Rule { target, ..parse::rule(conditions)? })
            }
        };
        self.rule.clone().or_else(refused)
    }

    /// The rule as programs that explain it read it: several where one has conditions that [`Rule`] cannot join, none for invalid
    /// packets alone, which all are before they are tracked; `None`: it has conditions that this crate does not read.
    pub(crate) fn readings(&self, is_tracked: bool) -> Vec<Option<Rule>> {
        if let Some(rule) = self.refusing() {
            return vec![Some(rule)];
        }
        let parts = match &self.id {
            Id::Handle(rule) => {
                states::parts(&rule.exprs, is_tracked).or_else(|| states::of_icmp(&rule.exprs)).map(|parts| {
                    let of = |(exprs, words): (Vec<Expr>, Vec<String>)| {
                        (Self::from_nft(nft::Rule { exprs, ..rule.clone() }), words)
                    };
                    parts.into_iter().map(of).collect::<Vec<_>>()
                })
            }
            Id::Words(words) => states::parts_of_words(words, is_tracked).map(|parts| {
                let of = |(text, words): (String, Vec<String>)| {
                    (Self { rule: parse::rule(&text), note: None, id: Id::Words(text) }, words)
                };
                parts.into_iter().map(of).collect()
            }),
        };
        let Some(parts) = parts else { return vec![None] };
        let read = parts.into_iter().map(|(part, words)| Some(Rule { words, ..part.refusing()? }));
        read.collect::<Option<Vec<Rule>>>().map_or(vec![None], |rules| rules.into_iter().map(Some).collect())
    }

    /// The rule; or its conditions, and in words a translation that this suite's rules do not have.
    pub(crate) fn translating(&self) -> Option<(Rule, Option<String>)> {
        let other = || match &self.id {
            Id::Handle(rule) => {
                let (Expr::Target(extension), others) = rule.exprs.split_last()? else { return None };
                let words = xt::other_translation(extension, rule.table.family)?;
                Some((decode::rule(&nft::Rule { exprs: others.to_vec(), ..rule.clone() })?, Some(words)))
            }
            Id::Words(words) => {
                let (conditions, words) = words.rsplit_once(" -j ")?;
                let is_translation = ["SNAT", "DNAT", "REDIRECT", "NETMAP"].contains(&words.split(' ').next()?);
                is_translation.then(|| Some((parse::rule(conditions)?, Some(words.to_owned()))))?
            }
        };
        let goes_on = || self.refusing().filter(|_| self.is_goto()).map(|rule| (rule, None));
        self.rule.clone().map(|rule| (rule, None)).or_else(goes_on).or_else(other)
    }

    /// Whether the rule gives packets another destination.
    pub(crate) fn translates(&self) -> bool {
        let is_it = |target: &str| ["DNAT", "REDIRECT", "NETMAP"].contains(&target);
        match &self.id {
            Id::Handle(rule) => matches!(rule.exprs.last(), Some(Expr::Target(extension)) if is_it(&extension.name)),
            Id::Words(words) => parse::jump(words).is_some_and(is_it),
        }
    }

    /// Whether the rule may end the way of a packet.
    pub(crate) fn may_decide(&self) -> bool {
        let decides = |expr: &Expr| match expr {
            Expr::Verdict(verdict) => matches!(verdict, Verdict::Accept | Verdict::Drop),
            Expr::VerdictMap(..) => true,
            expr => is_refusal(expr) || is_queue(expr) || tracking_of(expr).is_some(),
        };
        match &self.id {
            Id::Handle(rule) => rule.exprs.iter().any(decides),
            Id::Words(words) => {
                let to = parse::jump(words);
                ["ACCEPT", "DROP", "REJECT", "NFQUEUE"].iter().any(|verdict| to == Some(verdict))
            }
        }
    }

    /// Whether the rule may drop packets, or has a program decide on them.
    pub(crate) fn may_refuse(&self) -> bool {
        let refuses = |expr: &Expr| *expr == Expr::Verdict(Verdict::Drop) || is_refusal(expr) || is_queue(expr);
        match &self.id {
            Id::Handle(rule) => rule.exprs.iter().any(refuses),
            Id::Words(words) => ["DROP", "REJECT", "NFQUEUE"].iter().any(|verdict| parse::jump(words) == Some(verdict)),
        }
    }

    /// Whether the rule may lead packets back to the chain before.
    pub(crate) fn may_return(&self) -> bool {
        match &self.id {
            Id::Handle(rule) => rule.exprs.last() == Some(&Expr::Verdict(Verdict::Return)),
            Id::Words(words) => parse::jump(words) == Some("RETURN"),
        }
    }

    /// Whether packets that the rule leads to another chain do not come back to this one (`goto`, `-g`).
    pub(crate) fn is_goto(&self) -> bool {
        match &self.id {
            Id::Handle(rule) => matches!(rule.exprs.last(), Some(Expr::Verdict(Verdict::Goto(_)))),
            Id::Words(words) => parse::goes_on(words).is_some(),
        }
    }

    /// The number of the one protocol that its packets have, as far as nf_tables' own expressions say it.
    pub(crate) fn protocol(&self) -> Option<u8> {
        let is_of = |pair: &[Expr]| match pair {
            [Expr::Meta(Meta::L4Proto, _), Expr::Cmp(Cmp::Eq, _, value)] => value.first().copied(),
            _ => None,
        };
        match &self.id {
            Id::Handle(rule) => rule.exprs.windows(2).find_map(is_of),
            Id::Words(_) => None,
        }
    }

    /// Whether the rule may accept packets.
    pub(crate) fn may_accept(&self) -> bool {
        let accepts = |expr: &Expr| matches!(expr, Expr::Verdict(Verdict::Accept) | Expr::VerdictMap(..));
        match &self.id {
            Id::Handle(rule) => rule.exprs.iter().any(accepts),
            Id::Words(words) => parse::jump(words) == Some("ACCEPT"),
        }
    }
}

/// Whether an expression refuses the packet with an answer to its sender.
fn is_refusal(expr: &Expr) -> bool {
    match expr {
        Expr::Other { name, .. } => name == "reject",
        Expr::Target(extension) => extension.name == "REJECT",
        _ => false,
    }
}

/// Whether an expression has a program decide on the packet.
fn is_queue(expr: &Expr) -> bool {
    match expr {
        Expr::Other { name, .. } => name == "queue",
        Expr::Target(extension) => extension.name == "NFQUEUE",
        _ => false,
    }
}

/// The target by which an expression takes a packet out of the usual connection tracking: `notrack`, `NOTRACK`, `CT`.
fn tracking_of(expr: &Expr) -> Option<&'static str> {
    match expr {
        Expr::Other { name, .. } if name == "notrack" => Some(UNTRACKED),
        expr if expr.sets_zone() => Some(ZONED),
        Expr::Target(extension) if extension.name == "NOTRACK" => Some(UNTRACKED),
        Expr::Target(extension) if extension.name == "CT" => {
            // `struct xt_ct_target_info` of linux/netfilter/xt_CT.h: flags with XT_CT_NOTRACK, and the zone.
            let [flags, more, zone, of] = *extension.info.first_chunk()?;
            let (flags, zone) = (u16::from_ne_bytes([flags, more]), u16::from_ne_bytes([zone, of]));
            (flags & 1 != 0).then_some(UNTRACKED).or((zone != 0).then_some(ZONED))
        }
        _ => None,
    }
}
