//! ADD: all plugins or none. The cache has an entry from before the first plugin runs.

use crate::cache::Look;
use crate::chain::{Chain, Step};
use crate::entry::Cached;
use crate::error::Error;
use crate::limits::Limits;
use crate::orphans;
use crate::{Attachment, Namespace, NetworkConf, Runtime};
use cni_spec::{AddResult, CniError, Code, Command, NetworkName, SpecVersion};
use serde_json::value::RawValue;
use std::path::PathBuf;

/// One ADD.
pub(crate) struct Add<'a> {
    chain: Chain<'a>,
    name: &'a NetworkName,
    attachment: &'a Attachment,
}

/// The attachment's entry in the cache before this ADD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// An ADD that was not finished.
    Intent,
    /// A finished ADD for a namespace that is gone. Its entry stays until this ADD is finished.
    Gone,
    /// A finished ADD for a namespace that may exist: DEL could reach a container that lives.
    Unknown,
}

impl Before {
    /// # Errors
    /// The attachment is there, and lives.
    fn of(cached: Option<&Cached>) -> Result<Self, Error> {
        let Some(cached) = cached else { return Ok(Before::Nothing) };
        if !cached.is_complete() {
            return Ok(Before::Intent);
        }
        match cached.namespace() {
            Namespace::Gone => Ok(Before::Gone),
            Namespace::Unknown => Ok(Before::Unknown),
            Namespace::Present => {
                let Attachment { id, netns, .. } = cached.attachment.clone();
                Err(Error::Attached { network: cached.network.clone(), id, netns })
            }
        }
    }

    fn has_result(self) -> bool {
        matches!(self, Before::Gone | Before::Unknown)
    }
}

/// An ADD that failed, and how far it got.
struct Failed<'a> {
    error: Error,
    /// The executables of the plugins that ran.
    ran: &'a [PathBuf],
    /// The last plugin itself reported that it cannot use its input.
    is_refused: bool,
    /// The last plugin itself reported that what it is to make is there already.
    is_taken: bool,
    last: Option<Step>,
}

/// The outcome of a rollback's DELs.
#[derive(Default)]
struct RolledBack<'a> {
    /// The plugins whose DEL succeeded.
    undone: Vec<&'a str>,
    /// The plugin that refused DEL as it had refused ADD, and so has changed nothing.
    idle: Option<&'a str>,
    /// The plugins that left something behind.
    left: Vec<Error>,
}

impl<'a> Add<'a> {
    pub(crate) fn new(
        runtime: &'a Runtime,
        network: &'a NetworkConf,
        name: &'a NetworkName,
        attachment: &'a Attachment,
    ) -> Self {
        Self { chain: Chain::new(runtime, network, Command::Add), name, attachment }
    }

    pub(crate) async fn run(mut self) -> Result<AddResult, Error> {
        let Chain { runtime, network, .. } = self.chain;
        let version = network.version().map_err(Error::Invalid)?;
        if network.plugins.is_empty() {
            let msg = format!("cannot add to network {}: it has no plugins", self.name);
            return Err(Error::Invalid(CniError::new(Code::INVALID_CONFIG, msg)));
        }
        let executables = self.chain.find_executables()?;
        let cache = &runtime.settings.cache;
        cache.prepare()?;
        let _held = cache.locks.for_add(self.name, &self.attachment.id, &self.chain.limits).await?;
        let cached = match cache.look(self.name, &self.attachment.id)? {
            Look::Nothing => None,
            Look::Own(cached) => Some(*cached),
            Look::Others(other) => return Err(cache.clash(self.name, &self.attachment.id, &other)),
        };
        let before = Before::of(cached.as_ref())?;
        if let Some(running) = cached.as_ref().and_then(|cached| cached.running.as_ref()) {
            // A process that still works on an earlier ADD would conflict with this one's plugins.
            orphans::end(running, &Limits::of(runtime), Command::Add).await?;
        }
        let entry = cached.filter(|_| before.has_result()).unwrap_or_else(|| self.entry(None));
        self.chain.noted = Some(cache.begin(&entry)?);
        match self.add_all(&executables, version).await {
            Ok(result) => Ok(result),
            Err(failed) => Err(self.give_up(failed, before).await),
        }
    }

