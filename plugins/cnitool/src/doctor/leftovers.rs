//! Objects on the node or in the cache whose container is gone. Whether it lives: `on_node`, `container_lives.rs`.

use std::collections::{BTreeMap, BTreeSet};

use cni_filter::By;
use cni_spec::SpecVersion;
use libcni::inventory::{Life, OnNode};
use libcni::{AttachmentId, Cached, Namespace, NetworkConf, PassedOver, Runtime};
use on_node::Seen;
use on_node::networks::{Known, Origin};
use on_node::pod_names::Names;

use crate::doctor::network_files::Makes;
use crate::doctor::{ANEW, Finding, Fix, Kind, Level, Node, Remedy, Step, Subject, advice, tool};
use crate::dropped_packets::Survey;
use crate::node_networks::{Attachment, Found, OnNode as NetworkOnNode};
use crate::output::count;
use crate::unreserved_addresses::{Lacking, Stores};

/// Looks at each network: at its own attachments, those that the node has without the cache, and those that the cache has
/// without the node. Networks that only the cache knows are looked at as ADD found them, and those that no file and no cache
/// explains by what they have left.
pub(crate) fn look(node: Node<'_>, found: &Found, findings: &mut Vec<Finding>) {
    let Found { networks, names, unread_cache, passed_over, unread_names, .. } = found;
    findings.extend(unread_cache.iter().map(|unread| Kind::unread(None, unread)));
    let cannot_look = |what| Kind::Unseen.finding(Level::Warning, None, format!("cannot look at {what}"));
    findings.extend(unread_names.iter().map(cannot_look));
    if !passed_over.is_empty() {
        findings.push(unreadable(passed_over, networks));
    }
    for network in networks {
        look_at(node, network, names, findings);
    }
}

/// Files of the cache that cannot be read. The container of one may live: garbage collection leaves it, and no repair knows it.
fn unreadable(files: &[PassedOver], networks: &[NetworkOnNode]) -> Finding {
    let what = format!("{} of the cache cannot be read", count(files.len(), "file"));
    let lines = files.iter().map(ToString::to_string);
    let finding = Kind::UnreadableEntry.finding(Level::Warning, None, what).shown_by(lines);
    let is_of = |network: &str, id: &AttachmentId| {
        let name = format!("{network}-{}-{}", id.container_id, id.ifname);
        files.iter().any(|file| file.path.file_name().is_some_and(|found| *found == *name))
    };
    let mut living = Vec::new();
    for NetworkOnNode { known, seen } in networks {
        let living_ones = seen.iter().flatten().filter(|found| found.life == Life::Lives);
        let of_files = living_ones.filter_map(|found| found.id.as_ref()).filter(|id| is_of(&known.conf.name, id));
        living.extend(of_files.map(|id| format!("{}/{}", id.container_id, id.ifname)));
    }
    let text = match living.len() {
        0 => "Remove them, if no other program needs them; garbage collection removes what they were for.".to_owned(),
        count => format!(
            "{} {}, and cnitool repair skips what it cannot read: end the container, or start it anew, before you remove its file. Remove the others, if no other program needs them.",
            living.join(", "),
            if count == 1 { "lives" } else { "live" }
        ),
    };
    finding.help(advice(text))
}

