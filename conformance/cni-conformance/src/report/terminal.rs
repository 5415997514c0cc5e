//! The reports for a person at a terminal: sums and failures in brief, or all in full.

use super::document::{Document, Tried};
use super::table::Table;
use super::tally::{Column, Failure, LEVELS, Mark, Skipped, counts, failures, profiles, reasons};
use super::text;
use crate::rule::Level;
use crate::trial::{HIDDEN, Verdict};
use anstyle::{AnsiColor, Style};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The number of calls of a failure that are shown.
const CALLS: usize = 40;

/// The report for lines of that width; without a width prose is not wrapped. Its styles are for an `anstream` to keep
/// or to strip.
pub(super) fn text(document: &Document, width: Option<usize>) -> String {
    let mut out = String::new();
    for rule in &document.rules {
        for failure in failures(document, rule) {
            show(&mut out, &failure, width);
        }
    }
    let narrow = width.unwrap_or(100);
    let by_subject = Column::by_subject(document);
    let (mut columns, mut table) = (Column::by_profile(document), None);
    if columns.len() <= narrow / 4 {
        table = Some(rules(document, &columns, narrow)).filter(|table| table.width() <= narrow);
    }
    let table = table.unwrap_or_else(|| {
        columns.clone_from(&by_subject);
        rules(document, &columns, narrow)
    });
    out += &table.text();
    out.push('\n');
    if columns == by_subject && profiles(document).len() > 1 {
        out += &by_profile(document, narrow).text();
        out.push('\n');
    }
    out += &levels(document, narrow).text();
    out.push('\n');
    not_made(&mut out, document, Mark::Skip, width);
    not_made(&mut out, document, Mark::Exempt, width);
    ends(&mut out, document, width);
    out
}

/// The number of failures of a level that the summary shows.
const SHOWN: usize = 10;

/// The sums, then for each rule that is broken, and each that could not be tried, where that was first seen.
pub(super) fn summary(document: &Document, width: Option<usize>) -> String {
    let mut out = levels(document, width.unwrap_or(100)).text();
    out.push('\n');
    for level in LEVELS {
        let rules = document.rules.iter().filter(|rule| rule.level == level);
        let is_news = |failure: &Failure<'_>| Mark::of(failure.first) != Mark::Expected;
        let first: Vec<_> = rules.filter_map(|rule| failures(document, rule).into_iter().find(is_news)).collect();
        first.iter().take(SHOWN).for_each(|failure| tell_briefly(&mut out, failure, width));
        if first.len() > SHOWN {
            let more = format!("{} more of this level: --report terminal shows them", first.len() - SHOWN);
            prose(&mut out, "", &more, width);
            out.push('\n');
        }
    }
    let skipped = document.trials.iter().filter(|trial| Mark::of(trial) == Mark::Skip).count();
    if skipped > 0 {
        let say = if skipped == 1 { "says" } else { "say" };
        let sentence =
            format!("{} {say} nothing of the subject: --report terminal shows why", text::plural(skipped, "trial"));
        prose(&mut out, "", &sentence, width);
    }
    hidden(document).iter().for_each(|said| prose(&mut out, "", said, width));
    let untried = document.trials.iter().filter_map(|trial| match &trial.verdict {
        Verdict::Skip { why } if trial.verdict.is_untried() => Some(why),
        _ => None,
    });
    untried.collect::<BTreeSet<_>>().into_iter().for_each(|why| prose(&mut out, "", why, width));
    not_made(&mut out, document, Mark::Exempt, width);
    let expected = document.trials.iter().filter(|trial| Mark::of(trial) == Mark::Expected).count();
    if expected > 0 {
        let said = format!("{} found what is expected: --report terminal shows it", text::plural(expected, "trial"));
        prose(&mut out, "", &said, width);
    }
    ends(&mut out, document, width);
    out
}

/// Says what was not judged, for each rule that something needs first.
pub(super) fn hidden(document: &Document) -> Vec<String> {
    let all = reasons(&document.trials, Mark::Skip);
    let hidden = all.iter().filter_map(|some| Some((some, some.why.strip_prefix(HIDDEN)?)));
    let said = |(some, basis): (&Skipped<'_>, &str)| {
        format!(
            "not judged: {} of {}, as {basis} is broken, on which all builds there: once that is mended, more may be found",
            text::plural(some.count, "trial"),
            text::plural(some.rules.len(), "rule")
        )
    };
    hidden.map(said).collect()
}

fn tell_briefly(out: &mut String, failure: &Failure<'_>, width: Option<usize>) {
    let Failure { rule, first, .. } = failure;
    head(out, failure);
    let short = |text: &str| text::shortened_to_one_line(text, 300);
    match &first.verdict {
        Verdict::Fail(finding) => {
            prose(out, "expected: ", &short(&finding.expected), width);
            prose(out, "seen:     ", &short(&finding.seen), width);
            let changed: String = finding.diff.lines().take(3).map(|line| format!("{line}\n")).collect();
            diff(out, &changed);
        }
        Verdict::Broken { why } | Verdict::Skip { why } | Verdict::Exempt { why } => {
            prose(out, "the kit:  ", &short(why), width);
        }
        Verdict::Pass => {}
    }
    if !first.again.is_empty() {
        line(out, &format!("  again:    {}", text::visible(&first.again)));
    }
    line(out, &format!("  about it: {} explain {}", super::program(), rule.id));
    out.push('\n');
}

