//! `cnitool gc`: decides from the cache and the node's objects which attachments are valid, and removes the rest.

use crate::args::Gc;
use crate::doctor::{Remedy, removal, removal_by_hand, unmounted};
use crate::output::{Output, Table, count, to_cni_error};
use crate::settings::Settings;
use crate::settings::container_id_and_netns::one_of;
use anyhow::Context;
use libcni::cni_spec::SpecVersion;
use libcni::inventory::{Inventory, Life, OnNode, Survey};
use libcni::{AttachmentId, Cached, Namespace, NetworkConf, RuntimeConf};
use on_node::Requests;
use serde_json::json;
use std::time::{Duration, Instant};

/// How long a namespace may take to end after its last name is gone: sockets in it are freed a moment later.
const MOMENT: Duration = Duration::from_secs(1);

/// Collects the garbage of the network that is named, or of all that the node knows: a failure in one hides no other. Without `output`
/// nothing is printed of what was kept and deleted.
pub(crate) async fn run(settings: &Settings, gc: &Gc, output: Option<Output>) -> anyhow::Result<()> {
    let networks = match &gc.network {
        Some(name) => vec![name.clone()],
        None => settings.networks()?.into_iter().map(|known| known.conf.name).collect(),
    };
    let columns = &["network", "container", "ifname", "netns", "verdict", "objects"];
    // Afterwards the cache does not have those that were deleted.
    let mut shown = Shown { table: Table::new(columns).named(settings.names()), left_out: None };
    if gc.dry_run && output.is_some_and(|output| !output.is_json) {
        shown.left_out = Some(0);
    }
    let mut first = Ok(());
    for name in networks {
        match collect(settings, gc, &name, output, &mut shown).await {
            Err(error) if first.is_err() => tracing::warn!("{}", to_cni_error(&error)),
            done => first = first.and(done),
        }
    }
    if let Some(output) = output {
        output.table(&shown.table)?;
        if let Some(number) = shown.left_out.filter(|number| *number > 0) {
            output.note(&format!("{} would be kept", count(number, "attachment")));
        }
    }
    first
}

struct Shown {
    table: Table,
    /// How many attachments that would be kept have no row; `None`: these have one.
    left_out: Option<usize>,
}

async fn collect(
    settings: &Settings,
    gc: &Gc,
    name: &str,
    output: Option<Output>,
    shown: &mut Shown,
) -> anyhow::Result<()> {
    let network = settings.network_to_clear(name)?;
    if network.disable_gc {
        tracing::warn!("network {} says disableGC: nothing is deleted", network.name);
        return Ok(());
    }
    // A dry run only looks, so it disturbs no ADD.
    let collection = if gc.dry_run { None } else { Some(settings.runtime.collection(&network).await?) };
    let cached = match &collection {
        Some(collection) => collection.cached().to_vec(),
        None => settings.runtime.stale(&network, &[])?,
    };
    let named = kept_by_name(gc, settings, &cached)?;
    let valid = if is_explicit(gc) { named.clone() } else { with_namespace(&cached) };
    let mut looked = settled(settings, gc, &network, &cached, &valid).await?;
    // Without GC no plugin is told what to keep, so what has no name stays anyway.
    let nameless = match &mut looked {
        Some(survey) if !has_gc(&network) => survey.kept.extract_if(.., |found| found.id.is_none()).collect(),
        Some(_) | None => Vec::new(),
    };
    let survey = looked.clone().unwrap_or_default();
    warn_of_unknown(&network, &named, &cached, &survey);
    let keep = survey.keep().map_err(|found| cannot_keep(&network, found));
    let mut plan = Plan { network: &network, cached: &cached, survey: &survey, left: Vec::new() };
    let is_asked = gc.network.is_some() && looked.is_some();
    if let Some(output) = output.filter(|_| is_asked && plan.is_empty() && nameless.is_empty()) {
        output.note(&format!("network {} has nothing on the node or in the cache: nothing to remove", network.name));
    }
    let missing = unknown(&named, &cached, &survey).next();
    let refused = match missing.filter(|_| !gc.force).zip(find_living(&cached, &valid, &survey)) {
        Some((mistake, living)) => Err(mistaken(&network, mistake, living)),
        None => keep,
    };
    let Some(collection) = collection else {
        plan.show(&valid, ["would be kept", "would be deleted"], shown);
        return refused.map(drop);
    };
    let all_valid = [valid.clone(), refused?].concat();
    report_kept(settings, &network, &cached, &survey, &nameless);
    report_unmounted(settings, &network, &cached, &valid, &survey);
    let outcome = match &looked {
        Some(survey) => collection.gc(survey).await,
        None => collection.without_inventory(&valid).await,
    };
    if outcome.is_ok() {
        plan.left = clear(settings, &network, &cached, &survey).await;
        report_left(settings, &network, &cached, &plan.left);
    }
    if outcome.is_ok() {
        plan.show(&all_valid, ["kept", "deleted"], shown);
    }
    Ok(outcome?)
}

