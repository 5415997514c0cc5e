//! The command line.

use clap::{ArgGroup, Parser};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Writes a node's network file from its range of addresses
///
/// The range comes from the node's spec.podCIDRs in Kubernetes, from --cidr or from --cidr-file; the file is made from a template in
/// the form of containerd's conf_template. It is replaced as a whole, and only when its content changes.
#[derive(Debug, Parser)]
#[command(name = "cni-node-agent", version, group = ArgGroup::new("given").multiple(false))]
pub(crate) struct Args {
    /// The template of the network's file
    #[arg(long, value_name = "FILE")]
    pub(crate) template: PathBuf,
    /// The network's file, which a runtime reads
    #[arg(long, value_name = "FILE", default_value = "/etc/cni/net.d/10-pods.conflist")]
    pub(crate) output: PathBuf,
    /// The permissions of the file
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = ["0600", "0644"])]
    pub(crate) mode: String,
    /// A range of this node's, the primary one first; Kubernetes is not asked then
    #[arg(long, value_name = "RANGE", group = "given")]
    pub(crate) cidr: Vec<String>,
    /// A file with a range a line; Kubernetes is not asked then
    #[arg(long, value_name = "FILE", group = "given")]
    pub(crate) cidr_file: Option<PathBuf>,
    /// The name of this node in Kubernetes [default: the host's name]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub(crate) node: Option<String>,
    /// Credentials for Kubernetes' API [default: KUBECONFIG, or the pod's service account]
    #[arg(long, value_name = "FILE", conflicts_with = "given")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Keep routes to the other nodes' ranges over their InternalIP; all nodes are on one link
    #[arg(long, conflicts_with_all = ["given", "once"])]
    pub(crate) routes: bool,
    /// Keep a kubeconfig with the agent's own token here, for the plugin `cluster`; only root can read it
    #[arg(long, value_name = "FILE", conflicts_with = "given")]
    pub(crate) cluster_kubeconfig: Option<PathBuf>,
    /// Address for /healthz and /metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// End when the file is written
    #[arg(long)]
    pub(crate) once: bool,
    /// The pause after which files, routes and containers are looked at again
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) interval: u32,
    /// The length of a watch, after which the API begins the next one
    #[arg(long, value_name = "SECONDS", default_value_t = 290, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) watch_seconds: u32,
}
