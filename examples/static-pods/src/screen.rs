//! Displays the board: redrawn in place on a terminal, otherwise a line for each change.

use crate::board::{Board, Phase, PodStatus, Readiness};
use crate::manifest::Key;
use crate::table;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::SystemTime;

/// How the board is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// A table that is redrawn in place.
    Table,
    /// A line for each change.
    Lines,
    /// A JSON object on a line for each change.
    Json,
}

/// The state of stdout.
#[derive(Debug)]
pub(crate) struct Screen {
    output: Output,
    /// Lines of the table that stands there.
    drawn: usize,
    shown: Board,
}

const DEFAULT_WIDTH: usize = 80;
const DEFAULT_HEIGHT: usize = 24;

impl Screen {
    /// The screen of that kind; by default the one that suits stdout.
    pub(crate) fn new(output: Option<Output>) -> Self {
        let suitable = || if io::stdout().is_terminal() { Output::Table } else { Output::Lines };
        Self { output: output.unwrap_or_else(suitable), drawn: 0, shown: Board::new() }
    }

    /// Whether ages are on it, which change by themselves.
    pub(crate) fn has_ages(&self) -> bool {
        self.output == Output::Table
    }

    /// Shows a pod's new status, and the board it is on by now. A pipe's reader gets each of them, in order.
    pub(crate) fn show_change(&mut self, key: &Key, pod: &PodStatus) {
        let line = match self.output {
            Output::Table => return,
            Output::Lines => table::change(key, pod),
            Output::Json => json!({ "pod": key.to_string(), "status": pod }).to_string(),
        };
        write_out(&format!("{line}\n"));
    }

    /// Shows the board: all of it on a terminal, else what is new of network and manifests.
    pub(crate) fn show(&mut self, board: &Board) {
        match self.output {
            Output::Table => self.draw(board),
            Output::Lines | Output::Json => {
                if board.network != self.shown.network {
                    self.say_network(&board.network);
                }
                self.say_problems(&board.problems);
                self.shown = board.clone();
            }
        }
    }

    fn say_network(&self, readiness: &Readiness) {
        let text = table::printable(&readiness.to_string());
        write_out(&match self.output {
            Output::Json => format!("{}\n", json!({ "network": text })),
            Output::Table | Output::Lines => format!("network {text}\n"),
        });
    }

    fn say_problems(&self, problems: &BTreeMap<String, Vec<String>>) {
        for (file, texts) in problems.iter().filter(|(file, texts)| self.shown.problems.get(*file) != Some(*texts)) {
            for text in texts {
                write_out(&match self.output {
                    Output::Json => format!("{}\n", json!({ "file": file, "error": text })),
                    Output::Table | Output::Lines => format!("{file}: {}\n", table::printable(text)),
                });
            }
        }
        for file in self.shown.problems.keys().filter(|file| !problems.contains_key(*file)) {
            write_out(&match self.output {
                Output::Json => format!("{}\n", json!({ "file": file, "error": null })),
                Output::Table | Output::Lines => format!("{file}: no more errors\n"),
            });
        }
    }

    /// Draws over what was drawn before. Lines for which the terminal has no room are counted, not drawn: the cursor
    /// cannot go back over what has scrolled away.
    fn draw(&mut self, board: &Board) {
        let in_place = io::stdout().is_terminal();
        let (width, height) = size();
        let mut lines = table::render(board, now(), width);
        let room = height.saturating_sub(1).max(2);
        if in_place && lines.len() > room {
            let hidden = lines.len() - (room - 1);
            lines.truncate(room - 1);
            lines.push(format!("… and {hidden} lines more"));
        }
        // Each line is cleared behind its text and the rest below, so nothing flickers.
        let (end, rest) = if in_place { ("\x1b[K\n", "\x1b[J") } else { ("\n", "") };
        let back = if in_place && self.drawn > 0 { format!("\x1b[{}A\r", self.drawn) } else { String::new() };
        let text: String = lines.iter().map(|line| format!("{line}{end}")).collect();
        write_out(&format!("{back}{text}{rest}"));
        self.drawn = lines.len();
    }

    /// Shows the board as it is at the end of a single run.
    pub(crate) fn show_once(&mut self, board: &Board) {
        match self.output {
            Output::Table => self.draw(board),
            Output::Lines | Output::Json => (),
        }
    }
}

/// Columns and lines of the terminal.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (DEFAULT_WIDTH, DEFAULT_HEIGHT),
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The reader may be gone; the pods live all the same.
fn write_out(text: &str) {
    let mut stdout = io::stdout().lock();
    drop(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()));
}

/// Whether a change is worth a line: the same status again is not.
pub(crate) fn is_news(before: Option<&PodStatus>, now: &PodStatus) -> bool {
    before != Some(now) || matches!(now.phase, Phase::Gone | Phase::Left)
}
