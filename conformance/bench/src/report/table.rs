//! Tables: Markdown whose columns are aligned, so that they read as well on a terminal as in a README.

use std::fmt;
use std::io::{self, Write};

use crate::callers::Init;
use crate::targets::{Bound, OURS, TARGETS};

use super::{Burst, Figures, Growth, Outcome, Report, Row, Spread, TraceCounts};

/// Lines of cells; the first column is text, the others are numbers.
struct Table {
    head: Vec<String>,
    lines: Vec<Vec<String>>,
    /// How many columns are text.
    texts: usize,
}

impl Table {
    fn new(texts: usize, head: &[&str]) -> Self {
        Self { head: head.iter().map(|cell| (*cell).to_owned()).collect(), lines: Vec::new(), texts }
    }

    fn line(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<_> = cells.into_iter().collect();
        cells.resize(self.head.len(), String::new());
        self.lines.push(cells);
    }

    fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = || std::iter::once(&self.head).chain(&self.lines);
        let width = |column: usize| {
            all().filter_map(|cells| cells.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
        };
        let widths: Vec<_> = (0..self.head.len()).map(width).collect();
        let line = |f: &mut fmt::Formatter<'_>, cells: &[String]| {
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                match column < self.texts {
                    true => write!(f, "| {cell:<width$} ")?,
                    false => write!(f, "| {cell:>width$} ")?,
                }
            }
            writeln!(f, "|")
        };
        line(f, &self.head)?;
        for (column, width) in widths.iter().enumerate() {
            let dashes = "-".repeat(width - usize::from(column >= self.texts));
            write!(f, "| {dashes}{} ", if column < self.texts { "" } else { ":" })?;
        }
        writeln!(f, "|")?;
        self.lines.iter().try_for_each(|cells| line(f, cells))
    }
}

/// Everything, in the order in which it is read.
pub(crate) fn tables(report: &Report, to: &mut impl Write) -> io::Result<()> {
    writeln!(to, "{}\n", machine_line(report))?;
    for note in &report.notes {
        writeln!(to, "{note}\n")?;
    }
    let all = [
        ("Targets", targets(report)),
        ("One call at a time, ms", times(&report.rows)),
        ("What a call does", counts(&report.rows)),
        ("Back to back, subjects side by side", side_by_side(&report.bursts)),
        ("Back to back, and several calls at a time", bursts(&report.bursts)),
        ("Growth, ms", growth(&report.growth)),
        ("Executables", bytes(report)),
    ];
    for (title, table) in all.iter().filter(|(_, table)| !table.is_empty()) {
        writeln!(to, "### {title}\n\n{table}")?;
    }
    for failure in report.failures() {
        writeln!(to, "FAILED {failure}")?;
    }
    Ok(())
}

/// When, where, how.
fn machine_line(report: &Report) -> String {
    let made = &report.made;
    let arguments = made.command.iter().map(|word| format!(" {word}")).collect::<String>();
    let dashes = if arguments.is_empty() { "" } else { " --" };
    let cpuid = made.cpuid_ns.map(|ns| format!(", {ns} ns a CPUID")).unwrap_or_default();
    format!(
        "{}: Linux {}, {} x {}{}, load {:.2}; `cargo bench --package bench{dashes}{arguments}`",
        made.date, made.kernel, made.processors, made.processor, cpuid, made.load
    )
}

/// Only what this run has measured.
fn targets(report: &Report) -> Table {
    let mut table = Table::new(1, &["what, of ours", "measured", "the floor's", "target", ""]);
    for target in TARGETS {
        let Some(measured) = target.measured(report) else {
            continue;
        };
        let (bound, unit) = match target.bound {
            Bound::AtMost(most, unit) => (format!("<= {most}{unit}"), unit),
            Bound::AtLeast(least, unit) => (format!(">= {least}{unit}"), unit),
        };
        let met = if target.is_met(measured) { "met" } else { "not met" };
        let with_unit = |value| format!("{}{unit}", ms(value));
        let floor = target.of_floor(report).map_or_else(String::new, with_unit);
        table.line([target.what.to_owned(), with_unit(measured), floor, bound, met.to_owned()]);
    }
    table
}

