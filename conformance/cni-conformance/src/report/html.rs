//! The report as one page for a browser: plugins by rules.

use super::document::{Asked, Document};
use super::tally::{Column, LEVELS, Mark, counts};
use super::text;
use crate::rule::Level;
use crate::trial::Verdict;
use std::fmt::Write;

const STYLE: &str = "body{font:14px sans-serif;margin:1em}table{border-collapse:collapse}th,td{border:1px solid #ccc;padding:2px 6px;\
text-align:left}td{white-space:nowrap}td+td{white-space:normal}td.skip{white-space:nowrap}thead th{position:sticky;top:0;background:#fff}td.pass{background:#dfd}td.fail{background:#fc8}\
td.must{background:#f88;font-weight:bold}td.untried{background:#fd8}td.skip,td.none{color:#666}tr.level th{background:#eee}";

/// A page without scripts and without anything that is loaded: it can be kept as it is.
pub(super) fn page(document: &Document) -> String {
    let columns = Column::by_profile(document);
    let mut out = String::from(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>cni-conformance</title>\n",
    );
    write!(out, "<style>{STYLE}</style></head><body>\n<h1>CNI conformance</h1>\n").ok();
    for run in &document.runs {
        let line =
            format!("{}: {}, Linux {}, cni-conformance {}", run.subjects.join(", "), run.began, run.kernel, run.kit);
        writeln!(out, "<p>{}</p>", escaped(&line)).ok();
    }
    let heads = |first: &str| {
        let of = |column: &Column| {
            let profile = column.profile.as_deref().filter(|name| **name != column.subject).unwrap_or_default();
            format!("<th>{}<br>{}</th>", escaped(&column.subject), escaped(profile))
        };
        format!("<table><thead><tr>{first}{}</tr></thead>\n", columns.iter().map(of).collect::<String>())
    };
    out += &heads("<th>rules broken, of those that were tried</th>");
    let levels = LEVELS.into_iter().filter(|level| document.rules.iter().any(|rule| rule.level == *level));
    for level in levels.clone() {
        let cell = |column: &Column| {
            let [pass, fail, expected, ..] = counts(document, column, level);
            let fail = fail + expected;
            let class = match (fail, pass) {
                (1.., _) => broken(level),
                (0, 1..) => "pass",
                (0, 0) => "none",
            };
            format!("<td class={class}>{fail} of {}</td>", pass + fail)
        };
        writeln!(out, "<tr><th>{level}</th>{}</tr>", columns.iter().map(cell).collect::<String>()).ok();
    }
    out += &format!("</table>\n<h2>Rules</h2>\n{}", heads("<th>rule</th><th>asked by</th>"));
    for level in levels {
        writeln!(out, "<tr class=level><th colspan={}>{level}</th></tr>", columns.len() + 2).ok();
        for rule in document.rules.iter().filter(|rule| rule.level == level) {
            let cells: String = columns.iter().map(|column| cell(document, column, rule)).collect();
            let [id, section, says] = [&rule.id, &rule.section, &rule.sentence].map(|text| escaped(text));
            writeln!(out, "<tr><td title=\"{says}\">{id}</td><td>{section}</td>{cells}</tr>").ok();
        }
    }
    out + "</table>\n</body></html>\n"
}

/// The class of a rule of that level that is broken: a MUST stands out.
fn broken(level: Level) -> &'static str {
    if level == Level::Must { "must" } else { "fail" }
}

/// The outcome of a rule with a profile; the pointer over it shows the findings, or why it says nothing.
fn cell(document: &Document, column: &Column, rule: &Asked) -> String {
    let trials = column.trials(document, rule);
    let mark = Mark::of_all(trials.iter().copied());
    let (class, word) = match mark {
        Mark::Fail => (broken(rule.level), "BROKEN"),
        Mark::Broken => ("untried", "not tried"),
        Mark::Expected => (broken(rule.level), "BROKEN, as expected"),
        Mark::Pass => ("pass", "kept"),
        Mark::Skip => ("skip", "says nothing"),
        Mark::Exempt => ("skip", "exempt"),
        Mark::Absent => ("none", ""),
    };
    let said = trials.iter().filter(|trial| Mark::of(trial) == mark).filter_map(|trial| match &trial.verdict {
        Verdict::Fail(finding) => Some(format!("{} {}: {finding}", trial.case, trial.cni_version)),
        Verdict::Skip { why } | Verdict::Exempt { why } | Verdict::Broken { why } => Some(why.clone()),
        Verdict::Pass => None,
    });
    let mut said: Vec<_> = said.collect();
    said.dedup();
    format!("<td class={class} title=\"{}\">{word}</td>", escaped(&said.join("\n")))
}

/// With signs for what acts on a terminal, and what is very long cut, as in the other reports.
fn escaped(text: &str) -> String {
    quick_xml::escape::escape(text::output(text)).replace('\n', "&#10;")
}
