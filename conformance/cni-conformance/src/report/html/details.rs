//! The details of a rule: what was found, with the calls, and what came of each profile.

use super::{class, escaped, shape};
use crate::finding::CallRecord;
use crate::report::document::{Asked, Document, Tried};
use crate::report::tally::{Column, Failure, Mark, failures, profiles, skips};
use crate::report::text::{self, plural};
use crate::trial::Verdict;

/// How many findings of a rule are told in full.
const TOLD: usize = 12;
/// How many calls of a finding are told: the first few and the last.
const CALLS: usize = 12;

pub(super) fn of(document: &Document, rule: &Asked) -> String {
    let mut out = String::new();
    if let Some(why) = &rule.untestable {
        out += &format!("<p class=\"why\">It cannot be tested: {}</p>\n", escaped(why));
    }
    let failures = failures(document, rule);
    out += &failures.iter().take(TOLD).map(finding).collect::<String>();
    if failures.len() > TOLD {
        let rest: String = failures.iter().skip(TOLD).map(|rest| format!("<li>{}</li>\n", brief(rest.first))).collect();
        out += &format!(
            "<p class=\"why\">And more of the same kind; the JSON report has them in full.</p>\n<ul>\n{rest}</ul>\n"
        );
    }
    out += &by_profile(document, rule);
    let trials: Vec<_> = document.trials.iter().filter(|trial| trial.rule == rule.id).collect();
    for skipped in skips(trials.iter().copied()) {
        let (count, why, whose) = (plural(skipped.count, "trial"), escaped(skipped.why), escaped(&skipped.whose()));
        out += &format!("<p class=\"why\">{count} skipped: {why} ({whose})</p>\n");
    }
    if trials.is_empty() && rule.untestable.is_none() {
        out += "<p class=\"why\">It binds none of the plugins that were tested.</p>\n";
    }
    let milliseconds: u64 = trials.iter().map(|trial| trial.milliseconds).sum();
    let seconds = std::time::Duration::from_millis(milliseconds).as_secs_f64();
    out + &format!(
        "<p class=\"small\">{}, {seconds:.1} s in all. Try it again: <code>--rule {}</code></p>\n",
        plural(trials.len(), "trial"),
        escaped(&rule.id)
    )
}

/// Profiles by subjects, where the matrix has only their sum.
fn by_profile(document: &Document, rule: &Asked) -> String {
    let names: Vec<_> = profiles(document)
        .into_iter()
        .filter(|name| document.trials.iter().any(|trial| trial.rule == rule.id && trial.profile == *name))
        .collect();
    if document.subjects.len() < 2 || names.is_empty() {
        return String::new();
    }
    let heads: String =
        document.subjects.iter().map(|subject| format!("<th scope=\"col\">{}</th>", escaped(&subject.label))).collect();
    let rows = names.into_iter().map(|name| {
        let cells = document.subjects.iter().map(|subject| {
            let column = Column { subject: subject.label.clone(), profile: Some(name.to_owned()) };
            let trials = column.trials(document, rule);
            let mark = Mark::of_all(trials.iter().copied(), rule);
            let count = trials.iter().filter(|trial| Mark::of(trial) == mark).count();
            let words = if trials.len() > 1 { format!("{count} of {}", trials.len()) } else { mark.word().to_owned() };
            format!("<td>{}</td>", shape(mark, &words))
        });
        format!("<tr><th scope=\"row\">{}</th>{}</tr>\n", escaped(name), cells.collect::<String>())
    });
    format!(
        "<div class=\"scroll\"><table class=\"profiles\">\n<thead><tr><th scope=\"col\">Profile</th>{heads}</tr></thead>\n\
         <tbody>\n{}</tbody>\n</table></div>\n",
        rows.collect::<String>()
    )
}

fn brief(trial: &Tried) -> String {
    let found = match &trial.verdict {
        Verdict::Fail(finding) => finding.to_string(),
        Verdict::Broken { why } | Verdict::Skip { why } => why.clone(),
        Verdict::Pass => String::new(),
    };
    format!("{}: {}", escaped(&Failure::place(trial)), escaped(&text::shortened(&found, 400)))
}

