//! `cnitool attachments`: the attachments in the cache.

use crate::output::{Output, Table};
use crate::settings::Settings;
use anyhow::Context;
use libcni::cni_spec::SpecVersion;
use serde_json::json;

/// Prints the attachments, of one network or container if requested.
pub(crate) fn print(settings: &Settings, network: Option<&str>, output: Output) -> anyhow::Result<()> {
    let listing = settings.listing(network)?;
    let is_of = |name: &str| listing.cached.iter().any(|cached| cached.network.as_str() == name);
    if let Some(name) = network.filter(|name| !is_of(name)) {
        // A network without attachments is no error, a misspelt name is.
        settings.network(name).context("the cache has no attachment of this network")?;
    }
    if let Some(id) = settings.container_id.as_ref().filter(|_| listing.cached.is_empty()) {
        output.note(&format!("the cache has no attachment of container {id}"));
    }
    let mut table =
        Table::new(&["network", "container", "ifname", "netns", "state", "add", "addresses"]).named(settings.names());
    for cached in listing.cached.iter().filter(|cached| network.is_none_or(|name| cached.network.as_str() == name)) {
        // An entry with an unreadable result is still an attachment.
        let result = cached.result(SpecVersion::V0_1_0).ok().flatten().unwrap_or_default();
        let addresses: Vec<String> = result.ips.iter().map(|ip| ip.address.to_string()).collect();
        let attachment = &cached.attachment;
        table.row([
            json!(cached.network.as_str()),
            json!(attachment.id.container_id.as_str()),
            json!(attachment.id.ifname.as_str()),
            json!(attachment.netns),
            json!(cached.namespace().as_str()),
            json!(if cached.is_complete() { "complete" } else { "incomplete" }),
            json!(addresses),
        ]);
    }
    output.table(&table)
}