const BAD: Style = AnsiColor::Red.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const ODD: Style = AnsiColor::Yellow.on_default();
const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();

fn style(mark: Mark) -> Style {
    match mark {
        Mark::Fail => BAD,
        Mark::Broken => ODD.bold(),
        Mark::Expected => ODD,
        Mark::Pass => GOOD,
        Mark::Skip | Mark::Exempt => ODD,
        Mark::Absent => DIM,
    }
}

/// The name in tables of a subject that has only its path: its plugin, if one alone was tried.
fn title(document: &Document, label: &str) -> String {
    let profiles = document.profiles.iter().filter(|profile| profile.subject == label);
    let executables: BTreeSet<_> = profiles.map(|profile| profile.executable.as_str()).collect();
    let only = executables.first().filter(|_| executables.len() == 1 && document.subjects.len() == 1);
    text::one_line(only.filter(|_| label.contains('/')).unwrap_or(&label))
}

/// Rules by columns, with how many trials of all came to that.
fn rules(document: &Document, columns: &[Column], width: usize) -> Table {
    let heads = columns.iter().map(|column| match (&column.profile, document.subjects.len()) {
        (None, _) => title(document, &column.subject),
        (Some(profile), 1) => text::one_line(profile),
        (Some(profile), _) => text::one_line(&format!("{}: {profile}", title(document, &column.subject))),
    });
    let mut table = Table::new(["rule".to_owned(), "level".to_owned()].into_iter().chain(heads), width);
    let mut section = "";
    for rule in &document.rules {
        if rule.section != section {
            section = &rule.section;
            table.heading(section);
        }
        let cells = columns.iter().map(|column| {
            let trials = column.trials(document, rule);
            let mark = Mark::of_all(trials.iter().copied());
            let count_of = |mark| trials.iter().filter(|trial| Mark::of(trial) == mark).count();
            let (count, exempt) = (count_of(mark), count_of(Mark::Exempt));
            let cell = match mark {
                Mark::Fail => format!("FAIL {count}/{}", trials.len()),
                Mark::Broken => format!("NOT TRIED {count}/{}", trials.len()),
                Mark::Expected => format!("expected {count}/{}", trials.len()),
                Mark::Pass => format!("pass {count}"),
                Mark::Skip => format!("skip {count}"),
                Mark::Exempt => String::new(),
                Mark::Absent => "-".to_owned(),
            };
            let cell = match (cell.is_empty(), exempt) {
                (_, 0) => cell,
                (true, _) => format!("exempt {exempt}"),
                (false, _) => format!("{cell}, exempt {exempt}"),
            };
            (cell, style(mark))
        });
        let first = [(rule.id.clone(), Style::new()), (rule.level.to_string(), DIM)];
        table.row(first.into_iter().chain(cells));
    }
    table
}

/// Profiles by subjects: rules kept and broken.
fn by_profile(document: &Document, width: usize) -> Table {
    let subjects = document.subjects.iter().map(|subject| title(document, &subject.label));
    let mut table = Table::new(std::iter::once("profile".to_owned()).chain(subjects), width);
    for profile in profiles(document) {
        let cells = document.subjects.iter().map(|subject| {
            let column = Column { subject: subject.label.clone(), profile: Some(profile.to_owned()) };
            let sums = LEVELS.map(|level| counts(document, &column, level));
            described(sums.iter().fold([0; 6], |all, one| std::array::from_fn(|at| all[at] + one[at])))
        });
        table.row(std::iter::once((text::one_line(profile), Style::new())).chain(cells));
    }
    table
}

/// Levels by subjects: the last thing that is read.
fn levels(document: &Document, width: usize) -> Table {
    let subjects = document.subjects.iter().map(|subject| title(document, &subject.label));
    let mut table = Table::new(std::iter::once("rules".to_owned()).chain(subjects), width);
    let columns = Column::by_subject(document);
    for level in LEVELS {
        let sums: Vec<_> = columns.iter().map(|column| counts(document, column, level)).collect();
        if sums.iter().any(|sum| *sum != [0; 6]) {
            let cells = sums.iter().map(|sum| described(*sum));
            table.row(std::iter::once((level.to_string(), BOLD)).chain(cells));
        }
    }
    table
}

fn described([pass, fail, expected, broken, skip, exempt]: [usize; 6]) -> (String, Style) {
    let words = [
        (pass, "kept"),
        (fail, "BROKEN"),
        (expected, "broken as expected"),
        (broken, "not tried"),
        (skip, "skipped"),
        (exempt, "exempt"),
    ];
    let words: Vec<_> =
        words.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    let style = match (fail, broken + expected, pass) {
        (0, 0, 0) => DIM,
        (0, 0, _) => GOOD,
        (0, _, _) => ODD,
        _ => BAD,
    };
    (if words.is_empty() { "-".to_owned() } else { words.join(", ") }, style)
}

