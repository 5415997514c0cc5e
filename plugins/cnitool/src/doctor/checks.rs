//! What the plugins say of each attachment.

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream;
use libcni::{Cached, Namespace};
use on_node::names::Names;

use crate::doctor::{Finding, Kind, Level, Node};

/// How long all of them may take.
const WITHIN: Duration = Duration::from_secs(60);

/// The number of attachments that are asked at a time.
const AT_A_TIME: usize = 4;

/// Calls CHECK of each attachment in the cache whose namespace is there, by the configuration of its ADD.
pub(crate) async fn look(node: Node<'_>, findings: &mut Vec<Finding>) {
    // A cache that cannot be listed is a finding of `attachments`.
    let Ok(listing) = node.runtime.cache().list(None) else { return };
    let is_there = |entry: &Cached| entry.is_complete() && entry.namespace() == Namespace::Present;
    let names = &Names::of_cache(&listing.cached);
    let runtime = &node.runtime.until(Instant::now() + WITHIN);
    let check = async |entry: Cached| {
        let network = entry.network_conf().ok()?;
        let error = runtime.check(&network, &entry.attachment).await.err()?;
        let what = format!("CHECK of {} fails", names.attachment(&entry.attachment.id));
        let mut finding = Kind::CheckFails.finding(Level::Error, Some(entry.network.as_str()), what);
        finding.evidence = error.with_causes().lines().map(str::to_owned).collect();
        finding.remedy = format!("cnitool repair {}", entry.network);
        Some(finding)
    };
    let entries = stream::iter(listing.cached.into_iter().filter(is_there));
    let mut found: Vec<Finding> =
        entries.map(check).buffered(AT_A_TIME).filter_map(async |finding| finding).collect().await;
    findings.append(&mut found);
}
