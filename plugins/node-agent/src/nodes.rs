//! What Kubernetes' API says of nodes: a watch by kube, which resumes it, backs off, and lists again after `410 Gone`.
//!
//! While the API is away, or lists nodes in part, what was known stays. A list counts when it is complete.

use crate::ranges::Ranges;
use anyhow::Context;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, Config};
use std::collections::BTreeMap;
use std::future::pending;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The pause before credentials are read again that the API has refused.
const RENEWAL_PAUSE: Duration = Duration::from_secs(5);
/// The time for which the API may be silent beyond a watch's length, until a connection counts as lost.
const SILENCE: Duration = Duration::from_secs(10);

/// The part of a node that the agent uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The node's ranges, or why it has none that can be used.
    pub ranges: Result<Ranges, String>,
    /// The addresses of the type InternalIP.
    pub addresses: Vec<IpAddr>,
}

impl Seen {
    fn of(node: &Node) -> Self {
        let spec = node.spec.clone().unwrap_or_default();
        // podCIDRs is podCIDR, and more; an API server fills in either.
        let texts = spec.pod_cidrs.filter(|all| !all.is_empty()).or(spec.pod_cidr.map(|one| vec![one]));
        let ranges = match texts.filter(|texts| texts.iter().any(|text| !text.is_empty())) {
            None => Err("its spec has no podCIDRs".to_owned()),
            Some(texts) => Ranges::parse(texts).map_err(|error| format!("its spec.podCIDRs: {error:#}")),
        };
        let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        let internal = addresses.filter(|address| address.type_ == "InternalIP");
        Self { ranges, addresses: internal.filter_map(|address| address.address.parse().ok()).collect() }
    }
}

/// The API, and the nodes that are watched there.
#[derive(Debug, Clone)]
pub struct Source {
    /// `None`: the service account of the pod, or `KUBECONFIG`.
    pub kubeconfig: Option<PathBuf>,
    /// The only node to watch; `None`: all.
    pub only: Option<String>,
    /// The length of a watch, after which the API ends it and the next one begins.
    pub watch_seconds: u32,
}

impl Source {
    async fn connect(&self) -> anyhow::Result<(Config, BoxStream<'static, watcher::Result<Event<Node>>>)> {
        let mut config = match &self.kubeconfig {
            None => Config::infer().await.context("no service account and no kubeconfig, and no --cidr")?,
            Some(path) => {
                let failed = || format!("cannot use kubeconfig {}", path.display());
                let read = Kubeconfig::read_from(path).with_context(failed)?;
                Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.with_context(failed)?
            }
        };
        // An API that has accepted the connection and says nothing would otherwise be waited for without end.
        config.read_timeout = Some(Duration::from_secs(self.watch_seconds.into()) + SILENCE);
        config.reset_reader_on_write = true;
        let client = Client::try_from(config.clone()).context("cannot use the credentials of the API")?;
        let mut wanted = watcher::Config::default().timeout(self.watch_seconds);
        if let Some(name) = &self.only {
            wanted = wanted.fields(&format!("metadata.name={name}"));
        }
        Ok((config, watch(Api::<Node>::all(client), wanted).default_backoff().boxed()))
    }
}

/// The nodes as far as the API has told.
pub struct Nodes {
    source: Source,
    /// The credentials in use, and where the API is.
    pub config: Config,
    events: BoxStream<'static, watcher::Result<Event<Node>>>,
    /// The nodes of the last complete list, with the changes since; `None` before the first.
    pub known: Option<BTreeMap<String, Seen>>,
    listing: BTreeMap<String, Seen>,
    /// The time at which credentials are read again, as the API has refused the last ones.
    renewal: Option<Instant>,
    /// The error that was logged last, if no event has come since.
    logged: Option<String>,
    pub errors: u64,
}

impl Nodes {
    /// Begins a watch.
    ///
    /// # Errors
    /// There are no credentials, or they cannot be used. An API that does not answer is no error.
    pub async fn watch(source: Source) -> anyhow::Result<Self> {
        let (config, events) = source.connect().await?;
        let listing = BTreeMap::new();
        Ok(Self { source, config, events, known: None, listing, renewal: None, logged: None, errors: 0 })
    }

    /// Waits until the nodes may have changed, or the API could not be asked. May be dropped at any await.
    pub async fn changed(&mut self) {
        loop {
            if let Some(at) = self.renewal {
                // Nothing comes from the old stream.
                timeout_at(at, pending::<()>()).await.unwrap_or_default();
                match self.source.connect().await {
                    Ok((config, events)) => (self.config, self.events, self.renewal) = (config, events, None),
                    Err(error) => {
                        self.renewal = Some(Instant::now() + RENEWAL_PAUSE);
                        return self.failed(&format!("{error:#}"));
                    }
                }
            }
            match self.events.try_next().await {
                Ok(Some(event)) => {
                    self.logged = None;
                    if self.take(event) {
                        return;
                    }
                }
                Ok(None) => self.renewal = Some(Instant::now()),
                Err(error) => {
                    if is_unauthorized(&error) {
                        self.renewal = Some(Instant::now() + RENEWAL_PAUSE);
                    }
                    return self.failed(&sentence(&error));
                }
            }
        }
    }

    fn failed(&mut self, text: &str) {
        self.errors += 1;
        if self.logged.as_deref() != Some(text) {
            tracing::warn!("the API of Kubernetes: {text}; nothing changes until it answers");
            self.logged = Some(text.to_owned());
        }
    }

    /// Takes over what an event says; `false`: a list is not complete yet.
    fn take(&mut self, event: Event<Node>) -> bool {
        let entry = |node: Node| (node.metadata.name.clone().unwrap_or_default(), Seen::of(&node));
        let is_whole = !matches!(event, Event::Init | Event::InitApply(_));
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(node) => self.listing.extend([entry(node)]),
            Event::InitDone => self.known = Some(std::mem::take(&mut self.listing)),
            Event::Apply(node) => self.known.get_or_insert_default().extend([entry(node)]),
            Event::Delete(node) => drop(self.known.get_or_insert_default().remove(&entry(node).0)),
        }
        is_whole
    }
}

/// The whole cause of an error, without the debugging form that kube's texts have of an answer.
fn sentence(error: &watcher::Error) -> String {
    use watcher::Error::{InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchError(status) => {
            format!("status {}: {}", status.code, status.message)
        }
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => {
            let causes = std::iter::successors(std::error::Error::source(error), |error| error.source());
            // The innermost cause is what the kernel or the other side said; each layer around repeats it.
            causes.last().map_or_else(|| error.to_string(), ToString::to_string)
        }
        NoResourceVersion => error.to_string(),
    }
}

fn is_unauthorized(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    matches!(error, InitialListFailed(kube::Error::Api(status)) | WatchStartFailed(kube::Error::Api(status)) if status.code == 401)
}
