//! ADD: all plugins or none, and the cache knows of it from before the first one runs.

use crate::cache::Cached;
use crate::chain::{Chain, Step};
use crate::error::Error;
use crate::limits::Limits;
use crate::orphans;
use crate::{Attachment, NetworkConf, Runtime};
use cni_spec::{AddResult, CniError, Code, Command, NetworkName, SpecVersion};
use std::path::{Path, PathBuf};

/// One ADD.
pub(crate) struct Add<'a> {
    chain: Chain<'a>,
    name: &'a NetworkName,
    attachment: &'a Attachment,
}

/// What the cache said of the attachment before this ADD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// An ADD that was not finished.
    Intent,
    /// An ADD that was, for another namespace or one that is gone. Its entry stays until this ADD is finished.
    Complete,
    /// An ADD of this very attachment, which holds: it must not be torn down.
    Held,
}

impl Before {
    fn of(cached: Option<&Cached>, attachment: &Attachment) -> Self {
        let Some(cached) = cached else { return Before::Nothing };
        let is_same = || cached.attachment.netns == attachment.netns;
        let exists = || Path::new(&attachment.netns).try_exists().unwrap_or(true);
        match cached.is_complete() {
            false => Before::Intent,
            true if is_same() && exists() => Before::Held,
            true => Before::Complete,
        }
    }

    fn has_result(self) -> bool {
        matches!(self, Before::Complete | Before::Held)
    }
}

/// An ADD that failed, and how far it had got.
struct Failed<'a> {
    error: Error,
    /// The executables of the plugins that ran.
    ran: &'a [PathBuf],
    last: Option<Step>,
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

    pub(crate) async fn run(self) -> Result<AddResult, Error> {
        let Chain { runtime, network, .. } = self.chain;
        let version = network.version().map_err(Error::Invalid)?;
        if network.plugins.is_empty() {
            let msg = format!("cannot add to network {}: it has no plugins", self.name);
            return Err(Error::Invalid(CniError::new(Code::INVALID_CONFIG, msg)));
        }
        let executables = self.chain.find_executables()?;
        let cache = &runtime.settings.cache;
        cache.prepare()?;
        let cached = cache.find(self.name, &self.attachment.id)?;
        let before = Before::of(cached.as_ref(), self.attachment);
        if let Some(intent) = cached.filter(|_| before == Before::Intent) {
            // What is still at the ADD before this one would meet this one's plugins.
            orphans::end(&intent.attachment, &Limits::of(runtime), Command::Add).await?;
        }
        if !before.has_result() {
            self.write(None).await?;
        }
        match self.add_all(&executables, version).await {
            Ok(result) => Ok(result),
            Err(failed) => Err(self.give_up(failed, before).await),
        }
    }

    /// All plugins, and then the complete entry.
    async fn add_all<'b>(&self, executables: &'b [PathBuf], version: SpecVersion) -> Result<AddResult, Failed<'b>> {
        let mut last = None;
        for (index, (plugin, executable)) in self.chain.network.plugins.iter().zip(executables).enumerate() {
            if let Err(failure) = self.chain.add_one(plugin, executable, self.attachment, version, &mut last).await {
                let ran = index + usize::from(failure.has_run());
                let error = self.chain.told(plugin, failure.error);
                return Err(Failed { error, ran: &executables[..ran], last });
            }
        }
        match self.write(last.as_ref()).await {
            Ok(()) => Ok(last.map(|step| step.result).unwrap_or_default()),
            Err(error) => Err(Failed { error, ran: executables, last }),
        }
    }

    /// Writes the cache's entry: without a step the intent.
    async fn write(&self, step: Option<&Step>) -> Result<(), Error> {
        let Chain { runtime, network, .. } = self.chain;
        let result = step.map(|step| step.json.clone());
        let settings = &runtime.settings;
        settings.cache.entry(network, self.name, self.attachment, result)?.write(settings.disk_wait).await
    }

    /// Rolls a failed ADD back and tells what became of it in the error.
    async fn give_up(&self, failed: Failed<'_>, before: Before) -> Error {
        if before == Before::Held {
            return with_details(
                failed.error,
                &["Nothing was rolled back: the attachment is there from an earlier ADD. Call DEL first.".into()],
            );
        }
        let (undone, left) = self.roll_back(failed.ran, failed.last.as_ref()).await;
        let is_clean = left.is_empty();
        let mut told = Vec::new();
        if !undone.is_empty() {
            told.push(format!("Rolled back: {}.", undone.join(", ")));
        }
        told.extend(left.iter().map(|error| left_behind(&error.to_string())));
        match (before, is_clean) {
            (Before::Nothing, true) => {
                let removed = self.chain.runtime.settings.cache.remove(self.name, &self.attachment.id);
                told.extend(removed.err().map(|error| left_behind(&error.with_causes())));
            }
            // Plugins after the one that failed may have left something in the ADD before this one.
            (Before::Nothing | Before::Intent, _) => {
                told.push("The cache keeps the attachment as incomplete: DEL finishes it.".into());
            }
            (Before::Complete | Before::Held, _) => {}
        }
        with_details(failed.error, &told)
    }

    /// DEL for the plugins that ran, newest first: which were undone, and which left something.
    async fn roll_back(&self, ran: &[PathBuf], last: Option<&Step>) -> (Vec<&str>, Vec<Error>) {
        let chain = self.chain.rollback();
        // The result as far as it had got; versions without it in DEL get none.
        let has_result = chain.network.version().is_ok_and(SpecVersion::has_check);
        let prev_result = last.filter(|_| has_result).map(|step| step.json.get());
        let (mut undone, mut left) = (Vec::new(), Vec::new());
        for (plugin, executable) in self.chain.network.plugins.iter().zip(ran).rev() {
            match chain.call(plugin, executable, self.attachment, prev_result).await {
                Ok(_) => undone.push(plugin.plugin_type.as_str()),
                Err(failure) => left.push(chain.told(plugin, failure.error)),
            }
        }
        (undone, left)
    }
}

fn left_behind(error: &str) -> String {
    format!("Left behind: {}.", error.trim_end_matches('.'))
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
