//! The runtime side of CNI: sets up a container's network, and takes it down again (SPEC 3).
//!
//! A [`Runtime`] knows where plugins and the cache are. A [`NetworkConf`] lists the plugins of a network. A
//! [`RuntimeConf`] names a container and an interface. The methods of [`Runtime`], one for each verb, take the latter
//! two.
//!
//! ```no_run
//! use libcni::{RuntimeConf, Runtime, conflist};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder().plugin_dirs(["/opt/cni/bin"]).build();
//! let found = conflist::find("/etc/cni/net.d".as_ref(), "office")?;
//! let attachment = RuntimeConf::new("c1", "eth0")?.netns("/run/netns/c1");
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
//! Intended differences from the reference library:
//!
//! - A failed ADD is rolled back, and all executables are found before the first one runs.
//! - The cache has an entry of an ADD before its first plugin runs, so DEL can finish what a killed runtime began. It
//!   also identifies the plugin's process before the plugin gets the end of its config; DEL ends that process first.
//!   See [`cache`].
//! - An ADD of an attachment that lives is refused, and two operations of one attachment wait for each other. A rollback
//!   thus reaches only what its own ADD has made.
//! - An ADD whose cache file would be another attachment's is refused. If a plugin refuses the configuration at DEL of
//!   an unfinished ADD, DEL tries the other one of two: the cached or the present configuration.
//! - DEL of an attachment whose namespace is gone has an empty `CNI_NETNS`, where the reference passes the path.
//! - A broken file in the configuration folder does not hide the networks after it.
//! - Files of that folder are sorted by name, whatever their extension, as by containerd, CRI-O and kubelets: of two that
//!   have one network, a `05-a.conf` comes before a `10-a.conflist`. The reference reads lists first.
//! - Cache files appear whole or not at all. Like the reference's they are not flushed to the disk.
//! - Plugins run in a process group of their own, with a deadline.
//!
//! The futures need a tokio runtime with I/O and time enabled. Dropping one terminates the running plugin and starts no
//! other: call [`Runtime::del`] then, as after any ADD that did not return. [`Cancellation`] is the better way: it
//! waits for the plugin's end and rolls back.
//!
//! Reading order: input ([`conflist`], [`RuntimeConf`]), execution (`execution_conf`, `chain`), stored state ([`cache`]).

#![warn(missing_docs, clippy::missing_errors_doc)]

// Input.
mod attachment;
pub mod conflist;
pub mod plain_file;
mod raw_object;

// Execution.
mod add;
pub mod blocking;
mod call_log;
mod chain;
mod deadlines;
mod del;
mod execution_conf;
mod gc;
mod operation_spans;
mod plugin_call;
mod settings;
mod stderr;
mod versions;

// Stored state and errors.
pub mod cache;
mod cache_entry;
mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod inventory;
mod lock;
mod namespace;
mod orphaned_plugin;

pub use attachment::{AttachmentId, CapabilityArgs, RuntimeConf, TraceContext};
pub use blocking::aside;
pub use cache::Cache;
pub use cache_entry::Cached;
pub use call_log::CallLog;
pub use cni_spec;
pub use cni_spec::exec::DEFAULT_DEADLINE;
pub use cni_suite::{Repair, Repaired};
pub use conflist::{Found, NetworkConf, PassedOver};
pub use deadlines::Cancellation;
pub use del::Forget;
pub use error::{Clash, Error, PluginError};
pub use gc::{Collection, Gc};
pub use namespace::Namespace;
pub use plugin_call::PluginRepair;
pub use raw_object::PluginObject;
pub use settings::{AbsenceErrors, Builder, DelErrors, Execute};
pub use stderr::Origin;
pub use versions::VersionInfo;

use add::Add;
use call_log::Operation;
use chain::Chain;
use cni_spec::{AddResult, Command, NetworkName, PluginPath, PluginType, SpecVersion};
use settings::Settings;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Where runtimes keep plugins.
pub const DEFAULT_PLUGIN_DIR: &str = "/opt/cni/bin";

/// Runs networks. Cheap to clone, and all methods take `&self`.
///
/// The specification lets a runtime run operations for different containers at the same time, but not two for one
/// container, and GC only alone: locks in the cache's folder keep two operations of one attachment apart, and GC apart
/// from ADD and DEL of the network, in all processes that use this library on that cache. Other runtimes do not take
/// them.
#[derive(Debug, Clone)]
pub struct Runtime {
    settings: Arc<Settings>,
    trace: Option<TraceContext>,
    /// The deadline of every operation.
    until: Option<Instant>,
    cancellation: Option<Cancellation>,
    is_unlogged: bool,
}

impl Runtime {
    /// A builder with the usual folders and deadlines.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The same runtime with its plugins in `trace`.
    #[must_use]
    pub fn traced(&self, trace: TraceContext) -> Self {
        Self { trace: Some(trace), ..self.clone() }
    }

