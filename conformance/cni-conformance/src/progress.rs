//! The progress of a run: one line on a terminal, drawn again and again; nothing anywhere else.

use crate::schedule::News;
use crate::trial::Verdict;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};
use unicode_width::UnicodeWidthStr;

/// Columns of a terminal that does not report its width.
const COLUMNS: usize = 80;

/// The time after which the line says how long a trial has run.
const LONG: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Progress {
    is_shown: bool,
    done: usize,
    failed: usize,
    running: Vec<(String, Instant)>,
    /// Columns of what was drawn last.
    drawn: usize,
}

impl Progress {
    /// A line on stderr, if that is a terminal that can move its cursor.
    #[expect(clippy::disallowed_methods, reason = "what a terminal can do is in its user's environment")]
    pub fn on_stderr() -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let is_shown = io::stderr().is_terminal() && !is_dumb;
        Self { is_shown, done: 0, failed: 0, running: Vec::new(), drawn: 0 }
    }

    /// Draws what happened.
    pub fn report(&mut self, count: usize, news: &News<'_>) {
        match news {
            News::Nothing => {}
            News::Starts(name) => self.running.push(((*name).to_owned(), Instant::now())),
            News::Ends(name, verdict) => {
                self.done += 1;
                // Whether a finding with a basis is one is known at the end.
                let is_failure = match verdict {
                    Verdict::Fail(finding) => finding.basis.is_none(),
                    Verdict::Broken { .. } => true,
                    Verdict::Pass | Verdict::Skip { .. } | Verdict::Exempt { .. } => false,
                };
                self.failed += usize::from(is_failure);
                if let Some(place) = self.running.iter().position(|(running, _)| running == name) {
                    self.running.remove(place);
                }
            }
        }
        if self.is_shown {
            // Leave one column free: in the last one terminals differ in where the cursor is.
            let columns = columns();
            let line = self.line(count, columns.saturating_sub(1));
            let cleared = self.cleared(columns);
            self.drawn = line.width();
            write!(io::stderr(), "{cleared}{line}").ok();
        }
    }

    /// Takes the line away.
    pub fn end(self) {
        if self.is_shown {
            write!(io::stderr(), "{}", self.cleared(columns())).ok();
        }
    }

    /// Takes away what was drawn: more lines than one, if the terminal has become narrower since (ECMA-48: CUU, ED).
    fn cleared(&self, columns: usize) -> String {
        match self.drawn.saturating_sub(1) / columns.max(1) {
            0 => "\r\x1b[J".to_owned(),
            above => format!("\r\x1b[{above}A\x1b[J"),
        }
    }

    /// Returns how far the run is, and which trial has run longest; cut where the columns end.
    fn line(&self, count: usize, columns: usize) -> String {
        let Self { done, failed, running, .. } = self;
        let mut line = format!("{done}/{count}");
        if *failed > 0 {
            line += &format!(", {failed} failed");
        }
        if let Some((name, since)) = running.first() {
            let since = since.elapsed();
            if since >= LONG {
                line += &format!(", {} s", since.as_secs());
            }
            line += &format!(": {name}");
        }
        while line.width() > columns {
            line.pop();
        }
        line
    }
}

fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(COLUMNS)
}
