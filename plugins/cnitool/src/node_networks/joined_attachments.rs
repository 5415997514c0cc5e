//! What cache, marks, reservations and namespaces say of each attachment of a network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bandwidth::ifb;
use host_local::inventory::{Held, Owner, list_held, usage, usage_of};
use interface::alias;
use libcni::cni_spec::{self, AddResult, ContainerId, IfName, NetworkName, SpecVersion, json};
use libcni::inventory::Life;
use libcni::{AttachmentId, Cached, CapabilityArgs, Namespace, NetworkConf, PluginObject};
use netops::link::{self, Kind, Link, Mac};
use netops::{Kernel, Netns, veth_peer};
use on_node::networks::Known;
use on_node::{Requests, Seen};
use serde_json::Value;

use crate::dropped_packets::way_to_container::sets;
use crate::node_networks::host_objects::Host;
use crate::node_networks::networks_to_show::OnNode;
use crate::node_networks::{
    Asked, Attachment, Forward, IsDefault, Limits, Maker, Network, OfCluster, Origin, Protocol, Shared, leads_to,
};

/// Joins what is known of one network. `marked` gets the indexes of the host links that are its own.
pub(crate) fn join(found: &OnNode, host: &Host, marked: &mut BTreeSet<u32>, unseen: &mut Vec<String>) -> Network {
    let OnNode { known, seen } = found;
    let Known { conf, requests, origin, cached } = known;
    let is_read = seen.is_ok();
    let seen = seen.as_ref().map_or_else(|_| Vec::new(), Clone::clone);
    marked.extend(seen.iter().flat_map(|seen| seen.links.iter().map(|link| link.index)));
    let nameless = seen.iter().filter(|seen| seen.id.is_none()).flat_map(|seen| {
        let links = seen.links.iter().map(|link| format!("link {}", link.name));
        let rules = seen.rules.iter().map(ToString::to_string);
        links.chain(rules).chain(seen.others.iter().cloned()).map(|object| format!("{object} ({})", seen.life))
    });
    let nameless = nameless.collect();
    let attachments: Vec<Attachment> = match conf.network_name() {
        Ok(name) => pairs(seen, cached).into_iter().map(|pair| attachment(&name, pair, host)).collect(),
        Err(_) => Vec::new(),
    };
    let types = conf.plugins.iter().map(|plugin| plugin.plugin_type.as_str().to_owned());
    let (by_hand, unreadable) = without_owner(requests);
    Network {
        name: conf.name.clone(),
        origin: origin.clone(),
        is_default: IsDefault::No,
        // Without a configuration they are unknown.
        plugins: if *origin == Origin::Traces { Vec::new() } else { types.collect() },
        links: shared(conf, &attachments, host),
        ranges: ranges(known, unseen),
        cluster: of_cluster(requests),
        by_hand,
        unreadable,
        attachments,
        is_read,
        masquerades: matches!(origin, Origin::File(_)) && sets(conf, "ipMasq"),
        faults: Vec::new(),
        nameless,
    }
}

type Halves<'a> = (Option<Seen>, Option<&'a Cached>);
type Pair<'a> = (AttachmentId, Option<Seen>, Option<&'a Cached>);

fn pairs(seen: Vec<Seen>, cached: &[Cached]) -> Vec<Pair<'_>> {
    let mut pairs: BTreeMap<(ContainerId, IfName), Halves<'_>> = BTreeMap::new();
    let key = |id: &AttachmentId| (id.container_id.clone(), id.ifname.clone());
    for seen in seen {
        let Some(key) = seen.id.as_ref().map(key) else { continue };
        pairs.entry(key).or_default().0 = Some(seen);
    }
    for entry in cached {
        pairs.entry(key(&entry.attachment.id)).or_default().1 = Some(entry);
    }
    let id = |(container_id, ifname)| AttachmentId { container_id, ifname };
    pairs.into_iter().map(|(key, (seen, cached))| (id(key), seen, cached)).collect()
}

