//! Findings as a list, a line each: what is expected of a subject is kept in such a file, and compared.

use super::document::{Document, Tried};
use crate::trial::Verdict;
use std::collections::BTreeSet;
use std::path::Path;

/// `PROFILE RULE CASE`, with `-` for a case without a name.
fn line(trial: &Tried) -> String {
    let case = if trial.case.is_empty() { "-" } else { &trial.case };
    format!("{} {} {case}", trial.profile, trial.rule)
}

fn lines(document: &Document, is_meant: impl Fn(&Verdict) -> bool) -> BTreeSet<String> {
    document.trials.iter().filter(|trial| is_meant(&trial.verdict)).map(line).collect()
}

/// Each finding once, sorted.
pub(super) fn text(document: &Document) -> String {
    lines(document, |verdict| verdict.finding().is_some()).iter().map(|line| format!("{line}\n")).collect()
}

/// Compares the findings with those that a file expects; what follows `#` in it is a remark. An expected finding that was
/// not tried here, or of which the trial says nothing, is no difference; nor is one with `?` at its end, which is seen
/// sometimes only: a race.
///
/// # Errors
/// The differences, a line each: `+` for one that is new, `-` for one that is lost. Or why the file cannot be read.
pub fn compare(document: &Document, file: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    differ(document, &text).map_err(|differences| {
        format!("these findings are not as {} says (+ new, - lost):\n{differences}", file.display())
    })
}

fn differ(document: &Document, text: &str) -> Result<(), String> {
    let plain = |line: &str| line.split('#').next().unwrap_or(line).split_whitespace().collect::<Vec<_>>().join(" ");
    let expected: BTreeSet<String> = text.lines().map(plain).filter(|line| !line.is_empty()).collect();
    let found = lines(document, |verdict| verdict.finding().is_some());
    let kept = lines(document, |verdict| matches!(verdict, Verdict::Pass));
    let is_new = |line: &&String| !expected.contains(*line) && !expected.contains(&format!("{line} ?"));
    let new = found.iter().filter(is_new).map(|line| format!("+ {line}"));
    let lost =
        expected.iter().filter(|line| !found.contains(*line) && kept.contains(*line)).map(|line| format!("- {line}"));
    let differences: Vec<_> = new.chain(lost).collect();
    if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
}
