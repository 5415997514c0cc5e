//! Every rule, by the sections of the specification. A file has the rows of its section and, below, their cases.

mod add;
mod add_result;
mod attached;
mod check;
mod concurrency;
mod configuration;
mod conventions;
mod crash;
mod del;
mod delegation;
mod disk;
mod errors;
mod faults;
mod gc;
mod hostile;
mod ipam;
mod model;
mod parameters;
mod relied;
mod results;
mod rows;
mod status;
mod tamper;
mod version;

use crate::profile::Role;
use crate::rule::{Case, Proof, Rule};
use std::io::{self, Write};

/// All rules, in the order of the specification.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    [
        configuration::RULES,
        parameters::RULES,
        add::RULES,
        add_result::RULES,
        del::RULES,
        check::RULES,
        status::RULES,
        version::RULES,
        gc::RULES,
        delegation::RULES,
        ipam::RULES,
        results::RULES,
        errors::RULES,
        crash::RULES,
        faults::RULES,
        disk::RULES,
        concurrency::RULES,
        model::RULES,
        hostile::RULES,
        conventions::RULES,
        relied::RULES,
    ]
    .into_iter()
    .flatten()
}

/// Whether a case of that name is tried only where it is asked for by name, because it takes long.
#[must_use]
pub fn is_on_request(case: &str) -> bool {
    case == model::LONG
}

/// Whether there is a rule of that name.
#[must_use]
pub fn is_rule(id: &str) -> bool {
    all().any(|rule| rule.id == id)
}

/// A case by its names.
#[must_use]
pub fn find(rule: &str, case: &str) -> Option<&'static Case> {
    let rule = all().find(|other| other.id == rule)?;
    rule.cases().iter().find(|other| other.name == case)
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
    writeln!(out, "| Rule | Level | Section | Says | Binds | Shown by |\n|---|---|---|---|---|---|")?;
    for Rule { id, section, level, sentence, roles, proof } in rules.iter().copied() {
        let roles: Vec<_> = roles.iter().map(|role| format!("{role:?}").to_lowercase()).collect();
        let proof = match proof {
            Proof::Cases([case]) if case.name.is_empty() => "one case".to_owned(),
            Proof::Cases(cases) => cases.iter().map(|case| case.name).collect::<Vec<_>>().join(", "),
            Proof::Untestable(why) => format!("nothing: {why}"),
        };
        writeln!(out, "| {id} | {level} | {section} | {sentence} | {} | {proof} |", roles.join(", "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_rules_and_cases_differ_and_say_what_is_said() {
        crate::rule::tests::names_differ(&super::all().collect::<Vec<_>>());
    }
}
