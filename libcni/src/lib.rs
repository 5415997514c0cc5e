//! The runtime's end of CNI: give a container its network, and take it away again (SPEC 3).
//!
//! A [`Runtime`] knows where plugins and the cache are. A [`NetworkConf`] says which plugins make a network. An
//! [`Attachment`] says which container and interface. Six verbs bring them together.
//!
//! ```no_run
//! use libcni::{Attachment, Runtime, conflist};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder().plugin_dirs(["/opt/cni/bin"]).build();
//! let found = conflist::find("/etc/cni/net.d".as_ref(), "office")?;
//! let attachment = Attachment::new("c1", "eth0")?.netns("/run/netns/c1");
//!
//! let result = runtime.add(&found.network, &attachment).await?;
//! for ip in &result.ips {
//!     println!("{}", ip.address);
//! }
//! runtime.del(&found.network, &attachment).await?;
//! # Ok(())
//! # }
//! ```
//!
//! What differs from the reference library, on purpose:
//!
//! - A failed ADD is rolled back, and all executables are known to be there before the first one runs.
//! - The cache knows of an ADD before its first plugin runs, so that DEL can finish what a killed runtime began. It also
//!   knows which process the plugin is before that gets the end of its config; DEL ends it first. See [`cache`].
//! - An ADD whose cache file would be another attachment's is refused; DEL by a configuration that a plugin refuses tries
//!   the other one that there is of an attachment whose ADD was not finished.
//! - DEL of an attachment whose namespace is gone says so with an empty `CNI_NETNS`, where the reference passes the path.
//! - A broken file in the configuration folder does not hide the networks after it.
//! - Cache files appear whole or not at all. Like the reference's they are not flushed to the disk.
//! - Plugins run in a process group of their own, with a deadline.
//!
//! The futures need a tokio runtime with I/O and time enabled. Dropping one ends the plugin that is running and starts
//! no other: call [`Runtime::del`] then, as after any ADD that did not return. [`Cancellation`] is the better way: it
//! waits for the plugin's end and rolls back.
//!
//! Reading order: what goes in ([`conflist`], [`Attachment`]), what runs (`derive`, `chain`), what stays ([`cache`]).

// What goes in.
mod attachment;
pub mod conflist;
mod plugin_object;
mod raw;

// What runs.
mod add;
mod call;
mod cancellation;
mod chain;
mod derive;
mod limits;
mod settings;
mod stderr;
mod versions;
mod watch;

// What stays, and what goes wrong.
pub mod cache;
mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod inventory;
mod namespace;
mod orphans;
mod process;

pub use attachment::{Attachment, AttachmentId, CapabilityArgs, TraceContext};
pub use cache::{Cache, Cached};
pub use cancellation::Cancellation;
pub use cni_spec;
pub use conflist::{Found, NetworkConf, PassedOver};
pub use error::{Clash, Error, PluginError};
pub use namespace::Namespace;
pub use plugin_object::PluginObject;
pub use settings::{AbsenceErrors, Builder, DelErrors};
pub use stderr::Origin;
pub use versions::VersionInfo;

use add::Add;
use chain::Chain;
use cni_spec::{AddResult, CniError, Code, Command, NetworkName, PluginPath, PluginType, SpecVersion};
use limits::Limits;
use settings::Settings;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where runtimes keep plugins.
pub const DEFAULT_PLUGIN_DIR: &str = "/opt/cni/bin";
/// How long one plugin may take unless told otherwise: what kubelets give a whole operation.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(220);

/// Runs networks. Cheap to clone, and all methods take `&self`.
///
/// The specification lets a runtime run operations for different containers at the same time, but not two for one
/// container, and GC only alone. Keeping to that is the caller's part.
#[derive(Debug, Clone)]
pub struct Runtime {
    settings: Arc<Settings>,
    trace: Option<TraceContext>,
    /// When every operation has to be over.
    until: Option<Instant>,
    cancellation: Option<Cancellation>,
}

