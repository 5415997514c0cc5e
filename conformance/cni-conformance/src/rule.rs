//! A rule: one sentence of the specification, and how it is shown.

use crate::finding::Stop;
use crate::profile::Role;
use crate::sentences::{self, Sentence};
use crate::testbed::Testbed;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The reason why a case of a rule does not bind a subject, if so: `those` are rules, starts of their names, or
/// `RULE/CASE`, each with a reason.
#[must_use]
pub fn unbound<'a>(those: &'a BTreeMap<String, String>, rule: &str, case: &str) -> Option<&'a str> {
    let is_it = |name: &str| rule.starts_with(name) || name.split_once('/') == Some((rule, case));
    those.iter().find(|(name, _)| is_it(name)).map(|(_, why)| why.as_str())
}

/// Finds a key of `unbound` that names nothing: no rule `all`, each with its cases, starts so or has that case.
#[must_use]
pub fn misspelt<'a, 'r>(
    those: &'a BTreeMap<String, String>,
    all: impl Iterator<Item = (&'r str, Vec<&'r str>)>,
) -> Option<(&'a str, Vec<&'r str>)> {
    let all: Vec<_> = all.collect();
    let is_there = |name: &str| match name.split_once('/') {
        Some((rule, case)) => all.iter().any(|(id, cases)| *id == rule && cases.contains(&case)),
        None => all.iter().any(|(id, _)| id.starts_with(name)),
    };
    let wrong = those.keys().find(|name| !is_there(name))?;
    Some((wrong, all.iter().map(|(id, _)| *id).collect()))
}

/// The level of a rule: how binding it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The specification says MUST. Breaking it fails the run.
    Must,
    /// The specification says SHOULD.
    Should,
    /// The specification says so without a word that binds: a definition, a step of a procedure, or a permission on
    /// which the other side counts.
    Stated,
    /// CONVENTIONS: agreed on beside the specification.
    Convention,
    /// Written nowhere, but others depend on it: texts that runtimes match, the case of keys, exit codes.
    Relied,
    /// Calls that are killed, refused or starved, and hostile input.
    Robustness,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::Stated => "STATED",
            Self::Convention => "CONVENTION",
            Self::Relied => "RELIED ON",
            Self::Robustness => "ROBUSTNESS",
        })
    }
}

/// A sentence of the specification, for those who are tried on a `B`: plugins on a [`Testbed`], runtimes on a
/// [`RuntimeTestbed`](crate::runtime::RuntimeTestbed).
#[derive(Debug)]
pub struct Rule<B: 'static = Testbed> {
    /// The rule's name: `verb.what-it-says`, lower case.
    pub id: &'static str,
    /// The source that asks for the rule.
    pub source: Source,
    /// The statement of the rule, in our words.
    pub sentence: &'static str,
    /// The roles that the rule binds.
    pub roles: &'static [Role],
    /// The cases that show it; all have to pass.
    pub cases: &'static [Case<B>],
}

/// The source of a rule, which decides how binding it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Sentences of the specification or of CONVENTIONS, by their [names](crate::sentences). All have the same force, and
    /// each case of the rule has it.
    Spec(&'static [&'static str]),
    /// No document, but these depend on it.
    Relied(&'static str),
    /// No document: the rule is about robustness.
    Stress,
}

/// A way to find out whether a subject keeps to a rule.
pub struct Case<B: 'static = Testbed> {
    /// The case's name within the rule; the only one of a rule may be empty.
    pub name: &'static str,
    /// The versions with which the case is tried.
    pub versions: Versions,
    /// The case's calls and comparisons, in a sentence.
    pub does: &'static str,
    /// Tries it.
    pub run: Run<B>,
}

/// Tries a case.
type Run<B> = Box<dyn Fn(&B) -> Result<(), Stop> + Send + Sync>;

/// A case that no steps can say, by its name and that of its rule: `RULE/CASE`, or `RULE` if it is the only one.
pub(crate) type Code<B = Testbed> = (&'static str, fn(&B) -> Result<(), Stop>);

impl<B> fmt::Debug for Case<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The versions, of those that the subject speaks, with which a case is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// The newest that the subject speaks.
    Newest,
    /// Each that the subject speaks.
    Each,
    /// The newest, if it is this one or newer.
    From(&'static str),
    /// The newest that the subject speaks and that is older than this one.
    Before(&'static str),
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newest => f.write_str("the newest version that it speaks"),
            Self::Each => f.write_str("each version that it speaks"),
            Self::From(oldest) => write!(f, "the newest version from {oldest} on"),
            Self::Before(limit) => write!(f, "the newest version before {limit}"),
        }
    }
}

/// A rule as its file has it, with steps `S`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<S> {
    id: String,
    /// The names of the sentences that ask for it, if some do.
    #[serde(default)]
    cites: Vec<String>,
    /// The parties that depend on it, if no sentence asks for it.
    relied: Option<String>,
    binds: Vec<Role>,
    says: String,
    cases: Vec<WrittenCase<S>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound = "S: Deserialize<'de>")]
struct WrittenCase<S> {
    #[serde(default)]
    name: String,
    /// The case is tried with each version.
    #[serde(default)]
    each: bool,
    since: Option<String>,
    before: Option<String>,
    does: String,
    /// The case itself, if it needs no code.
    steps: Option<Vec<S>>,
}

