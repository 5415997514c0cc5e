//! The source of all reports: a run, or several, as plain data. Its JSON is the format `json`, and is read back to
//! be merged with others. A key may be added without a new [`VERSION`]; one that goes or changes its meaning needs it.

use super::again;
use crate::finding::{CallRecord, Finding};
use crate::profile::Role;
use crate::rule::{Level, Rule};
use crate::run::Run;
use crate::trial::{Report, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::SystemTime;

/// The value of the key `format`.
pub const FORMAT: &str = "cni-conformance";
/// The version of the shape.
pub const VERSION: u32 = 1;

/// Everything that is known of one or more runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The place, time and settings of the run; more than one if documents were merged.
    pub runs: Vec<Origin>,
    /// The subjects that were tested. Their labels differ.
    pub subjects: Vec<Who>,
    /// The ways in which the executables of each were used.
    pub profiles: Vec<Use>,
    /// Rules that were asked for, in the order of the specification.
    pub rules: Vec<Asked>,
    /// The outcome of each trial.
    pub trials: Vec<Tried>,
}

/// The place, time and settings of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Version of the kit.
    pub kit: String,
    /// The time at which the run began: RFC 3339, UTC, to the second.
    pub began: String,
    /// The duration of the run.
    pub milliseconds: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The seed of the random parts.
    pub seed: u64,
    /// The command line, without the executable.
    pub command: Vec<String>,
    /// Labels of its subjects.
    pub subjects: Vec<String>,
    /// The notes that a reader has to know, a sentence each.
    pub notes: Vec<String>,
}

/// A subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// The subject's name in reports.
    pub label: String,
    /// The subject's folder.
    pub folder: String,
    /// More folders in which its executables find others.
    pub also: Vec<String>,
}

/// The way in which an executable of a subject was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// Label of the subject.
    pub subject: String,
    /// Name of the profile.
    pub name: String,
    /// The kind of the plugin.
    pub role: Role,
    /// Name of the executable.
    pub executable: String,
    /// The plugin objects of its config.
    pub plugins: Vec<Value>,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The rule's name.
    pub id: String,
    /// The section that has the rule.
    pub section: String,
    /// The rule's level: how binding it is.
    pub level: Level,
    /// The statement of the rule.
    pub sentence: String,
    /// The roles that the rule binds.
    pub roles: Vec<Role>,
}

/// A trial, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// Name of the rule.
    pub rule: String,
    /// Name of the case; may be empty.
    pub case: String,
    /// Label of the subject.
    pub subject: String,
    /// Name of the profile.
    pub profile: String,
    /// `cniVersion`.
    pub cni_version: String,
    /// The seed of random parts.
    pub seed: u64,
    /// `verdict`: `pass`; `fail` with `expected`, `seen` and perhaps `diff` and `basis`; `skip` or `broken` with `why`.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// True for a finding that `--expect` names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub known: bool,
    /// The calls, in order, unless it passed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallRecord>,
    /// The duration of the trial.
    pub milliseconds: u64,
    /// The command that tries just this again, if it did not pass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub again: String,
}

