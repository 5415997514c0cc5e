//! The plugins of a network, run in order: forward for ADD and CHECK, backward for DEL, carrying on past errors for
//! GC and for the rollback of a failed ADD.

use crate::attachment::{Attachment, AttachmentId};
use crate::cache::Cached;
use crate::cancellation::Cancellation;
use crate::conflist::NetworkConf;
use crate::derive::{self, Added};
use crate::error::{Error, PluginError};
use crate::plugin_object::PluginObject;
use crate::{DelErrors, Runtime};
use cni_spec::exec::{self, Call, CallEnv, Group, Output};
use cni_spec::{AddResult, CniError, Code, Command, NetworkName, SpecVersion};
use nix::unistd::{AccessFlags, access};
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// One operation on one network.
pub(crate) struct Chain<'a> {
    runtime: &'a Runtime,
    network: &'a NetworkConf,
    command: Command,
    /// When the operation has to be over.
    until: Option<Instant>,
    /// Who may call it off.
    cancellation: Option<&'a Cancellation>,
}

/// A plugin that did not do what it should, and whether it had been started at all.
struct Failure {
    error: CniError,
    has_run: bool,
}

impl Failure {
    fn before(error: CniError) -> Self {
        Self { error, has_run: false }
    }

    fn after(error: CniError) -> Self {
        Self { error, has_run: true }
    }
}

impl<'a> Chain<'a> {
    pub(crate) fn new(runtime: &'a Runtime, network: &'a NetworkConf, command: Command) -> Self {
        let until = runtime.settings.operation_deadline.map(|limit| Instant::now() + limit);
        Self { runtime, network, command, until, cancellation: runtime.cancellation.as_ref() }
    }

    /// ADD. All plugins or none.
    pub(crate) async fn add(&self, name: &NetworkName, attachment: &Attachment) -> Result<AddResult, Error> {
        let version = self.network.version().map_err(Error::Invalid)?;
        let executables = self.find_executables()?;
        let cache = &self.runtime.settings.cache;
        cache.prepare()?;
        // A repeated ADD must not tear down what the first one made.
        let is_held = holds(cache.find(name, &attachment.id)?.as_ref(), attachment);
        let mut last = None;
        for (index, (plugin, executable)) in self.network.plugins.iter().zip(&executables).enumerate() {
            match self.add_one(plugin, executable, attachment, version, &mut last).await {
                Ok(()) => {}
                Err(failure) => {
                    let ran = index + usize::from(failure.has_run);
                    let error = self.told(plugin, failure.error);
                    return Err(self.give_up(error, &executables[..ran], attachment, last.as_ref(), is_held).await);
                }
            }
        }
        let Some(Step { result, json }) = last else {
            return Err(Error::Invalid(CniError::new(
                Code::INVALID_CONFIG,
                format!("cannot add to network {name}: it has no plugins"),
            )));
        };
        if let Err(error) = self.write_cache(name, attachment, json.clone()).await {
            let last = Step { result, json };
            return Err(self.give_up(error, &executables, attachment, Some(&last), is_held).await);
        }
        Ok(result)
    }

    /// One plugin of ADD; its result replaces `last`.
    async fn add_one(
        &self,
        plugin: &PluginObject,
        executable: &Path,
        attachment: &Attachment,
        version: SpecVersion,
        last: &mut Option<Step>,
    ) -> Result<(), Failure> {
        let prev_result = last.as_ref().map(|step| step.json.get());
        let stdout = self.call(plugin, executable, attachment, prev_result).await?;
        *last = Some(Step::read(&stdout, version).map_err(Failure::after)?);
        Ok(())
    }

    async fn write_cache(&self, name: &NetworkName, attachment: &Attachment, json: Box<RawValue>) -> Result<(), Error> {
        self.runtime.settings.cache.entry(self.network, name, attachment, json)?.write().await
    }

    /// Rolls a failed ADD back over the plugins that ran, newest first, and tells what became of it in the error.
    async fn give_up(
        &self,
        error: Error,
        ran: &[PathBuf],
        attachment: &Attachment,
        last: Option<&Step>,
        is_held: bool,
    ) -> Error {
        if is_held {
            return with_details(
                error,
                &["Nothing was rolled back: the attachment is there from an earlier ADD. Call DEL first.".into()],
            );
        }
        let chain = Chain { command: Command::Del, until: None, cancellation: None, ..*self };
        let mut undone = Vec::new();
        let mut told = Vec::new();
        for (plugin, executable) in self.network.plugins.iter().zip(ran).rev() {
            // The result as far as it had got; versions without it in DEL get none.
            let prev_result = last.filter(|_| self.has_del_result()).map(|step| step.json.get());
            match chain.call(plugin, executable, attachment, prev_result).await {
                Ok(_) => undone.push(plugin.plugin_type.as_str()),
                Err(failure) => told.push(format!("Left behind: {}.", chain.told(plugin, failure.error))),
            }
        }
        if !undone.is_empty() {
            told.insert(0, format!("Rolled back: {}.", undone.join(", ")));
        }
        with_details(error, &told)
    }

