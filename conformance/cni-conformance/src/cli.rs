//! The kit's executable: its own command line, and what it is when it calls itself by another name.

pub mod plugin;
pub mod runtime;
mod trial_options;

use crate::profile::Role;
use crate::report::Asked;
use crate::rule::{Level, Rule, Versions};
use crate::run::Outcome;
use crate::sentences::Sentence;
use crate::{isolated_task, kit_ipam, report, rules, run, sentences, stress};
use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Tests CNI plugins and runtimes of any make against the specification.
#[derive(Parser)]
#[command(name = "cni-conformance", version)]
struct Arguments {
    /// Rules of your own, whose cases are steps as `explain` shows them; may be repeated
    #[arg(long, value_name = "FILE", global = true)]
    cases: Vec<PathBuf>,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Test plugins. Status 0: every applicable MUST holds; 1: one does not; 2: it was called wrongly; 3: none is broken,
    /// but something could not be tried
    Plugin(Box<plugin::Options>),
    /// Test how plugins bear killed and failing calls, a full disk and hostile input, which the specification does not
    /// ask for. Status 1: a finding; else as of plugin
    Stress(Box<plugin::Options>),
    /// Test a runtime, which calls plugins. Status as of plugin
    Runtime(Box<runtime::Options>),
    /// Print the specification sentence by sentence, with the rules that ask for it
    Rules,
    /// Tell what a rule asks, of whom, and how it is tried
    Explain {
        /// Name of a rule, or the start of the names of some
        rule: String,
    },
    #[command(name = isolated_task::ISOLATE, hide = true)]
    Outside { own_processes: String },
    #[command(name = isolated_task::RUN_ISOLATED, hide = true)]
    Inside { own_processes: String },
}

/// The whole `main` of the executable, and of any other that is to be the kit: it starts itself again for each trial.
pub fn main() -> ExitCode {
    let called_as = std::env::args_os().next().unwrap_or_default();
    let called_as = Path::new(&called_as);
    if called_as.file_name().is_some_and(|name| name == kit_ipam::NAME) {
        return ExitCode::from(kit_ipam::main());
    }
    if crate::runtime::mock_plugin::is_called(called_as) {
        return ExitCode::from(crate::runtime::mock_plugin::main(called_as));
    }
    report::is_called(called_as);
    // A panic is mostly a machine that refuses something: its sentence is told, without its place in the code.
    std::panic::set_hook(Box::new(|panic| {
        writeln!(io::stderr(), "{}", panic.payload_as_str().unwrap_or("an error of the kit")).ok();
    }));
    let Arguments { cases, what } = Arguments::parse();
    let done = rules::read_own(&cases).and_then(|()| match what {
        What::Outside { own_processes } => {
            isolated_task::isolate(own_processes == "true").map_err(|error| error.to_string())
        }
        What::Inside { own_processes } => {
            isolated_task::run_isolated(own_processes == "true").map_err(|error| error.to_string())
        }
        What::Rules => print(&sentences::page::page()).map(|()| ExitCode::SUCCESS),
        What::Explain { rule } => explain(&rule).map(|()| ExitCode::SUCCESS),
        What::Runtime(options) => options.run().map(|outcome| outcome.map_or(ExitCode::SUCCESS, status)),
        What::Plugin(options) => options.run(rules::all()).map(|outcome| outcome.map_or(ExitCode::SUCCESS, status)),
        What::Stress(options) => options.run(stress::rules()).map(|outcome| outcome.map_or(ExitCode::SUCCESS, status)),
    });
    done.unwrap_or_else(|error| {
        writeln!(io::stderr(), "cni-conformance: {error}").ok();
        ExitCode::from(if error.starts_with(run::NOTHING_HERE) { 3 } else { 2 })
    })
}

/// Prints a text. A reader who has seen enough, `head` or a pager that was left, is no error.
fn print(text: &str) -> Result<(), String> {
    let printed = io::stdout().lock().write_all(text.as_bytes());
    let read = printed.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) });
    read.map_err(|error| format!("cannot write to stdout: {error}"))
}

