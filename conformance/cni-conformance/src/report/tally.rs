//! The counts of reports: a mark for each rule and column, and the sums of a subject at each level.

use super::document::{Asked, Document, Tried};
use crate::rule::Level;
use crate::trial::Verdict;

/// The common outcome of some trials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    Fail,
    /// No trial did, but one could not be tried.
    Broken,
    /// All that trials found is expected.
    Expected,
    /// A trial passed, the others did too or were skipped.
    Pass,
    Skip,
    /// All other trials were skipped, and one does not bind the subject.
    Exempt,
    /// No trial exists: the rule does not bind these plugins.
    Absent,
}

impl Mark {
    pub(super) fn of(trial: &Tried) -> Self {
        match trial.verdict {
            Verdict::Fail(_) if trial.known => Self::Expected,
            Verdict::Fail(_) => Self::Fail,
            Verdict::Broken { .. } => Self::Broken,
            Verdict::Pass => Self::Pass,
            Verdict::Skip { .. } => Self::Skip,
            Verdict::Exempt { .. } => Self::Exempt,
        }
    }

    pub(super) fn of_all<'a>(trials: impl IntoIterator<Item = &'a Tried>) -> Self {
        trials.into_iter().map(Self::of).min().unwrap_or(Self::Absent)
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Broken => "not tried",
            Self::Expected => "expected",
            Self::Pass => "pass",
            Self::Skip => "skip",
            Self::Exempt => "exempt",
            Self::Absent => "not applicable",
        }
    }
}

/// Levels, the most binding first.
pub(super) const LEVELS: [Level; 6] =
    [Level::Must, Level::Should, Level::Stated, Level::Convention, Level::Relied, Level::Robustness];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) subject: String,
    /// Name of the profile; all of them if there is none.
    pub(super) profile: Option<String>,
}

impl Column {
    pub(super) fn by_subject(document: &Document) -> Vec<Self> {
        let subjects = document.subjects.iter().map(|subject| subject.label.clone());
        subjects.map(|subject| Self { subject, profile: None }).collect()
    }

    pub(super) fn by_profile(document: &Document) -> Vec<Self> {
        let of = |subject: &super::document::Who| {
            let label = subject.label.clone();
            let profiles = document.profiles.iter().filter(move |profile| profile.subject == label);
            profiles.map(|profile| Self { subject: profile.subject.clone(), profile: Some(profile.name.clone()) })
        };
        document.subjects.iter().flat_map(of).collect()
    }

    pub(super) fn trials<'a>(&self, document: &'a Document, rule: &Asked) -> Vec<&'a Tried> {
        let is_its = |trial: &&Tried| {
            trial.rule == rule.id
                && trial.subject == self.subject
                && self.profile.as_ref().is_none_or(|name| trial.profile == *name)
        };
        document.trials.iter().filter(is_its).collect()
    }
}

/// Names of all profiles, each once, in the order in which they were first used.
pub(super) fn profiles(document: &Document) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for profile in &document.profiles {
        if !names.contains(&profile.name.as_str()) {
            names.push(&profile.name);
        }
    }
    names
}

/// The number of rules of a level that a column keeps, breaks, breaks as expected, could not be tried with, was skipped
/// in, is exempt from.
pub(super) fn counts(document: &Document, column: &Column, level: Level) -> [usize; 6] {
    let rules = document.rules.iter().filter(|rule| rule.level == level);
    let marks: Vec<_> = rules.map(|rule| Mark::of_all(column.trials(document, rule))).collect();
    [Mark::Pass, Mark::Fail, Mark::Expected, Mark::Broken, Mark::Skip, Mark::Exempt]
        .map(|mark| marks.iter().filter(|other| **other == mark).count())
}

/// Trials of one rule, subject and case that found the same, or could not be tried for the same reason.
#[derive(Debug, Clone)]
pub(super) struct Failure<'a> {
    pub(super) rule: &'a Asked,
    /// The one that is reported in full.
    pub(super) first: &'a Tried,
    pub(super) also: Vec<&'a Tried>,
}