impl Runtime {
    /// A builder with the usual folders and deadlines.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The same runtime with its plugins in `trace`.
    ///
    /// ```
    /// # use libcni::{Runtime, TraceContext};
    /// # let runtime = Runtime::builder().build();
    /// let trace = TraceContext {
    ///     traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
    ///     ..TraceContext::default()
    /// };
    /// let runtime = runtime.traced(trace); // for the operations of this span
    /// ```
    #[must_use]
    pub fn traced(&self, trace: TraceContext) -> Self {
        Self { trace: Some(trace), ..self.clone() }
    }

    /// The same runtime with operations that `cancellation` can call off.
    ///
    /// The plugin that is running is told to end, no other is started, and the operation fails with code 109. A failed
    /// ADD is rolled back all the same, which is what dropping its future could not do.
    #[must_use]
    pub fn cancelled_by(&self, cancellation: Cancellation) -> Self {
        Self { cancellation: Some(cancellation), ..self.clone() }
    }

    /// The same runtime with operations that are over at `deadline`, whatever [`Builder::operation_deadline`] and
    /// [`Builder::plugin_deadline`] would still allow; of several deadlines the first counts.
    ///
    /// A plugin that runs then is told to end (SIGTERM to its process group, later SIGKILL), no other is started, and
    /// the operation fails with code 104. A failed ADD is rolled back all the same, in time of its own: see
    /// [`Builder::rollback_deadline`].
    ///
    /// ```
    /// # use libcni::Runtime;
    /// # use std::time::{Duration, Instant};
    /// # let runtime = Runtime::builder().build();
    /// let runtime = runtime.until(Instant::now() + Duration::from_secs(220)); // for all networks of a pod together
    /// ```
    #[must_use]
    pub fn until(&self, deadline: Instant) -> Self {
        let until = self.until.map_or(deadline, |until| until.min(deadline));
        Self { until: Some(until), ..self.clone() }
    }

    /// The same runtime for one operation that begins now.
    fn bounded(&self) -> Self {
        match self.settings.operation_deadline {
            Some(limit) => self.until(Instant::now() + limit),
            None => self.clone(),
        }
    }