/// Removes by DEL what is to go and is left after GC; returns what is left after that.
async fn clear(settings: &Settings, network: &NetworkConf, cached: &[Cached], survey: &Survey) -> Vec<OnNode> {
    // GC leaves files of the oldest format in the cache.
    let is_bare = |found: &&OnNode| found.life == Life::Gone && has_bare_result(settings, network, found);
    delete(settings, network, survey.removed.iter().filter(is_bare)).await;
    let mut left = still_there(settings, network, cached, survey);
    if !has_gc(network) {
        delete(settings, network, left.iter()).await;
        left = still_there(settings, network, cached, survey);
    }
    // A plugin that calls others does so by a record of its own, which may be gone. What it called is asked itself then.
    let is_gone = |found: &&OnNode| found.life == Life::Gone;
    if Requests::of(network).may_call_others()
        && left.iter().any(|found| is_gone(&found))
        && let Some(conf) = settings.conf_for_del(&network.name)
    {
        delete(settings, &conf, left.iter().filter(is_gone)).await;
        left = still_there(settings, network, cached, survey);
    }
    left
}

/// The attachments that were to be removed, and of which objects remain: plugins keep those that they find in use.
fn still_there(settings: &Settings, network: &NetworkConf, cached: &[Cached], survey: &Survey) -> Vec<OnNode> {
    if survey.removed.is_empty() {
        return Vec::new();
    }
    let known: Vec<_> = cached.iter().map(|cached| cached.attachment.id.clone()).collect();
    let on_node = settings.inventory.list(network, &known).unwrap_or_else(|error| {
        tracing::warn!("cannot look at what network {} has left on the node: {error}", network.name);
        Vec::new()
    });
    let is_left = |before: &OnNode, now: &OnNode| {
        before.id == now.id && before.objects.iter().any(|object| now.objects.contains(object))
    };
    let on_node = on_node.into_iter().filter(|now| survey.removed.iter().any(|before| is_left(before, now)));
    // Broken files were reported when the cache was read first.
    let in_cache = settings.runtime.cache().list(None).map(|listing| listing.cached).unwrap_or_default();
    let is_in_cache = |id: &AttachmentId| {
        in_cache.iter().any(|cached| cached.network.as_str() == network.name && cached.attachment.id == *id)
    };
    let mut left: Vec<OnNode> = on_node.collect();
    let entries = survey.removed.iter().filter(|before| before.id.as_ref().is_some_and(is_in_cache));
    for before in entries.filter(|before| !left.iter().any(|now| now.id == before.id)).collect::<Vec<_>>() {
        left.push(OnNode { objects: vec!["entry of the cache".to_owned()], ..before.clone() });
    }
    left
}

/// Below version 1.1.0 plugins have no GC. DEL of what no cache has needs only the attachment's names.
fn has_gc(network: &NetworkConf) -> bool {
    network.version().is_ok_and(SpecVersion::has_gc)
}

/// Whether the cache has an attachment in the oldest format, in which it cannot be listed.
fn has_bare_result(settings: &Settings, network: &NetworkConf, found: &OnNode) -> bool {
    let entry = |id| settings.runtime.cache().find(&network.network_name().ok()?, id).ok().flatten();
    found.id.as_ref().and_then(entry).is_some_and(|entry| entry.is_bare_result())
}

