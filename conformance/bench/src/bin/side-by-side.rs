//! `side-by-side NAME=DIR...`: times the calls of several folders of plugins; README.md shows the options.

use std::process::ExitCode;

use bench::side_by_side::Options;
use clap::Parser;

fn main() -> ExitCode {
    match Options::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("side-by-side: {error}");
            ExitCode::FAILURE
        }
    }
}
