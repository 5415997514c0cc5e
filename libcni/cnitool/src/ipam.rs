//! `cnitool ipam`: the addresses of networks that use host-local.

use crate::args::{Ipam, Shown};
use crate::gc;
use crate::output::{Output, Table, say};
use crate::settings::Settings;
use anyhow::Context;
use host_local::inventory::{self, Held};
use libcni::cni_spec::{ConfObject, ContainerId, IfName};
use libcni::inventory::{Inventory, Life, OnNode};
use libcni::{NetworkConf, conflist};
use serde_json::json;

pub(crate) fn print(settings: &Settings, words: &Ipam, output: Output) -> anyhow::Result<()> {
    let (shown, table) = match words {
        Ipam::List(shown) => (shown, list(settings, shown)?),
        Ipam::Free(shown) => (shown, free(settings, shown)?),
    };
    if shown.csv { say(table.to_csv().as_bytes()) } else { output.table(&table) }
}

/// The networks that are named, or all of the folder. A file that cannot be used is reported, and hides no other.
fn networks(settings: &Settings, shown: &Shown) -> anyhow::Result<Vec<NetworkConf>> {
    if !shown.networks.is_empty() {
        return shown.networks.iter().map(|name| settings.network(name)).collect();
    }
    let mut networks: Vec<NetworkConf> = Vec::new();
    for path in conflist::search_order(&settings.conf_dir)? {
        match NetworkConf::read(&path) {
            Ok(network) if networks.iter().any(|earlier| earlier.name == network.name) => (),
            Ok(network) => networks.push(network),
            Err(error) => tracing::warn!("{}", error.with_causes()),
        }
    }
    Ok(networks)
}

/// What the plugins of a network with host-local get on stdin.
fn host_locals(network: &NetworkConf) -> Vec<ConfObject> {
    let objects = (0..network.plugins.len()).filter_map(|index| network.plugin_conf(index));
    let objects = objects.filter_map(|bytes| ConfObject::parse(&bytes).ok());
    objects
        .filter(|object| object.ipam_type().is_ok_and(|ipam| ipam.is_some_and(|ipam| ipam.as_str() == "host-local")))
        .collect()
}

fn list(settings: &Settings, shown: &Shown) -> anyhow::Result<Table> {
    let mut table = Table::new(&["network", "address", "container", "ifname", "since", "life"]);
    for network in networks(settings, shown)? {
        let name = network.network_name()?;
        let objects = host_locals(&network);
        let ipams = objects.iter().filter_map(|object| object.value().get("ipam").map(ToString::to_string));
        let mut folders: Vec<_> = ipams.filter_map(|ipam| inventory::folder(&name, &ipam)).collect();
        folders.dedup();
        if folders.is_empty() {
            continue;
        }
        let on_node = gc::node().list(&network, &[])?;
        for folder in folders {
            let held = inventory::list_held(&folder);
            for held in held.with_context(|| format!("cannot read store {}", folder.display()))? {
                let life = held.holder.as_ref().map(|holder| life(&on_node, holder));
                let Held { address, holder, written } = held;
                let (container, ifname) = holder.unzip();
                table.row([
                    json!(network.name),
                    json!(address),
                    json!(container.as_ref().map(ContainerId::as_str)),
                    json!(ifname.flatten().as_ref().map(IfName::as_str)),
                    json!(humantime::format_rfc3339_seconds(written).to_string()),
                    json!(life.unwrap_or("reserved by hand")),
                ]);
            }
        }
    }
    Ok(table)
}

/// Files of the older form name no interface: any of the container's speaks for them.
fn life(on_node: &[OnNode], (container, ifname): &(ContainerId, Option<IfName>)) -> &'static str {
    let is_it = |found: &&OnNode| {
        let Some(id) = &found.id else { return false };
        id.container_id == *container && ifname.as_ref().is_none_or(|ifname| id.ifname == *ifname)
    };
    match on_node.iter().filter(is_it).map(|found| found.life).max() {
        Some(Life::Lives) => "lives",
        Some(Life::Young) => "young",
        Some(Life::Gone) => "gone",
        Some(Life::Unknown) | None => "unknown",
    }
}

fn free(settings: &Settings, shown: &Shown) -> anyhow::Result<Table> {
    let mut table = Table::new(&["network", "set", "first", "last", "total", "used", "free"]);
    for network in networks(settings, shown)? {
        for object in host_locals(&network) {
            let usage = inventory::usage(&object);
            for range in usage.with_context(|| format!("cannot count the addresses of network {}", network.name))? {
                // More digits than JSON's readers keep: as text.
                let number =
                    |number: u128| u64::try_from(number).map_or_else(|_| json!(number.to_string()), |n| json!(n));
                let free = range.total.saturating_sub(range.used);
                table.row([
                    json!(network.name),
                    json!(range.set),
                    json!(range.first),
                    json!(range.last),
                    number(range.total),
                    number(range.used),
                    number(free),
                ]);
            }
        }
    }
    Ok(table)
}
