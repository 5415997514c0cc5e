//! The settings of a [`Runtime`].

use crate::attachment::TraceContext;
use crate::cache::{self, Cache};
use crate::call_log::CallLog;
use crate::stderr::{Origin, StderrTo};
use crate::{DEFAULT_DEADLINE, DEFAULT_PLUGIN_DIR, Runtime};
use cni_spec::exec::{Execution, GRACE, Output};
use cni_spec::{CniError, Code, PluginPath, PluginType};
use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) path: PluginPath,
    pub(crate) execute: Arc<dyn Execute>,
    pub(crate) cache: Cache,
    pub(crate) plugin_deadline: Duration,
    pub(crate) plugin_grace: Duration,
    pub(crate) operation_deadline: Option<Duration>,
    pub(crate) rollback_deadline: Option<Duration>,
    pub(crate) del_errors: DelErrors,
    pub(crate) absence_errors: AbsenceErrors,
    pub(crate) stderr: StderrTo,
    pub(crate) trace_context: Option<TraceSource>,
    pub(crate) call_log: Option<CallLog>,
}

/// The way DEL goes on after a plugin's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DelErrors {
    /// Stops, as the specification says: an address must not be released while, for example, port mappings still lead
    /// to it.
    #[default]
    Stop,
    /// Continues with the plugins before it and reports all errors together.
    CarryOn,
}

/// How DEL handles a plugin that printed an error with `no such file or directory` in it, when the namespace is gone.
///
/// Some of the reference's plugins fail so on every DEL after a restart of the node. A missing executable, of the
/// plugin itself or one that it needs, is an error either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AbsenceErrors {
    /// DEL reports the error like any other.
    #[default]
    Report,
    /// The plugin counts as done, and the error is logged: what is absent needs no deletion. Kubelets do so.
    CountAsDone,
}

/// Returns the trace context of the span in which it is called.
#[derive(Clone)]
pub(crate) struct TraceSource(Arc<dyn Fn() -> Option<TraceContext> + Send + Sync>);

impl TraceSource {
    pub(crate) fn current(&self) -> Option<TraceContext> {
        (self.0)()
    }
}

impl fmt::Debug for TraceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceSource")
    }
}

/// Builds a [`Runtime`]; see [`Runtime::builder`].
#[derive(Debug)]
pub struct Builder {
    settings: Settings,
}

impl Default for Builder {
    /// The usual folders and deadlines.
    fn default() -> Self {
        let settings = Settings {
            path: PluginPath::from_dirs(vec![DEFAULT_PLUGIN_DIR.into()]),
            execute: Arc::new(Processes),
            cache: Cache::new(Path::new(cache::DEFAULT_DIR)),
            plugin_deadline: DEFAULT_DEADLINE,
            plugin_grace: GRACE,
            operation_deadline: None,
            rollback_deadline: None,
            del_errors: DelErrors::default(),
            absence_errors: AbsenceErrors::default(),
            stderr: StderrTo::own(),
            trace_context: None,
            call_log: None,
        };
        Self { settings }
    }
}

impl Builder {
    /// Sets the folders in which executables are looked up, first one first. Default: [`DEFAULT_PLUGIN_DIR`].
    #[must_use]
    pub fn plugin_dirs<T: Into<PathBuf>>(self, dirs: impl IntoIterator<Item = T>) -> Self {
        self.plugin_path(PluginPath::from_dirs(dirs.into_iter().map(Into::into).collect()))
    }

    /// Sets the same folders from a `CNI_PATH`.
    #[must_use]
    pub fn plugin_path(mut self, path: PluginPath) -> Self {
        self.settings.path = path;
        self
    }

    /// Sets how plugins are found, started and answered for. Default: as executables in these folders.
    #[must_use]
    pub fn execute(mut self, execute: impl Execute + 'static) -> Self {
        self.settings.execute = Arc::new(execute);
        self
    }