    /// The cache.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.settings.cache
    }

    /// The folders in which executables are looked up.
    #[must_use]
    pub fn plugin_path(&self) -> &PluginPath {
        &self.settings.path
    }

    /// ADD: runs the plugins in order, each with the result before it, and caches the last result.
    ///
    /// Before the first one runs, all are known to be there and executable, and the cache has an intent: an entry
    /// without a result. If one fails, those that ran, itself included, get DEL, newest first; the error's details end
    /// with what was rolled back. If something was left behind, the intent stays, for DEL. An attachment whose earlier
    /// ADD is still cached for the same, existing namespace is not rolled back: it would lose what that made.
    ///
    /// # Errors
    /// [`Error::Plugin`] with the plugin's own code; [`Error::Invalid`] for a name or version that cannot be used;
    /// [`Error::Cache`]; [`Error::Orphans`] if an earlier ADD was not finished and its plugins cannot be ended.
    pub async fn add(&self, network: &NetworkConf, attachment: &Attachment) -> Result<AddResult, Error> {
        watch::operation(Command::Add, Some(&network.name), Some(&attachment.id), async {
            Add::new(self, network, &name(network)?, attachment).run().await
        })
        .await
    }

    /// CHECK: runs the plugins in order with the cached result; the first error ends it.
    ///
    /// Succeeds without running anything when the network says `disableCheck`.
    ///
    /// # Errors
    /// [`Error::NoCheck`] for versions below 0.4.0; [`Error::Incomplete`] for an intent; [`Error::CachedResult`] when the cached result does not fit the
    /// network's version; [`Error::Plugin`].
    pub async fn check(&self, network: &NetworkConf, attachment: &Attachment) -> Result<(), Error> {
        watch::operation(Command::Check, Some(&network.name), Some(&attachment.id), async {
            let name = name(network)?;
            let version = network.version().map_err(Error::Invalid)?;
            if !version.has_check() {
                return Err(Error::NoCheck { network: network.name.clone(), version: version.to_string() });
            }
            if network.disable_check {
                return Ok(());
            }
            let cached = self.settings.cache.find(&name, &attachment.id)?;
            if cached.as_ref().is_some_and(|cached| !cached.is_complete()) {
                return Err(Error::Incomplete { network: name, id: attachment.id.clone() });
            }
            let prev_result = self.prev_result(cached.as_ref(), version)?;
            Chain::new(self, network, Command::Check).check(attachment, prev_result.as_deref()).await
        })
        .await
    }

    /// DEL: runs the plugins in reverse order, from version 0.4.0 on with the cached result, and forgets the result.
    ///
    /// A plugin that still runs ADD for the attachment, as the cache notes it, is ended first, with its process group:
    /// SIGTERM, later SIGKILL. If the cache has only an intent and a plugin refuses the configuration of `network`, the
    /// intent's own is tried: one of the two is what ADD used, or what was mended since. `CNI_NETNS` is empty if the
    /// namespace is gone.
    ///
    /// Whether an error ends it is up to [`Builder::del_errors`]; after any, the cached result is kept, so that DEL can
    /// be tried again.
    ///
    /// # Errors
    /// [`Error::Plugin`]; [`Error::Several`] when it carries on; [`Error::Cache`] when the result cannot be forgotten;
    /// [`Error::Orphans`] if an unfinished ADD's plugins cannot be ended.
    pub async fn del(&self, network: &NetworkConf, attachment: &Attachment) -> Result<(), Error> {
        watch::operation(Command::Del, Some(&network.name), Some(&attachment.id), async {
            let runtime = self.bounded();
            let name = name(network)?;
            let cached = runtime.find_cached(&name, attachment);
            let own = cached.as_ref().filter(|cached| !cached.is_complete());
            let own = own.and_then(|intent| runtime.cached_conf(intent).ok());
            runtime.del_by_either(network, own.as_ref(), attachment, cached.as_ref()).await
        })
        .await
    }

    /// DEL with nothing but the cache: the network configuration, namespace and arguments that ADD left there. What a
    /// runtime needs after a restart, when the configuration's file has changed or is gone, and for an ADD that was
    /// cut off.
    ///
    /// # Errors
    /// [`Error::CachedConf`] if the configuration cannot be used, as in files of the oldest format, which have none:
    /// nothing has run, and [`Runtime::del`] with a configuration from elsewhere is the way. Else as
    /// [`Runtime::del`].
    pub async fn del_cached(&self, cached: &Cached) -> Result<(), Error> {
        self.del_cached_or(cached, None).await
    }

    /// As [`Runtime::del_cached`], and with the `present` configuration of the network where the cached one cannot be
    /// used, or is that of an intent and a plugin refuses it.
    ///
    /// # Errors
    /// Those of both, as one or as [`Error::Several`].
    pub async fn del_cached_or(&self, cached: &Cached, present: Option<&NetworkConf>) -> Result<(), Error> {
        watch::operation(Command::Del, Some(cached.network.as_str()), Some(&cached.attachment.id), async {
            let runtime = self.bounded();
            let present = present.filter(|present| present.name == cached.network.as_str());
            let (attachment, known) = (&cached.attachment, runtime.find_cached(&cached.network, &cached.attachment));
            match (runtime.cached_conf(cached), present) {
                (Ok(conf), present) => {
                    let present = present.filter(|_| !cached.is_complete());
                    runtime.del_by_either(&conf, present, attachment, known.as_ref()).await
                }
                (Err(error), Some(present)) => {
                    tracing::warn!(error = error.with_causes(), "DEL uses the present configuration");
                    runtime.del_by_either(present, None, attachment, known.as_ref()).await
                }
                (Err(error), None) => Err(error),
            }
        })
        .await
    }

    /// The configuration that ADD left in the cache.
    fn cached_conf(&self, cached: &Cached) -> Result<NetworkConf, Error> {
        let path = || self.settings.cache.path(&cached.network, &cached.attachment.id);
        let unusable = |error| Error::CachedConf { path: path(), error };
        let network = cached.network_conf().map_err(unusable)?;
        if network.name != cached.network.as_str() {
            let other = format!("it is that of network {:?}", network.name);
            return Err(unusable(CniError::new(Code::INVALID_CONFIG, other)));
        }
        Ok(network)
    }

    /// DEL by one configuration and, where a plugin refuses that, by another one.
    async fn del_by_either(
        &self,
        first: &NetworkConf,
        second: Option<&NetworkConf>,
        attachment: &Attachment,
        cached: Option<&Cached>,
    ) -> Result<(), Error> {
        if let Some(plugin) = cached.and_then(|cached| cached.running.as_ref()) {
            orphans::end(plugin, &Limits::of(self), Command::Del).await?;
        }
        let second = second.filter(|second| second.bytes != first.bytes);
        match (self.del_by(first, attachment, cached).await, second) {
            (Err(refusal), Some(second)) if refusal.is_refusal() => {
                tracing::warn!(error = refusal.with_causes(), "DEL goes on with the network's other configuration");
                let outcome = self.del_by(second, attachment, cached).await;
                outcome.map_err(|error| match error.to_string() == refusal.to_string() {
                    true => error,
                    false => Error::Several { errors: vec![refusal, error] },
                })
            }
            (outcome, _) => outcome,
        }
    }

    async fn del_by(
        &self,
        network: &NetworkConf,
        attachment: &Attachment,
        cached: Option<&Cached>,
    ) -> Result<(), Error> {
        let name = name(network)?;
        let version = network.version().map_err(Error::Invalid)?;
        let prev_result = match self.prev_result(cached, version) {
            Ok(result) => result.filter(|_| version.has_check()),
            // DEL must work without a result: what cannot be used is dropped.
            Err(error) => {
                tracing::warn!(error = error.with_causes(), "DEL goes on without the cached result");
                self.settings.cache.remove(&name, &attachment.id)?;
                None
            }
        };
        Chain::new(self, network, Command::Del).del(attachment, prev_result.as_deref()).await?;
        self.settings.cache.remove(&name, &attachment.id).map(drop)
    }

    /// What is cached, for DEL, which must work without it.
    fn find_cached(&self, name: &NetworkName, attachment: &Attachment) -> Option<Cached> {
        self.settings.cache.find(name, &attachment.id).unwrap_or_else(|error| {
            tracing::warn!(error = error.with_causes(), "DEL goes on without the cached result");
            None
        })
    }

    /// Forgets an attachment without calling a plugin for it: for an entry whose DEL no plugin will ever serve, when
    /// nothing of the attachment is on the node any more. That is for the caller to know, as this library knows nothing
    /// of networks. An ADD that a dead runtime left running is ended first. A broken entry is forgotten, too.
    ///
    /// Returns whether there was an entry.
    ///
    /// # Errors
    /// [`Error::Cache`] when the entry cannot be removed; [`Error::Orphans`] if an unfinished ADD's plugins cannot be
    /// ended.
    pub async fn forget(&self, network: &NetworkName, id: &AttachmentId) -> Result<bool, Error> {
        if let Some(plugin) = self.settings.cache.find(network, id)?.and_then(|cached| cached.running) {
            orphans::end(&plugin, &Limits::of(self), Command::Del).await?;
        }
        self.settings.cache.remove(network, id)
    }

    /// GC: DEL for every cached attachment of the network that is not in `valid`, then, from version 1.1.0 on, GC for
    /// each plugin. Carries on past errors.
    ///
    /// The DELs use what was cached (namespace, arguments) with this `network`. An empty `valid` means that nothing is
    /// to be kept. Succeeds without doing anything when the network says `disableGC`.
    ///
    /// # Errors
    /// Every error that happened, as one or as [`Error::Several`]; a cache folder that cannot be read is one of them.
    pub async fn gc(&self, network: &NetworkConf, valid: &[AttachmentId]) -> Result<(), Error> {
        watch::operation(Command::Gc, Some(&network.name), None, async {
            self.bounded().gc_in_span(network, valid).await
        })
        .await
    }

    async fn gc_in_span(&self, network: &NetworkConf, valid: &[AttachmentId]) -> Result<(), Error> {
        if network.disable_gc {
            return Ok(());
        }
        let mut errors = Vec::new();
        match self.stale(network, valid) {
            Ok(stale) => {
                for cached in stale {
                    errors.extend(self.del(network, &cached.attachment).await.err());
                }
                errors.extend(self.settings.cache.remove_unfinished().err());
            }
            Err(error) => errors.push(error),
        }
        if network.version().map_err(Error::Invalid)?.has_gc() {
            errors.extend(Chain::new(self, network, Command::Gc).gc(valid).await);
        }
        Error::join(errors).map_or(Ok(()), Err)
    }

    /// The cached attachments of the network that are not in `valid`: what [`Runtime::gc`] would DEL.
    ///
    /// # Errors
    /// [`Error::Cache`] if the cache folder cannot be read, [`Error::Invalid`] for a name that is none.
    pub fn stale(&self, network: &NetworkConf, valid: &[AttachmentId]) -> Result<Vec<Cached>, Error> {
        let name = name(network)?;
        let listing = self.settings.cache.list(None)?;
        for file in &listing.passed_over {
            tracing::warn!(path = %file.path.display(), reason = file.reason, "a cache file is broken and counts as missing");
        }
        let is_stale = |cached: &Cached| cached.network == name && !valid.contains(&cached.attachment.id);
        Ok(listing.cached.into_iter().filter(is_stale).collect())
    }

    /// STATUS: whether the network can serve ADD. The first error ends it and keeps its code: 50 and 51 say no.
    ///
    /// Networks below version 1.1.0 have no STATUS and are taken to be ready.
    ///
    /// # Errors
    /// [`Error::Plugin`].
    pub async fn status(&self, network: &NetworkConf) -> Result<(), Error> {
        watch::operation(Command::Status, Some(&network.name), None, async {
            name(network)?;
            if !network.version().map_err(Error::Invalid)?.has_gc() {
                return Ok(());
            }
            Chain::new(self, network, Command::Status).status().await
        })
        .await
    }

    /// Checks that every plugin is there and speaks the network's version, and returns the capabilities that the
    /// plugins enable.
    ///
    /// # Errors
    /// Every error that was found, as one or as [`Error::Several`].
    pub async fn validate(&self, network: &NetworkConf) -> Result<BTreeSet<String>, Error> {
        watch::operation(Command::Version, Some(&network.name), None, versions::validate(self, network)).await
    }

    /// VERSION: asks one plugin which versions it speaks.
    ///
    /// # Errors
    /// [`Error::Plugin`].
    pub async fn version(&self, plugin: &PluginType) -> Result<VersionInfo, Error> {
        watch::operation(Command::Version, None, None, versions::version(self, plugin)).await
    }

    /// The cached result in the form of `version`.
    fn prev_result(&self, cached: Option<&Cached>, version: SpecVersion) -> Result<Option<String>, Error> {
        let Some(cached) = cached else { return Ok(None) };
        let convert = || match cached.result(version)? {
            Some(result) => result.to_value(version).map(|value| Some(value.to_string())),
            None => Ok(None),
        };
        let path = || self.settings.cache.path(&cached.network, &cached.attachment.id);
        convert().map_err(|error| Error::CachedResult { path: path(), error })
    }

    /// The trace variables of a plugin whose span is the current one.
    fn trace_variables(&self) -> Vec<(String, String)> {
        let current = || self.settings.trace_context.as_ref()?.current();
        self.trace.clone().or_else(current).as_ref().map(TraceContext::variables).unwrap_or_default()
    }
}

fn name(network: &NetworkConf) -> Result<NetworkName, Error> {
    network.network_name().map_err(Error::Invalid)
}

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