    fn has_del_result(&self) -> bool {
        self.network.version().is_ok_and(SpecVersion::has_check)
    }

    /// CHECK. The first error ends it.
    pub(crate) async fn check(&self, attachment: &Attachment, prev_result: Option<&str>) -> Result<(), Error> {
        for (plugin, executable) in self.network.plugins.iter().zip(&self.find_executables()?) {
            self.call(plugin, executable, attachment, prev_result)
                .await
                .map_err(|failure| self.told(plugin, failure.error))?;
        }
        Ok(())
    }

    /// DEL, backward.
    pub(crate) async fn del(&self, attachment: &Attachment, prev_result: Option<&str>) -> Result<(), Error> {
        let mut errors = Vec::new();
        for plugin in self.network.plugins.iter().rev() {
            let outcome = match self.find_executable(plugin) {
                Ok(executable) => self.call(plugin, &executable, attachment, prev_result).await.map_err(|f| f.error),
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                errors.push(self.told(plugin, error));
                if self.runtime.settings.del_errors == DelErrors::Stop {
                    break;
                }
            }
        }
        Error::join(errors).map_or(Ok(()), Err)
    }

    /// GC. Carries on past errors.
    pub(crate) async fn gc(&self, valid: &[AttachmentId]) -> Vec<Error> {
        let mut errors = Vec::new();
        for plugin in &self.network.plugins {
            if let Err(error) = self.call_for_network(plugin, Some(valid)).await {
                errors.push(self.told(plugin, error));
            }
        }
        errors
    }

    /// STATUS. The first error ends it.
    pub(crate) async fn status(&self) -> Result<(), Error> {
        for plugin in &self.network.plugins {
            self.call_for_network(plugin, None).await.map_err(|error| self.told(plugin, error))?;
        }
        Ok(())
    }

    /// Finds all executables before the first one runs, so that a missing last one leaks nothing.
    fn find_executables(&self) -> Result<Vec<PathBuf>, Error> {
        let find = |plugin| self.find_executable(plugin).map_err(|error| self.told(plugin, error));
        self.network.plugins.iter().map(find).collect()
    }

    fn find_executable(&self, plugin: &PluginObject) -> Result<PathBuf, CniError> {
        find_executable(self.runtime, plugin)
    }

    fn told(&self, plugin: &PluginObject, error: CniError) -> Error {
        tell(plugin, self.command, error)
    }

    async fn call(
        &self,
        plugin: &PluginObject,
        executable: &Path,
        attachment: &Attachment,
        prev_result: Option<&str>,
    ) -> Result<Vec<u8>, Failure> {
        let stdin =
            derive::stdin(self.network, plugin, &Added { prev_result, attachment: Some(attachment), valid: None });
        let env = CallEnv {
            container_id: attachment.id.container_id.to_string(),
            netns: attachment.netns.clone(),
            ifname: attachment.id.ifname.to_string(),
            args: attachment.args.to_string(),
            path: self.runtime.settings.path.clone(),
            more: self.runtime.trace_variables(),
        };
        self.run(plugin, executable, &env, &stdin).await
    }

    async fn call_for_network(&self, plugin: &PluginObject, valid: Option<&[AttachmentId]>) -> Result<(), CniError> {
        let executable = self.find_executable(plugin)?;
        let stdin = derive::stdin(self.network, plugin, &Added { valid, ..Added::default() });
        let env = CallEnv {
            path: self.runtime.settings.path.clone(),
            more: self.runtime.trace_variables(),
            ..CallEnv::default()
        };
        self.run(plugin, &executable, &env, &stdin).await.map(drop).map_err(|failure| failure.error)
    }

