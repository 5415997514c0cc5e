//! How far a run is: one line on a terminal, drawn again and again; nothing anywhere else.

use crate::schedule::News;
use crate::trial::Verdict;
use std::io::{self, IsTerminal, Write};

/// The line.
#[derive(Debug)]
pub struct Progress {
    is_shown: bool,
    done: usize,
    failed: usize,
    running: Vec<String>,
}

impl Progress {
    /// A line on stderr, if that is a terminal.
    #[must_use]
    pub fn on_stderr() -> Self {
        Self { is_shown: io::stderr().is_terminal(), done: 0, failed: 0, running: Vec::new() }
    }

    /// Draws what happened.
    pub fn tell(&mut self, count: usize, news: &News<'_>) {
        match news {
            News::Starts(trial) => self.running.push(name(trial)),
            News::Ends(report) => {
                self.done += 1;
                self.failed += usize::from(matches!(report.verdict, Verdict::Fail(_) | Verdict::Broken { .. }));
                if let Some(place) = self.running.iter().position(|running| *running == name(&report.trial)) {
                    self.running.remove(place);
                }
            }
        }
        if self.is_shown {
            let line = self.line(count);
            // To the start of the line, and clear what is right of the cursor (ECMA-48: EL).
            write!(io::stderr(), "\r{line}\x1b[K").ok();
        }
    }

    /// Takes the line away.
    pub fn end(self) {
        if self.is_shown {
            write!(io::stderr(), "\r\x1b[K").ok();
        }
    }

    /// At most 79 characters: a longer one would wrap and could not be drawn over.
    fn line(&self, count: usize) -> String {
        let Self { done, failed, running, .. } = self;
        let longest = running.first().map(String::as_str).unwrap_or_default();
        format!("{done}/{count} done, {failed} failed; {longest}").chars().take(79).collect()
    }
}

fn name(trial: &crate::trial::Trial) -> String {
    format!("{} {} {}/{}", trial.profile.name, trial.version, trial.rule, trial.case)
}

#[cfg(test)]
mod tests {
    use super::Progress;

    #[test]
    fn the_line_fits_a_terminal() {
        let running = vec!["x".repeat(200)];
        let line = Progress { is_shown: false, done: 3, failed: 1, running }.line(10);
        assert!(line.starts_with("3/10 done, 1 failed; xxx") && line.len() == 79, "{line}");
    }
}
