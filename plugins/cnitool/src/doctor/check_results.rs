//! What CHECK says of each attachment.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cni_spec::{Code, Interface, SpecVersion};
use futures::StreamExt;
use futures::stream;
use libcni::{Cached, Error, Namespace, Repair, Repaired, Runtime};
use netops::link::Mac;
use on_node::pod_names::Names;

use crate::doctor::network_files::Makes;
use crate::doctor::{Checks, Finding, Kind, Level, Node, Remedy, Subject, advice, tool};
use crate::dropped_packets::Sight;
use crate::dropped_packets::gateways::mac_of_host;
use crate::dropped_packets::host_links::rename;
use crate::node_networks::Attachment;
use crate::shell_words::word;

/// How long all of them may take.
const WITHIN: Duration = Duration::from_secs(60);

/// The time that all CHECKs may take where a process holds a lock that a plugin waits for.
const WITHIN_LOCKED: Duration = Duration::from_secs(10);

/// The number of attachments that are asked at a time.
const AT_A_TIME: usize = 4;

/// Calls CHECK of each attachment in the cache whose namespace is there, by the configuration of its ADD.
pub(crate) async fn look(node: Node<'_>, sight: &Sight<'_>, findings: &mut Vec<Finding>) {
    // A cache that cannot be listed is a finding of `attachments`.
    let Ok(listing) = node.runtime.cache().list(None) else { return };
    let is_there = |entry: &Cached| entry.is_complete() && entry.namespace() == Namespace::Present;
    let names = &Names::of_cache(&listing.cached);
    let is_locked = findings.iter().any(|finding| finding.kind == Kind::LockHeld);
    let runtime = &node.runtime.until(Instant::now() + if is_locked { WITHIN_LOCKED } else { WITHIN });
    let known = &*findings;
    let is_all = node.checks == Checks::All;
    // The faults that findings tell already of attachments, or of all of a network.
    let grave = || known.iter().filter(|finding| finding.level > Level::Note);
    let explained: BTreeSet<_> = grave().flat_map(Finding::subjects).map(Subject::key).collect();
    let not_ready = grave().filter(|finding| finding.kind == Kind::NotReady);
    let not_ready: BTreeSet<&str> = not_ready.filter_map(|finding| finding.network.as_deref()).collect();
    let check = async |entry: Cached| {
        let network = entry.network_conf().ok()?;
        let subject = Subject::new(entry.network.as_str(), &entry.attachment.id, names);
        if !is_all && (explained.contains(&subject.key()) || not_ready.contains(&&*subject.network)) {
            return None;
        }
        if !network.version().is_ok_and(SpecVersion::has_check) {
            return is_all.then(|| without_check(&entry, &network.cni_version));
        }
        let Some(error) = runtime.check(&network, &entry.attachment).await.err() else {
            return if is_all { beyond_check(runtime, &entry, subject).await } else { None };
        };
        let is_of_others = || !Makes::are_own(node.runtime, &network) || sight.has_guest(&entry.attachment);
        if !is_all && (is_unrun(&error) || is_of_others()) {
            return None;
        }
        let text = error.with_causes();
        let lines = || text.lines().map(str::to_owned);
        if is_unrun(&error) {
            let finding = Kind::unseen(Some(&subject.network), &subject.name, &error).shown_by(lines());
            let what = format!("CHECK of {} could not be run", subject.name);
            return Some(Finding { what, subject: Some(subject), ..finding });
        }
        // CHECK ends with the first plugin that fails, of which it says all that differs.
        let failed = if let Error::Plugin(failed) = &error { Some(&*failed.plugin) } else { None };
        let (is_repairable, differences) = repair(runtime, &entry, failed).await;
        if !is_repairable && let Some((what, remedy)) = changed_link(sight, &subject) {
            let finding = Kind::CheckFails.finding(Level::Error, Some(&subject.network), what);
            let evidence = vec![subject.line(text)];
            return Some(Finding { evidence, ..finding.help(remedy) });
        }
        let remedy = match is_repairable {
            true => tool(["repair", entry.network.as_str()]).into(),
            false => advised(known, &subject),
        };
        let lines = lines().chain(differences);
        let what = format!("CHECK of {} fails", subject.name);
        let finding = Kind::CheckFails.finding(Level::Error, Some(&subject.network), what).shown_by(lines);
        Some(Finding { subject: Some(subject), ..finding.help(remedy) })
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

/// What a repair would write anew, though CHECK does not miss it.
async fn beyond_check(runtime: &Runtime, entry: &Cached, subject: Subject) -> Option<Finding> {
    let (is_repairable, differences) = repair(runtime, entry, None).await;
    if !is_repairable || differences.is_empty() {
        return None;
    }
    let what = format!("{} is not as ADD left it", subject.name);
    let finding = Kind::CheckFails.finding(Level::Warning, Some(&subject.network), what).shown_by(differences);
    let repair = tool(["repair", &subject.network]);
    Some(Finding { subject: Some(subject), ..finding.help(repair) })
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

/// The remedy where no repair helps. A link of another name needs its own back, and a container cannot be started where ADD fails.
fn advised(known: &[Finding], subject: &Subject) -> Remedy {
    let mut of_it = known.iter().filter(|finding| finding.network.as_ref() == Some(&subject.network));
    let is_renamed =
        |finding: &&Finding| finding.kind == Kind::LinkGone && finding.subjects().any(|it| it.key() == subject.key());
    if let Some(renamed) = of_it.clone().find(is_renamed) {
        return renamed.remedy.clone();
    }
    match of_it.any(|finding| finding.kind == Kind::NotReady) {
        true => Remedy(vec![
            advice("Start the container anew once this names no fault:"),
            tool(["status", &subject.network]),
        ]),
        false => Kind::CheckFails.remedy(&subject.network),
    }
}

/// The note, the same for all attachments of the network, that CHECK is not called.
fn without_check(entry: &Cached, version: &str) -> Finding {
    let (version, network) = (if version.is_empty() { "0.1.0" } else { version }, entry.network.as_str());
    let what = format!("CHECK is not called: there is none in version {version} of network {network}");
    let finding = Kind::Unseen.finding(Level::Note, Some(network), what);
    finding.help(tool(["repair", network, "--dry-run"]))
}

/// Whether a repair would leave no difference, and all differences that it finds but those of one plugin. Changes nothing.
async fn repair(runtime: &Runtime, entry: &Cached, but: Option<&str>) -> (bool, Vec<String>) {
    let Ok(Some(plugins)) = runtime.repair(entry, Repair::Show).await else { return (false, Vec::new()) };
    let is_whole = plugins.iter().all(|plugin| match &plugin.outcome {
        Ok(Some(Repaired { left, .. })) => left.is_empty(),
        Ok(None) => true,
        Err(_) => false,
    });
    let others = plugins.into_iter().filter(|plugin| but != Some(plugin.plugin.as_str()));
    let found = others.filter_map(|plugin| plugin.outcome.ok().flatten());
    (is_whole, found.flat_map(|Repaired { repaired, left }| repaired.into_iter().chain(left)).collect())
}

/// The first change of a link of the node that an attachment has, in words that fit all attachments that have it, and the command that
/// mends it.
fn changed_link(sight: &Sight<'_>, subject: &Subject) -> Option<(String, String)> {
    let network = sight.view.networks.iter().find(|of| of.name == subject.network)?;
    let attachment = network.attachments.iter().find(|attachment| attachment.id == subject.id)?;
    renamed_end(sight, attachment).or_else(|| other_address(sight, attachment))
}

/// The host's end, which is the only link of the result that no link has the name of.
fn renamed_end(sight: &Sight<'_>, attachment: &Attachment) -> Option<(String, String)> {
    let mut lost = of_host(attachment).filter(|entry| sight.host.find(&entry.name).is_none());
    let (Some(was), None) = (lost.next(), lost.next()) else { return None };
    let [end] = &*attachment.links else { return None };
    if of_host(attachment).any(|entry| entry.name == end.name) {
        return None;
    }
    Some((format!("link {} is called {} now", was.name, end.name), rename(&end.name, &was.name)))
}

/// A link that each attachment which has it knows by one other Ethernet address.
fn other_address(sight: &Sight<'_>, attachment: &Attachment) -> Option<(String, String)> {
    of_host(attachment).find_map(|entry| {
        let (wanted, found): (Mac, Mac) = (entry.mac.parse().ok()?, sight.host.find(&entry.name)?.mac?);
        let mut known = sight.attachments().filter_map(|of| mac_of_host(of, &entry.name));
        if found == wanted || known.any(|mac| mac != wanted) {
            return None;
        }
        let what = format!("link {} has Ethernet address {found}, and ADD found it with {wanted}", entry.name);
        Some((what, format!("ip link set {} address {wanted}", word(&entry.name))))
    })
}

/// The links of the node in the result of ADD.
fn of_host(attachment: &Attachment) -> impl Iterator<Item = &Interface> {
    attachment.result.interfaces.iter().filter(|entry| entry.sandbox.is_empty())
}
