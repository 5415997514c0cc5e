//! `cnitool ipam`: the addresses of networks that use host-local.

use crate::args::{Ipam, OneAddress, Shown};
use crate::error_remedies::{Remedy, or_be_root, refused};
use crate::output::{Output, Table, say};
use crate::settings::Settings;
use crate::settings::container_id_and_netns::one_of;
use anyhow::{Context, anyhow};
use host_local::inventory::{self, Held, Holder, Owner, list_held, usage};
use libcni::cni_spec::{Code, ContainerId, IfName};
use libcni::inventory::Life;
use libcni::{AttachmentId, Cached, Namespace};
use netops::boot::Boot;
use on_node::networks::{Known, Origin};
use on_node::{Requests, Seen};
use serde_json::json;
use std::net::IpAddr;

pub(crate) async fn run(settings: &Settings, words: &Ipam, output: Output) -> anyhow::Result<()> {
    let (shown, table) = match words {
        Ipam::List(shown) => (shown, list(settings, shown, output)?),
        Ipam::Free(shown) => (shown, free(settings, shown, output)?),
        Ipam::Reserve(one) => return reserve(settings, one).await,
        Ipam::Release { network, address, force } => return release(settings, network, address, *force).await,
    };
    if shown.csv { say(table.to_csv().as_bytes()) } else { output.table(&table) }
}

/// The networks that are named, or all that the node knows.
fn networks(settings: &Settings, shown: &Shown) -> anyhow::Result<Vec<Known>> {
    match shown.networks.is_empty() {
        true => settings.networks(),
        false => shown.networks.iter().map(|name| settings.known(name)).collect(),
    }
}

