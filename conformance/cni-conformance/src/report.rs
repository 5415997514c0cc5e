//! Reports on a run: for people at a terminal, for harnesses, and for programs.

pub(crate) mod document;
mod findings;
mod junit;
mod table;
mod tally;
mod target;
mod terminal;
mod text;

use crate::run::Run;
use crate::trial::Trial;
use std::path::Path;
use std::sync::OnceLock;

pub use document::{Asked, Document, FORMAT, Origin, Tried, Use, VERSION, Who};
pub use findings::Expected;
pub use target::{Target, can_be_delivered, deliver};

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For a person at a terminal: sums, then a few lines for each rule that is broken
    Summary,
    /// The same in full: each failure with its calls, a table of rules, what was skipped and why, then sums
    Terminal,
    /// JUnit's XML, as Jenkins and GitLab read it
    Junit,
    /// Everything, for programs
    Json,
    /// A line for each finding, for `--expect`
    Findings,
}

impl Format {
    /// The report as text; that for a terminal without colours.
    pub fn text(self, document: &Document) -> String {
        match self {
            Self::Summary => anstream::adapter::strip_str(&terminal::summary(document, None)).to_string(),
            Self::Terminal => anstream::adapter::strip_str(&terminal::text(document, None)).to_string(),
            Self::Junit => junit::text(document),
            Self::Json => serde_json::to_string_pretty(document).unwrap_or_default() + "\n",
            Self::Findings => findings::text(document),
        }
    }

    /// The report for a terminal of that width, in colours: in full unless it is the summary.
    pub fn for_terminal(self, document: &Document, columns: usize) -> String {
        match self {
            Self::Summary => terminal::summary(document, Some(columns)),
            _ => terminal::text(document, Some(columns)),
        }
    }
}

/// Options of a run that its trials depend on, with a value each: those with a path, and others.
const CARRIED: [&[&str]; 2] =
    [&["--config", "--profile", "--writable", "--cases"], &["--role", "--call-deadline", "--case-deadline"]];

/// A path for a shell in any folder.
pub(crate) fn absolute(path: impl AsRef<Path>) -> String {
    std::path::absolute(&path).unwrap_or_else(|_error| path.as_ref().to_owned()).display().to_string()
}

/// The command that tries just this again, for a shell in any folder.
pub fn again(trial: &Trial, run: &Run) -> String {
    use crate::finding::quoted;
    use crate::stress;
    let Trial { rule, case, subject, profile, seed, .. } = trial;
    let command = if stress::rules().any(|other| other.id == rule) { "stress" } else { "plugin" };
    let mut words = vec![program(), command.to_owned()];
    let values = |option: &str| -> Vec<String> {
        let own = format!("{option}=");
        let pairs = run.command.iter().zip(run.command.iter().skip(1).map(Some).chain([None]));
        let value = |(word, next): (&String, Option<&String>)| match word.strip_prefix(&own) {
            Some(value) => Some(value.to_owned()),
            None => next.filter(|_| word == option).cloned(),
        };
        pairs.filter_map(value).collect()
    };
    let mut say = |option: &str, value: &str| words.extend([option.to_owned(), quoted(value)]);
    let dir = subject.bin_dir.display().to_string();
    if values("--profile").is_empty() || !values("--bin-dir").is_empty() {
        let is_label = !subject.label.contains('/');
        say("--bin-dir", &if is_label { format!("{}={dir}", subject.label) } else { dir });
        subject.also.iter().for_each(|dir| say("--also", &dir.display().to_string()));
    } else {
        values("--also").iter().for_each(|dir| say("--also", &absolute(dir)));
    }
    CARRIED[0].iter().for_each(|option| values(option).iter().for_each(|path| say(option, &absolute(path))));
    CARRIED[1].iter().for_each(|option| values(option).iter().for_each(|value| say(option, value)));
    if values("--config").is_empty() {
        say("--only", &profile.name);
    }
    say("--rule", rule);
    if !case.is_empty() {
        say("--case", case);
    }
    say("--seed", &seed.to_string());
    words.join(" ")
}

/// The kit as a shell in any folder finds it, under the name by which it was called.
pub(crate) fn program() -> String {
    PROGRAM.get().map_or_else(|| "cni-conformance".to_owned(), |called| crate::finding::quoted(called))
}

/// The words with which the process was called, of one that is the kit.
static PROGRAM: OnceLock<String> = OnceLock::new();

/// Says that this process is the kit, and how it was called.
pub(crate) fn is_called(called_as: &Path) {
    let called = called_as.display().to_string();
    PROGRAM.get_or_init(|| if called.contains('/') { absolute(&called) } else { called });
}
