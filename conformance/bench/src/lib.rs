//! The costs of a call of a plugin: ours, the reference, and the least that the kernel asks for, side by side in one run.
//!
//! `cargo bench --package bench` starts it; README.md says what each row is. Start at `run`: it takes subjects
//! (`subject`) through scenes (`scene`), each on a node of its own (`subject_node`), pod by pod (`comparison`); one call is
//! in `call`. What comes out is a `report`, and `targets` reads that.
//!
//! Time never decides a test here. What is exact (system calls, messages, processes, bytes) has its limits in [`call_budget`].

#![cfg(feature = "measures")]

mod call;
pub mod call_budget;
mod callers;

mod comparison;
mod scene;
mod subject;
mod subject_node;

mod burst;
mod growth;
mod latency;

mod options;
mod report;
mod targets;

use std::io::Write;
use std::process::ExitCode;

use options::Options;

/// Everything, by the command line. Fails when a call did, or when the benchmark cannot run.
#[must_use]
pub fn main() -> ExitCode {
    let options = match Options::try_read() {
        Ok(options) => options,
        Err(error) => {
            // Help goes to stdout with status 0, a usage error to stderr with 2. If that fails, the error cannot be
            // reported.
            drop(error.print());
            return u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    match options.run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            writeln!(std::io::stderr(), "bench: {why}").ok(); // otherwise it cannot be reported
            ExitCode::FAILURE
        }
    }
}

/// Says on stderr what is being done.
pub(crate) fn progress(what: &str) {
    writeln!(std::io::stderr(), "{what}").ok(); // progress only
}
