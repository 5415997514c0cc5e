//! A rule that a table has, in either variant.

use super::super::{decode, parse, xt};
use crate::iptables::rule::{Rule, Target};
use netops::nft::{self, Expr, Verdict};

/// A rule in a table.
#[derive(Debug, Clone)]
pub struct Found {
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

impl Found {
    pub(super) fn from_nft(rule: nft::Rule) -> Self {
        Self { rule: decode::rule(&rule), note: rule.note.clone(), id: Id::Handle(rule) }
    }

    /// The chain it jumps to, whatever its conditions.
    #[must_use]
    pub fn goes_to(&self) -> Option<&str> {
        match &self.id {
            Id::Handle(rule) => rule.goes_to(),
            Id::Words(words) => parse::jump(words),
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

    /// The rule, with [`Target::Reject`] for a refusal (`REJECT`, `reject`) and with a jump for `goto`.
    pub(crate) fn refusing(&self) -> Option<Rule> {
        let refused = || match &self.id {
            Id::Handle(rule) => {
                let (last, others) = rule.exprs.split_last()?;
                let target = match last {
                    Expr::Verdict(Verdict::Goto(chain)) => Target::Jump(chain.to_string()),
                    last if is_refusal(last) => Target::Reject,
                    _ => return None,
                };
                let conditions = decode::rule(&nft::Rule { exprs: others.to_vec(), ..rule.clone() })?;
                Some(Rule { target, ..conditions })
            }
            Id::Words(words) => {
                let conditions = parse::rule(words.split_once(" -j REJECT")?.0)?;
                Some(Rule { target: Target::Reject, ..conditions })
            }
        };
        self.rule.clone().or_else(refused)
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
        self.rule.clone().map(|rule| (rule, None)).or_else(other)
    }

    /// Whether the rule may end the way of a packet.
    pub(crate) fn may_decide(&self) -> bool {
        let decides = |expr: &Expr| match expr {
            Expr::Verdict(verdict) => matches!(verdict, Verdict::Accept | Verdict::Drop),
            Expr::VerdictMap(..) => true,
            expr => is_refusal(expr),
        };
        match &self.id {
            Id::Handle(rule) => rule.exprs.iter().any(decides),
            Id::Words(words) => ["ACCEPT", "DROP", "REJECT"].iter().any(|verdict| parse::jump(words) == Some(verdict)),
        }
    }

    /// Whether the rule may lead packets back to the chain before.
    pub(crate) fn may_return(&self) -> bool {
        match &self.id {
            Id::Handle(rule) => rule.exprs.last() == Some(&Expr::Verdict(Verdict::Return)),
            Id::Words(words) => parse::jump(words) == Some("RETURN"),
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
