//! A rule: one sentence of the specification, and how it is shown.

use crate::finding::Stop;
use crate::profile::Role;
use crate::sentences::{self, Sentence};
use crate::testbed::Testbed;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;

/// The reason why a case of a rule does not bind a subject, if so: `those` are rules, starts of their names, or
/// `RULE/CASE`, each with a reason.
pub fn unbound<'a>(those: &'a BTreeMap<String, String>, rule: &str, case: &str) -> Option<&'a str> {
    let is_it = |name: &str| rule.starts_with(name) || name.split_once('/') == Some((rule, case));
    those.iter().find(|(name, _)| is_it(name)).map(|(_, why)| why.as_str())
}

/// Finds a key of `unbound` that names nothing: no rule `all`, each with its cases, starts so or has that case.
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
    pub source: Source,
    /// The statement of the rule, in our words.
    pub sentence: &'static str,
    pub roles: &'static [Role],
    /// Whether who breaks it takes what others hold: whatever its level, it is tried by default and fails a run.
    pub harms_others: bool,
    /// True for a rule of a file of `--cases`, which is tried whatever its level.
    pub own: bool,
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
    /// The steps of the case, as JSON; empty if it is code.
    pub steps: &'static str,
    pub run: Run<B>,
}

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
    Newest,
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

/// A rule as its file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    id: String,
    /// The names of the sentences that ask for it, if some do.
    #[serde(default)]
    cites: Vec<String>,
    /// The parties that depend on it, if no sentence asks for it.
    relied: Option<String>,
    #[serde(default)]
    harms_others: bool,
    binds: Vec<Role>,
    says: String,
    cases: Vec<WrittenCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCase {
    #[serde(default)]
    name: String,
    /// The case is tried with each version.
    #[serde(default)]
    each: bool,
    since: Option<String>,
    before: Option<String>,
    does: String,
    /// The case itself, if it needs no code.
    steps: Option<Box<RawValue>>,
}

/// Reads the rules of a file, or says what is wrong with it. `code` has the cases whose steps are not in it, and `play` plays those
/// of the others.
pub(crate) fn read<B: 'static, S: DeserializeOwned + Send + Sync + 'static>(
    text: &str,
    code: &[Code<B>],
    play: fn(&B, &[S]) -> Result<(), Stop>,
) -> Result<Vec<Rule<B>>, String> {
    let written: Vec<Written> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let names: Vec<_> =
        written.iter().flat_map(|rule| rule.cases.iter().map(|case| full_name(&rule.id, &case.name))).collect();
    if let Some((name, _)) = code.iter().find(|(name, _)| !names.iter().any(|other| other == name)) {
        return Err(format!("there is no case {name}"));
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

impl Written {
    fn read<B: 'static, S: DeserializeOwned + Send + Sync + 'static>(
        self,
        code: &[Code<B>],
        play: fn(&B, &[S]) -> Result<(), Stop>,
    ) -> Result<Rule<B>, String> {
        let cites: Vec<_> = self.cites.into_iter().map(kept).collect();
        let source = match (cites.is_empty(), self.relied) {
            (false, _) => Source::Spec(cites.leak()),
            (true, Some(who)) => Source::Relied(kept(who)),
            (true, None) => Source::Stress,
        };
        let read = |case: WrittenCase| {
            let name = full_name(&self.id, &case.name);
            let run: Run<B> = match (code.iter().find(|(other, _)| *other == name), &case.steps) {
                (Some((_, code)), None) => Box::new(*code),
                (None, Some(steps)) => {
                    let steps: Vec<S> =
                        serde_json::from_str(steps.get()).map_err(|error| format!("{name}: {error}"))?;
                    Box::new(move |testbed| play(testbed, &steps))
                }
                (Some(_), Some(_)) => return Err(format!("{name} has steps and code")),
                (None, None) => return Err(format!("{name} has no steps")),
            };
            let versions = match (case.each, case.since, case.before) {
                (true, ..) => Versions::Each,
                (false, Some(oldest), _) => Versions::From(kept(oldest)),
                (false, None, Some(newer)) => Versions::Before(kept(newer)),
                (false, None, None) => Versions::Newest,
            };
            let steps = case.steps.map_or("", |steps| kept(steps.get().to_owned()));
            Ok(Case { name: kept(case.name), versions, does: kept(case.does), steps, run })
        };
        let cases: Vec<_> = self.cases.into_iter().map(read).collect::<Result<_, _>>()?;
        Ok(Rule {
            id: kept(self.id.clone()),
            source,
            sentence: kept(self.says),
            roles: self.binds.leak(),
            harms_others: self.harms_others,
            own: false,
            cases: cases.leak(),
        })
    }
}

impl<B> Rule<B> {
    pub fn sentences(&self) -> impl Iterator<Item = &'static Sentence> {
        let ids = match self.source {
            Source::Spec(ids) => ids,
            Source::Relied(_) | Source::Stress => &[],
        };
        ids.iter().filter_map(|id| sentences::find(id))
    }

    /// Returns how binding the rule is, which is how its sentence binds.
    pub fn level(&self) -> Level {
        match self.source {
            Source::Spec(_) => self.sentences().next().map_or(Level::Must, Sentence::level),
            Source::Relied(_) => Level::Relied,
            Source::Stress => Level::Robustness,
        }
    }

    /// Returns where the rule is written, such as `SPEC 2, DEL`, or who depends on it.
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
    pub fn is_of(&self, version: &str) -> bool {
        !matches!(self.source, Source::Spec(_)) || self.sentences().any(|sentence| sentence.is_of(version))
    }

    /// Returns the names of the roles that the rule binds.
    pub fn binds(&self) -> String {
        let names: Vec<_> = self.roles.iter().map(|role| format!("{role:?}").to_lowercase()).collect();
        names.join(", ")
    }
}

/// Finds what is wrong with a rule beside all others: names differ, and each says what is said.
pub(crate) fn fault<B>(all: &[&Rule<B>]) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
    all.iter().find_map(|rule| {
        let Rule { id, source, sentence, roles, cases, .. } = rule;
        let cites = |ids: &&[&str]| ids.iter().all(|id| sentences::find(id).is_some());
        let named = |name: &str| cases.iter().filter(|case| case.name == name).count();
        let holds = [
            (all.iter().filter(|other| other.id == *id).count() == 1, "another has its name"),
            (id.contains('.') && id.chars().all(is_plain), "its name is none, such as family.what-it-says"),
            (!matches!(source, Source::Spec(ids) if !cites(ids)), "it cites what is no sentence"),
            (sentence.ends_with('.') && !sentence.contains('|'), "`says` is no sentence"),
            (!roles.is_empty() && !cases.is_empty(), "it binds nobody, or has no case"),
            (cases.iter().all(|case| named(case.name) == 1), "two cases have one name"),
            (cases.len() == 1 || named("") == 0, "a case has no name"),
            (cases.iter().all(|case| case.does.ends_with('.')), "`does` of a case is no sentence"),
        ];
        holds.into_iter().find(|(holds, _)| !holds).map(|(_, why)| format!("{id}: {why}"))
    })
}