/// DEL of what is on the node, and in no list of the cache. One that fails is reported, and hides no other.
async fn delete(settings: &Settings, network: &NetworkConf, left: impl Iterator<Item = &OnNode>) {
    for id in left.filter_map(|found| found.id.as_ref()) {
        let AttachmentId { container_id, ifname } = id;
        let Ok(name) = network.network_name() else { return };
        // An ADD has begun since: the attachment is a new one.
        let entry = settings.runtime.cache().find(&name, id);
        if !matches!(&entry, Ok(entry) if entry.as_ref().is_none_or(Cached::is_bare_result)) {
            continue;
        }
        let attachment = RuntimeConf::new(container_id.as_str(), ifname.as_str());
        let deleted = match attachment {
            Ok(attachment) => settings.runtime.del(network, &attachment).await.map_err(|error| error.with_causes()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = deleted {
            tracing::warn!("cannot delete {container_id}/{ifname} in network {name}: {error}");
        }
    }
}

/// The command that removes this attachment, and nothing of any other.
fn removal_of(settings: &Settings, network: &NetworkConf, cached: &[Cached], id: &AttachmentId) -> String {
    let entry = cached.iter().find(|cached| cached.attachment.id == *id);
    let mut remedy = Remedy::from(removal(&network.name, id, entry.map_or("", |entry| &entry.attachment.netns)));
    remedy.with_options(&settings.folders);
    remedy.to_string()
}

fn report_left(settings: &Settings, network: &NetworkConf, cached: &[Cached], left: &[OnNode]) {
    for found in left {
        let (what, objects, name) = (name(found), found.objects.join(", "), &network.name);
        let seen = settings.inventory.look(&Requests::of(network), &[]).unwrap_or_default();
        let seen = seen.iter().find(|seen| seen.id == found.id);
        let search_path = &settings.inventory.search_path;
        let by_hand = seen.and_then(|seen| removal_by_hand(&settings.runtime, search_path, network, seen));
        let remedy = match &found.id {
            _ if let Some(steps) = by_hand => Remedy(steps).to_string(),
            Some(id) => removal_of(settings, network, cached, id),
            None if has_gc(network) => "end its container, and repeat gc".to_owned(),
            None => "set cniVersion to 1.1.0 or later, and repeat gc".to_owned(),
        };
        tracing::warn!("the plugins have kept {what} in network {name} ({objects}); to remove it: {remedy}");
    }
}

/// The caller lists what is kept of the cache.
fn is_explicit(gc: &Gc) -> bool {
    gc.all || !gc.keep.is_empty()
}

/// A container by one of its names, for all of its interfaces in the cache, else for the interface of this call; or the same, a slash and
/// an interface.
fn kept_by_name(gc: &Gc, settings: &Settings, cached: &[Cached]) -> anyhow::Result<Vec<AttachmentId>> {
    let names = settings.names();
    let mut named = Vec::new();
    for text in &gc.keep {
        let (word, chosen) = match (one_of(&names, text)?, text.rsplit_once('/')) {
            (None, Some((word, ifname))) => (word, Some(ifname)),
            (Some(_), _) | (None, None) => (text.as_str(), None),
        };
        let container = one_of(&names, word)?.map_or_else(|| word.to_owned(), |id| id.to_string());
        let attachment = RuntimeConf::new(&container, chosen.unwrap_or(&settings.ifname));
        let id = attachment.with_context(|| format!("cannot use --keep {text}"))?.id;
        let of_container =
            cached.iter().map(|cached| &cached.attachment.id).filter(|it| it.container_id == id.container_id);
        let all: Vec<_> = of_container.filter(|_| chosen.is_none()).cloned().collect();
        named.extend(if all.is_empty() { vec![id] } else { all });
    }
    Ok(named)
}

/// The cached attachments whose namespace may still exist.
fn with_namespace(cached: &[Cached]) -> Vec<AttachmentId> {
    let may_live = |cached: &&Cached| cached.namespace() != Namespace::Gone;
    cached.iter().filter(may_live).map(|cached| cached.attachment.id.clone()).collect()
}

#[expect(clippy::disallowed_methods, reason = "nothing announces the end of a namespace for every kind of link")]
async fn moment() {
    tokio::time::sleep(MOMENT / 20).await;
}

/// The inventory, after waiting for the end of namespaces whose path is gone: the kernel ends them a moment later.
///
/// `None`: the node cannot be examined, and `--force` goes on without.
async fn settled(
    settings: &Settings,
    gc: &Gc,
    network: &NetworkConf,
    cached: &[Cached],
    valid: &[AttachmentId],
) -> anyhow::Result<Option<Survey>> {
    let begin = Instant::now();
    let is_cached = |id: &AttachmentId| cached.iter().any(|cached| cached.attachment.id == *id);
    loop {
        let Some(survey) = survey(settings, gc, network, cached, valid)? else { return Ok(None) };
        let is_ending = survey.kept.iter().any(|found| found.id.as_ref().is_some_and(is_cached));
        if !is_ending || begin.elapsed() > MOMENT {
            return Ok(Some(survey));
        }
        moment().await;
    }
}

/// The node's objects besides the valid attachments. For attachments in the cache the caller's list decides, and with
/// `--force` for all.
fn survey(
    settings: &Settings,
    gc: &Gc,
    network: &NetworkConf,
    cached: &[Cached],
    valid: &[AttachmentId],
) -> anyhow::Result<Option<Survey>> {
    let others: Vec<_> = cached.iter().map(|cached| cached.attachment.id.clone()).collect();
    let is_to_go = |found: &OnNode| {
        let is_cached = || found.id.as_ref().is_some_and(|id| others.contains(id));
        // An attachment in the cache is no ADD of another runtime, so its young age does not keep it.
        gc.force || (is_explicit(gc) || found.life == Life::Young) && is_cached()
    };
    match Survey::of(&settings.inventory, &with_gc(network), valid, &others, is_to_go) {
        Err(error) if gc.force || !has_gc(network) => {
            tracing::warn!("cannot look at what network {} has on the node: {error}", network.name);
            Ok(None)
        }
        survey => survey.map(Some).with_context(|| {
            format!(
                "cannot look at what network {} has on the node; --force does without, and removes what other runtimes \
                 have, too",
                network.name
            )
        }),
    }
}

/// The network as it would be with GC: a survey of one without finds nothing.
fn with_gc(network: &NetworkConf) -> NetworkConf {
    let mut network = network.clone();
    if !has_gc(&network) {
        SpecVersion::V1_1_0.as_str().clone_into(&mut network.cni_version);
    }
    network
}

/// The attachments that `--keep` names, and neither the cache nor the node has.
fn unknown<'a>(
    named: &'a [AttachmentId],
    cached: &[Cached],
    survey: &Survey,
) -> impl Iterator<Item = &'a AttachmentId> {
    let is_on_node = |id: &AttachmentId| survey.valid.iter().any(|found| found.id.as_ref() == Some(id));
    let is_cached = |id: &AttachmentId| cached.iter().any(|cached| cached.attachment.id == *id);
    named.iter().filter(move |id| !is_on_node(id) && !is_cached(id))
}