/// Writes which rule is broken, and where that was seen.
fn head(out: &mut String, Failure { rule, first, .. }: &Failure<'_>) {
    let (word, style) = match Mark::of(first) {
        Mark::Broken => ("NOT TRIED", ODD.bold()),
        Mark::Expected => ("EXPECTED", ODD),
        _ if rule.level == Level::Must => ("FAILED", BAD),
        _ => ("FAILED", ODD.bold()),
    };
    line(out, &format!("{style}{word}{style:#} {BOLD}{}{BOLD:#}  {}, {}", rule.id, rule.level, rule.section));
    line(out, &format!("  {}", text::one_line(&Failure::place(first))));
}

fn show(out: &mut String, failure: &Failure<'_>, width: Option<usize>) {
    let Failure { rule, first, .. } = failure;
    head(out, failure);
    prose(out, "", &rule.sentence, width);
    match &first.verdict {
        Verdict::Fail(finding) => {
            prose(out, "expected: ", &finding.expected, width);
            prose(out, "seen:     ", &finding.seen, width);
            diff(out, &finding.diff);
        }
        Verdict::Broken { why } | Verdict::Skip { why } | Verdict::Exempt { why } => {
            prose(out, "the kit:  ", why, width);
        }
        Verdict::Pass => {}
    }
    calls(out, first);
    if !failure.also.is_empty() {
        prose(out, "the same: ", &failure.others(), width);
    }
    if !first.again.is_empty() {
        line(out, &format!("  again:    {}", text::visible(&first.again)));
    }
    out.push('\n');
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

/// Prose after a label, wrapped between words, later lines below the first.
fn prose(out: &mut String, label: &str, prose: &str, width: Option<usize>) {
    let indent = 2 + label.len();
    let mut start = format!("  {DIM}{label}{DIM:#}");
    for paragraph in text::output(prose).lines() {
        let mut column = indent;
        out.push_str(&start);
        start = " ".repeat(indent);
        for (number, word) in paragraph.split(' ').enumerate() {
            let long = unicode_width::UnicodeWidthStr::width(word);
            match (number, width) {
                (0, _) => {}
                (_, Some(width)) if column + 1 + long > width => {
                    out.push('\n');
                    out.push_str(&start);
                    column = indent;
                }
                _ => {
                    out.push(' ');
                    column += 1;
                }
            }
            out.push_str(word);
            column += long;
        }
        out.push('\n');
    }
}

fn diff(out: &mut String, diff: &str) {
    for one in text::output(diff).lines() {
        let style = match one.chars().next() {
            Some('+') => GOOD,
            Some('-') => AnsiColor::Red.on_default(),
            _ => Style::new(),
        };
        line(out, &format!("    {style}{one}{style:#}"));
    }
}

/// The calls, to be copied into a shell; a step or a call of several lines is not broken up.
fn calls(out: &mut String, trial: &Tried) {
    if trial.calls.len() > CALLS {
        line(out, &format!("    # the first {CALLS} of {} calls; the JSON report has the others", trial.calls.len()));
    }
    for one in text::transcript(&trial.calls[..trial.calls.len().min(CALLS)]) {
        let style = if one.starts_with('#') { DIM } else { Style::new() };
        line(out, &format!("    {style}{one}{style:#}"));
    }
}

/// The reasons why trials with a mark were not made.
fn not_made(out: &mut String, document: &Document, mark: Mark, width: Option<usize>) {
    let label = if mark == Mark::Exempt { "exempt: " } else { "skipped: " };
    for some in reasons(&document.trials, mark) {
        prose(out, label, &format!("{}: {} ({})", some.trials(), some.why, some.whose()), width);
    }
}

/// The notes that a reader has to know, and the sums of trials.
fn ends(out: &mut String, document: &Document, width: Option<usize>) {
    for run in &document.runs {
        for note in &run.notes {
            prose(out, "note: ", note, width);
        }
        let seconds = std::time::Duration::from_millis(run.milliseconds).as_secs_f64();
        let sentence = format!(
            "{} {}: {seconds:.1} s on Linux {}, seed {}, cni-conformance {}",
            run.subjects.join(", "),
            run.began,
            run.kernel,
            run.seed,
            run.kit
        );
        prose(out, "", &sentence, width);
    }
    let mut counts = String::new();
    for mark in [Mark::Pass, Mark::Fail, Mark::Skip, Mark::Broken, Mark::Expected, Mark::Exempt] {
        let count = document.trials.iter().filter(|trial| Mark::of(trial) == mark).count();
        if [Mark::Expected, Mark::Exempt].contains(&mark) && count == 0 {
            continue;
        }
        write!(counts, "{}{count} {}", if counts.is_empty() { "" } else { ", " }, mark.word()).ok();
    }
    prose(out, "", &format!("{}: {counts}", text::plural(document.trials.len(), "trial")), width);
}
