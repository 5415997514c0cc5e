//! A node's container networks and the log of calls in Prometheus' text format.
//!
//! A [`Page`] is filled from what other crates have read: [`crate::node_networks::look`], [`crate::doctor::examine`] and the records of
//! `call_log`. Nothing here looks at the node.
//!
//! Names and units follow Prometheus' conventions (<https://prometheus.io/docs/practices/naming/>): base units, `_total`
//! for what only grows. No label has a container's ID, so that the number of series does not grow with the node's past.
//!
//! | Module | What it has |
//! |---|---|
//! | `node_state` | attachments, addresses, findings |
//! | `call_counts` | calls, errors by code, durations |

mod call_counts;
mod node_state;

use std::time::Duration;

use cni_suite::text::acts;
pub(crate) use prometheus::Error;
use prometheus::{Encoder, Gauge, IntGaugeVec, Opts, Registry, TEXT_FORMAT, TextEncoder};

pub(crate) use call_counts::Calls;

pub(crate) const CONTENT_TYPE: &str = TEXT_FORMAT;

#[derive(Debug)]
pub(crate) struct Page {
    registry: Registry,
}

impl Page {
    /// A page with the version of the program that writes it.
    /// Errors: a name or label is wrong, which the tests of this crate exclude; so in all methods.
    pub(crate) fn new(release: &str) -> Result<Self, Error> {
        let page = Self { registry: Registry::new() };
        let build = page.gauges("cni_build_info", "The version of the program that wrote this page.", &["version"])?;
        build.with_label_values(&[release]).set(1);
        Ok(page)
    }

    /// Adds what was counted in the log of calls; `None`: there is no log, or it could not be read.
    pub(crate) fn add_calls(&self, calls: Option<&Calls>) -> Result<(), Error> {
        let up = self.gauge("cni_log_up", "Whether the log of calls could be read: 1 or 0.")?;
        up.set(if calls.is_some() { 1.0 } else { 0.0 });
        calls.map_or(Ok(()), |calls| calls.add_to(&self.registry))
    }

    pub(crate) fn add_duration(&self, took: Duration) -> Result<(), Error> {
        let gauge = self.gauge("cni_scrape_duration_seconds", "How long it took to collect this page.")?;
        gauge.set(took.as_secs_f64());
        Ok(())
    }

    /// The page in Prometheus' text format, version 0.0.4; families are sorted by name. What would act on a terminal, in names
    /// from files, is escaped, with the backslash that the format demands.
    pub(crate) fn text(&self) -> Result<String, Error> {
        let mut bytes = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut bytes)?;
        let text = String::from_utf8(bytes).map_err(|error| Error::Msg(error.to_string()))?;
        let is_plain = |c: char| c == '\n' || !acts(c);
        if text.chars().all(is_plain) {
            return Ok(text);
        }
        let shown = |c: char| if is_plain(c) { c.to_string() } else { format!("\\{}", c.escape_default()) };
        Ok(text.chars().map(shown).collect())
    }

    fn gauge(&self, name: &str, help: &str) -> Result<Gauge, Error> {
        let gauge = Gauge::new(name, help)?;
        self.registry.register(Box::new(gauge.clone()))?;
        Ok(gauge)
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, Error> {
        let gauges = IntGaugeVec::new(Opts::new(name, help), labels)?;
        self.registry.register(Box::new(gauges.clone()))?;
        Ok(gauges)
    }
}

#[cfg(test)]
mod tests;