/// An attachment that is to be removed, though its container lives.
fn find_living<'a>(cached: &'a [Cached], valid: &[AttachmentId], survey: &'a Survey) -> Option<&'a AttachmentId> {
    let on_node = survey.removed.iter().filter(|found| found.life == Life::Lives).find_map(|found| found.id.as_ref());
    let in_cache = cached.iter().filter(|entry| entry.namespace() == Namespace::Present);
    let mut in_cache = in_cache.map(|entry| &entry.attachment.id).filter(|id| !valid.contains(id));
    on_node.or_else(|| in_cache.next())
}

fn warn_of_unknown(network: &NetworkConf, named: &[AttachmentId], cached: &[Cached], survey: &Survey) {
    for id in unknown(named, cached, survey) {
        let (container, ifname, network) = (&id.container_id, &id.ifname, &network.name);
        tracing::warn!("--keep {container}/{ifname}: neither the cache nor the node has it in network {network}");
    }
}

fn report_kept(settings: &Settings, network: &NetworkConf, cached: &[Cached], survey: &Survey, nameless: &[OnNode]) {
    for found in survey.kept.iter().chain(nameless) {
        let (what, objects, name) = (name(found), found.objects.join(", "), &network.name);
        let remedy = found.id.as_ref().map_or_else(String::new, |id| {
            format!("; if its container is gone, this removes it: {}", removal_of(settings, network, cached, id))
        });
        tracing::warn!(
            "kept {what} in network {name}: {}, and this cache does not have it as valid ({objects}){remedy}",
            found.life
        );
    }
}

