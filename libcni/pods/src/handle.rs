//! The handle that a runtime keeps for its whole life.

use crate::error::Error;
use crate::lock::Locks;
use crate::loopback::{self, Loopback};
use crate::networks::{Folder, Networks};
use crate::pod_attachments::{self, Choice};
use cni_spec::exec::{DEADLINE_MAX, GRACE};
use cni_spec::{ContainerId, NetworkName};
use libcni::{Cached, Cancellation, NetworkConf, Origin, Runtime, TraceContext};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The default folder of network configurations.
pub const DEFAULT_CONF_DIR: &str = "/etc/cni/net.d";
/// How long an operation may take: a kubelet gives up after 240 s.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(220);
/// How long the rollback of a failed set-up may take after that, so that both end before a kubelet gives up.
pub const DEFAULT_UNDO_DEADLINE: Duration = Duration::from_secs(15);
/// The time limit of a pod's [`crate::NotReady`] check.
pub(crate) const READY_DEADLINE: Duration = Duration::from_secs(30);

/// The networks of pods. Cheap to clone; all methods take `&self`, and serialise their operations.
///
/// Use one for each cache folder: two processes that use one folder do not coordinate.
#[derive(Debug, Clone)]
pub struct Pods {
    pub(crate) inner: Arc<Inner>,
    pub(crate) cancellation: Option<Cancellation>,
    /// The deadline of operations, if earlier than their own.
    pub(crate) until: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) settings: Settings,
    pub(crate) runtime: Runtime,
    pub(crate) folder: Folder,
    pub(crate) locks: Locks,
}

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) conf_dir: PathBuf,
    pub(crate) cache_dir: PathBuf,
    pub(crate) default: Option<NetworkName>,
    pub(crate) prefix: String,
    pub(crate) loopback: Loopback,
    pub(crate) min_networks: usize,
    pub(crate) deadline: Duration,
    pub(crate) undo_deadline: Duration,
    pub(crate) order: Order,
}

/// The order in which a pod's networks are set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Different networks at the same time; several attachments to one network in the order of the request.
    #[default]
    Together,
    /// Networks one after the other, in the order of the request; the first error ends it.
    InTurn,
}

/// Builds [`Pods`]; see [`Pods::builder`].
#[derive(Debug)]
pub struct Builder {
    settings: Settings,
    given: Vec<NetworkConf>,
    runtime: libcni::Builder,
}

impl Default for Builder {
    fn default() -> Self {
        let settings = Settings {
            conf_dir: DEFAULT_CONF_DIR.into(),
            cache_dir: libcni::cache::DEFAULT_DIR.into(),
            default: None,
            prefix: "eth".into(),
            loopback: Loopback::default(),
            min_networks: 1,
            deadline: DEFAULT_DEADLINE,
            undo_deadline: DEFAULT_UNDO_DEADLINE,
            order: Order::default(),
        };
        Self { settings, given: Vec::new(), runtime: Runtime::builder() }
    }
}

