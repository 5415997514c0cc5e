//! Every rule for runtimes. A file has the rows of its theme and, below, their cases.

mod answers;
mod cached_result;
mod call;
mod chain;
mod config;
mod derive;
mod lifecycle;

use super::{Case, Rule};
use crate::profile::Role;

/// The roles that these rules bind.
const RUNTIMES: &[Role] = &[Role::Runtime];

/// All rules, in the order of the specification.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    [config::RULES, call::RULES, lifecycle::RULES, cached_result::RULES, derive::RULES, chain::RULES, answers::RULES]
        .into_iter()
        .flatten()
}

/// A case by its names.
#[must_use]
pub fn find(rule: &str, case: &str) -> Option<&'static Case> {
    let rule = all().find(|other| other.id == rule)?;
    rule.cases.iter().find(|other| other.name == case)
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_rules_and_cases_differ_and_say_what_is_said() {
        let all: Vec<_> = super::all().collect();
        crate::rule::tests::names_differ(&all);
        for rule in all {
            assert_eq!(crate::rules::all().filter(|other| other.id == rule.id).count(), 0, "{}", rule.id);
        }
    }
}
