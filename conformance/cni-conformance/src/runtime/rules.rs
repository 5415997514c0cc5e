//! Every rule for runtimes. A file has the rows of its theme and, below, their cases.

mod answers;
mod call;
mod chain;
mod config;
mod derive;
mod kept;
mod lifecycle;

use super::{Case, Rule};
use crate::profile::Role;

/// Whom these rules bind.
const RUNTIMES: &[Role] = &[Role::Runtime];

/// All rules, in the order of the specification.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    [config::RULES, call::RULES, lifecycle::RULES, kept::RULES, derive::RULES, chain::RULES, answers::RULES]
        .into_iter()
        .flatten()
}

/// A case by its names.
#[must_use]
pub fn find(rule: &str, case: &str) -> Option<&'static Case> {
    let rule = all().find(|other| other.id == rule)?;
    rule.cases().iter().find(|other| other.name == case)
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::rule::Proof;

    #[test]
    fn names_of_rules_and_cases_differ_and_say_what_is_said() {
        for rule in all() {
            assert_eq!(all().filter(|other| other.id == rule.id).count(), 1, "{}", rule.id);
            assert_eq!(crate::rules::all().filter(|other| other.id == rule.id).count(), 0, "{}", rule.id);
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
            assert!(rule.id.contains('.') && rule.id.chars().all(plain), "{}", rule.id);
            assert!(rule.sentence.ends_with('.') && !rule.sentence.contains('|'), "{}", rule.id);
            let Proof::Cases(cases) = rule.proof else { continue };
            for case in cases {
                assert_eq!(cases.iter().filter(|other| other.name == case.name).count(), 1, "{}", rule.id);
                assert!(!case.name.is_empty() || cases.len() == 1, "{}", rule.id);
            }
        }
    }
}
