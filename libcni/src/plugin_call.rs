//! A call of a plugin for an operation: in its tracing span, within its limits.

use crate::cache::Noted;
use crate::call_log::Operation;
use crate::chain::Chain;
use crate::deadlines::Limits;
use crate::error::Error;
use crate::{Cached, Namespace, Runtime, call_log, operation_spans};
use cni_spec::error::DUPLICATE_ALLOCATION;
use cni_spec::exec::{self, CallEnv, Execution, Output};
use cni_spec::{CniError, Code, Command};
use cni_suite::{Repair, Repaired};
use std::path::Path;
use std::process;

pub(crate) struct PluginCall<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) limits: &'a Limits,
    pub(crate) command: Command,
    pub(crate) plugin: &'a str,
    pub(crate) executable: &'a Path,
    pub(crate) env: CallEnv,
    pub(crate) stdin: &'a [u8],
    /// The cache's entry in which the plugin's process is recorded before the plugin can begin.
    pub(crate) noted: Option<&'a Noted>,
}

pub(crate) struct Failure {
    pub(crate) error: CniError,
    pub(crate) progress: Progress,
}

/// Why a plugin that failed has made nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The plugin cannot use its input (SPEC 5, Error: codes of invalid input), or the namespace.
    Refused,
    /// An object that the plugin has to create exists already, and may be in use.
    Taken,
}

/// How far a failed call got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The plugin was not started, so there is nothing to undo.
    NotStarted,
    /// The plugin was started, and the error is about how it ran.
    Ran,
    /// The plugin printed the error itself.
    Printed,
}

impl Failure {
    pub(crate) fn at(progress: Progress) -> impl Fn(CniError) -> Self {
        move |error| Self { error, progress }
    }

    /// The reason why the plugin has made nothing, by the error that it printed.
    pub(crate) fn made_nothing(&self) -> Option<Reason> {
        let is_refusal = self.error.code.is_refusal() || self.error.code == Code::INVALID_NETNS;
        match self.progress {
            Progress::Printed if self.is_taken() => Some(Reason::Taken),
            Progress::Printed if is_refusal => Some(Reason::Refused),
            Progress::NotStarted | Progress::Ran | Progress::Printed => None,
        }
    }

    /// Whether the error says that what the plugin is to make is there already. The reference's host-local has no code for
    /// that.
    fn is_taken(&self) -> bool {
        let CniError { code, msg, details, .. } = &self.error;
        let has_address = |text: &String| text.contains(DUPLICATE_ALLOCATION);
        *code == Code::EXISTS || has_address(msg) || has_address(details)
    }

    pub(crate) fn has_run(&self) -> bool {
        self.progress != Progress::NotStarted
    }
}

impl AsRef<CniError> for Failure {
    fn as_ref(&self) -> &CniError {
        &self.error
    }
}

impl PluginCall<'_> {
    pub(crate) async fn run(self) -> Result<Vec<u8>, Failure> {
        operation_spans::call(self.command, self.plugin, self.run_in_span()).await
    }

    async fn run_in_span(mut self) -> Result<Vec<u8>, Failure> {
        // The trace context is that of the plugin's own span.
        self.env.more = self.runtime.trace_variables();
        self.env.more.extend(call_log::within_variable());
        self.env.more.extend(self.runtime.silence());
        let execute = &*self.runtime.settings.execute;
        let spawn = |command: &mut process::Command| execute.spawn(command);
        let mut call = Execution::new(self.executable, self.command, &self.env, self.stdin);
        call.stderr = self.runtime.settings.stderr.of(self.plugin, self.command, &self.env);
        call.deadline = self.limits.time_left(self.command).map_err(Failure::at(Progress::NotStarted))?;
        call.spawn = &spawn;
        let output = match execute.answer(&call) {
            Some(output) => output,
            None => self.run_process(call).await?,
        };
        if let Some(error) = output.error_object() {
            return Err(Failure::at(Progress::Printed)(error));
        }
        output.unless_failed().map_err(Failure::at(Progress::Ran))
    }

    async fn run_process(&self, call: Execution<'_>) -> Result<Output, Failure> {
        let started = exec::start(call).await.map_err(Failure::at(Progress::NotStarted))?;
        if let Some(noted) = self.noted {
            // If it is dropped here, the plugin is terminated; without the end of its config it has not begun.
            started
                .pid()
                .map_or(Ok(()), |pid| noted.note(pid))
                .map_err(|error| error.to_cni_error())
                .map_err(Failure::at(Progress::NotStarted))?;
        }
        let called_off = self.limits.cancelled(self.command);
        let (grace, hurried) = (self.runtime.settings.plugin_grace, self.limits.hurried());
        started.finish_or_end(called_off, grace, hurried).await.map_err(Failure::at(Progress::Ran))
    }
}

/// The repairs of one plugin of the list.
#[derive(Debug)]
pub struct PluginRepair {
    /// The plugin's type.
    pub plugin: String,
    /// The report. `None`: the plugin does not know of repairs, and its CHECK finds no difference.
    ///
    /// # Errors
    /// [`Error::Plugin`]: the plugin could not look, or does not know of repairs and its CHECK fails.
    pub outcome: Result<Option<Repaired>, Error>,
}

impl Runtime {
    /// Has the plugins of an attachment's ADD report how the node differs from what they made, and write what is missing anew.
    /// Nothing that is right is changed, and nothing in the container. [`Repair::Show`] changes nothing at all.
    ///
    /// The repair runs under the locks of ADD, by the configuration, arguments and result of that ADD. `None`: the attachment is not as
    /// `cached` has it any more, is not complete, or its namespace is not certain to exist.
    ///
    /// # Errors
    /// [`Error::CachedConf`]; [`Error::CachedResult`]; [`Error::Locked`]; [`Error::Plugin`] if an executable is missing, before
    /// any plugin is run, or the operation was cancelled.
    pub async fn repair(&self, cached: &Cached, how: Repair) -> Result<Option<Vec<PluginRepair>>, Error> {
        let (name, id) = (&cached.network, &cached.attachment.id);
        let about =
            Operation { runtime: self, command: Command::Check, network: name.as_str(), log: None, id: Some(id) };
        operation_spans::operation(about, async {
            let network = self.cached_conf(cached)?;
            let version = network.version().map_err(Error::Invalid)?;
            let cache = &self.settings.cache;
            let _held = match how {
                Repair::Show => None,
                Repair::Write => Some(cache.locks.for_add(name, id, &Limits::of(self)).await?),
            };
            let now = cache.find(name, id)?;
            let is_as_before = now.is_some_and(|now| now.is_unchanged(cached));
            if !is_as_before || !cached.is_complete() || cached.namespace() != Namespace::Present {
                return Ok(None);
            }
            let prev_result = self.prev_result(Some(cached), version)?;
            let chain = Chain::new(self, &network, Command::Check);
            chain.repair(&cached.attachment, prev_result.as_deref(), how).await.map(Some)
        })
        .await
    }
}
