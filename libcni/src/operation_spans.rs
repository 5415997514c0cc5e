//! Observability for runtimes: a `tracing` span for each operation and, in it, one for each call of a plugin. The last
//! event in each reports how it ended.

use crate::call_log::{self, Begun, Operation, Outcome, STEPS, WITHIN};
use crate::error::Error;
use cni_spec::{CniError, Code, Command};
use std::cell::RefCell;
use std::fmt::Display;
use std::time::Instant;
use tracing::Instrument;

/// Runs an operation in a span `operation` with its name, network, container and ifname, and writes its record.
///
/// The future is boxed, here as in [`call`]: held by value it would be three times in the state of the caller's future,
/// which is copied and paged in: 74 KB.
pub(crate) fn operation<'a, T: Outcome + 'a>(
    about: Operation<'a>,
    work: impl Future<Output = Result<T, Error>> + Send + 'a,
) -> impl Future<Output = Result<T, Error>> + Send + 'a {
    let span = tracing::info_span!(
        "operation",
        operation = about.command.as_str(),
        network = Some(about.network).filter(|name| !name.is_empty()),
        container = about.id.map(|id| id.container_id.as_str()),
        ifname = about.id.map(|id| id.ifname.as_str()),
    );
    let work = Box::pin(work);
    let observed = async move {
        let mut ending = Ending::of("operation ended");
        ending.record = about.begin();
        let within = ending.record.as_ref().map(|begun| begun.record.begin_us);
        let outcome = WITHIN.scope(within, work).await;
        match &outcome {
            Ok(result) => {
                if let Some(begun) = &mut ending.record {
                    begun.record.addresses = result.addresses();
                }
                ending.ok();
            }
            Err(error) => ending.error(error.code(), &error.with_causes()),
        }
        outcome
    };
    STEPS.scope(RefCell::default(), observed).instrument(span)
}

/// Makes a call in a span `plugin` with the plugin's type and the verb.
pub(crate) fn call<'a, T: 'a, E: AsRef<CniError> + 'a>(
    command: Command,
    plugin: &str,
    work: impl Future<Output = Result<T, E>> + Send + 'a,
) -> impl Future<Output = Result<T, E>> + Send + 'a {
    let span = tracing::info_span!("plugin", plugin, command = command.as_str());
    let work = Box::pin(work);
    let plugin = plugin.to_owned();
    async move {
        let ending = Ending::of("plugin ended");
        let begin = ending.begin;
        let outcome = work.await;
        call_log::note(command, &plugin, begin.elapsed());
        match &outcome {
            Ok(_) => ending.ok(),
            Err(error) => ending.error(Some(error.as_ref().code), error.as_ref()),
        }
        outcome
    }
    .instrument(span)
}

/// The last event in a span: `duration_us`, `outcome` (`ok`, `error`, or `dropped` where the future was dropped), and
/// for an error its `code` and text.
struct Ending {
    what: &'static str,
    begin: Instant,
    is_told: bool,
    /// The operation whose record is wanted.
    record: Option<Begun>,
}

impl Ending {
    fn of(what: &'static str) -> Self {
        Self { what, begin: Instant::now(), is_told: false, record: None }
    }

    fn ok(mut self) {
        self.record("ok", None, None);
    }

    fn error(mut self, code: Option<Code>, error: &dyn Display) {
        self.record("error", code, Some(error));
    }

    fn record(&mut self, outcome: &str, code: Option<Code>, error: Option<&dyn Display>) {
        self.is_told = true;
        let duration = self.begin.elapsed();
        if let Some(begun) = self.record.take() {
            let failed =
                (outcome != "ok").then(|| (code, error.map_or_else(|| outcome.to_owned(), ToString::to_string)));
            begun.end(duration, failed);
        }
        let duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let error = error.map(tracing::field::display);
        tracing::debug!(duration_us, outcome, code = code.map(|code| code.0), error, "{}", self.what);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.is_told {
            self.record("dropped", None, None);
        }
    }
}
