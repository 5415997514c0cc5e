//! What the agent does again and again: it looks at range, template and containers, and makes file and routes as they should be.

use crate::args::Args;
use crate::network_file::{NetworkFile, Outcome};
use crate::nodes::{Nodes, Source};
use crate::pages::{self, Status};
use crate::ranges::Ranges;
use crate::{plugin_credentials, routes};
use anyhow::Context;
use kube::Config;
use netops::lock::{self, Lock};
use std::collections::BTreeSet;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// The lock on a folder of networks. Runtimes ignore the name.
const LOCK: &str = ".cni-node-agent.lock";

/// The source of the range.
enum Origin {
    Given(Ranges),
    File(PathBuf),
    Kubernetes(Box<Nodes>),
}

struct Agent {
    file: NetworkFile,
    origin: Origin,
    node: String,
    keeps_routes: bool,
    /// The kubeconfig of the plugin `cluster`, and why it could not be written last.
    cluster_kubeconfig: Option<(PathBuf, Option<String>)>,
    status: Status,
    /// The routes that were refused last, each of which is logged once.
    refused: BTreeSet<String>,
}

/// Works until it is dropped; with `--once` until the file is as it should be.
///
/// # Errors
/// What the arguments name cannot be used. Nothing that may change by itself is an error.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let node = args.node.map_or_else(host_name, Ok)?;
    let interval = Duration::from_secs(args.interval.into());
    let mode = u32::from_str_radix(&args.mode, 8).context("--mode")?;
    let file = NetworkFile { template: args.template, path: args.output, mode };
    let folder = file.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    netops::file::make_folders(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let _lock = take_lock(folder).await?;
    let origin = match (args.cidr.as_slice(), args.cidr_file) {
        ([_, ..], _) => Origin::Given(Ranges::parse(&args.cidr).context("--cidr")?),
        ([], Some(path)) => Origin::File(path),
        ([], None) => {
            let only = (!args.routes).then(|| node.clone());
            let source = Source { kubeconfig: args.kubeconfig, only, watch_seconds: args.watch_seconds };
            Origin::Kubernetes(Box::new(Nodes::watch(source).await?))
        }
    };
    let (sender, receiver) =
        watch::channel(Status { problem: Some("nothing was done yet".into()), ..Status::default() });
    if let Some(address) = args.listen {
        pages::serve(address, receiver).await?;
    }
    let refused = BTreeSet::new();
    let cluster_kubeconfig = args.cluster_kubeconfig.map(|path| (path, None));
    let (keeps_routes, status) = (args.routes, Status::default());
    let mut agent = Agent { file, origin, node, keeps_routes, cluster_kubeconfig, status, refused };
    loop {
        agent.settle();
        sender.send_replace(agent.status.clone());
        if args.once && agent.status.problem.is_none() {
            return Ok(());
        }
        // What has no announcement is looked at after a pause: files that others change, containers that go, routes that are lost.
        drop(timeout(interval, agent.changed()).await);
    }
}

/// The name that a kubelet registers its node by unless it is told another one.
fn host_name() -> anyhow::Result<String> {
    let names = nix::sys::utsname::uname().context("cannot read the host's name: give --node")?;
    Ok(names.nodename().to_string_lossy().trim().to_lowercase())
}

/// Waits until no other agent writes in the folder.
async fn take_lock(folder: &Path) -> anyhow::Result<Lock> {
    let path = folder.join(LOCK);
    if let Some(lock) = Lock::try_take(&path, 0o600)? {
        return Ok(lock);
    }
    let holder = lock::find_holder(&path).unwrap_or_else(|| "another process".to_owned());
    tracing::warn!("{holder} is the agent of {}: this one waits until it ends", folder.display());
    Ok(libcni::aside(move || Lock::take(&path, 0o600, Duration::MAX)).await??)
}

/// Keeps the kubeconfig of the plugin, and logs each problem once.
fn settle_credentials(path: &Path, problem: &mut Option<String>, config: &Config) {
    let found = plugin_credentials::settle(path, config).map_err(|error| format!("{error:#}"));
    if matches!(found, Ok(true)) {
        tracing::info!("wrote {}", path.display());
    }
    let found = found.err();
    if let Some(found) = found.as_ref().filter(|found| problem.as_ref() != Some(found)) {
        tracing::warn!("no credentials for the plugin cluster: {found}");
    }
    *problem = found;
}

impl Agent {
    async fn changed(&mut self) {
        match &mut self.origin {
            Origin::Given(_) | Origin::File(_) => pending().await,
            Origin::Kubernetes(nodes) => nodes.changed().await,
        }
    }

    /// The node's ranges, or why they are unknown.
    fn ranges(&self) -> Result<Ranges, String> {
        match &self.origin {
            Origin::Given(ranges) => Ok(ranges.clone()),
            Origin::File(path) => Ranges::read(path).map_err(|error| format!("{error:#}")),
            Origin::Kubernetes(nodes) => {
                let known = nodes.known.as_ref().ok_or("the API of Kubernetes has not answered yet")?;
                let own = known.get(&self.node).ok_or_else(|| format!("Kubernetes has no node {}", self.node))?;
                own.ranges.clone().map_err(|why| format!("node {}: {why}", self.node))
            }
        }
    }

    fn settle(&mut self) {
        let ranges = self.ranges();
        self.status.is_range_known = ranges.is_ok();
        self.status.is_held = false;
        let problem = match &ranges {
            Err(why) => Some(format!("the range is unknown: {why}; {} stays as it is", self.file.path.display())),
            Ok(ranges) => self.settle_file(ranges),
        };
        match &problem {
            Some(problem) if self.status.problem.as_ref() != Some(problem) => tracing::warn!("{problem}"),
            None if self.status.problem.is_some() => tracing::info!("{} is as it should be", self.file.path.display()),
            _ => {}
        }
        self.status.problem = problem;
        if let Ok(ranges) = &ranges
            && self.keeps_routes
        {
            self.settle_routes(ranges);
        }
        if let Origin::Kubernetes(nodes) = &self.origin {
            self.status.api_errors = nodes.errors;
            if let Some((path, problem)) = &mut self.cluster_kubeconfig {
                settle_credentials(path, problem, &nodes.config);
            }
        }
    }

    /// Writes the file if it has to be, and returns what is wrong with it.
    fn settle_file(&mut self, ranges: &Ranges) -> Option<String> {
        let path = self.file.path.display();
        match self.file.settle(ranges) {
            Ok(Outcome::Unchanged) => None,
            Ok(Outcome::Written) => {
                self.status.writes += 1;
                tracing::info!("wrote {path} for {ranges}");
                None
            }
            Ok(Outcome::Held(held)) => {
                self.status.is_held = true;
                Some(format!(
                    "the range is {ranges} now, but {path} stays: {held}. Drain the node: the file follows when those containers are deleted"
                ))
            }
            Err(error) => Some(format!("{error:#}")),
        }
    }

    fn settle_routes(&mut self, ranges: &Ranges) {
        // A list without this node itself is not the cluster's, so no route is removed for it: there is no range then.
        let Origin::Kubernetes(nodes) = &self.origin else { return };
        let Some(known) = &nodes.known else { return };
        match routes::settle(known, &self.node, ranges) {
            Ok(routes::Outcome { count, refused }) => {
                (self.status.routes, self.status.refused_routes) = (count, refused.len());
                refused.difference(&self.refused).for_each(|why| tracing::warn!("no route: {why}"));
                self.refused = refused;
            }
            Err(error) => tracing::warn!("cannot keep routes: {error}"),
        }
    }
}