/// Reads the rules of a file. `code` has the cases whose steps are not in it, and `play` plays those of the others.
///
/// # Panics
/// If the file is not right, or a case has neither steps nor code, or both: a test reads each file.
pub(crate) fn read<B: 'static, S: DeserializeOwned + Send + Sync + 'static>(
    text: &str,
    code: &[Code<B>],
    play: fn(&B, &[S]) -> Result<(), Stop>,
) -> Vec<Rule<B>> {
    let written: Vec<Written<S>> = serde_json::from_str(text).unwrap_or_else(|error| panic!("rules: {error}"));
    let names: Vec<_> =
        written.iter().flat_map(|rule| rule.cases.iter().map(|case| full_name(&rule.id, &case.name))).collect();
    if let Some((name, _)) = code.iter().find(|(name, _)| !names.iter().any(|other| other == name)) {
        panic!("there is no case {name}");
    }
    written.into_iter().map(|rule| rule.read(code, play)).collect()
}

fn full_name(rule: &str, case: &str) -> String {
    if case.is_empty() { rule.to_owned() } else { format!("{rule}/{case}") }
}

/// A text for as long as the process runs: rules are read once.
fn kept(text: String) -> &'static str {
    text.leak()
}

impl<S: Send + Sync + 'static> Written<S> {
    fn read<B: 'static>(self, code: &[Code<B>], play: fn(&B, &[S]) -> Result<(), Stop>) -> Rule<B> {
        let cites: Vec<_> = self.cites.into_iter().map(kept).collect();
        let source = match (cites.is_empty(), self.relied) {
            (false, _) => Source::Spec(cites.leak()),
            (true, Some(who)) => Source::Relied(kept(who)),
            (true, None) => Source::Stress,
        };
        let read = |case: WrittenCase<S>| {
            let name = full_name(&self.id, &case.name);
            let run: Run<B> = match (code.iter().find(|(other, _)| *other == name), case.steps) {
                (Some((_, code)), None) => Box::new(*code),
                (None, Some(steps)) => Box::new(move |testbed| play(testbed, &steps)),
                (_, steps) => {
                    panic!("{name}: {}", if steps.is_some() { "steps and code" } else { "neither steps nor code" })
                }
            };
            let versions = match (case.each, case.since, case.before) {
                (true, ..) => Versions::Each,
                (false, Some(oldest), _) => Versions::From(kept(oldest)),
                (false, None, Some(newer)) => Versions::Before(kept(newer)),
                (false, None, None) => Versions::Newest,
            };
            Case { name: kept(case.name), versions, does: kept(case.does), run }
        };
        let cases: Vec<_> = self.cases.into_iter().map(read).collect();
        Rule {
            id: kept(self.id.clone()),
            source,
            sentence: kept(self.says),
            roles: self.binds.leak(),
            cases: cases.leak(),
        }
    }
}

impl<B> Rule<B> {
    /// The sentences that it cites.
    pub fn sentences(&self) -> impl Iterator<Item = &'static Sentence> {
        let ids = match self.source {
            Source::Spec(ids) => ids,
            Source::Relied(_) | Source::Stress => &[],
        };
        ids.iter().filter_map(|id| sentences::find(id))
    }

    /// Returns how binding the rule is, which is how its sentence binds.
    #[must_use]
    pub fn level(&self) -> Level {
        match self.source {
            Source::Spec(_) => self.sentences().next().map_or(Level::Must, Sentence::level),
            Source::Relied(_) => Level::Relied,
            Source::Stress => Level::Robustness,
        }
    }

    /// Returns where the rule is written, such as `SPEC 2, DEL`, or who depends on it.
    #[must_use]
    pub fn section(&self) -> String {
        match self.source {
            Source::Relied(who) => who.to_owned(),
            Source::Stress => "robustness".to_owned(),
            Source::Spec(_) => {
                let mut sections: Vec<_> = self.sentences().map(|sentence| sentence.section.as_str()).collect();
                sections.dedup();
                sections.join("; ")
            }
        }
    }

    /// Whether the edition of the specification that a `cniVersion` belongs to asks for it.
    #[must_use]
    pub fn is_of(&self, version: &str) -> bool {
        !matches!(self.source, Source::Spec(_)) || self.sentences().any(|sentence| sentence.is_of(version))
    }

    /// Returns the names of the roles that the rule binds.
    #[must_use]
    pub fn binds(&self) -> String {
        let names: Vec<_> = self.roles.iter().map(|role| format!("{role:?}").to_lowercase()).collect();
        names.join(", ")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::Rule;

    /// Rules about each table: names of rules and cases differ, and say what is said.
    pub(crate) fn names_differ<B>(all: &[&Rule<B>]) {
        for rule in all {
            assert_eq!(all.iter().filter(|other| other.id == rule.id).count(), 1, "{}", rule.id);
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
            assert!(rule.id.contains('.') && rule.id.chars().all(plain), "{}", rule.id);
            assert!(rule.sentence.ends_with('.') && !rule.sentence.contains('|'), "{}", rule.id);
            assert!(!rule.roles.is_empty(), "{}", rule.id);
            assert!(!rule.cases.is_empty(), "{}", rule.id);
            for case in rule.cases {
                assert_eq!(rule.cases.iter().filter(|other| other.name == case.name).count(), 1, "{}", rule.id);
                assert!(!case.name.is_empty() || rule.cases.len() == 1, "{}", rule.id);
                assert!(case.does.ends_with('.'), "{} {}: what does it do?", rule.id, case.name);
            }
        }
    }
}
