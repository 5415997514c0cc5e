//! ADD: all plugins or none. The cache has an entry from before the first plugin runs.

use crate::cache::Look;
use crate::cache_entry::Cached;
use crate::chain::{Chain, Step};
use crate::error::Error;
use crate::plugin_call::Reason;
use crate::{Namespace, NetworkConf, Runtime, RuntimeConf, namespace, orphaned_plugin};
use cni_spec::{AddResult, CniError, Code, Command, NetworkName, SpecVersion};
use serde_json::value::RawValue;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) struct Add<'a> {
    chain: Chain<'a>,
    name: &'a NetworkName,
    attachment: &'a RuntimeConf,
}

/// The remains of earlier ADDs of the attachment when this one begins.
enum Before {
    Nothing,
    /// A finished ADD for a namespace that may exist: DEL could reach a container that lives.
    MayLive(Box<Cached>),
}

/// An ADD that failed, and how far it got.
struct Failed<'a> {
    error: Error,
    /// The executables of the plugins that may have made something.
    ran: &'a [PathBuf],
    /// Why the plugin that failed has made nothing; `None` if it may have made something.
    made_nothing: Option<Reason>,
    last: Option<Step>,
}

#[derive(Default)]
struct RolledBack<'a> {
    /// The plugins whose DEL succeeded.
    undone: Vec<&'a str>,
    /// The plugins that left something behind.
    left: Vec<Error>,
}

impl<'a> Add<'a> {
    pub(crate) fn new(
        runtime: &'a Runtime,
        network: &'a NetworkConf,
        name: &'a NetworkName,
        attachment: &'a RuntimeConf,
    ) -> Self {
        Self { chain: Chain::new(runtime, network, Command::Add), name, attachment }
    }

    pub(crate) async fn run(mut self) -> Result<AddResult, Error> {
        let Chain { runtime, network, .. } = self.chain;
        let version = network.version()?;
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
        let before = match cached {
            None => Before::Nothing,
            Some(cached) => self.replace(cached).await?,
        };
        let entry = match &before {
            Before::Nothing => &self.entry(None),
            Before::MayLive(cached) => cached,
        };
        self.chain.noted = Some(Arc::new(cache.begin(entry)?));
        match self.add_all(&executables, version).await {
            Ok(result) => Ok(result),
            Err(failed) => Err(self.give_up(failed, &before).await),
        }
    }

    /// Deletes what an earlier ADD has left: one that was not finished, or one whose namespace has ended.
    /// Errors: [`Error::Attached`]: the namespace of the earlier ADD exists. For an ADD that was not finished only another namespace
    /// than this ADD's counts. Those of DEL.
    async fn replace(&self, cached: Cached) -> Result<Before, Error> {
        let (runtime, network) = (self.chain.runtime, self.chain.network);
        let (is_complete, netns) = (cached.is_complete(), &self.attachment.netns);
        let (state, is_unmounted) = (cached.namespace(), cached.is_unmounted());
        let lives_in = match state {
            Namespace::Present if !is_complete && cached.is_of(netns) => None,
            Namespace::Present => Some(cached.attachment.netns.clone()),
            Namespace::Unknown if !is_unmounted => None,
            Namespace::Unknown | Namespace::Gone => cached.process().map(|process| format!("/proc/{process}/ns/net")),
        };
        if let Some(netns) = lives_in {
            let Cached { network, attachment, .. } = cached;
            return Err(Error::Attached { network, id: attachment.id, netns: netns.into(), is_complete });
        }
        // Where the namespace may be mounted elsewhere, an ADD for another one means that the container was started anew.
        if state == Namespace::Unknown && is_complete && (!is_unmounted || namespace::is_bare(netns)) {
            if let Some(running) = &cached.running {
                orphaned_plugin::end(running, &self.chain.limits, Command::Add).await?;
            }
            return Ok(Before::MayLive(Box::new(cached)));
        }
        tracing::info!("DEL of what an earlier ADD has left comes before this ADD");
        let deleted = match cached.network_conf() {
            Ok(conf) => runtime.del_with_fallback(&conf, Some(network), &cached.attachment, Some(&cached)).await,
            Err(_) => runtime.del_with_fallback(network, None, &cached.attachment, Some(&cached)).await,
        };
        let explained =
            |error| with_details(error, &["ADD did not begin: it first deletes what an earlier ADD has left.".into()]);
        deleted.map_err(explained)?;
        Ok(Before::Nothing)
    }

