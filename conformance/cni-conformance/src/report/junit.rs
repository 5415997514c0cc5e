//! JUnit's XML, in the dialect that Jenkins and GitLab read: a suite for each profile of a subject, a test for each trial.
//!
//! Each broken rule is a `failure`, with the level as its type, because the format has no warnings; a trial that could
//! not be tried is an `error`. A finding that is expected counts as skipped.

use super::document::{Document, Origin, Tried};
use super::text;
use crate::trial::Verdict;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use std::time::Duration;

pub(super) fn text(document: &Document) -> String {
    let mut report = Report::new("cni-conformance");
    for used in &document.profiles {
        let is_its = |trial: &&Tried| trial.subject == used.subject && trial.profile == used.name;
        let trials: Vec<_> = document.trials.iter().filter(is_its).collect();
        let origin = document.runs.iter().find(|run| run.subjects.contains(&used.subject));
        report.add_test_suite(suite(document, &format!("{}: {}", used.subject, used.name), &trials, origin));
    }
    report.set_time(time(&document.trials.iter().collect::<Vec<_>>()));
    report.to_string().unwrap_or_default()
}

fn time(trials: &[&Tried]) -> Duration {
    Duration::from_millis(trials.iter().map(|trial| trial.milliseconds).sum())
}

fn suite(document: &Document, name: &str, trials: &[&Tried], origin: Option<&Origin>) -> TestSuite {
    let mut suite = TestSuite::new(text::visible(name));
    let run = origin.cloned().unwrap_or_default();
    suite.timestamp = run.began.parse().ok();
    suite.set_time(time(trials));
    for (name, value) in [("kernel", &run.kernel), ("seed", &run.seed.to_string()), ("kit", &run.kit)] {
        suite.add_property((name, text::visible(value).as_str()));
    }
    suite.add_test_cases(trials.iter().map(|trial| case(document, trial)));
    suite
}

fn case(document: &Document, trial: &Tried) -> TestCase {
    let case = if trial.case.is_empty() { String::new() } else { format!("/{}", trial.case) };
    let name = format!("{}{case} ({})", trial.rule, trial.cni_version);
    let mut case = TestCase::new(text::visible(&name), status(document, trial));
    case.set_classname(text::visible(&format!("{}.{}", trial.subject.replace('.', "_"), trial.profile)));
    case.set_time(Duration::from_millis(trial.milliseconds));
    case
}

fn status(document: &Document, trial: &Tried) -> TestCaseStatus {
    let rule = document.rule(&trial.rule);
    match &trial.verdict {
        Verdict::Pass => TestCaseStatus::success(),
        Verdict::Skip { why } | Verdict::Exempt { why } => skipped(why),
        Verdict::Broken { why } => non_success(NonSuccessKind::Error, "kit", why, &body(trial, "")),
        Verdict::Fail(finding) if trial.known => skipped(&format!("an expected finding: {finding}")),
        Verdict::Fail(finding) => {
            let level = rule.map(|rule| rule.level.to_string()).unwrap_or_default();
            let about = rule.map(|rule| format!("{} ({}): {}\n", rule.section, rule.level, rule.sentence));
            let body = body(trial, &about.unwrap_or_default());
            non_success(NonSuccessKind::Failure, &level, &finding.to_string(), &body)
        }
    }
}

fn skipped(why: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(message(why));
    status
}

fn non_success(kind: NonSuccessKind, type_name: &str, why: &str, body: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_type(type_name).set_message(message(why)).set_description(text::visible(body));
    status
}

/// The text of an attribute, on one line: readers of XML replace a line end in an attribute by a space.
fn message(why: &str) -> String {
    text::one_line(&text::shortened(why, 1000))
}

fn body(trial: &Tried, about: &str) -> String {
    let mut out = about.to_owned();
    if let Some(finding) = trial.finding() {
        let (expected, seen) = (text::output(&finding.expected), text::output(&finding.seen));
        out += &format!("expected: {expected}\nseen: {seen}\n{}", text::output(&finding.diff));
        out += if finding.diff.is_empty() || finding.diff.ends_with('\n') { "" } else { "\n" };
    }
    out.extend(text::transcript(&trial.calls).into_iter().map(|line| line + "\n"));
    out + "again: " + &trial.again + "\n"
}
