//! `cnitool list`: the attachments in the cache.

use crate::node_networks::natural;
use crate::output::{Output, Table};
use crate::settings::Settings;
use anyhow::Context;
use libcni::AttachmentId;
use libcni::cni_spec::SpecVersion;
use serde_json::json;

pub(crate) fn print(settings: &Settings, name: Option<&str>, output: Output) -> anyhow::Result<()> {
    let mut listing = settings.listing(name)?;
    let is_of = |name: &str| listing.cached.iter().any(|cached| cached.network.as_str() == name);
    let (network, container) = match name.filter(|name| !is_of(name)) {
        // A network without attachments is no error, a misspelt name is.
        Some(name) => match settings.find_container(name)? {
            Some(id) => (None, Some(id)),
            None => (Some(settings.network(name).context("the cache has no attachment of this name")?.name), None),
        },
        None => (name.map(str::to_owned), None),
    };
    listing.cached.retain(|cached| container.as_ref().is_none_or(|id| cached.attachment.id.container_id == *id));
    if let Some(id) = settings.container_id.as_ref().filter(|_| listing.cached.is_empty()) {
        output.note(&format!("the cache has no attachment of container {id}"));
    }
    let mut table =
        Table::new(&["network", "container", "ifname", "netns", "state", "add", "addresses"]).named(settings.names());
    let names = settings.names();
    listing.cached.sort_by_cached_key(|cached| {
        let AttachmentId { container_id, ifname } = &cached.attachment.id;
        (cached.network.clone(), natural(&names.name(container_id)), natural(ifname.as_str()))
    });
    for cached in
        listing.cached.iter().filter(|cached| network.as_ref().is_none_or(|name| cached.network.as_str() == name))
    {
        // An entry with an unreadable result is still an attachment.
        let result = cached.result(SpecVersion::V0_1_0).ok().flatten().unwrap_or_default();
        // A tap in the place of an interface has the interface's addresses in the result once more.
        let texts = result.ips.iter().map(|ip| ip.address.to_string());
        let addresses = texts.fold(Vec::new(), |mut all: Vec<String>, text| {
            if !all.contains(&text) {
                all.push(text);
            }
            all
        });
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
