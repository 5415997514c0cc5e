//! What is said about a run.

use crate::trial::{Report, Verdict};

/// One line about one trial.
#[must_use]
pub fn line(report: &Report) -> String {
    let trial = &report.trial;
    let (word, why) = match &report.verdict {
        Verdict::Pass => ("pass", String::new()),
        Verdict::Fail(finding) => ("FAIL", format!(": {finding}\n{}", finding.diff)),
        Verdict::Skip { why } => ("skip", format!(": {why}")),
        Verdict::Broken { why } => ("BROKEN", format!(": {why}")),
    };
    let case = if trial.case.is_empty() { String::new() } else { format!("/{}", trial.case) };
    format!("{word} {} {} {} {}{case}{why}", trial.subject.label, trial.profile.name, trial.version, trial.rule)
}