    /// The same runtime, with operations that `cancellation` can cancel.
    ///
    /// The running plugin is terminated, no other is started, and the operation fails with code 109. A failed ADD is
    /// rolled back all the same, which is not possible when its future is dropped.
    #[must_use]
    pub fn cancelled_by(&self, cancellation: Cancellation) -> Self {
        Self { cancellation: Some(cancellation), ..self.clone() }
    }

    /// The same runtime, with operations that end at `deadline`, whatever [`Builder::operation_deadline`] and
    /// [`Builder::plugin_deadline`] would still allow; of several deadlines the earliest counts.
    ///
    /// A plugin that runs at the deadline is terminated (SIGTERM to its process group, later SIGKILL), no other is
    /// started, and the operation fails with code 104. A failed ADD is rolled back all the same, with a time limit of
    /// its own: see [`Builder::rollback_deadline`].
    #[must_use]
    pub fn until(&self, deadline: Instant) -> Self {
        let until = self.until.map_or(deadline, |until| until.min(deadline));
        Self { until: Some(until), ..self.clone() }
    }

    /// The same runtime, with operations that leave no records in the log of calls, nor do their plugins: for looks at many
    /// attachments at once. If the variable `CNI_LOG` names a log, all is recorded there.
    #[must_use]
    pub fn unlogged(&self) -> Self {
        Self { is_unlogged: true, ..self.clone() }
    }

    /// The variable of plugins whose operation leaves no record.
    fn silence(&self) -> Option<(String, String)> {
        self.is_unlogged.then(|| CallLog::off_variable(self.settings.call_log.as_ref())).flatten()
    }

    /// The same runtime for one operation that begins now.
    fn bounded(&self) -> Self {
        // A limit that no clock reaches is none.
        match self.settings.operation_deadline.and_then(|limit| Instant::now().checked_add(limit)) {
            Some(until) => self.until(until),
            None => self.clone(),
        }
    }