fn look_at(node: Node<'_>, NetworkOnNode { known, seen }: &NetworkOnNode, names: &Names, findings: &mut Vec<Finding>) {
    let Known { conf: network, cached, .. } = known;
    let name = &*network.name;
    let on_node = match seen {
        Ok(seen) => seen,
        Err(error) => {
            findings.push(Kind::unseen(Some(name), &format!("what network {name} has on the node"), error));
            return;
        }
    };
    let namespaces: BTreeMap<&AttachmentId, (&Cached, Namespace)> =
        cached.iter().map(|entry| (&entry.attachment.id, (entry, entry.namespace()))).collect();
    let has_namespace = |id: &AttachmentId| namespaces.get(id).is_some_and(|(_, state)| *state != Namespace::Gone);
    // Those of which the cache does not know that they live.
    let of = |life: Life| -> Vec<&Seen> {
        let is_it = |it: &&Seen| it.life == life && !it.id.as_ref().is_some_and(has_namespace);
        on_node.iter().filter(is_it).collect()
    };
    let subject = |id: &AttachmentId| Subject::new(name, id, names);
    let line = |seen: &&Seen| {
        let objects = OnNode::from((*seen).clone()).objects.join(", ");
        match &seen.id {
            Some(id) => subject(id).line(objects),
            None => format!("unnamed: {objects}").into(),
        }
    };
    let command = |id: &AttachmentId| {
        removal(name, id, namespaces.get(id).map_or("", |(entry, _)| entry.attachment.netns.as_str()))
    };
    let left = of(Life::Gone);
    let seen: BTreeSet<&AttachmentId> = on_node.iter().filter_map(|seen| seen.id.as_ref()).collect();
    let ids = cached.iter().map(|entry| &entry.attachment.id);
    let only_cached: Vec<&AttachmentId> = ids.filter(|id| !seen.contains(id) && !has_namespace(id)).collect();
    if left.len() + only_cached.len() > 0 {
        let what = format!("{} of containers that are gone", count(left.len() + only_cached.len(), "attachment"));
        let mut finding = Kind::Leftover.finding(Level::Warning, Some(name), what);
        finding.has_addresses = left.iter().any(|seen| !seen.reserved.is_empty());
        finding.evidence = left.iter().map(line).collect();
        finding.evidence.extend(only_cached.iter().map(|id| subject(id).line("only in the cache")));
        let by_hand = |found: &&Seen| removal_by_hand(node.runtime, &node.inventory.search_path, network, found);
        let by_hand: Option<Vec<_>> = left.iter().map(by_hand).collect();
        (finding.remedy, finding.fix) = match by_hand.filter(|_| only_cached.is_empty()) {
            Some(commands) => (commands.into_iter().flatten().collect(), None),
            None => {
                let ids: Vec<_> =
                    left.iter().map(|it| it.id.as_ref()).chain(only_cached.into_iter().map(Some)).collect();
                remedy(network, &ids, command)
            }
        };
        findings.push(finding);
    }
    let young = of(Life::Young);
    if !young.is_empty() {
        let what =
            format!("{} younger than a minute, whose containers were not found", count(young.len(), "attachment"));
        let mut finding = Kind::Undecided.finding(Level::Note, Some(name), what);
        finding.evidence = young.iter().map(line).collect();
        findings.push(finding.help(advice("Run it again in a minute: an ADD may be under way.")));
    }
    let undecided = of(Life::Unknown);
    let lives = |id: &AttachmentId| on_node.iter().any(|it| it.id.as_ref() == Some(id) && it.life == Life::Lives);
    let is_unmounted = |entry: &&Cached| {
        entry.namespace() == Namespace::Unknown && entry.is_unmounted() && !lives(&entry.attachment.id)
    };
    let unmounted_ones: Vec<&Cached> = cached.iter().filter(is_unmounted).collect();
    let mut stores = Stores::default();
    findings.extend(namespaces.values().filter_map(|(entry, state)| {
        let lacking = if *state == Namespace::Present { stores.lacking(entry) } else { Vec::new() };
        lacking_finding(subject(&entry.attachment.id), lacking, names)
    }));
    if undecided.len() + unmounted_ones.len() > 0 {
        let count = undecided.len() + unmounted_ones.len();
        let what = format!("{count} of which it cannot be determined whether containers live");
        let mut finding = Kind::Undecided.finding(Level::Note, Some(name), what);
        finding.evidence = undecided.iter().map(line).collect();
        finding.evidence.extend(unmounted_ones.iter().map(|entry| {
            let libcni::RuntimeConf { id, netns, .. } = &entry.attachment;
            subject(id).line(unmounted(netns))
        }));
        // Only the operator knows which live, so each has a command of its own.
        let ids = undecided.iter().filter_map(|found| found.id.as_ref());
        let ids = ids.chain(unmounted_ones.iter().map(|entry| &entry.attachment.id));
        let commands: Remedy = ids.map(command).collect();
        let steps = match commands.0.is_empty() {
            true => vec![advice("Once their containers have ended:"), tool(["gc", name])],
            false => [vec![advice("Of those whose containers are gone:")], commands.shortened().0].concat(),
        };
        findings.push(finding.steps(steps));
    }
}

