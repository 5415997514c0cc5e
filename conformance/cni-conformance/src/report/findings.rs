//! Findings as a list, a line each: what is expected of a subject is kept in such a file, and compared.

use super::document::{Document, Tried};
use crate::profile::Profile;
use crate::trial::{Trial, Verdict};
use crate::{rules, stress};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// `PROFILE RULE CASE`, with `-` for a case without a name.
fn line(trial: &Tried) -> String {
    named(&trial.profile, &trial.rule, &trial.case)
}

fn named(profile: &str, rule: &str, case: &str) -> String {
    format!("{profile} {rule} {}", if case.is_empty() { "-" } else { case })
}

fn lines(document: &Document, is_meant: impl Fn(&Verdict) -> bool) -> BTreeSet<String> {
    document.trials.iter().filter(|trial| is_meant(&trial.verdict)).map(line).collect()
}

/// Each finding once, sorted, and as remarks what was not judged.
pub(super) fn text(document: &Document) -> String {
    let found = lines(document, |verdict| verdict.finding().is_some()).into_iter();
    let hidden = super::terminal::hidden(document).into_iter().map(|said| format!("# {said}"));
    found.chain(hidden).map(|line| line + "\n").collect()
}

/// The findings that a file expects, a line each; what follows `#` is a remark.
#[derive(Debug)]
pub struct Expected {
    file: PathBuf,
    lines: BTreeSet<String>,
}

impl Expected {
    pub fn read(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut lines = BTreeSet::new();
        for (number, line) in text.lines().enumerate() {
            let words: Vec<_> = line.split('#').next().unwrap_or(line).split_whitespace().collect();
            is_finding(&words).map_err(|error| format!("{}, line {}: {error}", file.display(), number + 1))?;
            lines.insert(words.join(" "));
        }
        lines.remove("");
        Ok(Self { file: file.to_owned(), lines })
    }

    /// Whether a finding is expected, always or, with `?` at its end, as one that is seen sometimes only: a race.
    fn has(&self, line: &str) -> bool {
        self.lines.contains(line) || self.lines.contains(&format!("{line} ?"))
    }

    /// Whether a finding of a trial is expected.
    pub(crate) fn knows(&self, trial: &Trial) -> bool {
        self.has(&named(&trial.profile.name, &trial.rule, &trial.case))
    }

    /// A note on the lines whose profile is neither built in nor one of these.
    pub fn strangers(&self, tried: &[&str]) -> Option<String> {
        let built_in = Profile::built_in();
        let names: Vec<_> = built_in.iter().map(|profile| profile.name.as_str()).chain(tried.iter().copied()).collect();
        let profile = |line: &String| line.split(' ').next().unwrap_or_default().to_owned();
        let said = self.lines.iter().map(profile).filter(|name| !names.contains(&name.as_str()));
        let said: BTreeSet<_> = said.map(|name| crate::cli::unknown("profile", &name, &names)).collect();
        let said = said.into_iter().collect::<Vec<_>>().join("; ");
        (!said.is_empty()).then(|| format!("of {} some lines count for nothing: {said}", self.file.display()))
    }

    /// Marks the findings of a document that are expected, and compares. An expected finding that was not tried here, or of
    /// which the trial says nothing, is no difference.
    /// Errors: the differences, a line each: `+` for one that is new, `-` for one that is lost.
    pub fn compare(&self, document: &mut Document) -> Result<(), String> {
        for trial in document.trials.iter_mut().filter(|trial| trial.finding().is_some()) {
            trial.known = self.has(&line(trial));
        }
        let found = lines(document, |verdict| verdict.finding().is_some());
        let kept = lines(document, |verdict| matches!(verdict, Verdict::Pass));
        let new = found.iter().filter(|line| !self.has(line)).map(|line| format!("+ {line}"));
        let is_lost = |line: &&String| !found.contains(*line) && kept.contains(*line);
        let lost = self.lines.iter().filter(is_lost).map(|line| format!("- {line}"));
        match new.chain(lost).collect::<Vec<_>>().join("\n") {
            differences if differences.is_empty() => Ok(()),
            differences => {
                Err(format!("these findings are not as {} says (+ new, - lost):\n{differences}", self.file.display()))
            }
        }
    }
}

/// Checks the words of a line: `PROFILE RULE CASE`, perhaps with `?`, or none.
fn is_finding(words: &[&str]) -> Result<(), String> {
    let ([_, id, case] | [_, id, case, "?"]) = words else {
        return if words.is_empty() {
            Ok(())
        } else {
            Err("it is no finding: PROFILE RULE CASE, perhaps ?".to_owned())
        };
    };
    let names: Vec<_> = rules::all().chain(stress::rules()).map(|rule| rule.id).collect();
    let rule = rules::rule(id).ok_or_else(|| crate::cli::unknown("rule", id, &names))?;
    let cases: Vec<_> = rule.cases.iter().map(|one| if one.name.is_empty() { "-" } else { one.name }).collect();
    if cases.contains(case) { Ok(()) } else { Err(crate::cli::unknown(&format!("case of {id} called"), case, &cases)) }
}
