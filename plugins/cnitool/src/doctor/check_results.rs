//! What CHECK says of each attachment.

use std::time::{Duration, Instant};

use cni_spec::{Code, Repair, Repaired, SpecVersion};
use futures::StreamExt;
use futures::stream;
use libcni::{Cached, Error, Namespace, Runtime};
use on_node::pod_names::Names;

use crate::doctor::network_files::Makes;
use crate::doctor::{Checks, Finding, Kind, Level, Node};
use crate::dropped_packets::Survey;

/// How long all of them may take.
const WITHIN: Duration = Duration::from_secs(60);

/// The time that all CHECKs may take where a process holds a lock that a plugin waits for.
const WITHIN_LOCKED: Duration = Duration::from_secs(10);

/// The number of attachments that are asked at a time.
const AT_A_TIME: usize = 4;

/// Calls CHECK of each attachment in the cache whose namespace is there, by the configuration of its ADD.
pub(crate) async fn look(node: Node<'_>, survey: &Survey, findings: &mut Vec<Finding>) {
    // A cache that cannot be listed is a finding of `attachments`.
    let Ok(listing) = node.runtime.cache().list(None) else { return };
    let is_there = |entry: &Cached| entry.is_complete() && entry.namespace() == Namespace::Present;
    let names = &Names::of_cache(&listing.cached);
    let is_locked = findings.iter().any(|finding| finding.kind == Kind::LockHeld);
    let runtime = &node.runtime.until(Instant::now() + if is_locked { WITHIN_LOCKED } else { WITHIN });
    let known = &*findings;
    let is_all = node.checks == Checks::All;
    let check = async |entry: Cached| {
        let network = entry.network_conf().ok()?;
        if !is_all && is_explained(known, &network.name, &names.attachment(&entry.attachment.id)) {
            return None;
        }
        if !network.version().is_ok_and(SpecVersion::has_check) {
            return is_all.then(|| without_check(&entry, &network.cni_version));
        }
        let name = names.attachment(&entry.attachment.id);
        let Some(error) = runtime.check(&network, &entry.attachment).await.err() else {
            return if is_all { beyond_check(runtime, &entry, &name).await } else { None };
        };
        let is_of_others = || !Makes::are_own(node.runtime, &network) || survey.has_guest(&entry.attachment);
        if !is_all && (is_unrun(&error) || is_of_others()) {
            return None;
        }
        let text = error.with_causes();
        let mut finding = if is_unrun(&error) {
            let mut finding = Kind::unseen(Some(entry.network.as_str()), &name, &text);
            finding.what = format!("CHECK of {name} could not be run");
            finding
        } else {
            let what = format!("CHECK of {name} fails");
            let mut finding = Kind::CheckFails.finding(Level::Error, Some(entry.network.as_str()), what);
            let (is_repairable, differences) = repair(runtime, &entry).await;
            if !is_repairable && let Some(changed) = survey.changed_link(entry.network.as_str(), &entry.attachment.id) {
                (finding.what, finding.remedy) = (changed.what, changed.remedy);
                finding.evidence = vec![format!("{name}: {text}")];
                return Some(finding);
            }
            finding.remedy = match is_repairable {
                true => format!("cnitool repair {}", entry.network),
                false => advice(known, entry.network.as_str(), &name),
            };
            // CHECK ends with the first plugin that fails.
            finding.evidence = differences.into_iter().filter(|difference| !text.contains(difference)).collect();
            finding
        };
        finding.evidence.splice(..0, text.lines().map(str::to_owned));
        Some(finding)
    };
    let entries = stream::iter(listing.cached.into_iter().filter(is_there));
    let found: Vec<Finding> =
        entries.map(check).buffered(AT_A_TIME).filter_map(async |finding| finding).collect().await;
    for finding in found {
        // Attachments may share a link that was changed.
        let is_same = |of: &&mut Finding| {
            (of.kind, &of.network, &of.what, &of.remedy)
                == (finding.kind, &finding.network, &finding.what, &finding.remedy)
        };
        match findings.iter_mut().find(is_same) {
            Some(same) => {
                let new = finding.evidence.into_iter().filter(|line| !same.evidence.contains(line));
                same.evidence.extend(new.collect::<Vec<_>>());
            }
            None => findings.push(finding),
        }
    }
}

/// Whether a finding tells already that an attachment, or all of its network, is not as ADD left it.
fn is_explained(known: &[Finding], network: &str, name: &str) -> bool {
    known.iter().filter(|finding| finding.level > Level::Note).any(|finding| {
        let is_named = || finding.evidence.iter().chain([&finding.what]).any(|line| line.contains(name));
        is_named() || finding.kind == Kind::NotReady && finding.network.as_deref() == Some(network)
    })
}

/// What a repair would write anew, though CHECK does not miss it.
async fn beyond_check(runtime: &Runtime, entry: &Cached, name: &str) -> Option<Finding> {
    let (is_repairable, differences) = repair(runtime, entry).await;
    if !is_repairable || differences.is_empty() {
        return None;
    }
    let what = format!("{name} is not as ADD left it");
    let mut finding = Kind::CheckFails.finding(Level::Warning, Some(entry.network.as_str()), what);
    finding.evidence = differences;
    finding.remedy = format!("cnitool repair {}", entry.network);
    Some(finding)
}

/// Whether an error says nothing of the attachment: a plugin is missing, did not end or was ended, or a lock is held.
fn is_unrun(error: &Error) -> bool {
    const UNRUN: [Code; 5] = [Code::TRY_AGAIN, Code::TIMEOUT, Code::INTERRUPTED, Code::DELEGATE, Code::PERMISSION];
    match error {
        Error::Plugin(plugin) => UNRUN.contains(&plugin.error.code),
        Error::Locked { .. } | Error::Cache { .. } => true,
        _ => false,
    }
}

/// The advice where no repair helps. A link of another name needs its own back, and a container cannot be started where ADD fails.
fn advice(known: &[Finding], network: &str, name: &str) -> String {
    let mut of_it = known.iter().filter(|finding| finding.network.as_deref() == Some(network));
    let is_renamed = |finding: &&Finding| {
        finding.kind == Kind::LinkGone && finding.evidence.iter().any(|line| line.split(':').next() == Some(name))
    };
    if let Some(renamed) = of_it.clone().find(is_renamed) {
        return renamed.remedy.clone();
    }
    match of_it.any(|finding| finding.kind == Kind::NotReady) {
        true => format!("Start the container anew, once cnitool status {network} names no fault."),
        false => Kind::CheckFails.advice(network),
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

/// Whether a repair would leave no difference, and all differences that it finds. Changes nothing.
async fn repair(runtime: &Runtime, entry: &Cached) -> (bool, Vec<String>) {
    let Ok(Some(plugins)) = runtime.repair(entry, Repair::Show).await else { return (false, Vec::new()) };
    let is_whole = plugins.iter().all(|plugin| match &plugin.outcome {
        Ok(Some(Repaired { left, .. })) => left.is_empty(),
        Ok(None) => true,
        Err(_) => false,
    });
    let found = plugins.into_iter().filter_map(|plugin| plugin.outcome.ok().flatten());
    (is_whole, found.flat_map(|Repaired { repaired, left }| repaired.into_iter().chain(left)).collect())
}