impl Document {
    /// The document of one run.
    #[must_use]
    pub fn new(run: &Run) -> Self {
        let subjects = run.subjects.iter().map(|subject| Who {
            label: subject.label.clone(),
            folder: subject.bin_dir.display().to_string(),
            also: subject.also.iter().map(|dir| dir.display().to_string()).collect(),
        });
        let mut rules: Vec<Asked> = run.rules.iter().map(|rule| Asked::new(rule)).collect();
        let mut profiles: Vec<Use> = Vec::new();
        for Report { trial, .. } in &run.reports {
            let is_it = |known: &Use| known.subject == trial.subject.label && known.name == trial.profile.name;
            if !profiles.iter().any(is_it) {
                profiles.push(Use {
                    subject: trial.subject.label.clone(),
                    name: trial.profile.name.clone(),
                    role: trial.profile.role,
                    executable: trial.profile.executable.clone(),
                    plugins: trial.profile.plugins.clone(),
                });
            }
            // An executable that does not even say its versions breaks a rule that may not have been asked for.
            if !rules.iter().any(|rule| rule.id == trial.rule) {
                rules.extend(crate::rules::rule(&trial.rule).map(Asked::new));
            }
        }
        let origin = Origin {
            kit: env!("CARGO_PKG_VERSION").to_owned(),
            began: rfc_3339(run.began),
            milliseconds: run.took.as_millis().try_into().unwrap_or(u64::MAX),
            kernel: run.machine.kernel.clone(),
            seed: run.seed,
            command: run.command.clone(),
            subjects: run.subjects.iter().map(|subject| subject.label.clone()).collect(),
            notes: run.notes.clone(),
        };
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            runs: vec![origin],
            subjects: subjects.collect(),
            profiles,
            rules,
            trials: run.reports.iter().map(|report| Tried::new(report, run)).collect(),
        }
    }

    /// Reads what the format `json` wrote.
    ///
    /// # Errors
    /// If it is something else, or of a newer version.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(text).map_err(|error| format!("it is not JSON: {error}"))?;
        if value.get("format").and_then(Value::as_str) != Some(FORMAT) {
            return Err("it is no JSON report of this kit".to_owned());
        }
        match value.get("version") {
            Some(version) if version.as_u64() == Some(u64::from(VERSION)) => {}
            other => return Err(format!("its version is {}, not {VERSION}", other.unwrap_or(&Value::Null))),
        }
        serde_json::from_value(value).map_err(|error| format!("it is no JSON report of this kit: {error}"))
    }

    /// Whether every trial could be tried and none broke a required rule: the exit status.
    #[must_use]
    pub fn outcome(&self) -> crate::run::Outcome {
        use crate::run::Outcome;
        let level = |trial: &Tried| self.rule(&trial.rule).map_or(Level::Must, |rule| rule.level);
        // Robustness decides nothing beside the letter.
        let is_letter = self.rules.iter().any(|rule| rule.level != Level::Robustness);
        let decides = |level: Level| level == Level::Must || (level == Level::Robustness && !is_letter);
        let fails = |trial: &Tried| trial.finding().is_some() && !trial.known && decides(level(trial));
        if self.trials.iter().any(fails) {
            Outcome::Failed
        } else if self.trials.iter().any(|trial| {
            let counts = decides(level(trial)) || matches!(trial.verdict, Verdict::Broken { .. });
            trial.verdict.is_untried() && counts
        }) {
            Outcome::Broken
        } else {
            Outcome::Passed
        }
    }

    /// A rule by its name.
    #[must_use]
    pub fn rule(&self, id: &str) -> Option<&Asked> {
        self.rules.iter().find(|rule| rule.id == id)
    }
}

impl Asked {
    pub(crate) fn new<B>(rule: &Rule<B>) -> Self {
        Self {
            id: rule.id.to_owned(),
            section: rule.section(),
            level: rule.level(),
            sentence: rule.sentence.to_owned(),
            roles: rule.roles.to_vec(),
        }
    }
}

impl Tried {
    fn new(report: &Report, run: &Run) -> Self {
        let Report { trial, verdict, calls, milliseconds } = report;
        Self {
            rule: trial.rule.clone(),
            case: trial.case.clone(),
            subject: trial.subject.label.clone(),
            profile: trial.profile.name.clone(),
            cni_version: trial.version.clone(),
            seed: trial.seed,
            verdict: verdict.clone(),
            known: false,
            calls: calls.clone(),
            milliseconds: *milliseconds,
            again: if verdict.is_worth_another() { again(trial, run) } else { String::new() },
        }
    }

    /// Returns what the trial found.
    #[must_use]
    pub fn finding(&self) -> Option<&Finding> {
        self.verdict.finding()
    }
}

/// A moment as RFC 3339 in UTC, to the second.
pub(crate) fn rfc_3339(moment: SystemTime) -> String {
    humantime::format_rfc3339_seconds(moment).to_string()
}

#[cfg(test)]
mod tests {
    use super::Document;

    #[test]
    fn what_is_no_report_is_refused() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"format":"cni-conformance","version":2}"#,
            r#"{"format":"cni-conformance","version":1}"#,
        ] {
            assert!(Document::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