/// A rule as it is explained, whomever it binds.
struct Explained {
    rule: Asked,
    sentences: Vec<&'static Sentence>,
    cases: Vec<(&'static str, Versions, &'static str, &'static str)>,
}

impl Explained {
    fn new<B>(rule: &'static Rule<B>) -> Self {
        let cases = rule.cases.iter().map(|case| (case.name, case.versions, case.does, case.steps)).collect();
        Self { rule: Asked::new(rule), sentences: rule.sentences().collect(), cases }
    }
}

fn explain(name: &str) -> Result<(), String> {
    let plugins = rules::all().chain(stress::rules()).map(Explained::new);
    let all: Vec<_> = plugins.chain(crate::runtime::rules::all().map(Explained::new)).collect();
    let exact = all.iter().any(|told| told.rule.id == name);
    let is_meant = |told: &&Explained| if exact { told.rule.id == name } else { told.rule.id.starts_with(name) };
    let meant: Vec<_> = all.iter().filter(is_meant).map(described).collect();
    if meant.is_empty() {
        let names: Vec<_> = all.iter().map(|told| told.rule.id.as_str()).collect();
        return Err(unknown("rule", name, &names));
    }
    print(&meant.join("\n"))
}

fn described(Explained { rule, sentences, cases }: &Explained) -> String {
    let roles: Vec<_> = rule.roles.iter().map(|role| format!("{role:?}").to_lowercase()).collect();
    let mut text = format!("{}: {}, {}\n  {}\n", rule.id, rule.level, rule.section, rule.sentence);
    for sentence in sentences {
        let Sentence { id, section, says, quote, .. } = sentence;
        text += &format!("  says:   {says} ({section}{}; {id})\n", sentence.editions());
        text.extend(quote.iter().map(|quote| format!("  quote:  {quote}\n")));
    }
    if rule.level == Level::Relied {
        text += "  says:   no sentence of the specification; those named above depend on it\n";
    }
    text += &format!("  binds:  {}\n", roles.join(", "));
    for (name, versions, does, steps) in cases {
        let case = if name.is_empty() { "one case".to_owned() } else { format!("--case {name}") };
        text += &format!("  tried:  {case}, with {versions}\n          {does}\n");
        if !steps.is_empty() {
            text += &format!("          steps: {steps}\n");
        }
    }
    let is_of_runtimes = rule.roles.contains(&Role::Runtime);
    let (command, file) = match rule.level {
        _ if is_of_runtimes => ("runtime", "driver, RUNTIMES.md"),
        Level::Robustness => ("stress", "profile, PROFILES.md"),
        _ => ("plugin", "profile, PROFILES.md"),
    };
    text += "  skipped: where it speaks no such version, or has nothing that the case is about: the report names the reason\n";
    text += &format!("  alone:  {} {command} ... --rule {} --report terminal\n", report::program(), rule.id);
    text + &format!(
        "  to do:  run the calls that this prints; if it has to be so, name the rule in unbound of its {file}\n"
    )
}

fn status(outcome: Outcome) -> ExitCode {
    match outcome {
        Outcome::Passed => ExitCode::SUCCESS,
        Outcome::Failed => ExitCode::FAILURE,
        Outcome::Broken => ExitCode::from(3),
    }
}

pub(crate) fn unknown(what: &str, name: &str, names: &[&str]) -> String {
    let mut near: Vec<_> = names.iter().map(|other| (strsim::jaro_winkler(name, other), *other)).collect();
    near.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let mut near: Vec<_> = near.into_iter().filter(|(likeness, _)| *likeness > 0.7).map(|(_, name)| name).collect();
    near.dedup();
    near.truncate(3);
    let hint = if near.is_empty() { String::new() } else { format!(": did you mean {}?", near.join(" or ")) };
    format!("there is no {what} {name:?}{hint}")
}
