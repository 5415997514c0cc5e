//! Every rule, by the sections of the specification. A file has the rows of its section and, below, their cases.

mod add;
mod add_result;
mod attached;
mod attachment_damage;
mod check;
mod concurrency;
mod configuration;
mod conventions;
mod del;
mod del_others;
mod delegation;
mod errors;
mod gc;
mod ipam;
mod kit_as_delegate;
mod later_plugins;
mod parameters;
mod prev_result;
mod relied;
mod results;
mod status;
mod version;

use crate::profile::Role;
use crate::rule::{Case, Rule};
use crate::stress;
use std::io::{self, Write};

/// All rules but those about [robustness](stress::rules), in the order of the specification.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    [
        configuration::RULES,
        parameters::RULES,
        add::RULES,
        prev_result::RULES,
        add_result::RULES,
        del::RULES,
        del_others::RULES,
        check::RULES,
        status::RULES,
        version::RULES,
        gc::RULES,
        delegation::RULES,
        ipam::RULES,
        results::RULES,
        errors::RULES,
        concurrency::RULES,
        conventions::RULES,
        relied::RULES,
    ]
    .into_iter()
    .flatten()
}

/// A rule by its name, of robustness too.
#[must_use]
pub fn rule(id: &str) -> Option<&'static Rule> {
    all().chain(stress::rules()).find(|rule| rule.id == id)
}

/// A case by its names.
#[must_use]
pub fn find(rule_id: &str, case: &str) -> Option<&'static Case> {
    let rule = rule(rule_id)?;
    rule.cases.iter().find(|other| other.name == case)
}

/// The rule that says that such a call succeeds in the first place, and what for.
pub(crate) fn basis(verb: &str, role: Role) -> Option<&'static str> {
    match (verb, role) {
        ("ADD", _) => Some("add.prints-a-result"),
        ("DEL", Role::Interface | Role::List | Role::Runtime) => Some("del.leaves-nothing"),
        ("DEL", Role::Chained | Role::Ipam) => Some("del.undoes-modifications"),
        ("CHECK", _) => Some("check.passes-after-add"),
        ("STATUS", Role::Interface | Role::Chained | Role::Ipam) => Some("status.ready"),
        ("GC", _) => Some("gc.succeeds"),
        _ => None,
    }
}

/// Writes rules as a table in Markdown.
///
/// # Errors
/// If `out` fails.
pub fn table<B>(rules: &[&Rule<B>], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "| Rule | Level | Section | Says | Binds | Cases |\n|---|---|---|---|---|---|")?;
    for rule in rules.iter().copied() {
        let (level, section, binds, cases) =
            (rule.level(), rule.section(), rule.binds(), crate::sentences::page::cases(rule));
        writeln!(out, "| {} | {level} | {section} | {} | {binds} | {cases} |", rule.id, rule.sentence)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_rules_and_cases_differ_and_say_what_is_said() {
        crate::rule::tests::names_differ(&super::all().chain(crate::stress::rules()).collect::<Vec<_>>());
    }
}