fn times(rows: &[Row]) -> Table {
    let head = ["call", "subject", "p50", "p90", "p99", "against ours", "nothing left", "CPU", "switches"];
    let mut table = Table::new(2, &head);
    for row in rows {
        let cells = cells(&row.outcome, |figures| {
            let wall = figures.wall_ms;
            let against = against_ours(rows, row).map_or_else(String::new, |ratio| format!("{ratio:.2}x"));
            let rest = [ms(figures.gone_ms.p50), ms(figures.cpu_ms.p50), number(figures.switches.p50)];
            [ms(wall.p50), ms(wall.p90), ms(wall.p99), against].into_iter().chain(rest).collect()
        });
        table.line([format!("{} {}", row.scene, row.verb), row.subject.clone()].into_iter().chain(cells));
    }
    table
}

/// The median of each pod's own ratio: what happens on the machine meanwhile happens to both.
fn against_ours(rows: &[Row], row: &Row) -> Option<f64> {
    let is_same = |other: &&Row| (&other.scene, &other.verb) == (&row.scene, &row.verb);
    let ours = rows.iter().filter(is_same).find(|other| other.subject == OURS && row.subject != OURS)?;
    let (ours, own) = (&ours.outcome.figures()?.samples_ms, &row.outcome.figures()?.samples_ms);
    let ratios: Vec<_> = own.iter().zip(ours).map(|(own, ours)| own / ours).collect();
    Spread::of(&ratios).filter(|_| own.len() == ours.len()).map(|ratios| ratios.p50)
}

fn counts(rows: &[Row]) -> Table {
    let head = ["call", "subject", "system calls", "netlink changes", "execs", "forks", "threads", "peak memory, MiB"];
    let mut table = Table::new(2, &head);
    for row in rows {
        let Some(TraceCounts { syscalls, messages, forks, execs, threads, peak_kib }) =
            row.outcome.figures().and_then(|figures| figures.counts)
        else {
            continue;
        };
        let numbers = [syscalls, messages, execs, forks, threads].map(|count| count.to_string());
        let peak = format!("{:.2}", peak_kib as f64 / 1024.0);
        table.line(
            [format!("{} {}", row.scene, row.verb), row.subject.clone()].into_iter().chain(numbers).chain([peak]),
        );
    }
    table
}

/// A column for each subject, ours last, with a PID 1 that takes helpers: the p50 of calls one after the other, and calls a second of
/// several at a time.
fn side_by_side(bursts: &[Burst]) -> Table {
    let rows: Vec<_> = bursts.iter().filter(|row| row.init == Init::Reaps).collect();
    let mut subjects: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.subject != OURS) {
        subjects.extend(Some(row.subject.as_str()).filter(|subject| !subjects.contains(subject)));
    }
    subjects.push(OURS);
    let head: Vec<_> = ["call", "at once", "measured"].into_iter().chain(subjects.iter().copied()).collect();
    let mut table = Table::new(3, &head);
    let mut done = Vec::new();
    for row in &rows {
        let call = (&row.scene, &row.verb, row.at_once);
        if done.contains(&call) {
            continue;
        }
        done.push(call);
        let cell = |subject: &&str| {
            let is_it =
                |other: &&&Burst| (&other.scene, &other.verb, other.at_once) == call && other.subject == **subject;
            rows.iter().find(is_it).map_or_else(String::new, |row| match (row.outcome.figures(), row.at_once) {
                (None, _) => "failed".to_owned(),
                (Some(figures), 1) => ms(figures.wall_ms.p50),
                (Some(_), _) => number(row.per_second),
            })
        };
        let measured = if row.at_once == 1 { "p50, ms" } else { "calls a second" };
        let head = [format!("{} {}", row.scene, row.verb), row.at_once.to_string(), measured.to_owned()];
        table.line(head.into_iter().chain(subjects.iter().map(cell)));
    }
    table
}

