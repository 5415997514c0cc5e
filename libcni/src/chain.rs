//! The plugins of a network, run in order: forward for ADD and CHECK, backward for DEL, and for GC all of them despite
//! errors.

use crate::attachment::{AttachmentId, RuntimeConf};
use crate::cache::Noted;
use crate::conflist::NetworkConf;
use crate::deadlines::Limits;
use crate::error::{Error, PluginError};
use crate::execution_conf::{self, Added};
use crate::namespace::{self, Namespace};
use crate::plugin_call::PluginRepair;
use crate::plugin_call::{Failure, PluginCall, Progress};
use crate::raw_object::PluginObject;
use crate::{AbsenceErrors, DelErrors, Runtime};
use cni_spec::exec::CallEnv;
use cni_spec::{AddResult, CniError, Code, Command, SpecVersion};
use cni_suite::{Repair, Repaired};
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) struct Chain<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) network: &'a NetworkConf,
    command: Command,
    pub(crate) limits: Limits,
    /// Where ADD and DEL record the plugin's process.
    pub(crate) noted: Option<Arc<Noted>>,
}

impl<'a> Chain<'a> {
    pub(crate) fn new(runtime: &'a Runtime, network: &'a NetworkConf, command: Command) -> Self {
        Self { runtime, network, command, limits: Limits::of(runtime), noted: None }
    }

    pub(crate) fn rollback(&self) -> Self {
        let (limits, noted) = (Limits::of_rollback(self.runtime), self.noted.clone());
        Self { command: Command::Del, limits, noted, ..*self }
    }

    /// Runs one plugin of ADD; its result replaces `last`.
    pub(crate) async fn add_one(
        &self,
        plugin: &PluginObject,
        executable: &Path,
        attachment: &RuntimeConf,
        version: SpecVersion,
        last: &mut Option<Step>,
    ) -> Result<(), Failure> {
        let prev_result = last.as_ref().map(|step| step.json.get());
        let stdout = self.call(plugin, executable, attachment, prev_result).await?;
        *last = Some(Step::read(&stdout, version).map_err(Failure::at(Progress::Ran))?);
        Ok(())
    }

    /// CHECK. The first error ends it.
    pub(crate) async fn check(&self, attachment: &RuntimeConf, prev_result: Option<&str>) -> Result<(), Error> {
        for (plugin, executable) in self.network.plugins.iter().zip(&self.find_executables()?) {
            self.call(plugin, executable, attachment, prev_result)
                .await
                .map_err(|failure| self.plugin_error(plugin, failure.error))?;
        }
        Ok(())
    }

    /// CHECK that repairs. Continues after errors: what one plugin cannot repair hides nothing of the others.
    pub(crate) async fn repair(
        &self,
        attachment: &RuntimeConf,
        prev_result: Option<&str>,
        how: Repair,
    ) -> Result<Vec<PluginRepair>, Error> {
        let mut repairs = Vec::new();
        for (plugin, executable) in self.network.plugins.iter().zip(&self.find_executables()?) {
            let added = Added { prev_result, attachment: Some(attachment), repair: Some(how), ..Added::default() };
            let stdin = execution_conf::stdin(self.network, plugin, &added);
            let env = self.env_of(attachment);
            let answer = self.run_plugin(plugin, executable, env, &stdin).await.map_err(|failure| failure.error);
            if let Err(error) = &answer
                && error.code == Code::INTERRUPTED
            {
                return Err(self.plugin_error(plugin, error.clone()));
            }
            let outcome = answer.and_then(|stdout| Repaired::parse(&stdout));
            let outcome = outcome.map_err(|error| self.plugin_error(plugin, error));
            repairs.push(PluginRepair { plugin: plugin.plugin_type.to_string(), outcome });
        }
        Ok(repairs)
    }

    pub(crate) async fn del(&self, attachment: &RuntimeConf, prev_result: Option<&str>) -> Result<(), Error> {
        let mut errors = Vec::new();
        for plugin in self.network.plugins.iter().rev() {
            let outcome = match self.find_executable(plugin) {
                Ok(executable) => self.del_one(plugin, &executable, attachment, prev_result).await,
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                errors.push(self.plugin_error(plugin, error));
                if self.runtime.settings.del_errors == DelErrors::Stop {
                    break;
                }
            }
        }
        Error::join(errors).map_or(Ok(()), Err)
    }

    async fn del_one(
        &self,
        plugin: &PluginObject,
        executable: &Path,
        attachment: &RuntimeConf,
        prev_result: Option<&str>,
    ) -> Result<(), CniError> {
        let Err(failure) = self.call(plugin, executable, attachment, prev_result).await else { return Ok(()) };
        let may_be_done = self.runtime.settings.absence_errors == AbsenceErrors::CountAsDone;
        if may_be_done && is_about_absence(&failure) && Namespace::of(&attachment.netns) != Namespace::Present {
            tracing::warn!(
                plugin = plugin.plugin_type.as_str(),
                error = %failure.error,
                "what is absent needs no deletion, and the namespace is gone: the plugin's error counts as done"
            );
            return Ok(());
        }
        Err(failure.error)
    }

    /// GC. Continues after errors.
    pub(crate) async fn gc(&self, valid: &[AttachmentId], seen: Option<&[AttachmentId]>) -> Vec<Error> {
        let added = Added { valid: Some(valid), seen, ..Added::default() };
        let mut errors = Vec::new();
        for plugin in &self.network.plugins {
            if let Err(error) = self.call_for_network(plugin, &added).await {
                errors.push(self.plugin_error(plugin, error));
            }
        }
        errors
    }