fn attachment(network: &NetworkName, (id, seen, cached): Pair<'_>, host: &Host) -> Attachment {
    // An entry with an unreadable result is still an attachment.
    let result = cached.and_then(|cached| cached.result(SpecVersion::V0_1_0).ok().flatten()).unwrap_or_default();
    let reserved = seen.iter().flat_map(|seen| seen.reserved.iter());
    let times = reserved.clone().map(|(_, given)| *given).chain(cached.and_then(Cached::written));
    let since = times.min();
    let mut addresses: BTreeSet<IpAddr> = reserved.map(|(address, _)| *address).chain(ips(&result)).collect();
    // Rules tell what reservation and cache have lost.
    let by_rules = seen.iter().flat_map(|seen| seen.addresses.iter().copied());
    let is_lost = |address: &IpAddr| addresses.iter().all(|known| known.is_ipv4() != address.is_ipv4());
    let lost: Vec<IpAddr> = by_rules.filter(is_lost).collect();
    addresses.extend(lost);
    let addresses: Vec<IpAddr> = addresses.into_iter().collect();
    let mut links: Vec<Link> = seen.iter().flat_map(|seen| seen.links.iter().cloned()).collect();
    let mut netns = cached.map_or(String::new(), |cached| cached.attachment.netns.clone());
    let namespace = cached.map_or(Namespace::Gone, |cached| cached.namespace());
    let own = id.to(network);
    let mut maker = if links.is_empty() { Maker::Unknown } else { Maker::ThisSuite };
    let mut is_elsewhere = leads_elsewhere(&links, &netns, host);
    if maker == Maker::Unknown && namespace == Namespace::Present {
        match inside(&own, &netns, &result, host) {
            Inside::Own(found, ends) => (maker, links) = (found, ends),
            Inside::OfAnother => is_elsewhere = true,
            Inside::Unknown => {}
        }
    }
    let by_cache = match namespace {
        Namespace::Present => Life::Lives,
        Namespace::Unknown => Life::Unknown,
        Namespace::Gone => Life::Gone,
    };
    let life = seen.as_ref().map_or(by_cache, |seen| seen.life.max(by_cache));
    // Another container has the path: what is in its namespace says nothing of this one.
    if life != Life::Gone && (is_elsewhere || namespace == Namespace::Gone) {
        netns.clear();
    }
    let shaper = ifb::names(&own).into_iter().find_map(|name| host.find(&name));
    let asked = cached.map(|cached| asked(&cached.attachment.capability_args)).unwrap_or_default();
    // Another attachment may have the same address.
    let is_its = |forward: &&Forward| {
        let is_asked = |asked: &Asked| (asked.protocol, asked.port) == (forward.protocol, forward.port);
        leads_to(&addresses, forward.to) && (forward.is_of(&own) || asked.iter().any(is_asked))
    };
    Attachment {
        ports: host.forwards.iter().filter(is_its).cloned().collect(),
        limits: Limits {
            to_bytes: links.iter().find_map(|link| host.rate_bytes(link)),
            from_bytes: shaper.and_then(|link| host.rate_bytes(link)),
        },
        links: links.iter().map(|link| host.host_link(link)).collect(),
        faults: Vec::new(),
        life,
        others: seen.as_ref().map(|seen| seen.others.clone()).unwrap_or_default(),
        rules: seen.map(|seen| seen.rules).unwrap_or_default(),
        is_complete: cached.map(Cached::is_complete),
        conf: cached.and_then(|cached| cached.network_conf().ok()),
        asked,
        result,
        // `look` names all, once it knows them.
        name: String::new(),
        pod: None,
        id,
        netns,
        addresses,
        since,
        maker,
    }
}

/// The ports of the node that a runtime asked for. What the plugin refuses is none.
fn asked(args: &CapabilityArgs) -> Vec<Asked> {
    let mappings = args.find("portMappings").and_then(|text| json::parse(text.as_bytes()).ok());
    let asked = |mapping: &Value| {
        let text = |key| json::member(mapping, key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let name = text("protocol").unwrap_or("tcp").to_lowercase();
        let address: Option<IpAddr> = text("hostIP").and_then(|text| text.parse().ok());
        Some(Asked {
            protocol: Protocol::ALL.into_iter().find(|protocol| protocol.name() == name)?,
            address: address.filter(|address| !address.is_unspecified()),
            port: u16::try_from(json::member(mapping, "hostPort")?.as_u64()?).ok().filter(|port| *port != 0)?,
        })
    };
    mappings.as_ref().and_then(Value::as_array).into_iter().flatten().filter_map(asked).collect()
}

fn ips(result: &AddResult) -> impl Iterator<Item = IpAddr> + '_ {
    result.ips.iter().map(|ip| ip.address.ip())
}

/// Whether a path leads to another namespace than that of the container whose links on the host these are.
fn leads_elsewhere(links: &[Link], netns: &str, host: &Host) -> bool {
    let end = links.iter().find(|link| link.kind == Kind::Veth);
    let leads_there = || veth_peer::names(end?, host.kernel.as_ref()?, &Netns::open(netns).ok()?).ok();
    leads_there() == Some(false)
}

/// The interface in the namespace that an attachment's path leads to.
enum Inside {
    /// The attachment's, with its end on the host if it has one.
    Own(Maker, Vec<Link>),
    /// Another attachment's, by its mark or its Ethernet address: the path is that of another container now.
    OfAnother,
    /// There is none, or it cannot be read.
    Unknown,
}

