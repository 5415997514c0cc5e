//! `cnitool metrics`: the node's state and the log of calls, for Prometheus.

mod serve;

use crate::args::Metrics;
use crate::output::say;
use crate::settings::Settings;
use crate::{RELEASE, calls, doctor, gc};
use anyhow::{Context, bail};
use libcni::Cancellation;
use metrics::{Calls, Page};
use std::time::Instant;
use view::{Node, look};

pub(crate) async fn run(settings: &Settings, words: &Metrics, cancellation: &Cancellation) -> anyhow::Result<()> {
    if let Some(address) = words.listen {
        return serve::run(address, async || page(settings, words).await, cancellation).await;
    }
    let text = page(settings, words).await?;
    match &words.output {
        // A new file would take the place of a device or a link, not its content.
        Some(path) if path.symlink_metadata().is_ok_and(|found| !found.is_file()) => {
            bail!(
                "cannot write metrics to {}: it is no regular file; without --output they go to stdout",
                path.display()
            )
        }
        // World-readable: node_exporter runs as a user of its own.
        Some(path) => Ok(netops::file::replace(path, text.as_bytes(), 0o644)?),
        None => say(text.as_bytes()),
    }
}

async fn page(settings: &Settings, words: &Metrics) -> anyhow::Result<String> {
    let begin = Instant::now();
    let (runtime, conf_dir) = (&settings.runtime, settings.conf_dir.as_path());
    let page = Page::new(RELEASE)?;
    page.add_view(&look(Node { runtime, conf_dir, inventory: &gc::node() }, None))?;
    page.add_findings(&doctor::look(settings, false).await)?;
    page.add_calls(counted(words.from.as_deref()).await?.as_ref())?;
    page.add_duration(begin.elapsed())?;
    Ok(page.text()?)
}

/// The log's calls. Without a log there are none; only one that is named has to be there.
async fn counted(named: Option<&str>) -> anyhow::Result<Option<Calls>> {
    let log = match calls::find(named) {
        Ok(log) => log,
        Err(error) if named.is_some() => return Err(error),
        Err(_) => return Ok(None),
    };
    let mut counted = Calls::new()?;
    match calls::read(&log, |record| counted.add(&record)).await.context("cannot count calls") {
        Ok(()) => Ok(Some(counted)),
        Err(error) if named.is_some() => Err(error),
        Err(error) => {
            tracing::warn!("{error:#}");
            Ok(None)
        }
    }
}
