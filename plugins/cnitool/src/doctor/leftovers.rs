//! Objects on the node or in the cache whose container is gone. Whether it lives: `on_node`, `container_lives.rs`.

use cni_spec::SpecVersion;
use libcni::inventory::{Life, OnNode};
use libcni::{AttachmentId, Cached, Namespace, NetworkConf, PassedOver};
use on_node::networks::{Known, Origin};
use on_node::pod_names::Names;

use crate::doctor::removal_commands::{listed, removal, removal_by_hand, unmounted};
use crate::doctor::{Finding, Fix, Kind, Level, Node};
use crate::node_networks::{Attachment, View};
use crate::output::count;
use crate::parsed_network::Network;
use crate::unreserved_addresses::{Lacking, Stores};

/// Looks at each network: at its own attachments, those that the node has without the cache, and those that the cache has
/// without the node. Networks that only the cache knows are looked at as ADD found them, and those that no file and no cache
/// explains by what they have left. Returns all of them.
pub(crate) fn look(node: Node<'_>, networks: &[Network], findings: &mut Vec<Finding>) -> Vec<Known> {
    let listing = match node.runtime.cache().list(None) {
        Ok(listing) => listing,
        Err(error) => {
            findings.push(Kind::unseen(None, "the cache", &error.with_causes()));
            libcni::cache::Listing::default()
        }
    };
    let mut unseen = Vec::new();
    let names = Names::of_cache(&listing.cached);
    let files = networks.iter().map(|network| network.conf.clone()).collect();
    let known = node.inventory.networks(files, listing.cached, &mut unseen);
    findings
        .extend(unseen.iter().map(|what| Kind::Unseen.finding(Level::Warning, None, format!("cannot look at {what}"))));
    if !listing.passed_over.is_empty() {
        findings.push(unreadable(node, &listing.passed_over, &known));
    }
    for network in &known {
        look_at(node, network, &names, findings);
    }
    known
}

/// Files of the cache that cannot be read. The container of one may live: garbage collection leaves it, and no repair knows it.
fn unreadable(node: Node<'_>, files: &[PassedOver], known: &[Known]) -> Finding {
    let what = format!("{} of the cache cannot be read", count(files.len(), "file"));
    let mut finding = Kind::UnreadableEntry.finding(Level::Warning, None, what);
    finding.evidence = files.iter().map(ToString::to_string).collect();
    let is_of = |network: &str, id: &AttachmentId| {
        let name = format!("{network}-{}-{}", id.container_id, id.ifname);
        files.iter().any(|file| file.path.file_name().is_some_and(|found| *found == *name))
    };
    let mut living = Vec::new();
    for Known { conf, requests, cached, .. } in known {
        let ids: Vec<AttachmentId> = cached.iter().map(|entry| entry.attachment.id.clone()).collect();
        let seen = node.inventory.look(requests, &ids).unwrap_or_default();
        let lives = seen.into_iter().filter(|found| found.life == Life::Lives).filter_map(|found| found.id);
        living.extend(lives.filter(|id| is_of(&conf.name, id)).map(|id| format!("{}/{}", id.container_id, id.ifname)));
    }
    finding.remedy = match living.is_empty() {
        true => {
            "Remove them, if no other program needs them; garbage collection removes what they were for.".to_owned()
        }
        false => format!(
            "{} {}, and cnitool repair skips what it cannot read: end the container, or start it anew, before you remove its file. Remove the others, if no other program needs them.",
            living.join(", "),
            if living.len() == 1 { "lives" } else { "live" }
        ),
    };
    finding
}

