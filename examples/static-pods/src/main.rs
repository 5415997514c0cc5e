//! A small kubelet: watches a folder of pod manifests, gives each pod a network namespace and a network by crate `pods`,
//! and prints each change. It runs no containers.
//!
//! Reading order: the wanted pods (`manifest`, `folder`), one pod's life (`pod_worker`, with `sandbox`, `ports` and
//! `network`), and all of them together (`kubelet`).

mod folder;
mod manifest;

mod network;
mod pod_worker;
mod ports;

mod kubelet;

use clap::Parser;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// A small kubelet: gives each pod of a folder of manifests a network namespace and a network.
#[derive(Debug, Parser)]
#[command(name = "static-pods", version)]
struct Options {
    /// Folder of the pods' manifests; it need not exist yet.
    #[arg(long, value_name = "DIR", default_value = "/etc/kubernetes/manifests")]
    manifests: PathBuf,
    /// Folder of the networks; it need not exist yet.
    #[arg(long, value_name = "DIR", default_value = pods::DEFAULT_CONF_DIR)]
    conf_dir: PathBuf,
    /// Folder of the plugins; may be given several times.
    #[arg(long, value_name = "DIR", default_value = pods::libcni::DEFAULT_PLUGIN_DIR)]
    plugin_dir: Vec<PathBuf>,
    /// Folder for the networks that pods have. It must be this program's own, and outlive a restart of the machine, as
    /// addresses that are taken do.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/static-pods")]
    cache_dir: PathBuf,
    /// Folder of the pods' namespaces; it must not outlive a restart of the machine.
    #[arg(long, value_name = "DIR", default_value = "/run/static-pods")]
    state_dir: PathBuf,
    /// Time before a failed pod is tried again, in seconds; doubles at each failure.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    retry: Duration,
    /// Time after which manifests are read again although no event reported a change, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = seconds)]
    read_again: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    let time = Duration::try_from_secs_f64(seconds).map_err(|error| format!("{error}"))?;
    if time.is_zero() { Err("must be more than 0".to_owned()) } else { Ok(time) }
}

fn main() -> ExitCode {
    // A single thread: the program computes nothing, it only waits.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| tokio::task::LocalSet::new().block_on(&runtime, kubelet::run(Options::parse())));
    ended.unwrap_or_else(|error| {
        eprintln!("static-pods: {error:#}");
        ExitCode::FAILURE
    })
}

/// Prints one line, without what a terminal would take for a command: messages of plugins may contain anything.
fn say(text: &str) {
    let words = text.split_whitespace().map(|word| word.chars().filter(|c| !c.is_control()).collect::<String>());
    let line = words.collect::<Vec<_>>().join(" ");
    let mut stdout = std::io::stdout().lock();
    // Pods live on without a reader of these lines.
    drop(writeln!(stdout, "{line}").and_then(|()| stdout.flush()));
}
