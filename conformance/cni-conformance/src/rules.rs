//! Every rule, by the sections of the specification. A file has the rows of its section and, below, their cases.

mod del;
mod version;

use crate::rule::{Case, Rule};

/// All rules, in the order of the specification.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    [del::RULES, version::RULES].into_iter().flatten()
}

/// A case by its names.
#[must_use]
pub fn find(rule: &str, case: &str) -> Option<&'static Case> {
    let rule = all().find(|other| other.id == rule)?;
    rule.cases().iter().find(|other| other.name == case)
}