    /// Runs all plugins and then writes the complete entry.
    async fn add_all<'b>(&self, executables: &'b [PathBuf], version: SpecVersion) -> Result<AddResult, Failed<'b>> {
        let mut last = None;
        for (index, (plugin, executable)) in self.chain.network.plugins.iter().zip(executables).enumerate() {
            if let Err(failure) = self.chain.add_one(plugin, executable, self.attachment, version, &mut last).await {
                let made_nothing = failure.made_nothing();
                let ran = index + usize::from(failure.has_run() && made_nothing.is_none());
                let error = self.chain.plugin_error(plugin, failure.error);
                return Err(Failed { error, ran: &executables[..ran], made_nothing, last });
            }
        }
        let cache = &self.chain.runtime.settings.cache;
        match cache.finish(&self.entry(last.as_ref().map(|step| step.json.clone()))) {
            Ok(()) => Ok(last.map(|step| step.result).unwrap_or_default()),
            Err(error) => Err(Failed { error, ran: executables, made_nothing: None, last }),
        }
    }

    /// The cache's entry: without a result it is the intent.
    fn entry(&self, result: Option<Box<RawValue>>) -> Cached {
        Cached::of(self.chain.network, self.name, self.attachment, result)
    }

    /// Rolls a failed ADD back and reports the outcome in the error.
    async fn give_up(&self, failed: Failed<'_>, before: &Before) -> Error {
        if matches!(before, Before::MayLive(_)) {
            let sentence = "Nothing was rolled back: the attachment is there from an earlier ADD. Call DEL first.";
            return with_details(failed.error, &[sentence.into()]);
        }
        let RolledBack { undone, left } = self.roll_back(&failed).await;
        let is_clean = left.is_empty();
        let mut details = Vec::new();
        if !undone.is_empty() {
            details.push(format!("Rolled back: {}.", undone.join(", ")));
        }
        if failed.made_nothing == Some(Reason::Taken) {
            details.push("What was there before may be in use, so its DEL was not called.".into());
        }
        details.extend(left.iter().map(|error| left_behind(error, &failed.error)));
        if is_clean {
            let removed = self.chain.runtime.settings.cache.remove(self.name, &self.attachment.id);
            details.extend(removed.err().map(|error| left_behind(&error, &failed.error)));
        } else {
            details.push("The cache keeps the attachment as incomplete: call DEL once the cause is gone.".into());
        }
        with_details(failed.error, &details)
    }

    /// Calls DEL of the plugins that ran, newest first.
    ///
    /// A plugin that has made nothing is not called: DEL goes by the attachment's name, so it would remove what another
    /// runtime has made of it. The reference's plugins refuse with the code of any other failure; with that code they may
    /// have changed something, and the cache keeps the attachment.
    async fn roll_back(&self, failed: &Failed<'_>) -> RolledBack<'_> {
        let chain = self.chain.rollback();
        // The result as far as ADD got; versions whose DEL has no prevResult get none.
        let has_result = chain.network.version().is_ok_and(SpecVersion::has_check);
        let prev_result = failed.last.as_ref().filter(|_| has_result).map(|step| step.json.get());
        let mut outcome = RolledBack::default();
        let ran = self.chain.network.plugins.iter().zip(failed.ran);
        for (plugin, executable) in ran.rev() {
            match chain.call(plugin, executable, self.attachment, prev_result).await {
                Ok(_) => outcome.undone.push(plugin.plugin_type.as_str()),
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
