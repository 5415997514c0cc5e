//! `cnitool ipam`: the addresses of networks that use host-local.

use crate::args::{Ipam, OneAddress, Shown};
use crate::gc;
use crate::output::{Output, Table, say};
use crate::settings::Settings;
use anyhow::{Context, anyhow, bail};
use host_local::by_hand;
use host_local::conf::Removal;
use host_local::inventory::{Held, Holder, Owner, list_held, usage};
use libcni::cni_spec::{Code, ContainerId, FromAnyConf, IfName};
use libcni::inventory::{Inventory, Life, OnNode};
use libcni::{NetworkConf, conflist};
use netops::boot::Boot;
use on_node::host_locals;
use serde_json::json;

pub(crate) async fn run(settings: &Settings, words: &Ipam, output: Output) -> anyhow::Result<()> {
    let (shown, table) = match words {
        Ipam::List(shown) => (shown, list(settings, shown)?),
        Ipam::Free(shown) => (shown, free(settings, shown)?),
        Ipam::Reserve(one) => return reserve(settings, one).await,
        Ipam::Release { one, force } => return release(settings, one, *force).await,
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

fn list(settings: &Settings, shown: &Shown) -> anyhow::Result<Table> {
    let mut table = Table::new(&["network", "address", "container", "ifname", "since", "boot", "life"]);
    // Without /proc it is unknown.
    let boot = Boot::read().ok();
    for network in networks(settings, shown)? {
        let folders = on_node::stores(&network);
        if folders.is_empty() {
            continue;
        }
        let on_node = gc::node().list(&network, &[])?;
        for folder in folders {
            let held = list_held(&folder);
            for held in held.with_context(|| format!("cannot read store {}", folder.display()))? {
                let Held { address, owner, written } = held;
                let (life, holder) = match owner {
                    Owner::Container(holder) => (life(&on_node, &holder), Some(holder)),
                    Owner::Operator => ("reserved by hand", None),
                    Owner::Invalid => ("names no valid owner", None),
                    Owner::Unreadable => ("cannot be read", None),
                };
                let (container, ifname) = holder.unzip();
                table.row([
                    json!(network.name),
                    json!(address),
                    json!(container.as_ref().map(ContainerId::as_str)),
                    json!(ifname.flatten().as_ref().map(IfName::as_str)),
                    json!(humantime::format_rfc3339_seconds(written).to_string()),
                    json!(boot.as_ref().map(|boot| if boot.is_after(written) { "earlier" } else { "this" })),
                    json!(life),
                ]);
            }
        }
    }
    Ok(table)
}

const GONE: &str = "gone";

/// Files of the older form name no interface: any of the container's speaks for them.
fn life(on_node: &[OnNode], (container, ifname): &Holder) -> &'static str {
    let is_it = |found: &&OnNode| {
        let Some(id) = &found.id else { return false };
        id.container_id == *container && ifname.as_ref().is_none_or(|ifname| id.ifname == *ifname)
    };
    match on_node.iter().filter(is_it).map(|found| found.life).max() {
        Some(Life::Lives) => "lives",
        Some(Life::Young) => "young",
        Some(Life::Gone) => GONE,
        Some(Life::Unknown) | None => "unknown",
    }
}

fn free(settings: &Settings, shown: &Shown) -> anyhow::Result<Table> {
    let mut table = Table::new(&["network", "set", "first", "last", "total", "used", "free"]);
    for network in networks(settings, shown)? {
        for object in host_locals(&network) {
            let usage = usage(&object);
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

async fn reserve(settings: &Settings, one: &OneAddress) -> anyhow::Result<()> {
    let network = settings.network(&one.network)?;
    let mut refused = anyhow!("network {} does not use host-local", network.name);
    // Of several plugins, the one that has the address in a range.
    for object in host_locals(&network) {
        match by_hand::reserve(&object, one.address, settings.timeout).await {
            Ok(()) => return Ok(()),
            Err(error) if error.code == Code::INVALID_CONFIG => refused = error.into(),
            Err(error) => {
                refused = error.into();
                break;
            }
        }
    }
    Err(refused).with_context(|| format!("cannot reserve {} in network {}", one.address, network.name))
}

/// Only what belongs to no container that lives, unless forced: the container would go on with an address that another one gets.
async fn release(settings: &Settings, one: &OneAddress, is_forced: bool) -> anyhow::Result<()> {
    let network = settings.network(&one.network)?;
    let failed = || format!("cannot release {} in network {}", one.address, network.name);
    for object in host_locals(&network) {
        let folder = Removal::from_any_conf(&object).place.folder;
        let held = list_held(&folder).with_context(failed)?.into_iter().find(|held| held.address == one.address);
        let Some(held) = held else { continue };
        let file = || folder.join(one.address.to_string()).display().to_string();
        match &held.owner {
            Owner::Unreadable => bail!("{}: {} cannot be read, so its owner is unknown", failed(), file()),
            Owner::Invalid if !is_forced => {
                bail!("{}: {} names no valid owner, so it is unknown; --force releases it", failed(), file())
            }
            Owner::Container(holder) if !is_forced => {
                let life = life(&gc::node().list(&network, &[])?, holder);
                if life != GONE {
                    bail!("{}: container {} holds it ({life}); DEL releases it, or --force", failed(), holder.0);
                }
            }
            Owner::Container(_) | Owner::Operator | Owner::Invalid => (),
        }
        return by_hand::release(&object, &held, settings.timeout).await.with_context(failed);
    }
    bail!("{}: it is not held", failed())
}
