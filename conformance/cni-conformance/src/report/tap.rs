//! TAP, version 14: a line for each trial, what was found as YAML below it.
//!
//! A harness agrees with the exit status: what breaks a rule that is not required is `not ok` with the directive TODO,
//! which does not fail a suite.

use super::document::{Asked, Document, Tried};
use super::text;
use crate::rule::Level;
use crate::trial::Verdict;

pub(super) fn text(document: &Document) -> String {
    let untestable = document.rules.iter().filter_map(|rule| rule.untestable.as_ref().map(|why| (rule, why)));
    let untestable: Vec<_> = untestable.collect();
    let mut out = format!("TAP version 14\n1..{}\n", document.trials.len() + untestable.len());
    let mut section = None;
    for (number, trial) in document.trials.iter().enumerate() {
        let place = (&trial.subject, &trial.profile);
        if section != Some(place) {
            section = Some(place);
            out += &format!("# {}: {}\n", text::one_line(place.0), text::one_line(place.1));
        }
        out += &point(number + 1, trial, document.rule(&trial.rule));
    }
    for (number, (rule, why)) in untestable.iter().enumerate() {
        let number = document.trials.len() + number + 1;
        out += &format!("ok {number} - {} # SKIP untestable: {}\n", escaped(&rule.id), escaped(why));
    }
    out
}

fn point(number: usize, trial: &Tried, rule: Option<&Asked>) -> String {
    let case = if trial.case.is_empty() { String::new() } else { format!("/{}", trial.case) };
    let name = format!("{}{case} {} {} {}", trial.rule, trial.cni_version, trial.subject, trial.profile);
    let name = escaped(&name);
    let level = rule.map_or(Level::Must, |rule| rule.level);
    match &trial.verdict {
        Verdict::Pass => format!("ok {number} - {name}\n"),
        Verdict::Skip { why } => format!("ok {number} - {name} # SKIP {}\n", escaped(why)),
        Verdict::Fail(_) if level != Level::Must => {
            format!("not ok {number} - {name} # TODO {level} is not required\n{}", diagnosis(trial, rule))
        }
        Verdict::Fail(_) | Verdict::Broken { .. } => format!("not ok {number} - {name}\n{}", diagnosis(trial, rule)),
    }
}

/// Text of a description or directive.
fn escaped(text: &str) -> String {
    text::one_line(text).replace('\\', r"\\").replace('#', r"\#")
}

fn diagnosis(trial: &Tried, rule: Option<&Asked>) -> String {
    let mut out = "  ---\n".to_owned();
    if let Some(rule) = rule {
        out += &pair(2, "level", &rule.level.to_string());
        out += &pair(2, "section", &rule.section);
        out += &pair(2, "rule", &rule.sentence);
    }
    match &trial.verdict {
        Verdict::Fail(finding) => {
            out += &pair(2, "expected", &finding.expected);
            out += &pair(2, "seen", &finding.seen);
            if !finding.diff.is_empty() {
                out += &pair(2, "diff", &finding.diff);
            }
        }
        Verdict::Broken { why } | Verdict::Skip { why } => out += &pair(2, "broken", why),
        Verdict::Pass => {}
    }
    if !trial.calls.is_empty() {
        out += "  calls:\n";
    }
    for call in &trial.calls {
        out += "    -\n";
        out += &pair(6, "command", &text::command(call));
        out += &pair(6, "ended", &text::ending(call));
        out += &pair(6, "stdout", &call.stdout);
        out += &pair(6, "stderr", &call.stderr);
    }
    if !trial.again.is_empty() {
        out += &pair(2, "again", &trial.again);
    }
    out + "  ...\n"
}

/// A key and its text: lines as a block, one line in quotes, of which JSON's are YAML's. A block whose first line is
/// indented would need a number, which older harnesses do not know, so that is in quotes too.
fn pair(indent: usize, key: &str, value: &str) -> String {
    let value = text::output(value);
    let space = " ".repeat(indent);
    if !value.trim_end_matches('\n').contains('\n') || value.starts_with([' ', '\t', '\n']) {
        return format!("{space}{key}: {}\n", serde_json::Value::from(value));
    }
    let lines = value.trim_end_matches('\n').split('\n').map(|line| format!("{space}  {line}\n"));
    format!("{space}{key}: |\n{}", lines.collect::<String>())
}