fn bursts(bursts: &[Burst]) -> Table {
    let mut table = Table::new(
        3,
        &["call", "subject", "PID 1", "at once", "per second", "p50", "p90", "p99", "CPU", "left behind"],
    );
    for burst in bursts {
        let cells = cells(&burst.outcome, |figures| {
            let wall = figures.wall_ms;
            vec![
                number(burst.per_second),
                ms(wall.p50),
                ms(wall.p90),
                ms(wall.p99),
                ms(figures.cpu_ms.p50),
                ms(burst.left_ms),
            ]
        });
        let call = format!("{} {}", burst.scene, burst.verb);
        let head = [call, burst.subject.clone(), burst.init.name().to_owned(), burst.at_once.to_string()];
        table.line(head.into_iter().chain(cells));
    }
    table
}

fn growth(growth: &[Growth]) -> Table {
    let mut table =
        Table::new(3, &["what grows", "call", "subject", "size", "churn per s", "p50", "p90", "p99", "CPU"]);
    for point in growth {
        let cells = cells(&point.outcome, |figures| {
            let wall = figures.wall_ms;
            vec![ms(wall.p50), ms(wall.p90), ms(wall.p99), ms(figures.cpu_ms.p50)]
        });
        let what = [point.dimension.clone(), format!("{} {}", point.scene, point.verb), point.subject.clone()];
        let churn = if point.churn > 0.0 { number(point.churn) } else { String::new() };
        table.line(what.into_iter().chain([point.size.to_string(), churn]).chain(cells));
    }
    table
}

fn bytes(report: &Report) -> Table {
    let mut table = Table::new(1, &["subject", "plugins", "bytes of all together"]);
    for subject in &report.subjects {
        table.line([subject.name.clone(), subject.plugins.to_string(), subject.bytes.to_string()]);
    }
    table
}

fn cells(outcome: &Outcome, of: impl FnOnce(&Figures) -> Vec<String>) -> Vec<String> {
    match outcome {
        Outcome::Measured(figures) => of(figures),
        Outcome::Failed(_) => vec!["failed".to_owned()],
    }
}

fn ms(value: f64) -> String {
    if value < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

fn number(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}").trim_end_matches(".0").to_owned() } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::super::made_up;
    use super::{Table, tables};

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(1, &["who", "n"]);
        table.line(["a longer name".to_owned(), "7".to_owned()]);
        table.line(["b".to_owned()]);
        let expected = [
            "| who           |   n |",
            "| ------------- | --: |",
            "| a longer name |   7 |",
            "| b             |     |",
        ];
        assert_eq!(table.to_string().lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_table_has_everything_and_failures_last() {
        let mut text = Vec::new();
        tables(&made_up::report(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert!(
            lines.contains(&"| bridge ADD | floor | 2.00 | 6.00 | 6.00 | 0.67x | 22.00 | 1.00 | 3 |".to_owned()),
            "{text}"
        );
        assert!(
            lines.contains(&"| bridge ADD | ours | 3.00 | 9.00 | 9.00 | | 23.00 | 1.00 | 3 |".to_owned()),
            "{text}"
        );
        assert!(lines.contains(&"| bridge ADD | reference | failed | | | | | | |".to_owned()), "{text}");
        assert!(
            lines.contains(
                &"| bridge DEL, p50, against the floor that waits | 0.25x | | <= 0.2x | not met |".to_owned()
            ),
            "{text}"
        );
        let head = "| call | at once | measured | reference | before | ours |";
        assert!(lines.iter().any(|line| line == head), "{text}");
        for line in ["bridge ADD | 1 | p50, ms | | failed | 4.00", "bridge ADD | 8 | calls a second | 90 | 400 | 500"] {
            assert!(lines.iter().any(|found| *found == format!("| {line} |")), "{text}");
        }
        let cpu = "| CPU time of a bridge ADD, p50 | 1.00 ms | 1.00 ms | <= 2 ms | met |";
        assert!(lines.iter().any(|line| line == cpu), "{text}");
        assert!(lines[0].ends_with("`cargo bench --package bench -- --pods 3`"), "{text}");
        assert_eq!(lines.last().unwrap(), "FAILED before, bridge ADD: it said <no> & \"never\"");
    }
}