    /// Sets the folder of the cache. Default: [`cache::DEFAULT_DIR`].
    #[must_use]
    pub fn cache_dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.settings.cache = Cache::new(dir.as_ref());
        self
    }

    /// Sets how long one plugin may take before it is terminated (SIGTERM to its process group, later SIGKILL).
    /// Default: [`DEFAULT_DEADLINE`].
    #[must_use]
    pub fn plugin_deadline(mut self, deadline: Duration) -> Self {
        self.settings.plugin_deadline = deadline;
        self
    }

    /// Sets how long a plugin has after SIGTERM to clean up, before SIGKILL. Default: [`GRACE`].
    #[must_use]
    pub fn plugin_grace(mut self, grace: Duration) -> Self {
        self.settings.plugin_grace = grace;
        self
    }

    /// Sets how long all plugins of an operation may take together. The rollback of a failed ADD comes on top: see
    /// [`Builder::rollback_deadline`]. Default: no limit but the plugins' own. [`Runtime::until`] is the same for
    /// several operations.
    #[must_use]
    pub fn operation_deadline(mut self, deadline: Duration) -> Self {
        self.settings.operation_deadline = Some(deadline);
        self
    }

    /// Sets how long all plugins of the rollback of a failed ADD may take together. Default: no limit except the
    /// plugins' own.
    #[must_use]
    pub fn rollback_deadline(mut self, deadline: Duration) -> Self {
        self.settings.rollback_deadline = Some(deadline);
        self
    }

    /// Sets what DEL does when a plugin fails.
    #[must_use]
    pub fn del_errors(mut self, errors: DelErrors) -> Self {
        self.settings.del_errors = errors;
        self
    }

    /// Sets how DEL handles errors about absent things when the namespace is gone.
    #[must_use]
    pub fn absence_errors(mut self, errors: AbsenceErrors) -> Self {
        self.settings.absence_errors = errors;
        self
    }

    /// Sets the receiver of the plugins' stderr, as it comes, in pieces that need not be lines. Default: the process's
    /// own stderr.
    #[must_use]
    pub fn stderr(mut self, sink: impl Fn(&Origin, &[u8]) + Send + Sync + 'static) -> Self {
        self.settings.stderr = StderrTo::sink(sink);
        self
    }

    /// Sets the source of the current span's trace context. It is called inside the span of each plugin, so that the
    /// plugin's spans become children of that span.
    ///
    /// [`Runtime::traced`] takes precedence: a context for one operation overrides the one for all. Without either, or
    /// with `None`, plugins inherit the environment's.
    ///
    /// ```
    /// # use libcni::{Runtime, TraceContext};
    /// # fn current_traceparent() -> Option<String> { None }
    /// let runtime = Runtime::builder()
    ///     .trace_context(|| Some(TraceContext { traceparent: current_traceparent()?, ..TraceContext::default() }))
    ///     .build();
    /// ```
    #[must_use]
    pub fn trace_context(mut self, current: impl Fn() -> Option<TraceContext> + Send + Sync + 'static) -> Self {
        self.settings.trace_context = Some(TraceSource(Arc::new(current)));
        self
    }

    /// Keeps a log of calls: a record for each operation, with the calls of plugins as its steps. Default:
    /// none.
    #[must_use]
    pub fn call_log(mut self, log: CallLog) -> Self {
        self.settings.call_log = Some(log);
        self
    }

    /// The runtime.
    #[must_use]
    pub fn build(self) -> Runtime {
        Runtime { settings: Arc::new(self.settings), trace: None, until: None, cancellation: None, is_unlogged: false }
    }
}

/// How a [`Runtime`](crate::Runtime) runs plugins. Each method does the usual by default: an implementation is what differs.
///
/// ```
/// use libcni::cni_spec::exec::{Execution, Exit, Output};
/// use libcni::cni_spec::{CniError, PluginPath, PluginType};
/// use libcni::{RuntimeConf, Execute, NetworkConf, Runtime, blocking};
///
/// /// Plugins that are not there, and succeed.
/// #[derive(Debug)]
/// struct Fake;
///
/// impl Execute for Fake {
///     fn find(&self, plugin: &PluginType, _: &PluginPath) -> Result<std::path::PathBuf, CniError> {
///         Ok(plugin.as_str().into())
///     }
///     fn answer(&self, call: &Execution<'_>) -> Option<Output> {
///         let stdout = format!(r#"{{"cniVersion":"1.0.0","dns":{{"domain":"{}"}}}}"#, call.command);
///         Some(Output::new(Exit::Code(0), stdout.into()))
///     }
/// }
///
/// # let folder = tempfile::tempdir()?;
/// let runtime = Runtime::builder().execute(Fake).cache_dir(folder.path()).build();
/// let network = NetworkConf::parse(br#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"a"}]}"#)?;
/// let result = blocking::wait(runtime.add(&network, &RuntimeConf::new("c1", "eth0")?))?;
/// assert_eq!(result.dns.domain, "ADD");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Execute: fmt::Debug + Send + Sync {
    /// Finds a plugin's executable, and checks that it is executable.
    ///
    /// # Errors
    /// Code 108 or 4: no folder has one that can be run.
    fn find(&self, plugin: &PluginType, path: &PluginPath) -> Result<PathBuf, CniError> {
        let path = path.find_executable(plugin)?;
        access(&path, AccessFlags::X_OK).map_err(|errno| {
            let is_noexec = statvfs(&path).is_ok_and(|about| about.flags().contains(FsFlags::ST_NOEXEC));
            CniError::new(Code::DELEGATE, format!("cannot run plugin {plugin}: {}: {errno}", path.display()))
                .detail(match () {
                    () if is_noexec => "Its file system is mounted noexec: mount it with exec.",
                    () if errno == Errno::EACCES => "Make it executable, by chmod 755.",
                    () => "",
                })
                .detail("Nothing was run.")
        })?;
        Ok(path)
    }

    /// Starts a plugin's process. The plugin does not get the end of its config before this returns, and so cannot begin: its
    /// pid can be moved to a cgroup here. A security context of its own is that of the thread's next exec, set before.
    ///
    /// # Errors
    /// The process cannot be started. One that was started by then has to be ended here.
    fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        command.spawn()
    }

    /// Answers a call without a process, as tests do; `None` has one started.
    fn answer(&self, _call: &Execution<'_>) -> Option<Output> {
        None
    }
}

/// Plugins are executables, run as usual.
#[derive(Debug)]
pub(crate) struct Processes;

impl Execute for Processes {}
