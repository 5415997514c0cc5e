//! The specification sentence by sentence: what it says, how bindingly and to whom, and which rules ask for it.
//!
//! [`rules`](crate::rules) have what can be tried; this has what is written, so that nothing is forgotten and no rule
//! is stricter than its sentence. Each sentence is in our own words. The text is that of 1.1.0 as it stands since
//! library 1.3, with the parts of 0.4.0 that 1.0.0 left out and plugins keep to. `SENTENCES.md` is written from it.

mod configuration;
mod delegation;
mod execution;
mod protocol;
mod results;

use std::fmt::Write;

/// How bindingly a sentence says what it says (RFC 2119).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// MUST, MUST NOT, REQUIRED.
    Must,
    /// SHOULD, SHOULD NOT.
    Should,
    /// MAY, OPTIONAL.
    May,
    /// None of these words: a definition, or a step of a procedure.
    Plain,
}

/// Whom a sentence binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Plugins.
    Plugins,
    /// Runtimes.
    Runtimes,
    /// Both.
    Both,
    /// Those who write configurations.
    Administrators,
}

/// What became of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// These rules ask for it, for plugins or for runtimes.
    By(&'static [&'static str]),
    /// Nothing does, for this reason.
    Not(&'static str),
}

/// One sentence.
#[derive(Debug, Clone, Copy)]
pub struct Sentence {
    /// Its section, as rules name theirs.
    pub section: &'static str,
    /// How binding it is.
    pub force: Force,
    /// Whom it binds.
    pub bound: Bound,
    /// What it says, in our words.
    pub says: &'static str,
    /// What asks for it.
    pub shown: Shown,
}

/// All sentences, in the order of the specification.
pub fn all() -> impl Iterator<Item = &'static Sentence> {
    [configuration::SENTENCES, protocol::SENTENCES, execution::SENTENCES, delegation::SENTENCES, results::SENTENCES]
        .into_iter()
        .flatten()
}

const fn sentence(
    section: &'static str,
    force: Force,
    bound: Bound,
    says: &'static str,
    rules: &'static [&'static str],
) -> Sentence {
    Sentence { section, force, bound, says, shown: Shown::By(rules) }
}

const fn unasked(section: &'static str, force: Force, bound: Bound, says: &'static str, why: &'static str) -> Sentence {
    Sentence { section, force, bound, says, shown: Shown::Not(why) }
}

/// All sentences as tables in Markdown, one for each of the five sections.
#[must_use]
pub fn document() -> String {
    let mut text = String::from(HEAD);
    let (mut chapter, mut number) = ("", 0);
    for Sentence { section, force, bound, says, shown } in all() {
        let own = section.get(..6).unwrap_or(section);
        number += 1;
        if own != chapter {
            (chapter, number) = (own, 1);
            // Infallible: it is a String.
            write!(text, "\n## {chapter}\n\n{COLUMNS}").ok();
        }
        let digit = chapter.chars().last().unwrap_or('?');
        let place = section.split_once(", ").map_or("", |(_, place)| place);
        let force = match force {
            Force::Plain => String::new(),
            other => format!("{other:?}").to_uppercase(),
        };
        let bound = format!("{bound:?}").to_lowercase();
        let shown = match shown {
            Shown::By(rules) => rules.join(", "),
            Shown::Not(why) => format!("none: {why}"),
        };
        writeln!(text, "| {digit}.{number} | {place} | {force} | {bound} | {says} | {shown} |").ok();
    }
    text
}

const HEAD: &str = "# The specification, sentence by sentence\n
What CNI SPEC 1.1.0 says, as it stands since library 1.3, in our own words; how bindingly and to whom; and which of the
[rules](RULES.md) ask for it. A row without a word of force is a definition or a step of a procedure. A rule is a MUST only if
one of its sentences is a MUST or has no such word. Where 1.0.0 dropped a sentence of 0.4.0 that plugins still keep to, it says so.
`UPDATE_EXPECT=1 cargo test -p cni-conformance sentences` writes this file.\n";

const COLUMNS: &str = "| | Place | Force | Binds | Says | Asked by |\n|---|---|---|---|---|---|\n";

#[cfg(test)]
mod tests {
    use super::{Force, Sentence, Shown, all, document};
    use crate::rule::Level;
    use crate::{rules, runtime};

    fn rule_levels() -> Vec<(&'static str, &'static str, Level)> {
        let plugins = rules::all().map(|rule| (rule.id, rule.section, rule.level));
        plugins.chain(runtime::rules::all().map(|rule| (rule.id, rule.section, rule.level))).collect()
    }

    fn of(id: &str) -> Vec<&'static Sentence> {
        all().filter(|sentence| matches!(sentence.shown, Shown::By(rules) if rules.contains(&id))).collect()
    }

    #[test]
    fn sentences_name_rules_that_there_are() {
        let rules = rule_levels();
        for sentence in all() {
            assert!(sentence.says.ends_with('.') && !sentence.says.contains('|'), "{}", sentence.says);
            assert!(sentence.section.starts_with("SPEC "), "{}", sentence.section);
            if let Shown::By(ids) = sentence.shown {
                assert!(!ids.is_empty(), "{}", sentence.says);
                for id in ids {
                    assert!(rules.iter().any(|(other, ..)| other == id), "there is no rule {id}: {}", sentence.says);
                }
            }
        }
    }

    #[test]
    fn each_rule_of_the_specification_has_its_sentence_and_is_no_stricter() {
        let mut faults = Vec::new();
        for (id, section, level) in rule_levels() {
            let sentences = of(id);
            let is_of_spec = section.starts_with("SPEC ") && level <= Level::Should;
            if is_of_spec && sentences.is_empty() {
                faults.push(format!("{id} ({section}) has no sentence"));
            }
            let binding = |sentence: &&Sentence| matches!(sentence.force, Force::Must | Force::Plain);
            if is_of_spec && level == Level::Must && !sentences.iter().any(binding) {
                faults.push(format!("{id} is a MUST, and no sentence of it is"));
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    #[test]
    fn the_document_is_the_codes() {
        expect_test::expect_file!["../SENTENCES.md"].assert_eq(&document());
    }
}
