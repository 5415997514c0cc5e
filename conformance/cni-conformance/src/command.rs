//! The kit's executable: its own command line, and what it is when it calls itself by another name.

use crate::run::{Outcome, Run};
use crate::{cli, errand, kit_ipam, report, rules, runtime, stress};
use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Tests CNI plugins and runtimes of any make against the specification.
#[derive(Parser)]
#[command(name = "cni-conformance", version)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Test plugins. Status 0: every applicable MUST holds; 1: one does not; 2: something could not be tried
    Plugin(Box<cli::Options>),
    /// Test how plugins bear killed and failing calls, a full disk and hostile input, which the specification does not
    /// ask for. Status 1: a finding; else as of plugin
    Stress(Box<cli::Options>),
    /// Test a runtime, which calls plugins. Status as of plugin
    Runtime(Box<runtime::cli::Options>),
    /// Report runs that are over, one beside the other. Status as if all had been one run
    Report(report::Options),
    /// Print all rules
    Rules,
    #[command(name = errand::OUTSIDE, hide = true)]
    Outside { own_processes: String },
    #[command(name = errand::INSIDE, hide = true)]
    Inside { own_processes: String },
}

/// The whole `main` of the executable, and of any other that is to be the kit: it starts itself again for each trial.
#[must_use]
pub fn main() -> ExitCode {
    let called_as = std::env::args_os().next().unwrap_or_default();
    let called_as = Path::new(&called_as);
    if called_as.file_name().is_some_and(|name| name == kit_ipam::NAME) {
        return ExitCode::from(kit_ipam::main());
    }
    if runtime::judge::is_called(called_as) {
        return ExitCode::from(runtime::judge::main(called_as));
    }
    let done = match Arguments::parse().what {
        What::Outside { own_processes } => errand::outside(own_processes == "true").map_err(|error| error.to_string()),
        What::Inside { own_processes } => errand::inside(own_processes == "true").map_err(|error| error.to_string()),
        What::Rules => {
            let all: Vec<_> = rules::all().chain(stress::rules()).collect();
            let of_runtimes: Vec<_> = runtime::rules::all().collect();
            let mut stdout = io::stdout().lock();
            let printed = rules::table(&all, &mut stdout).and_then(|()| writeln!(stdout));
            let printed = printed.and_then(|()| rules::table(&of_runtimes, &mut stdout));
            printed.map(|()| ExitCode::SUCCESS).map_err(|error| error.to_string())
        }
        What::Report(options) => options.run().map(status),
        What::Runtime(options) => options.run().map(|outcome| outcome.map_or(ExitCode::SUCCESS, status)),
        What::Plugin(options) => options.run(rules::all()).map(outcome),
        What::Stress(options) => options.run(stress::rules()).map(outcome),
    };
    done.unwrap_or_else(|error| {
        writeln!(io::stderr(), "cni-conformance: {error}").ok();
        ExitCode::from(2)
    })
}

fn outcome(run: Option<Run>) -> ExitCode {
    run.map_or(ExitCode::SUCCESS, |run| status(run.outcome()))
}

fn status(outcome: Outcome) -> ExitCode {
    match outcome {
        Outcome::Passed => ExitCode::SUCCESS,
        Outcome::Failed => ExitCode::FAILURE,
        Outcome::Broken => ExitCode::from(2),
    }
}