    /// Runs all plugins and then writes the complete entry.
    async fn add_all<'b>(&self, executables: &'b [PathBuf], version: SpecVersion) -> Result<AddResult, Failed<'b>> {
        let mut last = None;
        for (index, (plugin, executable)) in self.chain.network.plugins.iter().zip(executables).enumerate() {
            if let Err(failure) = self.chain.add_one(plugin, executable, self.attachment, version, &mut last).await {
                let ran = index + usize::from(failure.has_run());
                let (is_refused, is_taken) = (failure.is_refusal(), failure.is_taken());
                let error = self.chain.plugin_error(plugin, failure.error);
                return Err(Failed { error, ran: &executables[..ran], is_refused, is_taken, last });
            }
        }
        let cache = &self.chain.runtime.settings.cache;
        match cache.finish(&self.entry(last.as_ref().map(|step| step.json.clone()))) {
            Ok(()) => Ok(last.map(|step| step.result).unwrap_or_default()),
            Err(error) => Err(Failed { error, ran: executables, is_refused: false, is_taken: false, last }),
        }
    }

    /// The cache's entry: without a result it is the intent.
    fn entry(&self, result: Option<Box<RawValue>>) -> Cached {
        Cached::of(self.chain.network, self.name, self.attachment, result)
    }

    /// Rolls a failed ADD back and reports the outcome in the error.
    async fn give_up(&self, failed: Failed<'_>, before: Before) -> Error {
        if before == Before::Unknown {
            let sentence = "Nothing was rolled back: the attachment is there from an earlier ADD. Call DEL first.";
            return with_details(failed.error, &[sentence.into()]);
        }
        // DEL goes by the attachment's name, so it would remove what another runtime has made of it.
        if before == Before::Nothing && failed.is_taken && failed.ran.len() == 1 {
            let sentence = "Nothing was rolled back: what is there already may be in use.".into();
            let removed = self.chain.runtime.settings.cache.remove(self.name, &self.attachment.id);
            let left = removed.err().map(|error| left_behind(&error, &failed.error));
            return with_details(failed.error, &[Some(sentence), left].into_iter().flatten().collect::<Vec<_>>());
        }
        let RolledBack { undone, idle, left } = self.roll_back(&failed).await;
        let is_clean = left.is_empty();
        let mut details = Vec::new();
        if !undone.is_empty() {
            details.push(format!("Rolled back: {}.", undone.join(", ")));
        }
        details.extend(idle.map(|plugin| format!("{plugin} refuses DEL as well, so it has made nothing.")));
        details.extend(left.iter().map(|error| left_behind(error, &failed.error)));
        match (before, is_clean) {
            (Before::Nothing, true) => {
                let removed = self.chain.runtime.settings.cache.remove(self.name, &self.attachment.id);
                details.extend(removed.err().map(|error| left_behind(&error, &failed.error)));
            }
            // Plugins after the one that failed may have left something in an earlier ADD.
            (Before::Nothing | Before::Intent, _) => {
                details.push("The cache keeps the attachment as incomplete: DEL finishes it.".into());
            }
            (Before::Gone | Before::Unknown, _) => {}
        }
        with_details(failed.error, &details)
    }

    /// Calls DEL of the plugins that ran, newest first.
    ///
    /// A plugin that refused the configuration at ADD and again at DEL has changed nothing (SPEC 5, Error: codes of
    /// invalid input). Its DEL would be refused every time, so it does not count as left behind. The reference's
    /// plugins refuse with the code of any other failure; with that code they may have changed something, and the cache
    /// keeps the attachment.
    async fn roll_back(&self, failed: &Failed<'_>) -> RolledBack<'_> {
        let chain = self.chain.rollback();
        // The result as far as ADD got; versions whose DEL has no prevResult get none.
        let has_result = chain.network.version().is_ok_and(SpecVersion::has_check);
        let prev_result = failed.last.as_ref().filter(|_| has_result).map(|step| step.json.get());
        let mut outcome = RolledBack::default();
        let ran = self.chain.network.plugins.iter().zip(failed.ran);
        for (place, (plugin, executable)) in ran.enumerate().rev() {
            let refused_add = failed.is_refused && place + 1 == failed.ran.len();
            match chain.call(plugin, executable, self.attachment, prev_result).await {
                Ok(_) => outcome.undone.push(plugin.plugin_type.as_str()),
                Err(failure) if refused_add && failure.is_refusal() => {
                    outcome.idle = Some(plugin.plugin_type.as_str());
                }
                Err(failure) => outcome.left.push(chain.plugin_error(plugin, failure.error)),
            }
        }
        outcome
    }
}

/// What a DEL left, with the plugin's error; text that the error of the ADD contains already is not repeated.
fn left_behind(left: &Error, failed: &Error) -> String {
    match (left, failed) {
        (Error::Plugin(left), Error::Plugin(failed)) if left.error == failed.error => {
            format!("Left behind: DEL of plugin {} failed with the same error.", left.plugin)
        }
        _ => format!("Left behind: {}.", left.with_causes().trim_end_matches('.')),
    }
}

fn with_details(error: Error, sentences: &[String]) -> Error {
    let add = |mut error: CniError| {
        // The text of a plugin need not be a sentence.
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
        // Only a cache that cannot be written leads here.
        Error::Cache { verb, path, source, .. } => Error::Cache { verb, path, source, details: sentences.join(" ") },
        other => other,
    }
}
