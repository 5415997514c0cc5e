//! The agent of a node: it writes the network's file from the node's range of addresses.
//!
//! Reading order: [`ranges`], what a node has; [`nodes`], what Kubernetes says of it; [`template`] and [`network_file`], what is
//! written of it, and when; [`routes`] to the other nodes; [`plugin_credentials`] for who asks the API, too; [`pages`] for who watches;
//! `agent`, which does all of it again and again.
//!
//! An executable of its own, as the client of Kubernetes' API is larger than all plugins.

pub mod network_file;
pub mod nodes;
pub mod pages;
pub mod plugin_credentials;
pub mod ranges;
pub mod routes;
pub mod template;

mod agent;
mod args;

use clap::Parser;
use nix::sys::stat::{Mode, umask};
use skel::event_loop;
use skel::interrupt::{Signals, ending_signals, survive_file_size_limit};
use std::pin::pin;
use std::process::ExitCode;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

/// The whole process, up to its exit status.
#[must_use]
pub fn main() -> ExitCode {
    let args = args::Args::parse();
    log_to_stderr();
    survive_file_size_limit();
    // Files get the permissions that are asked for.
    umask(Mode::from_bits_truncate(0o022));
    let ended = event_loop::run(pin!(until_signalled(args)));
    match ended.unwrap_or_else(|(refused, _)| Err(refused.into())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Works until a signal. Each change of the node is whole when the agent waits, so it ends at once.
async fn until_signalled(args: args::Args) -> anyhow::Result<()> {
    event_loop::ready().await?;
    let mut signals = Signals::hear(ending_signals());
    tokio::select! {
        done = agent::run(args) => done,
        _ = signals.next() => Ok(()),
    }
}

/// Logs what happens, and warnings of libraries' requests to the kernel. kube's own lines repeat errors that are logged here.
fn log_to_stderr() {
    let shown = Targets::new().with_target("node_agent", Level::INFO).with_target("netops", Level::WARN);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(false);
    let subscriber = tracing_subscriber::registry().with(lines).with(shown);
    // Without it nothing is logged, which is no reason to leave pods without a network.
    drop(tracing::subscriber::set_global_default(subscriber));
}
