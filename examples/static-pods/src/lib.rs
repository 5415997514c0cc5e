//! A small kubelet: watches a folder of pod manifests, gives each pod a network namespace held by a pause process and a
//! network by crate `pods`, and shows the pods' state. It runs no containers.
//!
//! Reading order: the wanted pods (`manifest`, `desired`, `watcher`), the existing ones (`process`, `pause`, `sandbox`,
//! `state`, `ports`), the network (`network`, `dns`, `lo`), the workers (`worker` for one pod, `kubelet` for all), and the
//! display (`board`, `table`, `screen`).

mod cli;

mod desired;
mod manifest;
mod watcher;

mod pause;
mod process;
mod sandbox;
mod state;

mod ports;

mod dns;
mod lo;
mod network;

mod backoff;
mod kubelet;
mod worker;

mod board;
mod screen;
mod table;

mod demo;
mod exec;

use anyhow::{Context, Result};
use clap::Parser;
use cli::{Cli, Command, Options};
use std::process::ExitCode;

/// The executable's whole `main`.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "shows whether this program was called as a plugin, as --demo does")]
pub fn main() -> ExitCode {
    if std::env::var_os("CNI_COMMAND").is_some() {
        return cni_plugins::main().into();
    }
    let cli = Cli::parse();
    let ended = match cli.command {
        Some(Command::Pause { .. }) => pause::run().map(|()| ExitCode::SUCCESS),
        Some(Command::Exec(exec)) => exec::run(&exec),
        None => run(cli.options),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("static-pods: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(options: Options) -> Result<ExitCode> {
    if options.verbose {
        tracing_subscriber::fmt().with_writer(std::io::stderr).log_internal_errors(false).init();
    }
    // A single thread: the program computes nothing, it only waits.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the event loop")?;
    let demo = options.demo.then(|| demo::Demo::new(&options)).transpose()?;
    let options = demo.as_ref().map_or(options, demo::Demo::options);
    tokio::task::LocalSet::new().block_on(&runtime, kubelet::run(options))
}
