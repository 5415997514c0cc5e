//! The source of all reports: a run as plain data. Its JSON is the format `json`. A key may be added without a new [`VERSION`];
//! one that goes or changes its meaning needs it.

use super::again;
use crate::finding::{CallRecord, Finding};
use crate::profile::Role;
use crate::rule::{Level, Rule};
use crate::run::Run;
use crate::trial::{Report, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::SystemTime;

pub const FORMAT: &str = "cni-conformance";
pub const VERSION: u32 = 1;

/// Everything that is known of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    pub format: String,
    pub version: u32,
    /// The place, time and settings of the run, the only one.
    pub runs: Vec<Origin>,
    /// The subjects that were tested. Their labels differ.
    pub subjects: Vec<Who>,
    /// The ways in which the executables of each were used.
    pub profiles: Vec<Use>,
    /// Rules that were asked for, in the order of the specification.
    pub rules: Vec<Asked>,
    pub trials: Vec<Tried>,
}

/// The place, time and settings of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub kit: String,
    /// The time at which the run began: RFC 3339, UTC, to the second.
    pub began: String,
    pub milliseconds: u64,
    pub kernel: String,
    pub seed: u64,
    /// The command line, without the executable.
    pub command: Vec<String>,
    pub subjects: Vec<String>,
    /// The notes that a reader has to know, a sentence each.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    pub label: String,
    pub folder: String,
    /// More folders in which its executables find others.
    pub also: Vec<String>,
}

/// The way in which an executable of a subject was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    pub subject: String,
    pub name: String,
    pub role: Role,
    pub executable: String,
    pub plugins: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    pub id: String,
    pub section: String,
    pub level: Level,
    pub sentence: String,
    pub roles: Vec<Role>,
    /// True for a rule that fails a run whatever its level: who breaks it takes what others hold.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub harms_others: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    pub rule: String,
    /// Name of the case; may be empty.
    pub case: String,
    pub subject: String,
    pub profile: String,
    pub cni_version: String,
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
    pub milliseconds: u64,
    /// The command that tries just this again, if it did not pass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub again: String,
}

impl Document {
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

    /// Whether every trial could be tried and none broke a required rule: the exit status. Required are rules of `level` and
    /// of those that bind more; without it the MUSTs, and what takes from others.
    pub fn outcome(&self, level: Option<Level>) -> crate::run::Outcome {
        use crate::run::Outcome;
        // Robustness decides nothing beside the letter.
        let is_letter = self.rules.iter().any(|rule| rule.level != Level::Robustness);
        let is_required = |rule: &Asked| match level {
            Some(level) => rule.level <= level,
            None => rule.harms_others || rule.level == Level::Must || (rule.level == Level::Robustness && !is_letter),
        };
        let decides = |trial: &Tried| self.rule(&trial.rule).is_none_or(is_required);
        if self.trials.iter().any(|trial| trial.finding().is_some() && !trial.known && decides(trial)) {
            Outcome::Failed
        } else if self.trials.iter().any(|trial| {
            trial.verdict.is_untried() && (decides(trial) || matches!(trial.verdict, Verdict::Broken { .. }))
        }) {
            Outcome::Broken
        } else {
            Outcome::Passed
        }
    }

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
            harms_others: rule.harms_others,
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

    pub fn finding(&self) -> Option<&Finding> {
        self.verdict.finding()
    }
}

/// A moment as RFC 3339 in UTC, to the second.
pub(crate) fn rfc_3339(moment: SystemTime) -> String {
    humantime::format_rfc3339_seconds(moment).to_string()
}
