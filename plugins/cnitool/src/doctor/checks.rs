//! What the plugins say of each attachment.

use std::time::{Duration, Instant};

use cni_spec::{Repair, Repaired, SpecVersion};
use futures::StreamExt;
use futures::stream;
use libcni::{Cached, Namespace, Runtime};
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
        if !network.version().is_ok_and(SpecVersion::has_check) {
            return Some(without_check(&entry, &network.cni_version));
        }
        let error = runtime.check(&network, &entry.attachment).await.err()?;
        let what = format!("CHECK of {} fails", names.attachment(&entry.attachment.id));
        let mut finding = Kind::CheckFails.finding(Level::Error, Some(entry.network.as_str()), what);
        finding.evidence = error.with_causes().lines().map(str::to_owned).collect();
        finding.remedy = match is_repairable(runtime, &entry).await {
            true => format!("cnitool repair {}", entry.network),
            false => Kind::CheckFails.advice(entry.network.as_str()),
        };
        Some(finding)
    };
    let entries = stream::iter(listing.cached.into_iter().filter(is_there));
    let found: Vec<Finding> =
        entries.map(check).buffered(AT_A_TIME).filter_map(async |finding| finding).collect().await;
    for finding in found {
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
}

/// The note, the same for all attachments of the network, that CHECK is not called.
fn without_check(entry: &Cached, version: &str) -> Finding {
    let version = if version.is_empty() { "0.1.0" } else { version };
    let what = format!("CHECK is not called: there is none in version {version} of network {}", entry.network);
    let mut finding = Kind::Unseen.finding(Level::Note, Some(entry.network.as_str()), what);
    finding.remedy = format!("cnitool repair {} --dry-run", entry.network);
    finding
}

/// Whether a repair would leave no difference. Changes nothing.
async fn is_repairable(runtime: &Runtime, entry: &Cached) -> bool {
    let Ok(Some(plugins)) = runtime.repair(entry, Repair::Show).await else { return false };
    plugins.iter().all(|plugin| match &plugin.outcome {
        Ok(Some(Repaired { left, .. })) => left.is_empty(),
        Ok(None) => true,
        Err(_) => false,
    })
}
