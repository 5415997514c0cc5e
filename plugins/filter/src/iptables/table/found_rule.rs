//! A rule that a table has, in either variant.

use super::super::{decode, parse};
use crate::iptables::rule::Rule;
use netops::nft;

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
}