    async fn run(
        &self,
        plugin: &PluginObject,
        executable: &Path,
        env: &CallEnv,
        stdin: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let begin = Instant::now();
        let outcome = self.run_once(plugin, executable, env, stdin).await;
        tracing::debug!(
            network = self.network.name,
            plugin = plugin.plugin_type.as_str(),
            command = self.command.as_str(),
            container = env.container_id,
            ifname = env.ifname,
            elapsed_us = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX),
            error = outcome.as_ref().err().map(|failure| tracing::field::display(&failure.error)),
            "plugin ran"
        );
        outcome
    }

    async fn run_once(
        &self,
        plugin: &PluginObject,
        executable: &Path,
        env: &CallEnv,
        stdin: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let call = Call {
            executable,
            command: self.command,
            env,
            stdin,
            group: Group::Own,
            stderr: self.runtime.settings.stderr.of(plugin.plugin_type.as_str(), self.command, env),
            deadline: self.time_left().map_err(Failure::before)?,
        };
        let started = exec::start(call).await.map_err(Failure::before)?;
        let output: Output = started.finish_unless(self.cancelled()).await.map_err(Failure::after)?;
        output.into_stdout().map_err(Failure::after)
    }

    /// Waits until the operation is called off.
    async fn cancelled(&self) -> CniError {
        match &self.cancellation {
            Some(cancellation) => cancellation.cancelled().await,
            None => std::future::pending().await,
        }
        self.called_off()
    }

    fn called_off(&self) -> CniError {
        CniError::new(Code::INTERRUPTED, format!("cannot finish {}: the operation was cancelled", self.command))
    }

    /// How long the next plugin may take.
    fn time_left(&self) -> Result<Duration, CniError> {
        if self.cancellation.is_some_and(Cancellation::is_cancelled) {
            return Err(self.called_off());
        }
        let each = self.runtime.settings.plugin_deadline;
        let Some(until) = self.until else { return Ok(each) };
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(CniError::new(
                Code::TIMEOUT,
                format!("cannot start {}: the deadline of the whole operation has passed", self.command),
            )),
            left => Ok(each.min(left)),
        }
    }
}

/// What a plugin of ADD printed: as types, and as the next plugin and the cache get it.
struct Step {
    result: AddResult,
    json: Box<RawValue>,
}

impl Step {
    /// Reads stdout of an ADD in a network of `version`.
    fn read(stdout: &[u8], version: SpecVersion) -> Result<Self, CniError> {
        if stdout.trim_ascii().is_empty() {
            return Err(CniError::new(Code::DELEGATE, "cannot use result: the plugin ended well but printed none"));
        }
        let value = cni_spec::json::parse(stdout)
            .map_err(|error| CniError { msg: format!("cannot use result: {}", error.msg), ..error })?;
        let result = AddResult::from_value(&value, version)?;
        let broken = |error| CniError::new(Code::INTERNAL, format!("cannot write result: {error}"));
        let json = serde_json::value::to_raw_value(&result.to_value(version)?).map_err(broken)?;
        Ok(Self { result, json })
    }
}

/// Finds a plugin's executable, which must be one.
pub(crate) fn find_executable(runtime: &Runtime, plugin: &PluginObject) -> Result<PathBuf, CniError> {
    let path = runtime.settings.path.find_executable(&plugin.plugin_type)?;
    access(&path, AccessFlags::X_OK).map_err(|errno| {
        CniError::new(Code::DELEGATE, format!("cannot run plugin {}: {}: {errno}", plugin.plugin_type, path.display()))
            .detail("Nothing was run.")
    })?;
    Ok(path)
}

pub(crate) fn tell(plugin: &PluginObject, command: Command, error: CniError) -> Error {
    let (plugin, name) = (plugin.plugin_type.to_string(), plugin.name.clone());
    Error::from(PluginError { plugin, name, command, error })
}

/// Whether an earlier ADD of this very attachment holds: it is cached, for the same namespace, and that exists.
fn holds(cached: Option<&Cached>, attachment: &Attachment) -> bool {
    cached.is_some_and(|cached| {
        cached.attachment.netns == attachment.netns && Path::new(&attachment.netns).try_exists().unwrap_or(true)
    })
}

fn with_details(error: Error, sentences: &[String]) -> Error {
    let add = |mut error: CniError| {
        // What plugins write need not be a sentence.
        if !error.details.is_empty() && !error.details.ends_with(['.', '!', '?']) {
            error.details.push('.');
        }
        sentences.iter().fold(error, CniError::detail)
    };
    match error {
        Error::Plugin(mut plugin) => {
            plugin.error = add(plugin.error);
            Error::Plugin(plugin)
        }
        // Only a cache that cannot be written gets here, and its cause stays a cause.
        Error::Cache { verb, path, source } => {
            let told = sentences.join(" ");
            let source = std::io::Error::new(source.kind(), format!("{source}; {told}"));
            Error::Cache { verb, path, source }
        }
        other => other,
    }
}