/// Finds addresses without a reservation of attachments that are not in the cache: links and rules tell that they live, and rules their addresses.
pub(crate) fn unreserved_by_traces(Survey { view, found, .. }: &Survey, findings: &mut Vec<Finding>) {
    let mut stores = Stores::default();
    for network in &view.networks {
        // The plugins of others are not known.
        let is_it = |known: &&Known| known.conf.name == network.name && matches!(known.origin, Origin::File(_));
        let Some(Known { requests, .. }) = found.networks.iter().map(|of| &of.known).find(is_it) else { continue };
        let is_living = |it: &&Attachment| it.is_complete.is_none() && it.life == Life::Lives;
        for attachment in network.attachments.iter().filter(is_living) {
            let lacking = stores.lacking_of(requests, &attachment.id, &attachment.addresses);
            findings.extend(lacking_finding(Subject::of(network, attachment), lacking, &view.names));
        }
    }
}

/// The finding that host-local has not reserved addresses for an attachment whose container lives.
fn lacking_finding(subject: Subject, lacking: Vec<Lacking>, names: &Names) -> Option<Finding> {
    let evidence: Vec<String> = lacking
        .into_iter()
        .map(|Lacking { address, reserved_for }| match reserved_for {
            None => format!("{address}: no reservation"),
            Some((container_id, _)) => format!("{address}: reserved for {}", names.name(&container_id)),
        })
        .collect();
    if evidence.is_empty() {
        return None;
    }
    let what = format!("no reservation holds what {} has", subject.name);
    let finding = Kind::Unreserved.finding(Level::Error, Some(&subject.network), what).shown_by(evidence);
    Some(Finding { subject: Some(subject), ..finding.help(advice(ANEW)) })
}

/// Garbage collection, but for a network that wants none. Below version 1.1.0 plugins have no GC, and `cnitool gc` calls DEL,
/// which needs the attachment's names.
fn remedy(
    network: &NetworkConf,
    left: &[Option<&AttachmentId>],
    command: impl Fn(&AttachmentId) -> Step,
) -> (Remedy, Option<Fix>) {
    let name = network.name.clone();
    let mut named = left.iter().flatten().copied().peekable();
    let has_gc = network.version().is_ok_and(SpecVersion::has_gc);
    let gc = tool(["gc", &name]);
    match (network.disable_gc, named.peek().is_some()) {
        (false, is_named) if is_named || has_gc => (gc.into(), Some(Fix::Collect { network: name })),
        (true, true) => (named.map(command).collect(), None),
        (_, _) => {
            let set = advice("Set cniVersion to 1.1.0 or later, without disableGC, and then:");
            (Remedy(vec![set, gc]), None)
        }
    }
}

/// Stands for a namespace that has no path any more.
const NOWHERE: &str = "/run/netns/gone";

/// `cnitool del` of an attachment. `netns` is the path of its namespace; empty: none is known.
#[must_use]
pub fn removal(network: &str, id: &AttachmentId, netns: &str) -> Step {
    let AttachmentId { container_id, ifname } = id;
    let netns = if netns.is_empty() { NOWHERE } else { netns };
    tool(["del", network, netns, "--container-id", container_id.as_str(), "--ifname", ifname.as_str()])
}

/// The commands that remove the masquerade of a container that is gone, if nothing else of it is left, and a plugin of the network is
/// of another make: the reference's DEL finds the rules by the addresses in the namespace, and it has no GC.
pub(crate) fn removal_by_hand(
    runtime: &Runtime,
    search_path: &str,
    network: &NetworkConf,
    found: &Seen,
) -> Option<Vec<Step>> {
    let Seen { id, links, reserved, rules, others, life, .. } = found;
    let is_alone = links.is_empty() && reserved.is_empty() && others.is_empty() && !rules.is_empty();
    let is_it = is_alone && rules.iter().all(|rule| rule.masquerades_by == Some(By::Iptables));
    let id = id.as_ref().filter(|_| *life == Life::Gone && is_it)?;
    if Makes::are_own(runtime, network) {
        return None;
    }
    let commands = cni_filter::masquerade_removal(&network.name, id.container_id.as_str(), search_path).ok()?;
    (!commands.is_empty()).then(|| commands.into_iter().map(Step::from).collect())
}

/// Why it is unknown whether the namespace of an attachment exists, at whose path is an empty file.
#[must_use]
pub fn unmounted(netns: &str) -> String {
    format!("{netns} is an empty file, so its namespace is gone, or is mounted in another mount namespace")
}
