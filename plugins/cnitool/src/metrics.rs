//! `cnitool metrics`: the node's state and the log of calls, for Prometheus.

mod http;
mod page;

use crate::args::Metrics;
use crate::error_remedies::Remedy;
use crate::log::read_back::LogPosition;
use crate::node_networks::look;
use crate::output::say;
use crate::settings::Settings;
use crate::{RELEASE, doctor, log};
use anyhow::{Context, bail};
use libcni::Cancellation;
use netops::error::{Cause, OpError};
use page::{Calls, Page};
use std::path::Path;
use std::time::Instant;
use tokio::sync::Mutex;

pub(crate) async fn run(settings: &Settings, words: &Metrics, cancellation: &Cancellation) -> anyhow::Result<()> {
    let mut log = Log::new()?;
    if let Some(address) = words.listen {
        let log = Mutex::new(log);
        return http::run(address, async || page(settings, words, &mut *log.lock().await).await, cancellation).await;
    }
    let text = page(settings, words, &mut log).await?;
    match &words.output {
        // A new file would take the place of a device or a link, not its content.
        Some(path) if path.symlink_metadata().is_ok_and(|found| !found.is_file()) => {
            bail!(
                "cannot write metrics to {}: it is no regular file; without --output they go to stdout",
                path.display()
            )
        }
        // World-readable: node_exporter runs as a user of its own.
        Some(path) => netops::file::replace(path, text.as_bytes(), 0o644).map_err(|error| unwritable(path, error)),
        None => say(text.as_bytes()),
    }
}

/// The error of a file that could not be written, by the name that the caller knows.
fn unwritable(path: &Path, error: OpError) -> anyhow::Error {
    let cause = match error.cause {
        Cause::Kernel { errno, .. } => anyhow::Error::from(std::io::Error::from(errno)),
        other => anyhow::anyhow!("{other}"),
    };
    let failed = Err(cause).with_context(|| format!("cannot write metrics to {}", path.display()));
    let folder = path.parent().unwrap_or(path).display().to_string();
    let failed: anyhow::Result<()> = failed.if_absent(|| format!("Make folder {folder} first, or correct the path."));
    failed.err().unwrap_or_else(|| anyhow::anyhow!("cannot write metrics"))
}

async fn page(settings: &Settings, words: &Metrics, log: &mut Log) -> anyhow::Result<String> {
    let begin = Instant::now();
    let page = Page::new(RELEASE)?;
    page.add_view(&look(settings.node(), None))?;
    page.add_findings(&doctor::output_and_fix::look(settings, doctor::Checks::No, false).await.findings)?;
    page.add_calls(log.counted(words.from.as_deref()).await?)?;
    page.add_duration(begin.elapsed())?;
    Ok(page.text()?)
}

/// The counts of the log of calls, and the place up to which they go: a later page only reads on from it.
struct Log {
    place: LogPosition,
    counted: Calls,
}

impl Log {
    fn new() -> anyhow::Result<Self> {
        Ok(Self { place: LogPosition::default(), counted: Calls::new()? })
    }

    /// The log's calls. Without a log there are none; only one that is named has to be there.
    async fn counted(&mut self, named: Option<&str>) -> anyhow::Result<Option<&Calls>> {
        let log = match log::find(named) {
            Ok(log) => log,
            Err(error) if named.is_some() => return Err(error),
            Err(_) => return Ok(None),
        };
        match self.place.read_on(&log, &mut self.counted).await.context("cannot count calls") {
            Ok(()) => Ok(Some(&self.counted)),
            Err(error) if named.is_some() => Err(error),
            Err(error) => {
                tracing::warn!("{error:#}");
                Ok(None)
            }
        }
    }
}