/// Reports attachments that are valid only because its namespace may be mounted in another mount namespace.
fn report_unmounted(
    settings: &Settings,
    network: &NetworkConf,
    cached: &[Cached],
    valid: &[AttachmentId],
    survey: &Survey,
) {
    let lives =
        |id: &AttachmentId| survey.valid.iter().any(|found| found.id.as_ref() == Some(id) && found.life == Life::Lives);
    let kept = cached.iter().filter(|entry| entry.namespace() == Namespace::Unknown && entry.is_unmounted());
    for RuntimeConf { id, netns, .. } in kept.map(|entry| &entry.attachment).filter(|it| valid.contains(&it.id)) {
        if lives(id) {
            continue;
        }
        let (AttachmentId { container_id, ifname }, name) = (id, &network.name);
        let remedy = removal_of(settings, network, cached, id);
        tracing::warn!(
            "kept {container_id}/{ifname} in network {name}: {}; if its container is gone, this removes it: {remedy}",
            unmounted(netns)
        );
    }
}

fn mistaken(network: &NetworkConf, mistake: &AttachmentId, living: &AttachmentId) -> anyhow::Error {
    anyhow::anyhow!(
        "cannot collect garbage of network {}: --keep {}/{} names no attachment of it, and {}/{}, whose container lives, is \
         not kept; nothing was changed: mend the name, or use --force",
        network.name,
        mistake.container_id,
        mistake.ifname,
        living.container_id,
        living.ifname
    )
}

fn cannot_keep(network: &NetworkConf, found: &OnNode) -> anyhow::Error {
    let objects = found.objects.join(", ");
    anyhow::anyhow!(
        "cannot keep what network {} has on the node: {objects}: {}, and its mark does not identify the attachment that it \
         belongs to; name that with --keep, or end its container (--force removes it with all else that would be kept)",
        network.name,
        found.life
    )
}

/// Container and interface, or `-`.
fn name(found: &OnNode) -> String {
    found.id.as_ref().map_or("-".to_owned(), |id| format!("{}/{}", id.container_id, id.ifname))
}

/// The fate of each attachment in the cache or on the node.
struct Plan<'a> {
    network: &'a NetworkConf,
    cached: &'a [Cached],
    survey: &'a Survey,
    /// The attachments that were to be removed, and of which objects remain.
    left: Vec<OnNode>,
}

impl Plan<'_> {
    fn is_empty(&self) -> bool {
        let Survey { valid, kept, removed, .. } = self.survey;
        self.cached.is_empty() && [valid, kept, removed].iter().all(|found| found.is_empty())
    }

    fn show(&self, valid: &[AttachmentId], [kept, deleted]: [&str; 2], shown: &mut Shown) {
        let Survey { valid: on_list, kept: beside, removed, .. } = self.survey;
        let left = |id: Option<&AttachmentId>, objects: &[String]| {
            let is_it = |left: &&OnNode| left.id.as_ref() == id && (id.is_some() || left.objects == objects);
            self.left.iter().find(is_it)
        };
        let all = || on_list.iter().chain(beside).chain(removed);
        let mut row = |id: Option<&AttachmentId>, netns: &str, is_kept: bool, objects: &[String]| {
            let left = left(id, objects);
            // Some may have been removed.
            let objects = left.map_or(objects, |left| &left.objects);
            let is_kept = is_kept || left.is_some();
            if let Some(number) = shown.left_out.as_mut().filter(|_| is_kept) {
                *number += 1;
                return;
            }
            shown.table.row([
                json!(self.network.name),
                json!(id.map_or("", |id| id.container_id.as_str())),
                json!(id.map_or("", |id| id.ifname.as_str())),
                json!(netns),
                json!(if is_kept { kept } else { deleted }),
                json!(objects),
            ]);
        };
        let is_kept =
            |id: &AttachmentId| valid.contains(id) || beside.iter().any(|found| found.id.as_ref() == Some(id));
        for cached in self.cached {
            let id = &cached.attachment.id;
            let objects = all().find(|found| found.id.as_ref() == Some(id)).map_or(&[][..], |found| &found.objects);
            row(Some(id), &cached.attachment.netns, is_kept(id), objects);
        }
        let is_cached = |id: &AttachmentId| self.cached.iter().any(|cached| cached.attachment.id == *id);
        for found in all().filter(|found| !found.id.as_ref().is_some_and(is_cached)) {
            row(found.id.as_ref(), "", !removed.contains(found), &found.objects);
        }
    }
}
