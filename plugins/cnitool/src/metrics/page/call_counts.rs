//! What the log of calls says.

use std::collections::BTreeSet;

use crate::log::read_back::Counts;
use call_log::{By, Record};
use prometheus::core::Collector;
use prometheus::{Error, Gauge, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

/// The bounds of durations, from a call that does nothing to a plugin's deadline, in seconds.
const BUCKETS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
const VERBS: [&str; 6] = ["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"];
/// The most values of a label that come from a log's text. A line may come from another program, so its names are not
/// trusted to be few.
const VALUES_MAX: usize = 64;
/// The label for all other values.
const OTHER: &str = "other";

/// The counts of a log, filled record by record.
#[derive(Debug)]
pub(crate) struct Calls {
    calls: IntCounterVec,
    errors: IntCounterVec,
    durations: HistogramVec,
    plugins: BTreeSet<String>,
    codes: BTreeSet<String>,
    oldest_us: Option<u64>,
}

impl Calls {
    pub(crate) fn new() -> Result<Self, Error> {
        let labels = ["side", "plugin", "verb"];
        let calls =
            Opts::new("cni_calls_total", "Calls in the log: of plugins, or operations of a runtime on a network.");
        let errors = Opts::new("cni_call_errors_total", "Calls in the log that failed, by the code of their error.");
        let durations = HistogramOpts::new("cni_call_duration_seconds", "How long the calls in the log took.");
        Ok(Self {
            calls: IntCounterVec::new(calls, &labels)?,
            errors: IntCounterVec::new(errors, &["side", "plugin", "verb", "code"])?,
            durations: HistogramVec::new(durations.buckets(BUCKETS.to_vec()), &labels)?,
            plugins: BTreeSet::new(),
            codes: BTreeSet::new(),
            oldest_us: None,
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "a record has less than 2^53 microseconds")]
    pub(crate) fn add_to(&self, registry: &Registry) -> Result<(), Error> {
        let all: [Box<dyn Collector>; 3] =
            [Box::new(self.calls.clone()), Box::new(self.errors.clone()), Box::new(self.durations.clone())];
        all.into_iter().try_for_each(|collector| registry.register(collector))?;
        if let Some(oldest_us) = self.oldest_us {
            let help = "When the oldest call in the log began: counts start anew when a log is rotated.";
            let oldest = Gauge::new("cni_log_oldest_record_timestamp_seconds", help)?;
            oldest.set(oldest_us as f64 / 1e6);
            registry.register(Box::new(oldest))?;
        }
        Ok(())
    }
}

impl Counts for Calls {
    fn begin(&mut self) {
        self.calls.reset();
        self.errors.reset();
        self.durations.reset();
        self.plugins.clear();
        self.codes.clear();
        self.oldest_us = None;
    }

    #[expect(clippy::cast_precision_loss, reason = "a record has less than 2^53 microseconds")]
    fn add(&mut self, record: Record) {
        let side = match record.by {
            By::Plugin => "plugin",
            By::Runtime => "runtime",
        };
        let plugin = bounded(&mut self.plugins, &record.plugin);
        let verb = VERBS.into_iter().find(|verb| *verb == record.verb).unwrap_or(OTHER);
        let labels = [side, &plugin, verb];
        self.calls.with_label_values(&labels).inc();
        self.durations.with_label_values(&labels).observe(record.duration_us as f64 / 1e6);
        if let Some((code, _)) = record.error {
            let code = bounded(&mut self.codes, &code.to_string());
            self.errors.with_label_values(&[side, &plugin, verb, &code]).inc();
        }
        self.oldest_us = Some(self.oldest_us.unwrap_or(u64::MAX).min(record.begin_us));
    }
}

/// The value, or [`OTHER`] if there are too many of them already.
fn bounded(known: &mut BTreeSet<String>, value: &str) -> String {
    if !known.contains(value) {
        if known.len() >= VALUES_MAX {
            return OTHER.to_owned();
        }
        known.insert(value.to_owned());
    }
    value.to_owned()
}