fn look_at(node: Node<'_>, known: &Known, names: &Names, findings: &mut Vec<Finding>) {
    let Known { conf: network, requests, cached, .. } = known;
    let name = &*network.name;
    let known: Vec<AttachmentId> = cached.iter().map(|entry| entry.attachment.id.clone()).collect();
    let on_node: Vec<OnNode> = match node.inventory.look(requests, &known) {
        Ok(seen) => seen.into_iter().map(OnNode::from).collect(),
        Err(error) => {
            findings.push(Kind::unseen(Some(name), &format!("what network {name} has on the node"), &error));
            return;
        }
    };
    let has_namespace = |id: &AttachmentId| {
        let entry = cached.iter().find(|entry| entry.attachment.id == *id);
        entry.is_some_and(|entry| entry.namespace() != Namespace::Gone)
    };
    let is_left = |found: &&OnNode| found.life == Life::Gone && !found.id.as_ref().is_some_and(has_namespace);
    let netns_of = |id: &AttachmentId| {
        let entry = cached.iter().find(|entry| entry.attachment.id == *id);
        entry.map_or("", |entry| entry.attachment.netns.as_str())
    };
    let command = |id: &AttachmentId| removal(name, id, netns_of(id));
    let mut left: Vec<String> = on_node
        .iter()
        .filter(is_left)
        .map(|found| format!("{}: {}", name_of(found, names), found.objects.join(", ")))
        .collect();
    let is_on_node = |id: &AttachmentId| on_node.iter().any(|found| found.id.as_ref() == Some(id));
    let only_cached: Vec<_> = known.iter().filter(|id| !is_on_node(id) && !has_namespace(id)).collect();
    left.extend(only_cached.iter().map(|id| format!("{}: only in the cache", names.attachment(id))));
    if !left.is_empty() {
        let what = format!("{} of containers that are gone", count(left.len(), "attachment"));
        let mut finding = Kind::Leftover.finding(Level::Warning, Some(name), what);
        finding.has_addresses = left.iter().any(|line| line.contains(": address "));
        finding.evidence = left;
        let ids = on_node.iter().filter(is_left).map(|found| found.id.as_ref());
        let ids: Vec<Option<&AttachmentId>> = ids.chain(only_cached.into_iter().map(Some)).collect();
        let by_hand = |found: &OnNode| removal_by_hand(node.runtime, &node.inventory.search_path, network, found);
        let by_hand: Option<Vec<String>> = on_node.iter().filter(is_left).map(by_hand).collect();
        (finding.remedy, finding.fix) = match by_hand.filter(|all| all.len() == ids.len()) {
            Some(commands) => (commands.join("; "), None),
            None => remedy(network, &ids, command),
        };
        findings.push(finding);
    }
    let young: Vec<&OnNode> = on_node
        .iter()
        .filter(|found| found.life == Life::Young && !found.id.as_ref().is_some_and(has_namespace))
        .collect();
    if !young.is_empty() {
        let what =
            format!("{} younger than a minute, whose containers were not found", count(young.len(), "attachment"));
        let mut finding = Kind::Undecided.finding(Level::Note, Some(name), what);
        finding.evidence =
            young.iter().map(|it| format!("{}: {}", name_of(it, names), it.objects.join(", "))).collect();
        "Run it again in a minute: an ADD may be under way.".clone_into(&mut finding.remedy);
        findings.push(finding);
    }
    let is_undecided = |found: &&OnNode| found.life == Life::Unknown && !found.id.as_ref().is_some_and(has_namespace);
    let undecided: Vec<&OnNode> = on_node.iter().filter(is_undecided).collect();
    let lives = |id: &AttachmentId| on_node.iter().any(|it| it.id.as_ref() == Some(id) && it.life == Life::Lives);
    let is_unmounted = |entry: &&Cached| {
        entry.namespace() == Namespace::Unknown && entry.is_unmounted() && !lives(&entry.attachment.id)
    };
    let unmounted_ones: Vec<&Cached> = cached.iter().filter(is_unmounted).collect();
    let mut stores = Stores::default();
    findings.extend(cached.iter().filter_map(|entry| unreserved(entry, names, &mut stores)));
    if undecided.len() + unmounted_ones.len() > 0 {
        let count = undecided.len() + unmounted_ones.len();
        let what = format!("{count} of which it cannot be determined whether containers live");
        let mut finding = Kind::Undecided.finding(Level::Note, Some(name), what);
        finding.evidence =
            undecided.iter().map(|it| format!("{}: {}", name_of(it, names), it.objects.join(", "))).collect();
        finding.evidence.extend(unmounted_ones.iter().map(|entry| {
            let libcni::Attachment { id, netns, .. } = &entry.attachment;
            format!("{}: {}", names.attachment(id), unmounted(netns))
        }));
        // Only the operator knows which live, so each has a command of its own.
        let ids = undecided.iter().filter_map(|found| found.id.as_ref());
        let ids = ids.chain(unmounted_ones.iter().map(|entry| &entry.attachment.id));
        let commands: Vec<String> = ids.map(command).collect();
        finding.remedy = match commands.is_empty() {
            true => format!("End their containers; cnitool gc {name} removes them then."),
            false => format!("Of those whose containers are gone: {}", listed(&commands)),
        };
        findings.push(finding);
    }
}