impl Builder {
    /// Sets the folder of network configurations. It need not exist yet. Default: [`DEFAULT_CONF_DIR`].
    pub fn conf_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.settings.conf_dir = dir.into();
        self
    }

    /// Adds a network that no file has, before those of the folder: [`NetworkConf::parse`] makes one of bytes.
    pub fn network(mut self, network: NetworkConf) -> Self {
        self.given.push(network);
        self
    }

    /// Sets the folders in which executables are looked up. Default: [`libcni::DEFAULT_PLUGIN_DIR`].
    pub fn plugin_dirs<T: Into<PathBuf>>(mut self, dirs: impl IntoIterator<Item = T>) -> Self {
        self.runtime = self.runtime.plugin_dirs(dirs);
        self
    }

    /// Sets the folder of the cache, which must be this runtime's own: [`Pods::gc`] takes down entries in it.
    /// Default: [`libcni::cache::DEFAULT_DIR`].
    pub fn cache_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.settings.cache_dir = dir.into();
        self
    }

    /// Fixes the default network by its name. Default: the first usable one of the folder.
    pub fn default_network(mut self, name: NetworkName) -> Self {
        self.settings.default = Some(name);
        self
    }

    /// Sets the prefix of the names of interfaces without a given name. Default: `eth`.
    pub fn ifname_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.prefix = prefix.into();
        self
    }

    /// Sets what sets `lo` up. Default: [`Loopback::Plugin`].
    pub fn loopback(mut self, loopback: Loopback) -> Self {
        self.settings.loopback = loopback;
        self
    }

    /// Sets how many usable networks [`Pods::ready`] requires. Default: 1.
    pub fn min_networks(mut self, count: usize) -> Self {
        self.settings.min_networks = count;
        self
    }

    /// Sets how long an operation may take, including the wait for its locks. Plugins that run then are terminated
    /// (SIGTERM to their process groups, after [`GRACE`] SIGKILL). Default: [`DEFAULT_DEADLINE`].
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline;
        self
    }

    /// Sets how long the rollback of a failed set-up may take, counted from the failure, but at most from the deadline
    /// on. It includes the time to end plugins that do not end by themselves, [`GRACE`] each in set-up and in rollback,
    /// so less than twice that leaves no time for the rollback beside such a plugin. Default:
    /// [`DEFAULT_UNDO_DEADLINE`].
    pub fn undo_deadline(mut self, deadline: Duration) -> Self {
        self.settings.undo_deadline = deadline;
        self
    }

    /// Sets whether networks are set up at the same time.
    pub fn order(mut self, order: Order) -> Self {
        self.settings.order = order;
        self
    }

    /// Sets the receiver of the plugins' stderr, as it comes, in pieces that need not be lines. Default: the process's
    /// own stderr.
    pub fn stderr(mut self, sink: impl Fn(&Origin, &[u8]) + Send + Sync + 'static) -> Self {
        self.runtime = self.runtime.stderr(sink);
        self
    }

    /// Sets the source of the current span's trace context, which each plugin gets.
    pub fn trace_context(mut self, current: impl Fn() -> Option<TraceContext> + Send + Sync + 'static) -> Self {
        self.runtime = self.runtime.trace_context(current);
        self
    }

    /// Makes the handle. It has to be called in a tokio runtime with I/O and time enabled, like all methods.
    /// Errors: [`Error::Setting`].
    pub fn build(self) -> Result<Pods, Error> {
        let Self { settings, given, runtime } = self;
        pod_attachments::check_prefix(&settings.prefix).map_err(|error| Error::Setting {
            setting: "ifname_prefix",
            value: settings.prefix.clone(),
            reason: error.msg,
        })?;
        let runtime = runtime
            .cache_dir(&settings.cache_dir)
            // The deadline of the whole operation limits each plugin.
            .plugin_deadline(settings.deadline)
            // A network that fails is rolled back before the others are.
            .rollback_deadline(settings.undo_time() / 2)
            .del_errors(libcni::DelErrors::CarryOn)
            .absence_errors(libcni::AbsenceErrors::CountAsDone)
            .build();
        let folder = Folder::new(settings.conf_dir.clone(), given, runtime.clone());
        let inner = Inner { settings, runtime, folder, locks: Locks::default() };
        Ok(Pods { inner: Arc::new(inner), cancellation: None, until: None })
    }
}

impl Settings {
    /// The part of the rollback's time that plugins may use: the rest is for ending one that does not end by itself.
    pub(crate) fn undo_time(&self) -> Duration {
        self.undo_deadline.checked_sub(GRACE).unwrap_or(self.undo_deadline / 2)
    }
}

impl Pods {
    /// A builder with the usual folders and deadlines.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The same pods, with operations that `cancellation` can cancel.
    ///
    /// Running plugins are terminated, no others are started, and the operation fails with code 109. A set-up is rolled
    /// back all the same, which is not possible when its future is dropped.
    pub fn cancelled_by(&self, cancellation: Cancellation) -> Self {
        Self { cancellation: Some(cancellation), ..self.clone() }
    }

