//! The specification sentence by sentence: what it says, how bindingly, to whom and in which editions.
//!
//! `sentences.json` has them, each in our own words, out of the texts of 0.4.0, 1.0.0 and 1.1.0 as it stands since
//! library 1.3. [Rules](crate::rules) have what can be tried, and are as binding as the sentences that they cite.
//! [`page`] shows both, so that nothing is forgotten.

pub mod page;

use crate::rule::Level;
use crate::spec_version::is_from;
use crate::{rules, runtime};
use serde::Deserialize;
use std::sync::OnceLock;

/// The force of a sentence (RFC 2119).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Force {
    Must,
    Should,
    May,
    /// None of these words: a definition, or a step of a procedure.
    Plain,
}

/// The parties that a sentence binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    Plugins,
    Runtimes,
    Both,
    /// People who write configurations.
    Administrators,
    /// People who write the specification.
    Authors,
}

/// A sentence of the specification.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sentence {
    /// The sentence's name, by which rules cite it.
    pub id: String,
    pub section: String,
    /// The first edition that has it; the oldest of the three if there is none.
    pub since: Option<String>,
    /// The last one.
    pub until: Option<String>,
    pub force: Force,
    pub binds: Bound,
    /// The sentence itself, if it is a MUST that a rule asks for: in the newest edition that has it, without the targets of
    /// its links.
    pub quote: Option<String>,
    /// The content of the sentence, in our words.
    pub says: String,
    /// Rules that ask for it beside others, which they cite.
    #[serde(default)]
    pub also: Vec<String>,
    /// The reason why no rule asks for the sentence.
    pub unasked: Option<String>,
}

impl Sentence {
    /// The level of a rule that cites the sentence.
    pub fn level(&self) -> Level {
        match self.force {
            _ if self.section.starts_with("CONVENTIONS") => Level::Convention,
            Force::Must => Level::Must,
            Force::Should => Level::Should,
            Force::May | Force::Plain => Level::Stated,
        }
    }

    /// Returns the editions that have it, in words that follow another: `, from 1.0.0`.
    pub fn editions(&self) -> String {
        match (&self.since, &self.until) {
            (None, None) => String::new(),
            (Some(since), None) => format!(", from {since}"),
            (None, Some(until)) => format!(", to {until}"),
            (Some(since), Some(until)) => format!(", {since} to {until}"),
        }
    }

    /// Whether the edition that a `cniVersion` belongs to has it: versions before 0.4.0 go by that one's.
    pub fn is_of(&self, version: &str) -> bool {
        let is_new_enough = self.since.as_ref().is_none_or(|since| is_from(version, since));
        is_new_enough && self.until.as_ref().is_none_or(|until| version == until || !is_from(version, until))
    }

    /// Names of the rules that ask for it.
    pub fn rules(&self) -> Vec<&str> {
        let cites = |ids: &[&str]| ids.contains(&self.id.as_str());
        let plugins = rules::all().map(|rule| (rule.id, rule.source));
        let all = plugins.chain(runtime::rules::all().map(|rule| (rule.id, rule.source)));
        let citing = all.filter(|(_, source)| matches!(source, crate::rule::Source::Spec(ids) if cites(ids)));
        citing.map(|(id, _)| id).chain(self.also.iter().map(String::as_str)).collect()
    }
}

/// All sentences, in the order of the specification.
pub fn all() -> &'static [Sentence] {
    static ALL: OnceLock<Vec<Sentence>> = OnceLock::new();
    // A test holds that it can be read.
    ALL.get_or_init(|| serde_json::from_str(include_str!("sentences.json")).unwrap_or_default())
}

pub fn find(id: &str) -> Option<&'static Sentence> {
    all().iter().find(|sentence| sentence.id == id)
}

#[cfg(test)]
mod tests {
    use super::{Sentence, all, find};
    use crate::rule::{Level, Source};
    use crate::{rules, runtime};

    fn sources() -> impl Iterator<Item = (&'static str, Source)> {
        let plugins = rules::all().map(|rule| (rule.id, rule.source));
        plugins.chain(runtime::rules::all().map(|rule| (rule.id, rule.source)))
    }

    #[test]
    fn sentences_can_be_read_and_name_rules_that_there_are() {
        let read: Vec<Sentence> = serde_json::from_str(include_str!("sentences.json")).unwrap();
        for Sentence { id, says, also, .. } in &read {
            assert_eq!(read.iter().filter(|other| other.id == *id).count(), 1, "{id}");
            assert!(says.ends_with('.') && !says.contains('|'), "{says}");
            for name in also {
                assert!(sources().any(|(other, _)| other == name), "{id}: there is no rule {name}");
            }
        }
    }

    #[test]
    fn each_sentence_has_a_rule_or_a_reason() {
        let faults = all().iter().filter(|sentence| sentence.rules().is_empty() != sentence.unasked.is_some());
        assert_eq!(faults.map(|sentence| &sentence.id).collect::<Vec<_>>(), Vec::<&String>::new());
    }

    /// MUST is what the document says, not what we make of it.
    #[test]
    fn each_must_that_is_asked_for_is_quoted_with_its_word_of_force() {
        let is_must = |sentence: &&Sentence| sentence.level() == Level::Must && sentence.unasked.is_none();
        for Sentence { id, quote, .. } in all().iter().filter(is_must) {
            let quote = quote.as_deref().unwrap_or_default().to_lowercase();
            assert!(quote.contains("must") || quote.contains("required"), "{id}: {quote:?}");
        }
    }

    /// So each case has the force of each sentence that is cited for it.
    #[test]
    fn sentences_that_a_rule_cites_are_as_binding_as_each_other() {
        for (id, source) in sources() {
            let Source::Spec(cited) = source else { continue };
            let level = |name: &&str| find(name).unwrap_or_else(|| panic!("{id}: there is no sentence {name}")).level();
            let levels: Vec<Level> = cited.iter().map(level).collect();
            assert!(!levels.is_empty() && levels.iter().all(|level| *level == levels[0]), "{id}: {levels:?}");
        }
    }

    #[test]
    fn editions_are_those_of_the_version() {
        let is_of = |id: &str, version: &str| find(id).unwrap().is_of(version);
        assert!(is_of("check/nothing-0.4.0", "0.4.0") && is_of("check/nothing-0.4.0", "0.3.1"));
        assert!(
            !is_of("check/nothing-0.4.0", "1.0.0") && !is_of("gc/removes", "1.0.0") && is_of("gc/removes", "1.1.0")
        );
    }
}
