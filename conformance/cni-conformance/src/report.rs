//! What is said about a run.

use crate::run::Run;
use crate::trial::{Report, Trial, Verdict};
use std::io::{self, Write};

/// How it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For a person at a terminal: failures in full, then sums.
    Terminal,
}

/// Writes a run.
///
/// # Errors
/// If `out` fails.
pub fn write(format: Format, run: &Run, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Terminal => terminal(run, out),
    }
}

fn terminal(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    for report in &run.reports {
        match &report.verdict {
            Verdict::Pass | Verdict::Skip { .. } => {}
            Verdict::Fail(_) | Verdict::Broken { .. } => failure(run, report, out)?,
        }
    }
    let mut skips: Vec<(String, usize)> = Vec::new();
    for report in &run.reports {
        if let Verdict::Skip { why } = &report.verdict {
            let line = format!("{} {}: {why}", report.trial.subject.label, report.trial.profile.name);
            match skips.iter_mut().find(|(other, _)| *other == line) {
                Some((_, count)) => *count += 1,
                None => skips.push((line, 1)),
            }
        }
    }
    for (line, count) in skips {
        writeln!(out, "skipped {count} of {line}")?;
    }
    for note in &run.notes {
        writeln!(out, "note: {note}")?;
    }
    let [passed, failed, skipped, broken] = run.counts();
    let seconds = run.took.as_secs_f64();
    writeln!(
        out,
        "{passed} passed, {failed} failed, {skipped} skipped, {broken} broken in {seconds:.1} s; seed {}, Linux {}",
        run.seed, run.machine.kernel
    )
}

fn failure(run: &Run, report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let trial = &report.trial;
    let rule = run.rule(report);
    let level = rule.map(|rule| format!("{} ({}) ", rule.section, rule.level)).unwrap_or_default();
    let word = if matches!(report.verdict, Verdict::Broken { .. }) { "BROKEN" } else { "FAILED" };
    let case = if trial.case.is_empty() { String::new() } else { format!(", case {}", trial.case) };
    writeln!(
        out,
        "{word} {}{case}: {} of {}, version {}",
        trial.rule, trial.profile.name, trial.subject.label, trial.version
    )?;
    writeln!(out, "  {level}{}", rule.map(|rule| rule.sentence).unwrap_or_default())?;
    match &report.verdict {
        Verdict::Fail(finding) => {
            writeln!(out, "  expected: {}\n  but:      {}", finding.expected, finding.seen)?;
            for line in finding.diff.lines() {
                writeln!(out, "    {line}")?;
            }
        }
        Verdict::Broken { why } | Verdict::Skip { why } => writeln!(out, "  {why}")?,
        Verdict::Pass => {}
    }
    for call in &report.calls {
        let exit = call.exit.map_or("no end".to_owned(), |exit| format!("status {exit}"));
        writeln!(
            out,
            "  $ {}\n    {exit} after {} ms: {}",
            call.command_line(),
            call.milliseconds,
            call.stdout.trim()
        )?;
    }
    writeln!(out, "  again: {}\n", again(trial, run))
}

/// The command that tries just this again.
#[must_use]
pub fn again(trial: &Trial, run: &Run) -> String {
    use crate::finding::quoted;
    let Trial { rule, case, subject, profile, seed, .. } = trial;
    let mut words = vec![format!(
        "cni-conformance plugin --bin-dir {}",
        quoted(&format!("{}={}", subject.label, subject.bin_dir.display()))
    )];
    words.extend(subject.also.iter().map(|dir| format!("--also {}", quoted(&dir.display().to_string()))));
    let config = run.command.iter().position(|word| word == "--config").and_then(|place| run.command.get(place + 1));
    match config {
        Some(file) => words.push(format!("--config {}", quoted(file))),
        None => words.push(format!("--only {}", quoted(&profile.name))),
    }
    words.push(format!("--rule {rule}"));
    if !case.is_empty() {
        words.push(format!("--case {}", quoted(case)));
    }
    words.push(format!("--seed {seed}"));
    words.join(" ")
}
