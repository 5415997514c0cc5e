//! The command line.

use crate::lo::ByNetops;
use crate::screen::Output;
use clap::{Parser, Subcommand, ValueEnum};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A small kubelet: gives each pod of a folder of manifests a network namespace and a network.
#[derive(Debug, Parser)]
#[command(name = "static-pods", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// The program's other functions.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a program in a pod's namespaces, with its resolv.conf.
    Exec(Exec),
    /// Holds a pod's namespaces; for this program's own use.
    #[command(hide = true)]
    Pause {
        /// Namespace and name of the pod, for readers of the process list.
        pod: String,
    },
}

/// A program to run, and the pod to run it in.
#[derive(Debug, clap::Args)]
pub(crate) struct Exec {
    /// Folder of the records.
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
    /// The pod: its name, or namespace/name.
    pub(crate) pod: String,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, required = true)]
    pub(crate) program: Vec<String>,
}

const STATE_DIR: &str = "/run/static-pods";

/// How pods are run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Folder of the pods' manifests; it need not exist yet.
    #[arg(long, value_name = "DIR", default_value = "/etc/kubernetes/manifests")]
    pub(crate) manifests: PathBuf,
    /// Folder of the networks; it need not exist yet.
    #[arg(long, value_name = "DIR", default_value = pods::DEFAULT_CONF_DIR)]
    pub(crate) conf_dir: PathBuf,
    /// Folder of the plugins; may be given several times.
    #[arg(long, value_name = "DIR", default_value = pods::libcni::DEFAULT_PLUGIN_DIR)]
    pub(crate) plugin_dir: Vec<PathBuf>,
    /// Folder for what is known of networks that were made. It must be this program's own, and outlive a restart of the
    /// machine, as addresses that are taken do.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/static-pods")]
    pub(crate) cache_dir: PathBuf,
    /// Folder of the records of sandboxes.
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
    /// What sets lo of a pod up.
    #[arg(long, value_enum, default_value_t = Loopback::InProcess)]
    pub(crate) loopback: Loopback,
    /// Address of the cluster's DNS server; may be given several times.
    #[arg(long, value_name = "IP")]
    pub(crate) cluster_dns: Vec<IpAddr>,
    /// The cluster's domain.
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    pub(crate) cluster_domain: String,
    /// The node's resolver settings.
    #[arg(long, value_name = "FILE", default_value = "/etc/resolv.conf")]
    pub(crate) resolv_conf: PathBuf,
    /// Time for setting a pod's network up or taking it down, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "220", value_parser = seconds)]
    pub(crate) deadline: Duration,
    /// Time before a failed pod is tried again, in seconds; doubles at each failure.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) retry: Duration,
    /// How the pods are shown; by default a table on a terminal, otherwise lines.
    #[arg(long, value_enum)]
    pub(crate) output: Option<Output>,
    /// Makes all as the manifests say, shows it, and ends; the pods stay.
    #[arg(long)]
    pub(crate) once: bool,
    /// Logs to stderr what is done, and what plugins print there.
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Shows it all on two sample pods, in folders of its own; needs nothing but a throwaway namespace.
    #[arg(long)]
    pub(crate) demo: bool,
}

/// What sets `lo` up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Loopback {
    /// This program.
    InProcess,
    /// The plugin loopback.
    Plugin,
    /// Another component.
    None,
}

impl From<Loopback> for pods::Loopback {
    fn from(loopback: Loopback) -> Self {
        match loopback {
            Loopback::InProcess => pods::Loopback::By(Arc::new(ByNetops)),
            Loopback::Plugin => pods::Loopback::Plugin,
            Loopback::None => pods::Loopback::None,
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    let time = Duration::try_from_secs_f64(seconds).map_err(|error| format!("{error}"))?;
    if time.is_zero() { Err("must be more than 0".to_owned()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["0", "-1", "x", "inf", "1e300"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