/// Looks into the container for its interface.
fn inside(own: &cni_spec::Attachment, netns: &str, result: &AddResult, host: &Host) -> Inside {
    let look = || {
        let kernel = host.kernel.as_ref()?;
        let netns = Netns::open(netns).ok()?;
        if netns.is_current().ok()? {
            return None;
        }
        let inside = Kernel::in_netns(&netns).ok()?;
        let link = link::find(&inside, own.ifname.as_str()).ok()??;
        let is_marked = link.alias.as_deref() == Some(alias::of(own).as_str());
        if !is_marked && is_of_another(&link, own, result) {
            return Some(Inside::OfAnother);
        }
        let end = veth_peer::find_host_end(kernel, &inside, &netns, &link).ok().flatten();
        let maker = if is_marked { Maker::ThisSuite } else { Maker::Reference };
        Some(Inside::Own(maker, end.into_iter().collect()))
    };
    look().unwrap_or(Inside::Unknown)
}

/// Whether a link without the attachment's mark has another Ethernet address than ADD reported, or the mark of another container.
fn is_of_another(link: &Link, own: &cni_spec::Attachment, result: &AddResult) -> bool {
    let is_own = |entry: &&cni_spec::Interface| !entry.sandbox.is_empty() && entry.name == own.ifname.as_str();
    let mac: Option<Mac> = result.interfaces.iter().find(is_own).and_then(|entry| entry.mac.parse().ok());
    // Multus' network and the one that it called have one interface, and a long mark is a hash.
    let is_mark_of_another = |alias: &str| {
        alias::is_marked(link)
            && !alias.contains('#')
            && !alias.ends_with(&format!("/{}/{}", own.container_id, own.ifname))
    };
    match mac {
        Some(mac) => link.mac != Some(mac),
        None => link.alias.as_deref().is_some_and(is_mark_of_another),
    }
}

/// The bridges and masters that the plugins name, and those that the attachments' links have.
fn shared(conf: &NetworkConf, attachments: &[Attachment], host: &Host) -> Vec<Shared> {
    let named = conf.plugins.iter().filter_map(named_link);
    let masters =
        attachments.iter().flat_map(|attachment| attachment.links.iter().filter_map(|link| link.master.clone()));
    let names: BTreeSet<String> = named.chain(masters).collect();
    names.iter().filter_map(|name| host.shared(name)).collect()
}

/// The bridge of a plugin `bridge`, with the reference's default; the master of others.
fn named_link(plugin: &PluginObject) -> Option<String> {
    let key = if on_node::plugin_of(plugin.plugin_type.as_str()) == "bridge" { "bridge" } else { "master" };
    let value = plugin.find(key).and_then(|text| json::parse(text.as_bytes()).ok());
    let name = value.as_ref().and_then(|value| value.as_str()).filter(|name| !name.is_empty()).map(str::to_owned);
    let default = || (on_node::plugin_of(plugin.plugin_type.as_str()) == "bridge").then(|| "cni0".to_owned());
    name.or_else(default)
}

fn ranges(known: &Known, unseen: &mut Vec<String>) -> Vec<host_local::inventory::Usage> {
    if known.origin == Origin::Traces {
        return Vec::new();
    }
    let mut ranges = Vec::new();
    for object in known.requests.host_locals() {
        match usage(object) {
            Ok(found) => ranges.extend(found),
            Err(error) => unseen.push(format!("the ranges of network {}: {error}", known.conf.name)),
        }
    }
    for object in known.requests.clusters() {
        let of = on_node::memory(object).unwrap_or_default();
        match usage_of(object, Some(&of.memory.held())) {
            Ok(found) => ranges.extend(found),
            Err(error) => unseen.push(format!("the runs of network {}: {error}", known.conf.name)),
        }
    }
    ranges
}

/// What the node knows of the nodes that share a network's addresses.
fn of_cluster(requests: &Requests) -> Option<OfCluster> {
    let object = requests.clusters().next()?;
    let view = on_node::memory(object)?;
    let count = |spans| usage_of(object, spans).map(|found| found.iter().map(|one| one.used).sum::<u128>()).ok();
    let in_no_run = count(None)?.saturating_sub(count(Some(&view.memory.held()))?);
    Some(OfCluster { in_no_run, view })
}

/// The addresses that an operator holds, and those whose owner cannot be read, or is none. A folder that cannot be read is reported by the
/// look at reservations.
fn without_owner(requests: &Requests) -> (Vec<IpAddr>, Vec<IpAddr>) {
    let held = requests.stores().into_iter().filter_map(|folder| list_held(&folder).ok()).flatten();
    let (by_hand, unreadable): (Vec<_>, Vec<_>) =
        held.filter(|held| held.holder().is_none()).partition(|held| held.owner == Owner::Operator);
    let address = |held: Held| held.address;
    (by_hand.into_iter().map(address).collect(), unreadable.into_iter().map(address).collect())
}
