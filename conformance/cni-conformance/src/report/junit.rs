//! JUnit's XML, in the dialect that Jenkins and GitLab read: a suite for each profile of a subject, a test for each trial.
//!
//! Each broken rule is a `failure`, with the level as its type, because the format has no warnings; a trial that could
//! not be tried is an `error`. A finding that is expected counts as skipped.

use super::document::{Document, Origin, Tried};
use super::tally::Mark;
use super::text;
use crate::trial::Verdict;

pub(super) fn text(document: &Document) -> String {
    let suites: String = document
        .profiles
        .iter()
        .map(|used| {
            let is_its = |trial: &&Tried| trial.subject == used.subject && trial.profile == used.name;
            let trials: Vec<_> = document.trials.iter().filter(is_its).collect();
            let origin = document.runs.iter().find(|run| run.subjects.contains(&used.subject));
            suite(document, &format!("{}: {}", used.subject, used.name), &trials, origin)
        })
        .collect();
    let trials: Vec<_> = document.trials.iter().collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"cni-conformance\"{}>\n{suites}</testsuites>\n",
        counts(&trials)
    )
}

fn counts(trials: &[&Tried]) -> String {
    let count = |mark| trials.iter().filter(|trial| Mark::of(trial) == mark).count();
    let time: u64 = trials.iter().map(|trial| trial.milliseconds).sum();
    format!(
        " tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{}\"",
        trials.len(),
        count(Mark::Fail),
        count(Mark::Broken),
        count(Mark::Skip) + count(Mark::Exempt) + count(Mark::Expected),
        seconds(time)
    )
}

fn suite(document: &Document, name: &str, trials: &[&Tried], origin: Option<&Origin>) -> String {
    let mut out = format!("  <testsuite name=\"{}\"{}", escaped(name), counts(trials));
    let run = origin.cloned().unwrap_or_default();
    out += &format!(" timestamp=\"{}\">\n    <properties>\n", escaped(run.began.trim_end_matches('Z')));
    for (name, value) in [("kernel", &run.kernel), ("seed", &run.seed.to_string()), ("kit", &run.kit)] {
        out += &format!("      <property name=\"{name}\" value=\"{}\"/>\n", escaped(value));
    }
    out += "    </properties>\n";
    trials.iter().for_each(|trial| out += &case(document, trial));
    out + "  </testsuite>\n"
}

fn case(document: &Document, trial: &Tried) -> String {
    let case = if trial.case.is_empty() { String::new() } else { format!("/{}", trial.case) };
    let start = format!(
        "    <testcase classname=\"{}.{}\" name=\"{}\" time=\"{}\"",
        escaped(&trial.subject.replace('.', "_")),
        escaped(&trial.profile),
        escaped(&format!("{}{case} ({})", trial.rule, trial.cni_version)),
        seconds(trial.milliseconds)
    );
    let rule = document.rule(&trial.rule);
    let level = rule.map(|rule| rule.level.to_string()).unwrap_or_default();
    match &trial.verdict {
        Verdict::Pass => format!("{start}/>\n"),
        Verdict::Skip { why } | Verdict::Exempt { why } => {
            format!("{start}>\n      <skipped message=\"{}\"/>\n    </testcase>\n", escaped(why))
        }
        Verdict::Broken { why } => {
            let body = inner(&body(trial, ""));
            format!(
                "{start}>\n      <error type=\"kit\" message=\"{}\">{body}</error>\n    </testcase>\n",
                escaped(why)
            )
        }
        Verdict::Fail(finding) if trial.known => {
            let message = escaped(&text::shortened(&format!("an expected finding: {finding}"), 1000));
            format!("{start}>\n      <skipped message=\"{message}\"/>\n    </testcase>\n")
        }
        Verdict::Fail(finding) => {
            let about = rule.map(|rule| format!("{} ({}): {}\n", rule.section, rule.level, rule.sentence));
            let message = escaped(&text::shortened(&finding.to_string(), 1000));
            let body = inner(&body(trial, &about.unwrap_or_default()));
            format!(
                "{start}>\n      <failure type=\"{level}\" message=\"{message}\">{body}</failure>\n    </testcase>\n"
            )
        }
    }
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

fn seconds(milliseconds: u64) -> String {
    format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}

/// Text of an element. XML has no way to write most control characters, so they are shown as signs.
fn inner(text: &str) -> String {
    text::visible(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Text of an attribute.
fn escaped(text: &str) -> String {
    inner(text).replace('"', "&quot;").replace('\n', "&#10;").replace('\t', "&#9;")
}
