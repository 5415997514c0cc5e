//! What is said about a run: for people at a terminal and in a browser, for harnesses, and for programs.

pub(crate) mod document;
mod html;
mod junit;
mod merge;
mod table;
mod tally;
mod tap;
mod target;
mod terminal;
mod text;

use crate::run::Run;
use crate::trial::Trial;

pub use document::{Asked, Document, FORMAT, Origin, Tried, Use, VERSION, Who};
pub use merge::{Options, merged};
pub use target::{Target, can_be_delivered, deliver};

/// How it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For a person at a terminal: failures in full, then a table of rules, then sums
    Terminal,
    /// TAP, version 14
    Tap,
    /// JUnit's XML, as Jenkins and GitLab read it
    Junit,
    /// Everything, for programs, and for `cni-conformance report`
    Json,
    /// One page for a browser
    Html,
}

impl Format {
    /// The report as text; that for a terminal without colours.
    #[must_use]
    pub fn text(self, document: &Document) -> String {
        match self {
            Self::Terminal => anstream::adapter::strip_str(&terminal::text(document, None)).to_string(),
            Self::Tap => tap::text(document),
            Self::Junit => junit::text(document),
            Self::Json => serde_json::to_string_pretty(document).unwrap_or_default() + "\n",
            Self::Html => html::text(document),
        }
    }

    /// The report for a terminal of that width, in colours.
    #[must_use]
    pub fn for_terminal(document: &Document, columns: usize) -> String {
        terminal::text(document, Some(columns))
    }
}

/// The command that tries just this again.
#[must_use]
pub fn again(trial: &Trial, run: &Run) -> String {
    use crate::finding::quoted;
    use crate::stress;
    let Trial { rule, case, subject, profile, seed, .. } = trial;
    let mut words = vec![format!(
        "cni-conformance {} --bin-dir {}",
        if stress::rules().any(|other| other.id == rule) { "stress" } else { "plugin" },
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