    /// The same pods, with operations that end at `deadline`, if that is before their own: for a request that has a
    /// deadline itself. The rollback of a set-up has its own time in addition, as always.
    pub fn until(&self, deadline: Instant) -> Self {
        Self { until: Some(self.until.map_or(deadline, |until| until.min(deadline))), ..self.clone() }
    }

    pub(crate) fn deadline(&self) -> Instant {
        let own = Instant::now() + self.inner.settings.deadline.min(DEADLINE_MAX);
        self.until.map_or(own, |until| until.min(own))
    }

    /// The current networks of the folder.
    pub async fn networks(&self) -> Arc<Networks> {
        self.inner.folder.networks().await
    }

    /// The sandboxes in the cache, each with its pod as far as the cache has it: a restarted runtime has to set them up
    /// again, take them down, or keep them.
    /// Errors: [`Error::Cache`].
    pub fn known(&self) -> Result<Vec<crate::PodId>, Error> {
        let mut known = Vec::<crate::PodId>::new();
        for cached in self.cached(None)? {
            let pod = pod_of(&cached);
            // A later entry of a sandbox may have more data, if another runtime wrote the first.
            match known.iter_mut().find(|other| other.sandbox == pod.sandbox) {
                Some(other) if other.name.is_empty() => *other = pod,
                Some(_) => {}
                None => known.push(pod),
            }
        }
        Ok(known)
    }

    pub(crate) fn runtime(&self, until: Instant) -> Runtime {
        let runtime = self.inner.runtime.until(until);
        match &self.cancellation {
            Some(cancellation) => runtime.cancelled_by(cancellation.clone()),
            None => runtime,
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// The networks that pods may choose from.
    pub(crate) fn choice<'a>(&'a self, networks: &'a Networks) -> Choice<'a> {
        let fixed = self.inner.settings.default.as_ref();
        let default = match fixed {
            Some(name) => networks.find(name.as_str()),
            None => networks.default(),
        };
        let problem = networks.problem.iter().map(ToString::to_string);
        let passed_over = networks.passed_over.iter().map(ToString::to_string);
        Choice {
            usable: networks.usable.iter().map(|network| &network.conf).collect(),
            default: default.map(|network| &network.conf),
            fixed,
            passed_over: problem.chain(passed_over).collect(),
        }
    }

    /// The cached attachments of one sandbox or of all, in the order of set-up: loopback first.
    pub(crate) fn cached(&self, sandbox: Option<&ContainerId>) -> Result<Vec<Cached>, Error> {
        let listing = self.inner.runtime.cache().list(sandbox).map_err(Error::Cache)?;
        for file in &listing.passed_over {
            tracing::warn!(path = %file.path.display(), reason = file.reason, "a cache file is broken and counts as missing");
        }
        let mut cached = listing.cached;
        cached.sort_by_cached_key(rank);
        Ok(cached)
    }

    /// The names of unreadable cache files: `<network>-<sandbox>-<ifname>`.
    pub(crate) fn broken(&self, sandbox: Option<&ContainerId>) -> Result<Vec<String>, Error> {
        let listing = self.inner.runtime.cache().list(sandbox).map_err(Error::Cache)?;
        let names = listing.passed_over.iter().filter_map(|file| file.path.file_name()?.to_str().map(str::to_owned));
        Ok(names.collect())
    }
}

/// The order of set-up, also of entries that other runtimes wrote: `eth2` before `eth10`.
fn rank(cached: &Cached) -> (bool, usize, usize, String) {
    let ifname = cached.attachment.id.ifname.as_str();
    let index =
        pod_attachments::Position::find_in(&cached.attachment.capability_args).map_or(usize::MAX, |place| place.index);
    (!loopback::is_loopback(cached), index, ifname.len(), ifname.to_owned())
}

pub(crate) fn pod_of(cached: &Cached) -> crate::PodId {
    let text = |key| cached.attachment.args.find(key).unwrap_or_default().to_owned();
    crate::PodId {
        namespace: text("K8S_POD_NAMESPACE"),
        name: text("K8S_POD_NAME"),
        uid: text("K8S_POD_UID"),
        sandbox: cached.attachment.id.container_id.clone(),
    }
}