    /// The cache.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.settings.cache
    }

    /// The attachments of a network whose ADD or DEL, by this library on this cache, is in progress. Takes no lock and changes
    /// nothing.
    #[must_use]
    pub fn in_progress<'a>(
        &self,
        network: &NetworkName,
        ids: impl Iterator<Item = &'a AttachmentId>,
    ) -> Vec<&'a AttachmentId> {
        self.settings.cache.locks.held(network, ids)
    }

    /// The folders in which executables are looked up.
    #[must_use]
    pub fn plugin_path(&self) -> &PluginPath {
        &self.settings.path
    }

    /// ADD: runs the plugins in order, each with the result before it, and caches the last result.
    ///
    /// Before the first one runs, all executables are found, and the cache gets an intent: an entry without a result.
    /// If a plugin fails, DEL is called for those that ran, itself included, newest first; the error's details end with
    /// what was rolled back. If something was left behind, the intent stays, for DEL.
    ///
    /// An attachment whose earlier ADD is cached, and whose namespace exists, is left alone: ADD is refused before a plugin
    /// runs. If another ADD of the attachment is in progress, by any process with this cache, it is waited for.
    ///
    /// # Errors
    /// [`Error::Plugin`] with the plugin's own code; [`Error::Invalid`] for an invalid name or unknown version;
    /// [`Error::Cache`]; [`Error::Attached`]; [`Error::Locked`]; [`Error::Orphans`] if an earlier ADD was not finished and
    /// its plugins cannot be ended.
    pub async fn add(&self, network: &NetworkConf, attachment: &RuntimeConf) -> Result<AddResult, Error> {
        operation_spans::operation(Operation::on(self, Command::Add, network, Some(&attachment.id)), async {
            Add::new(self, network, &name(network)?, attachment).run().await
        })
        .await
    }

    /// CHECK: runs the plugins in order with the cached result; the first error ends it.
    ///
    /// Succeeds without running a plugin when the network sets `disableCheck`.
    ///
    /// # Errors
    /// [`Error::NoCheck`] for versions below 0.4.0; [`Error::Incomplete`] for an intent; [`Error::CachedResult`] when
    /// the cached result is invalid in the network's version; [`Error::Plugin`].
    pub async fn check(&self, network: &NetworkConf, attachment: &RuntimeConf) -> Result<(), Error> {
        operation_spans::operation(Operation::on(self, Command::Check, network, Some(&attachment.id)), async {
            let name = name(network)?;
            let version = network.version()?;
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

    /// DEL: runs the plugins in reverse order, from version 0.4.0 on with the cached result, and removes the cache
    /// entry.
    ///
    /// A plugin that still runs ADD for the attachment, as recorded in the cache, is ended first, with its process
    /// group: SIGTERM, later SIGKILL. If the cache has only an intent and a plugin refuses the configuration of
    /// `network`, the intent's own configuration is tried: ADD used one of the two. `CNI_NETNS` is empty if the
    /// namespace is gone.
    ///
    /// [`Builder::del_errors`] decides whether an error ends it; after any error the cached result is kept, so that DEL
    /// can be repeated.
    ///
    /// # Errors
    /// [`Error::Plugin`]; [`Error::Several`] when it continues after errors; [`Error::Cache`] when the entry cannot be
    /// removed; [`Error::Orphans`] if an unfinished ADD's plugins cannot be ended.
    pub async fn del(&self, network: &NetworkConf, attachment: &RuntimeConf) -> Result<(), Error> {
        operation_spans::operation(Operation::on(self, Command::Del, network, Some(&attachment.id)), async {
            let runtime = self.bounded();
            let name = name(network)?;
            let _held = runtime.lock_for_del(&name, &attachment.id).await?;
            runtime.del_under_lock(network, &name, attachment).await
        })
        .await
    }

    /// DEL by the cache alone: with the network configuration, namespace and arguments that ADD left there. Runtimes
    /// need it after a restart, when the configuration's file has changed or is gone, and for an ADD that was
    /// interrupted.
    ///
    /// # Errors
    /// [`Error::CachedConf`] if the configuration cannot be used, as in files of the oldest format, which have none: no
    /// plugin has run, and the caller can use [`Runtime::del`] with a configuration from elsewhere. Otherwise as
    /// [`Runtime::del`].
    pub async fn del_cached(&self, cached: &Cached) -> Result<(), Error> {
        self.del_cached_or(cached, None).await
    }

    /// As [`Runtime::del_cached`], and with the `present` configuration of the network where the cached one cannot be
    /// used, or where it is that of an intent and a plugin refuses it.
    ///
    /// # Errors
    /// The errors of both attempts, as one or as [`Error::Several`].
    pub async fn del_cached_or(&self, cached: &Cached, present: Option<&NetworkConf>) -> Result<(), Error> {
        let about = Operation {
            runtime: self,
            command: Command::Del,
            network: cached.network.as_str(),
            log: present.and_then(|present| present.log.as_deref()),
            id: Some(&cached.attachment.id),
        };
        operation_spans::operation(about, async {
            let runtime = self.bounded();
            let present = present.filter(|present| present.name == cached.network.as_str());
            let _held = runtime.lock_for_del(&cached.network, &cached.attachment.id).await?;
            let (attachment, known) = (&cached.attachment, runtime.find_cached(&cached.network, &cached.attachment));
            match (runtime.cached_conf(cached), present) {
                (Ok(conf), present) => {
                    let present = present.filter(|_| !cached.is_complete());
                    runtime.del_with_fallback(&conf, present, attachment, known.as_ref()).await
                }
                (Err(error), Some(present)) => {
                    tracing::warn!(error = error.with_causes(), "DEL uses the present configuration");
                    runtime.del_with_fallback(present, None, attachment, known.as_ref()).await
                }
                (Err(error), None) => Err(error),
            }
        })
        .await
    }

    /// The cached attachments of the network that are not in `valid`: those for which [`Gc`] would call DEL.
    ///
    /// # Errors
    /// [`Error::Cache`] if the cache folder cannot be read, [`Error::Invalid`] for an invalid name.
    pub fn stale(&self, network: &NetworkConf, valid: &[AttachmentId]) -> Result<Vec<Cached>, Error> {
        let name = name(network)?;
        Ok(self.listed()?.stale(&name, valid))
    }

    /// The entries of the cache. Broken files are reported.
    fn listed(&self) -> Result<cache::Listing, Error> {
        let listing = self.settings.cache.list(None)?;
        for file in &listing.passed_over {
            tracing::warn!(path = %file.path.display(), reason = file.reason, "a cache file is broken and counts as missing");
        }
        Ok(listing)
    }

    /// STATUS: whether the network can serve ADD. The first error ends it and keeps its code: 50 and 51 mean no.
    ///
    /// Networks below version 1.1.0 have no STATUS and count as ready.
    ///
    /// # Errors
    /// [`Error::Plugin`].
    pub async fn status(&self, network: &NetworkConf) -> Result<(), Error> {
        operation_spans::operation(Operation::on(self, Command::Status, network, None), async {
            name(network)?;
            if !network.version()?.has_gc() {
                return Ok(());
            }
            Chain::new(self, network, Command::Status).status().await
        })
        .await
    }

    /// Checks that every plugin exists and supports the network's version, and returns the capabilities that the
    /// plugins enable.
    ///
    /// # Errors
    /// Every error that was found, as one or as [`Error::Several`].
    pub async fn validate(&self, network: &NetworkConf) -> Result<BTreeSet<String>, Error> {
        let about = Operation::on(self, Command::Version, network, None);
        operation_spans::operation(about, versions::validate(self, network)).await
    }

    /// The executables of a network's plugins, in order.
    ///
    /// # Errors
    /// [`Error::Plugin`], code 4: a plugin is in none of the folders.
    pub fn find_executables(&self, network: &NetworkConf) -> Result<Vec<PathBuf>, Error> {
        Chain::new(self, network, Command::Add).find_executables()
    }

    /// VERSION: asks one plugin which versions it supports.
    ///
    /// # Errors
    /// [`Error::Plugin`].
    pub async fn version(&self, plugin: &PluginType) -> Result<VersionInfo, Error> {
        let about = Operation { runtime: self, command: Command::Version, network: "", log: None, id: None };
        operation_spans::operation(about, versions::version(self, plugin)).await
    }

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
