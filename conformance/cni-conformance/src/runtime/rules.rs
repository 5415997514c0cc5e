//! Every rule for runtimes. `THEME.json` has rules and their cases; one that is no `steps::Step` has a function in `THEME.rs`.

mod answers;
mod cached_result;
mod call;
mod chain;
mod config;
mod derive;
mod lifecycle;
mod steps;

use super::{Case, Rule, RuntimeTestbed};
use crate::rule::{Code, read};
use std::sync::OnceLock;

/// The rules of each theme, with their cases, in the order of the specification.
const THEMES: &[(&str, &[Code<RuntimeTestbed>])] = &[
    (include_str!("rules/config.json"), config::CASES),
    (include_str!("rules/call.json"), call::CASES),
    (include_str!("rules/lifecycle.json"), lifecycle::CASES),
    (include_str!("rules/cached_result.json"), cached_result::CASES),
    (include_str!("rules/derive.json"), derive::CASES),
    (include_str!("rules/chain.json"), chain::CASES),
    (include_str!("rules/answers.json"), answers::CASES),
];

/// All rules, in the order of the specification.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    static ALL: OnceLock<Vec<Rule>> = OnceLock::new();
    let read = |(text, code): &(&str, &[Code<RuntimeTestbed>])| {
        read(text, code, steps::play).unwrap_or_else(|why| panic!("{why}"))
    };
    ALL.get_or_init(|| THEMES.iter().flat_map(read).collect()).iter()
}

pub fn find(rule: &str, case: &str) -> Option<&'static Case> {
    let rule = all().find(|other| other.id == rule)?;
    rule.cases.iter().find(|other| other.name == case)
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_rules_and_cases_differ_and_say_what_is_said() {
        let all: Vec<_> = super::all().collect();
        assert_eq!(crate::rule::fault(&all), None);
        for rule in all {
            assert_eq!(crate::rules::all().filter(|other| other.id == rule.id).count(), 0, "{}", rule.id);
        }
    }
}
