//! The command line of the kit.

use clap::{Parser, Subcommand};
use cni_conformance::{Profile, Subject, report, schedule, trial};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Tests CNI plugins and runtimes of any make against the specification.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Test plugins.
    Plugin {
        /// Folder of the executables.
        #[arg(long)]
        bin_dir: PathBuf,
    },
    #[command(name = trial::OUTSIDE, hide = true)]
    Outside,
    #[command(name = trial::INSIDE, hide = true)]
    Inside,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().what {
        What::Outside => trial::outside().map(|()| true),
        What::Inside => trial::inside().map(|()| true),
        What::Plugin { bin_dir } => plugin(bin_dir),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            writeln!(io::stderr(), "cni-conformance: {error}").ok();
            ExitCode::from(2)
        }
    }
}

fn plugin(bin_dir: PathBuf) -> io::Result<bool> {
    let subject = Subject { label: bin_dir.display().to_string(), bin_dir, also: Vec::new() };
    let versions = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0"].map(str::to_owned);
    let known = Profile::built_in().into_iter().filter(|profile| subject.find(&profile.executable).is_some());
    let trials = known.flat_map(|profile| schedule::trials(&subject, &profile, &versions, 0)).collect();
    let reports = schedule::run(trials, 2, |report| {
        writeln!(io::stderr(), "{}", report::line(report)).ok();
    });
    Ok(reports.iter().all(|report| report.verdict == trial::Verdict::Pass))
}
