//! `cnitool repair`: what the node has lost of containers that live is written anew, attachment by attachment.
//! Which steps of an attachment are made again: `interface::repair`.

use crate::args::Repair as Words;
use crate::output::{Output, Table, count};
use crate::settings::Settings;
use crate::unreserved_addresses::Stores;
use anyhow::bail;
use libcni::{AttachmentId, Cached, Error, Namespace, PluginRepair, Repair, Repaired};
use serde_json::json;

/// The verdict about an attachment that is not looked at.
const ALONE: &str = "left alone";
/// The verdict about one that has lost nothing.
const AS_IT_WAS: &str = "as ADD left it";
/// The verdict about what stays as it is and must not.
const LEFT: &str = "left";

/// Repairs the attachments in the cache, the oldest first: of two containers with one host port the first keeps it.
pub(crate) async fn run(settings: &Settings, words: &Words, output: Output) -> anyhow::Result<()> {
    let named = words.network.as_ref().map(|name| settings.network_or_container(name)).transpose()?;
    let (network, container) = named.unwrap_or_default();
    let listing = settings.listing(network.as_deref())?;
    let mut cached = listing.cached;
    cached.retain(|cached| network.as_ref().is_none_or(|network| cached.network.as_str() == network));
    cached.retain(|cached| container.as_ref().is_none_or(|id| cached.attachment.id.container_id == *id));
    cached.sort_by_key(Cached::written);
    if cached.is_empty() {
        let container = settings.container_id.as_ref().map(|id| format!(" of container {id}"));
        let network = network.map(|network| format!(" in network {network}"));
        let of: String = container.into_iter().chain(network).collect();
        tracing::warn!("the cache has no attachment{of}: there is nothing to repair");
    }
    let how = if words.dry_run { Repair::Show } else { Repair::Write };
    let mut table =
        Table::new(&["network", "container", "ifname", "verdict", "plugin", "difference"]).named(settings.names());
    let (mut unrepaired, mut unchanged) = (0, 0);
    for cached in &cached {
        let mut rows = repair(settings, cached, &mut Stores::default(), how).await?;
        if words.dry_run && !output.is_json {
            rows.retain(|row| ![ALONE, AS_IT_WAS].contains(&row.verdict));
            unchanged += usize::from(rows.is_empty());
        }
        unrepaired += usize::from(rows.iter().any(|row| row.verdict == LEFT));
        let AttachmentId { container_id, ifname } = &cached.attachment.id;
        for Row { verdict, plugin, difference } in rows {
            table.row([
                json!(cached.network.as_str()),
                json!(container_id.as_str()),
                json!(ifname.as_str()),
                json!(verdict),
                json!(plugin),
                json!(difference),
            ]);
        }
    }
    output.table(&table)?;
    if unchanged > 0 {
        output.note(&format!("{} would stay as it is", count(unchanged, "attachment")));
    }
    if unrepaired > 0 {
        let all = cached.len();
        bail!(
            "{unrepaired} of {all} attachments could not be repaired, or not wholly: cnitool doctor --check names the remedies"
        );
    }
    Ok(())
}

struct Row {
    verdict: &'static str,
    plugin: String,
    difference: String,
}

impl Row {
    /// About a whole attachment.
    fn whole(verdict: &'static str, why: impl Into<String>) -> Vec<Self> {
        vec![Self { verdict, plugin: String::new(), difference: why.into() }]
    }
}

async fn repair(settings: &Settings, cached: &Cached, stores: &mut Stores, how: Repair) -> anyhow::Result<Vec<Row>> {
    match cached.namespace() {
        Namespace::Present => {}
        Namespace::Gone => return Ok(Row::whole(ALONE, "its namespace is gone")),
        Namespace::Unknown => return Ok(Row::whole(ALONE, "it cannot be determined whether its namespace exists")),
    }
    if !cached.is_complete() {
        return Ok(Row::whole(ALONE, "its ADD was not finished: run DEL, then ADD again"));
    }
    if cached.network_conf().is_ok_and(|network| network.disable_check) {
        return Ok(Row::whole(ALONE, "its network says disableCheck"));
    }
    if let Some(why) = find_other_use(cached, stores) {
        return Ok(Row::whole(LEFT, why));
    }
    match settings.runtime.unlogged().repair(cached, how).await {
        Ok(Some(plugins)) => Ok(rows(&plugins, how)),
        Ok(None) => Ok(Row::whole(ALONE, "it was deleted or added anew meanwhile")),
        // A signal ends the whole work.
        Err(error) if error.code() == Some(libcni::cni_spec::Code::INTERRUPTED) => Err(error.into()),
        Err(error) => Ok(Row::whole(LEFT, error.with_causes())),
    }
}

/// The reason for which the attachment's address is not its own any more, in a sentence: rules for the address would lead to
/// another attachment, and forward it this one's ports, now or when it is given again.
fn find_other_use(cached: &Cached, stores: &mut Stores) -> Option<String> {
    let lacking = stores.lacking(cached).into_iter().next()?;
    let of = match lacking.reserved_for {
        Some((container_id, Some(ifname))) => format!("is reserved for {container_id}/{ifname}"),
        Some((container_id, None)) => format!("is reserved for {container_id}"),
        None => "is reserved for no container, so another ADD may get it".to_owned(),
    };
    Some(format!("address {} {of}: nothing was changed", lacking.address))
}

fn rows(plugins: &[PluginRepair], how: Repair) -> Vec<Row> {
    let done = if how == Repair::Show { "would be repaired" } else { "repaired" };
    let mut rows = Vec::new();
    for PluginRepair { plugin, outcome } in plugins {
        let mut row = |verdict, difference: &str| {
            rows.push(Row { verdict, plugin: plugin.clone(), difference: difference.to_owned() });
        };
        match outcome {
            Ok(Some(Repaired { repaired, left })) => {
                repaired.iter().for_each(|difference| row(done, difference));
                left.iter().for_each(|difference| row(LEFT, difference));
            }
            Ok(None) => {
                row("not known", "the plugin is of another project and repairs nothing; its CHECK finds no difference")
            }
            Err(error) => row(LEFT, &text(error)),
        }
    }
    if rows.is_empty() { Row::whole(AS_IT_WAS, "") } else { rows }
}

/// The plugin's own words: its name is in another column.
fn text(error: &Error) -> String {
    match error {
        Error::Plugin(plugin) => plugin.error.to_string(),
        other => other.with_causes(),
    }
}
