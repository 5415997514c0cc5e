//! Every rule, by the sections of the specification.
//!
//! `SECTION.json` has the rules and their cases. A case is `steps`, or has a function in `SECTION.rs` where it needs
//! one. The names of rules and cases are those by which a user's profile or table knows them.

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
mod parameters;
mod prev_result;
mod relied;
mod results;
mod status;
pub(crate) mod step;
pub(crate) mod steps;
mod version;

/// The imports of cases that need code.
pub(crate) mod prelude {
    pub(crate) use crate::finding::{Finding, Stop};
    pub(crate) use crate::rule::Code;
    pub(crate) use crate::testbed::Testbed;
    pub(crate) use serde_json::{Value, json};
    pub(crate) use testns::{Attachment, Call, Container, Remains, Verb};
}

use crate::profile::Role;
use crate::rule::{Case, Code, Rule, Source, fault, read};
use crate::stress;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::OnceLock;

/// The rules of each section, with the cases that need code, in the order of the specification.
const SECTIONS: &[(&str, &[Code])] = &[
    (include_str!("rules/configuration.json"), configuration::CASES),
    (include_str!("rules/parameters.json"), parameters::CASES),
    (include_str!("rules/add.json"), add::CASES),
    (include_str!("rules/prev_result.json"), prev_result::CASES),
    (include_str!("rules/add_result.json"), add_result::CASES),
    (include_str!("rules/del.json"), del::CASES),
    (include_str!("rules/del_others.json"), del_others::CASES),
    (include_str!("rules/check.json"), check::CASES),
    (include_str!("rules/status.json"), status::CASES),
    (include_str!("rules/version.json"), version::CASES),
    (include_str!("rules/gc.json"), gc::CASES),
    (include_str!("rules/delegation.json"), delegation::CASES),
    (include_str!("rules/ipam.json"), ipam::CASES),
    (include_str!("rules/results.json"), results::CASES),
    (include_str!("rules/errors.json"), errors::CASES),
    (include_str!("rules/concurrency.json"), concurrency::CASES),
    (include_str!("rules/conventions.json"), conventions::CASES),
    (include_str!("rules/relied.json"), relied::CASES),
];

/// The rules of files of `--cases`, with the texts of these.
static OWN: OnceLock<(Vec<String>, Vec<Rule>)> = OnceLock::new();

/// All rules but those about [robustness](stress::rules), in the order of the specification, and then a user's own.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    static BUILT_IN: OnceLock<Vec<Rule>> = OnceLock::new();
    let read = |(text, code): &(&str, &[Code])| read(text, code, steps::play).unwrap_or_else(|why| panic!("{why}"));
    let built_in = BUILT_IN.get_or_init(|| SECTIONS.iter().flat_map(read).collect());
    built_in.iter().chain(OWN.get().into_iter().flat_map(|(_, rules)| rules))
}

/// The texts of a user's rules, for a process that has to know them, too.
pub(crate) fn own_texts() -> Vec<String> {
    OWN.get().map_or_else(Vec::new, |(texts, _)| texts.clone())
}

/// Reads a user's rules. Errors: the file, and what is wrong with it.
pub(crate) fn read_own(files: &[PathBuf]) -> Result<(), String> {
    let read = |file: &PathBuf| fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()));
    let texts: Vec<_> = files.iter().map(read).collect::<Result<_, _>>()?;
    add(texts).map_err(|(place, why)| format!("{}: {why}", files[place].display()))
}

/// Adds rules of these texts to those that are built in. Errors: which text, and what is wrong with it.
pub(crate) fn add(texts: Vec<String>) -> Result<(), (usize, String)> {
    let mut own: Vec<Rule> = Vec::new();
    for (place, text) in texts.iter().enumerate() {
        own.extend(read(text, &[], steps::play).map_err(|why| (place, why))?);
        let mut beside: Vec<&Rule> = all().chain(stress::rules()).collect();
        beside.extend(&own);
        let vague = own.iter().find(|rule| rule.source == Source::Stress);
        let vague = vague.map(|rule| format!("{}: it has neither `cites` nor `relied`", rule.id));
        fault(&beside).or(vague).map_or(Ok(()), |why| Err((place, why)))?;
    }
    own.iter_mut().for_each(|rule| rule.own = true);
    // A child has no files, but a task with their texts.
    if !own.is_empty() {
        OWN.get_or_init(|| (texts, own));
    }
    Ok(())
}

/// A rule by its name, of robustness too.
pub fn rule(id: &str) -> Option<&'static Rule> {
    all().chain(stress::rules()).find(|rule| rule.id == id)
}

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
        assert_eq!(super::fault(&super::all().chain(crate::stress::rules()).collect::<Vec<_>>()), None);
    }
}