/// The addresses of an attachment whose container lives that host-local has not reserved for it.
fn unreserved(entry: &Cached, names: &Names, stores: &mut Stores) -> Option<Finding> {
    let name = names.attachment(&entry.attachment.id);
    let lacking = if entry.namespace() == Namespace::Present { stores.lacking(entry) } else { Vec::new() };
    lacking_finding(entry.network.as_str(), &name, lacking, names)
}

/// As `unreserved`, for attachments that are not in the cache: links and rules tell that they live, and rules their addresses.
pub(crate) fn unreserved_by_traces(view: &View, known: &[Known], findings: &mut Vec<Finding>) {
    let mut stores = Stores::default();
    for network in &view.networks {
        // The plugins of others are not known.
        let is_it = |known: &&Known| known.conf.name == network.name && matches!(known.origin, Origin::File(_));
        let Some(Known { requests, .. }) = known.iter().find(is_it) else { continue };
        let is_living = |it: &&Attachment| it.is_complete.is_none() && it.life == Life::Lives;
        for attachment in network.attachments.iter().filter(is_living) {
            let lacking = stores.lacking_of(requests, &attachment.id, &attachment.addresses);
            findings.extend(lacking_finding(&network.name, &attachment.full_name(), lacking, &view.names));
        }
    }
}

fn lacking_finding(network: &str, name: &str, lacking: Vec<Lacking>, names: &Names) -> Option<Finding> {
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
    let what = format!("no reservation holds what {name} has");
    let mut finding = Kind::Unreserved.finding(Level::Error, Some(network), what);
    finding.evidence = evidence;
    "Start the container anew.".clone_into(&mut finding.remedy);
    Some(finding)
}

/// Garbage collection, but for a network that wants none. Below version 1.1.0 plugins have no GC, and `cnitool gc` calls DEL,
/// which needs the attachment's names.
fn remedy(
    network: &NetworkConf,
    left: &[Option<&AttachmentId>],
    command: impl Fn(&AttachmentId) -> String,
) -> (String, Option<Fix>) {
    let name = network.name.clone();
    let mut named = left.iter().flatten().copied().peekable();
    let has_gc = network.version().is_ok_and(SpecVersion::has_gc);
    match (network.disable_gc, named.peek().is_some()) {
        (false, is_named) if is_named || has_gc => (format!("cnitool gc {name}"), Some(Fix::Collect { network: name })),
        (true, true) => (named.map(command).collect::<Vec<_>>().join("; "), None),
        (_, _) => {
            ("Set cniVersion to 1.1.0 or later, without disableGC; cnitool gc removes them then.".to_owned(), None)
        }
    }
}

/// Container and interface, as far as the mark names them.
fn name_of(found: &OnNode, names: &Names) -> String {
    found.id.as_ref().map_or("unnamed".to_owned(), |id| names.attachment(id))
}