    /// STATUS. The first error ends it.
    pub(crate) async fn status(&self) -> Result<(), Error> {
        for plugin in &self.network.plugins {
            self.call_for_network(plugin, &Added::default()).await.map_err(|error| self.plugin_error(plugin, error))?;
        }
        Ok(())
    }

    /// Finds all executables before the first one runs, so that a missing one leaves nothing behind.
    pub(crate) fn find_executables(&self) -> Result<Vec<PathBuf>, Error> {
        let find = |plugin| self.find_executable(plugin).map_err(|error| self.plugin_error(plugin, error));
        self.network.plugins.iter().map(find).collect()
    }

    fn find_executable(&self, plugin: &PluginObject) -> Result<PathBuf, CniError> {
        self.runtime.settings.execute.find(&plugin.plugin_type, &self.runtime.settings.path)
    }

    pub(crate) fn plugin_error(&self, plugin: &PluginObject, error: CniError) -> Error {
        plugin_error(plugin, self.command, error)
    }

    pub(crate) async fn call(
        &self,
        plugin: &PluginObject,
        executable: &Path,
        attachment: &RuntimeConf,
        prev_result: Option<&str>,
    ) -> Result<Vec<u8>, Failure> {
        let stdin = execution_conf::stdin(
            self.network,
            plugin,
            &Added { prev_result, attachment: Some(attachment), ..Added::default() },
        );
        self.run_plugin(plugin, executable, self.env_of(attachment), &stdin).await
    }

    fn env_of(&self, attachment: &RuntimeConf) -> CallEnv {
        let mut env = attachment.call_env();
        self.netns(attachment).clone_into(&mut env.netns);
        env.path = self.runtime.settings.path.clone();
        env
    }

    async fn call_for_network(&self, plugin: &PluginObject, added: &Added<'_>) -> Result<(), CniError> {
        let executable = self.find_executable(plugin)?;
        let stdin = execution_conf::stdin(self.network, plugin, added);
        self.run_plugin(plugin, &executable, self.env(), &stdin).await.map(drop).map_err(|failure| failure.error)
    }

    fn env(&self) -> CallEnv {
        let mut env = CallEnv::default();
        env.path = self.runtime.settings.path.clone();
        env
    }

    /// `CNI_NETNS`. It is empty for DEL of an attachment whose path leads to no namespace (SPEC 2, DEL: it is optional there).
    /// With the path of a namespace that is gone host-device of the reference fails, and sbr leaves a plain file
    /// at that path, on which the plugins after it fail; all others accept both.
    fn netns<'b>(&self, attachment: &'b RuntimeConf) -> &'b str {
        match (self.command, Namespace::of(&attachment.netns)) {
            (Command::Del, Namespace::Gone) => "",
            (Command::Del, Namespace::Unknown) if namespace::is_bare(&attachment.netns) => "",
            _ => &attachment.netns,
        }
    }

    async fn run_plugin(
        &self,
        plugin: &PluginObject,
        executable: &Path,
        env: CallEnv,
        stdin: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let (runtime, limits, command, noted) = (self.runtime, &self.limits, self.command, self.noted.as_deref());
        PluginCall { runtime, limits, command, plugin: plugin.plugin_type.as_str(), executable, env, stdin, noted }
            .run()
            .await
    }
}

/// The output of a plugin's ADD: as types, and in the form for the next plugin and the cache.
pub(crate) struct Step {
    pub(crate) result: AddResult,
    pub(crate) json: Box<RawValue>,
}

impl Step {
    /// Parses stdout of an ADD in a network of `version`.
    fn read(stdout: &[u8], version: SpecVersion) -> Result<Self, CniError> {
        if stdout.trim_ascii().is_empty() {
            return Err(CniError::new(Code::DELEGATE, "cannot use result: the plugin ended well but printed none"));
        }
        let value = cni_spec::json::parse(stdout)
            .map_err(|error| CniError { msg: format!("cannot use result: {}", error.msg), ..error })
            .map_err(|error| error.detail(format!("It printed {:?}.", start(stdout))))?;
        let result = AddResult::from_value(&value, version)?;
        let broken = |error| CniError::new(Code::INTERNAL, format!("cannot write result: {error}"));
        let json = serde_json::value::to_raw_value(&result.to_value(version)?).map_err(broken)?;
        Ok(Self { result, json })
    }
}

/// The start of a plugin's output, for an error text.
fn start(stdout: &[u8]) -> String {
    String::from_utf8_lossy(stdout.trim_ascii()).chars().take(100).collect()
}

pub(crate) fn plugin_error(plugin: &PluginObject, command: Command, error: CniError) -> Error {
    let (plugin, name) = (plugin.plugin_type.to_string(), plugin.name.clone());
    Error::from(PluginError { plugin, name, command, error })
}

/// Whether a plugin reports that something other than an executable is absent: this is the phrase of Go programs, which
/// add `exec` if they could not start a program.
fn is_about_absence(failure: &Failure) -> bool {
    let CniError { code, msg, details, .. } = &failure.error;
    let says = |phrase: &str| msg.contains(phrase) || details.contains(phrase);
    failure.progress == Progress::Printed
        && *code != Code::DELEGATE
        && says("no such file or directory")
        && !["exec ", "exec:", "executable"].into_iter().any(says)
}