impl Failure<'_> {
    /// `subject, profile, version, case`, as far as there are such.
    pub(super) fn place(trial: &Tried) -> String {
        let case = if trial.case.is_empty() { String::new() } else { format!(", case {}", trial.case) };
        format!("{}, {}, version {}{case}", trial.subject, trial.profile, trial.cni_version)
    }

    /// Profile and versions of the others: `bridge 0.4.0 1.0.0, ptp 1.0.0`.
    pub(super) fn others(&self) -> String {
        let mut by_profile: Vec<(&str, Vec<&str>)> = Vec::new();
        for trial in &self.also {
            let place = by_profile.iter().position(|(profile, _)| *profile == trial.profile);
            let place = place.unwrap_or_else(|| {
                by_profile.push((&trial.profile, Vec::new()));
                by_profile.len() - 1
            });
            by_profile[place].1.push(&trial.cni_version);
        }
        let texts = by_profile.into_iter().map(|(profile, versions)| format!("{profile} {}", versions.join(" ")));
        texts.collect::<Vec<_>>().join(", ")
    }
}

pub(super) fn failures<'a>(document: &'a Document, rule: &'a Asked) -> Vec<Failure<'a>> {
    let mut failures: Vec<Failure<'a>> = Vec::new();
    for trial in document.trials.iter().filter(|trial| trial.rule == rule.id && is_failure(trial)) {
        let is_same = |failure: &&mut Failure<'a>| {
            let first = failure.first;
            first.subject == trial.subject && first.case == trial.case && said(first) == said(trial)
        };
        match failures.iter_mut().find(is_same) {
            Some(failure) => failure.also.push(trial),
            None => failures.push(Failure { rule, first: trial, also: Vec::new() }),
        }
    }
    let place = |failure: &Failure<'a>| document.subjects.iter().position(|who| who.label == failure.first.subject);
    failures.sort_by_key(place);
    failures
}

fn is_failure(trial: &Tried) -> bool {
    matches!(trial.verdict, Verdict::Fail(_) | Verdict::Broken { .. })
}

fn said(trial: &Tried) -> (&str, &str) {
    match &trial.verdict {
        Verdict::Fail(finding) => (&finding.expected, &finding.seen),
        Verdict::Broken { why } | Verdict::Skip { why } | Verdict::Exempt { why } => ("", why),
        Verdict::Pass => ("", ""),
    }
}

/// Trials that were not made for one reason.
#[derive(Debug)]
pub(super) struct Skipped<'a> {
    pub(super) count: usize,
    pub(super) why: &'a str,
    pub(super) rules: Vec<&'a str>,
    /// Subjects, each with profiles.
    whose: Vec<(&'a str, Vec<&'a str>)>,
}

impl Skipped<'_> {
    /// `2 trials of RULE and RULE`; of many rules the first ones.
    pub(super) fn trials(&self) -> String {
        const FEW: usize = 4;
        let named = self.rules.iter().take(FEW).copied().collect::<Vec<_>>().join(", ");
        let more = match self.rules.len().saturating_sub(FEW) {
            0 => String::new(),
            more => format!(" and {}", super::text::plural(more, "more rule")),
        };
        format!("{} of {named}{more}", super::text::plural(self.count, "trial"))
    }

    /// `subject: profile, profile; subject: profile`.
    pub(super) fn whose(&self) -> String {
        let each = self.whose.iter().map(|(subject, profiles)| format!("{subject}: {}", profiles.join(", ")));
        each.collect::<Vec<_>>().join("; ")
    }
}

/// The trials that were skipped, or are exempt, by reasons, the most frequent first.
pub(super) fn reasons<'a>(trials: impl IntoIterator<Item = &'a Tried>, mark: Mark) -> Vec<Skipped<'a>> {
    let mut skips: Vec<Skipped<'a>> = Vec::new();
    for trial in trials.into_iter().filter(|trial| Mark::of(trial) == mark) {
        let (_, why) = said(trial);
        let place = skips.iter().position(|skipped| skipped.why == why).unwrap_or_else(|| {
            skips.push(Skipped { count: 0, why, rules: Vec::new(), whose: Vec::new() });
            skips.len() - 1
        });
        let Skipped { count, whose, rules, .. } = &mut skips[place];
        *count += 1;
        if !rules.contains(&trial.rule.as_str()) {
            rules.push(&trial.rule);
        }
        match whose.iter_mut().find(|(subject, _)| *subject == trial.subject) {
            Some((_, profiles)) if profiles.contains(&trial.profile.as_str()) => {}
            Some((_, profiles)) => profiles.push(&trial.profile),
            None => whose.push((&trial.subject, vec![&trial.profile])),
        }
    }
    skips.sort_by_key(|skipped| std::cmp::Reverse(skipped.count));
    skips
}