fn finding(failure: &Failure<'_>) -> String {
    let trial = failure.first;
    let case = if trial.case.is_empty() { String::new() } else { format!(", case {}", trial.case) };
    let place = escaped(&format!("{}, version {}{case}", trial.profile, trial.cni_version));
    let subject = escaped(&trial.subject);
    let mark = Mark::of(trial);
    let said = match &trial.verdict {
        Verdict::Fail(finding) => format!(
            "<dl>\n<dt>Expected</dt><dd>{}</dd>\n<dt>Seen</dt><dd>{}</dd>\n</dl>\n{}",
            prose(&finding.expected),
            prose(&finding.seen),
            diff(&finding.diff)
        ),
        Verdict::Broken { why } | Verdict::Skip { why } => {
            format!("<dl>\n<dt>The kit</dt><dd>{}</dd>\n</dl>\n", prose(why))
        }
        Verdict::Pass => String::new(),
    };
    let also = match failure.also.is_empty() {
        true => String::new(),
        false => format!("<p class=\"also\">The same with {}</p>\n", escaped(&failure.others())),
    };
    let again = match trial.again.is_empty() {
        true => String::new(),
        false => format!("<h4>Try just this again</h4>\n{}", command(&escaped(&trial.again))),
    };
    format!(
        "<article class=\"finding {}\">\n<h3>{}<strong>{subject}</strong> <span>{place}</span></h3>\n{said}{also}{}{again}</article>\n",
        class(mark),
        shape(mark, ""),
        calls(trial)
    )
}

fn prose(said: &str) -> String {
    escaped(&text::shortened(said, text::SHOWN_BYTES))
}

fn diff(diff: &str) -> String {
    if diff.is_empty() {
        return String::new();
    }
    let lines = text::shortened(diff, 4 * text::SHOWN_BYTES);
    let lines = lines.lines().map(|line| {
        let line = escaped(line);
        match line.chars().next() {
            Some('+') => format!("<ins>{line}</ins>\n"),
            Some('-') => format!("<del>{line}</del>\n"),
            _ => format!("{line}\n"),
        }
    });
    format!("<h4>Difference of the node</h4>\n<pre class=\"diff\">{}</pre>\n", lines.collect::<String>())
}

fn calls(trial: &Tried) -> String {
    let count = trial.calls.len();
    if count == 0 {
        return String::new();
    }
    let mut out = format!("<h4>{}</h4>\n<ol class=\"calls\">\n", plural(count, "call"));
    for (number, one) in trial.calls.iter().enumerate() {
        if count <= CALLS || !(3..count + 3 - CALLS).contains(&number) {
            out += &call(number + 1, one);
        } else if number == 3 {
            out += &format!(
                "<li class=\"gap\">{} left out here; the JSON report has them</li>\n",
                plural(count - CALLS, "call")
            );
        }
    }
    out + "</ol>\n"
}

fn call(number: usize, call: &CallRecord) -> String {
    let executable = call.executable.rsplit('/').next().unwrap_or_default();
    let printed = |name: &str, printed: &str| match printed.is_empty() {
        true => String::new(),
        false => format!(
            "<h5>{name}</h5>\n<pre>{}</pre>\n",
            escaped(&text::shortened(printed.trim_end_matches('\n'), text::SHOWN_BYTES))
        ),
    };
    let line = text::command(call);
    let line = match text::shortened(&line, 8 * text::SHOWN_BYTES) {
        short if short == line => command(&escaped(&line)),
        short => format!("<pre>{}</pre>\n", escaped(&short)),
    };
    format!(
        "<li value=\"{number}\"><details>\n<summary><code>{} {}</code> <span>{}</span></summary>\n{line}{}{}</details></li>\n",
        escaped(text::verb(call)),
        escaped(executable),
        text::ending(call),
        printed("stdout", &call.stdout),
        printed("stderr", &call.stderr)
    )
}

/// A command that a script can copy.
fn command(escaped: &str) -> String {
    format!("<div class=\"copy\"><pre>{escaped}</pre><button type=\"button\">Copy</button></div>\n")
}