fn list(settings: &Settings, shown: &Shown, output: Output) -> anyhow::Result<Table> {
    let mut table =
        Table::new(&["network", "address", "container", "ifname", "since", "boot", "life"]).named(settings.names());
    // Without /proc it is unknown.
    let boot = Boot::read().ok();
    for known in networks(settings, shown)? {
        let (network, mut count) = (&known.conf, 0);
        let folders = known.requests.stores();
        let on_node = if folders.is_empty() { Vec::new() } else { settings.inventory.look(&known.requests, &[])? };
        for folder in &folders {
            let held = list_held(folder);
            for held in held.with_context(|| format!("cannot read store {}", folder.display()))? {
                count += 1;
                let Held { address, owner, written } = held;
                let (life, holder) = match owner {
                    Owner::Container(holder) => (life(&on_node, &known.cached, &holder), Some(holder)),
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
        if !shown.networks.is_empty() && count == 0 {
            let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
            output.note(&match folders.is_empty() {
                true => format!("network {} has no addresses of host-local", network.name),
                false => format!("network {}: no address is reserved in {}", network.name, folders.join(", ")),
            });
        }
    }
    Ok(table)
}

const GONE: &str = "gone";

/// The state of a reservation's container, by the node and the cache. Files of the older form name no interface: each of the
/// container's counts.
fn life(on_node: &[Seen], cached: &[Cached], (container, ifname): &Holder) -> &'static str {
    let is_it =
        |id: &AttachmentId| id.container_id == *container && ifname.as_ref().is_none_or(|ifname| id.ifname == *ifname);
    let seen = on_node.iter().filter(|found| found.id.as_ref().is_some_and(is_it)).map(|found| found.life);
    let by_cache =
        cached.iter().filter(|entry| is_it(&entry.attachment.id)).filter_map(|entry| match entry.namespace() {
            Namespace::Present => Some(Life::Lives),
            Namespace::Unknown => Some(Life::Unknown),
            Namespace::Gone => None,
        });
    match seen.chain(by_cache).max() {
        Some(Life::Lives) => "lives",
        Some(Life::Young) => "young",
        Some(Life::Gone) => GONE,
        Some(Life::Unknown) | None => "unknown",
    }
}

fn free(settings: &Settings, shown: &Shown, output: Output) -> anyhow::Result<Table> {
    let mut table = Table::new(&["network", "set", "first", "last", "total", "used", "free"]);
    for Known { conf: network, requests, origin, .. } in networks(settings, shown)? {
        // Of one that has only left traces the ranges are unknown.
        let objects: Vec<_> = requests.host_locals().filter(|_| origin != Origin::Traces).collect();
        if objects.is_empty() && (!shown.networks.is_empty() || !requests.stores().is_empty()) {
            output.note(&format!(
                "network {}: no configuration names ranges of host-local; cnitool ipam list {0} shows the addresses in use",
                network.name
            ));
        }
        for object in objects {
            let usage = usage(object);
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
    let mut last = anyhow!("no plugin of network {} names host-local, so its ranges are unknown", network.name);
    // Of several plugins, the one that has the address in a range.
    for object in Requests::of(&network).host_locals() {
        match inventory::reserve(object, one.address, settings.timeout).await {
            Ok(()) => return Ok(()),
            Err(error) if error.code == Code::INVALID_CONFIG => last = error.into(),
            Err(error) => {
                last = error.into();
                break;
            }
        }
    }
    let refused = Err(last).with_context(|| format!("cannot reserve {} in network {}", one.address, network.name));
    refused.remedy(|| {
        format!("cnitool ipam free {0} shows the ranges, cnitool ipam list {0} who has which address.", network.name)
    })
}

/// Only what belongs to no container that lives, unless forced: the container would go on with an address that another one gets.
async fn release(settings: &Settings, network: &str, word: &str, is_forced: bool) -> anyhow::Result<()> {
    let known = settings.known(network)?;
    if let Ok(address) = word.parse() {
        return release_address(settings, &known, address, is_forced).await;
    }
    // Reservations also name containers that the cache has forgotten.
    let mut names = settings.names();
    let stores = known.requests.stores();
    let held: Vec<Held> = stores.iter().flat_map(|folder| list_held(folder).unwrap_or_default()).collect();
    let holder = |held: &Held| match &held.owner {
        Owner::Container((container, _)) => Some(container.clone()),
        Owner::Operator | Owner::Invalid | Owner::Unreadable => None,
    };
    held.iter().filter_map(holder).for_each(|container| names.add(&container, None));
    let container = one_of(&names, word)?;
    let addresses: Vec<IpAddr> =
        held.iter().filter(|held| container.is_some() && holder(held) == container).map(|held| held.address).collect();
    if addresses.is_empty() {
        let msg =
            format!("cannot release {word} in network {}: no container of this name has an address", known.conf.name);
        return Err(refused(Code::STATE, msg, "cnitool ipam list shows the addresses that are reserved."));
    }
    for address in addresses {
        release_address(settings, &known, address, is_forced).await?;
    }
    Ok(())
}

async fn release_address(settings: &Settings, known: &Known, address: IpAddr, is_forced: bool) -> anyhow::Result<()> {
    let Known { conf: network, requests, cached, .. } = known;
    let failed = || format!("cannot release {address} in network {}", network.name);
    let no = |reason: String, help: &str| refused(Code::STATE, format!("{}: {reason}", failed()), help);
    for object in requests.holders() {
        let folder = on_node::store(object);
        let held = list_held(&folder).with_context(failed)?.into_iter().find(|held| held.address == address);
        let Some(held) = held else { continue };
        let file = || folder.join(address.to_string()).display().to_string();
        match &held.owner {
            Owner::Unreadable => {
                return Err(no(
                    format!("{} cannot be read, so its owner is unknown", file()),
                    &or_be_root("Make it a file that can be read, or remove it."),
                ));
            }
            Owner::Invalid if !is_forced => {
                return Err(no(format!("{} names no valid owner", file()), "--force releases it."));
            }
            Owner::Container(holder) if !is_forced => {
                let life = life(&settings.inventory.look(requests, &[])?, cached, holder);
                if life != GONE {
                    let what = format!("it is reserved for container {}, whose state is: {life}", holder.0);
                    let help =
                        "DEL of the container releases it. --force does so at once, also while the container uses it.";
                    return Err(no(what, help));
                }
            }
            Owner::Container(_) | Owner::Operator | Owner::Invalid => (),
        }
        return inventory::release(object, &held, settings.timeout).await.with_context(failed);
    }
    Err(no("it is not reserved".to_owned(), "cnitool ipam list shows the addresses that are."))
}
