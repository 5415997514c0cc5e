//! Faults of a node's network: what is left over, damaged, nearly full, or in the way.
//!
//! [`examine`] looks at the configurations, the cache, the stores of addresses, the packet filter and the kernel's
//! settings, and changes nothing. What it finds says what it means for containers and what to do. [`Fix`] is for a
//! caller that mends: `cnitool doctor --fix` is one.
//!
//! | Module | What it looks at |
//! |---|---|
//! | `network_files` | files of networks, executables of plugins, STATUS |
//! | `files_of_other_projects` | files of other programs without which plugins refuse ADD |
//! | `network_folders` | whether there is a network at all, and folders that other runtimes read |
//! | `leftovers` | what is on the node or in the cache, and whose container is gone |
//! | `host_local_folders` | host-local's folders: damaged files, ranges, locks |
//! | `check_results` | on demand, what CHECK says of each attachment |
//! | `drops_by_cause` | why packets of living attachments are dropped, as `cnitool explain` finds it |
//! | `host_settings` | forwarding, both variants of iptables, bridges |
//! | `next_add` | what the next ADD would meet: addresses of bridges, routes, MTUs, IPv6 |

mod check_results;
mod drops_by_cause;
mod files_of_other_projects;
mod finding_kinds;
mod host_local_folders;
mod host_settings;
mod leftovers;
pub(crate) mod network_files;
pub(crate) mod network_folders;
mod next_add;
pub(crate) mod output_and_fix;
mod remedy;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::SystemTime;

use crate::dropped_packets::Survey;
use crate::parsed_network::Network;
use crate::validate::KnownPlugin;
use cni_spec::NetworkName;
use libcni::inventory::Life;
use libcni::{AttachmentId, Cached, Runtime};

pub(crate) use finding_kinds::{ANEW, Object};
pub use finding_kinds::{Finding, Fix, Kind, Level, Line, Subject, Unread};
pub(crate) use host_local_folders::of_cluster;
pub(crate) use leftovers::removal_by_hand;
pub use leftovers::{removal, unmounted};
pub use remedy::{Remedy, Step};
pub(crate) use remedy::{advice, tool};

/// The node to be examined: that of the calling thread.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    /// For the cache and the plugins, which are asked for VERSION and STATUS.
    pub runtime: &'a Runtime,
    /// The folder of networks.
    pub conf_dir: &'a Path,
    /// The plugins whose keys can be checked.
    pub known: &'a [KnownPlugin],
    /// The inventory of the node.
    pub inventory: &'a on_node::Node,
    /// Whether real packets of some attachments are sent, which leave the node nowhere.
    pub probes: bool,
    /// Whether CHECK of each attachment is called as well, for 60 seconds at most.
    pub checks: Checks,
}

/// The attachments of which CHECK is called, and what of its answers is a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checks {
    /// CHECK is not called.
    No,
    /// An error is a finding where none of another kind is about the attachment: its cause is known then.
    Unexplained,
    /// Every difference is a finding.
    All,
}

/// The doctor's report on a node.
#[derive(Debug, Clone, Default)]
pub struct Examined {
    /// The faults, the worst first. An object that cannot be looked at is one, too.
    pub findings: Vec<Finding>,
    /// The objects that were not examined, from which a node may suffer all the same.
    pub beyond: Vec<String>,
    /// Rules and tables of the packet filter that may drop packets, and were not examined: a node with some is not known to have no fault.
    pub unexamined: Vec<String>,
}

/// How often a node is looked at whose containers come and go.
const LOOKS: usize = 3;

/// Looks at everything. What is said of containers that came or went meanwhile is not reported: where some did, a fault is one
/// that each look finds.
pub async fn examine(node: Node<'_>) -> Examined {
    let (mut examined, is_busy) = settled(node).await;
    for _ in 1..LOOKS {
        if is_busy && !examined.findings.is_empty() {
            let (again, _) = settled(node).await;
            examined = Examined { findings: found_again(&examined.findings, again.findings), ..again };
        }
    }
    examined
}

/// The findings of a look that an earlier one had, too.
fn found_again(before: &[Finding], now: Vec<Finding>) -> Vec<Finding> {
    let same = |finding: &mut Finding| {
        let of_it = before.iter().filter(|it| it.kind == finding.kind && it.network == finding.network);
        let lines: Vec<&Line> = of_it.clone().flat_map(|it| &it.evidence).collect();
        let had = !finding.evidence.is_empty();
        let is_said = of_it.into_iter().any(|it| it.what == finding.what);
        finding.evidence.retain(|line| is_said || lines.contains(&line));
        is_said || had && !finding.evidence.is_empty()
    };
    now.into_iter().filter_map(|mut finding| same(&mut finding).then_some(finding)).collect()
}

/// The findings of one look, without those of attachments that changed meanwhile, which are named among what was not examined;
/// and whether any changed.
async fn settled(node: Node<'_>) -> (Examined, bool) {
    let before = cached(node.runtime);
    let mut busy = in_progress(node.runtime, &before);
    let (mut examined, seen) = look(node).await;
    // The locks before the second listing: a DEL that ends in between has removed its entry by then.
    busy.extend(in_progress(node.runtime, &before));
    let after = cached(node.runtime);
    let (first, second) = (entries(&before), entries(&after));
    let is_settled =
        |key: &EntryKey| !busy.contains(key) && first.get(key).is_some_and(|written| second.get(key) == Some(written));
    let all = first.keys().chain(second.keys()).cloned().chain(seen);
    let changed: BTreeSet<EntryKey> = all.filter(|key| !is_settled(key)).collect();
    let mut left_out = BTreeSet::new();
    let mut is_left_out = |subject: Option<&Subject>| {
        let changed = subject.filter(|it| changed.contains(&(it.network.clone(), it.id.clone())));
        left_out.extend(changed.map(|it| it.name.clone()));
        changed.is_some()
    };
    examined.findings.retain_mut(|finding| {
        let had = !finding.evidence.is_empty();
        finding.evidence.retain(|line| !is_left_out(line.subject.as_ref()));
        !is_left_out(finding.subject.as_ref()) && (!had || !finding.evidence.is_empty())
    });
    if !left_out.is_empty() {
        let names = left_out.into_iter().collect::<Vec<_>>().join(", ");
        examined.beyond.push(format!("attachments whose ADD or DEL is in progress, or was meanwhile: {names}"));
    }
    (examined, !changed.is_empty())
}

/// An attachment of a network.
type EntryKey = (String, AttachmentId);

/// The entries of the cache. One that cannot be listed is a finding of `attachments`.
fn cached(runtime: &Runtime) -> Vec<Cached> {
    runtime.cache().list(None).unwrap_or_default().cached
}

/// When each attachment's entry was written.
fn entries(cached: &[Cached]) -> BTreeMap<EntryKey, Option<SystemTime>> {
    cached.iter().map(|entry| (key(&entry.network, &entry.attachment.id), entry.written())).collect()
}

/// The attachments whose ADD or DEL is in progress.
fn in_progress(runtime: &Runtime, cached: &[Cached]) -> BTreeSet<EntryKey> {
    let mut of_networks: BTreeMap<&NetworkName, Vec<&AttachmentId>> = BTreeMap::new();
    for entry in cached {
        of_networks.entry(&entry.network).or_default().push(&entry.attachment.id);
    }
    let busy = of_networks.into_iter().map(|(network, ids)| (network, runtime.in_progress(network, ids.into_iter())));
    busy.flat_map(|(network, ids)| ids.into_iter().map(|id| key(network, id)).collect::<Vec<_>>()).collect()
}

fn key(network: &NetworkName, id: &AttachmentId) -> EntryKey {
    (network.to_string(), id.clone())
}

/// Looks at everything once. Returns also the attachments of the cache that were seen.
async fn look(node: Node<'_>) -> (Examined, Vec<EntryKey>) {
    let mut findings = Vec::new();
    let networks = network_files::look(node, &mut findings).await;
    let Node { runtime, conf_dir, inventory, .. } = node;
    let survey = Survey::look(crate::node_networks::Node { runtime, conf_dir, inventory });
    leftovers::look(node, &survey.found, &mut findings);
    let known: Vec<_> = survey.found.networks.iter().map(|network| &network.known).collect();
    host_local_folders::look(&known, node.runtime.cache(), &mut findings).await;
    // Where containers live their ADD has found what it needs.
    let is_used = |network: &&Network| {
        let of = survey.view.networks.iter().filter(|of| of.name == network.conf.name);
        of.flat_map(|of| &of.attachments).any(|attachment| attachment.life == Life::Lives)
    };
    leftovers::unreserved_by_traces(&survey, &mut findings);
    files_of_other_projects::look(networks.iter().filter(|network| !is_used(network)), &mut findings);
    let sight = survey.sight();
    let (unexamined, passed) = drops_by_cause::look(node, &sight, runtime, &mut findings);
    host_settings::look(&inventory.search_path, &networks, &sight, &mut findings);
    if node.checks != Checks::No {
        check_results::look(node, &sight, &mut findings).await;
    }
    // Stable: findings of one level stay in the order above. A link takes IPv6 addresses when IPv6 is on, and a repair
    // succeeds when nothing else is wrong with the containers.
    let turn = |finding: &Finding| match finding.kind {
        Kind::Ipv6Disabled => 0,
        _ if finding.remedy.is_repair() => 2,
        _ => 1,
    };
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.level), turn(finding)));
    let all = survey.view.networks.iter().flat_map(|network| &network.attachments);
    let uncached = all.filter(|it| it.life == Life::Lives && it.is_complete.is_none()).count();
    let uncached = (uncached > 0)
        .then(|| format!("what ADD gave {uncached} living attachments that the cache does not have (--cache-dir)"));
    let beyond = BEYOND.iter().map(|what| (*what).to_owned()).chain(passed).chain(uncached).collect();
    let in_view = survey.view.networks.iter().flat_map(|network| {
        let cached = network.attachments.iter().filter(|it| it.is_complete.is_some());
        cached.map(|it| (network.name.clone(), it.id.clone()))
    });
    let in_cache = known.iter().flat_map(|known| &known.cached).map(|it| key(&it.network, &it.attachment.id));
    let seen = in_view.chain(in_cache).collect();
    (Examined { findings, beyond, unexamined }, seen)
}

/// The objects that [`examine`] never looks at.
pub const BEYOND: &[&str] = &crate::explain::BEYOND;

/// The example of `DOCTOR.md`.
#[cfg(doctest)]
#[doc = include_str!("../DOCTOR.md")]
struct Readme;
