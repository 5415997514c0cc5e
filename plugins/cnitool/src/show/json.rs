//! The node's networks for programs. Names are stable; keys may be added.

use std::time::SystemTime;

use serde_json::{Value, json};

use crate::node_networks::{Attachment, IsDefault, Network, Origin, PodName, Shared, View, word};

pub(crate) fn value(view: &View) -> Value {
    json!({
        "at": time(view.at),
        "host": view.host,
        "waysOut": view.ways_out,
        "networks": view.networks.iter().map(network).collect::<Vec<_>>(),
        "unowned": view.unowned,
        "unseen": view.unseen,
    })
}

fn network(network: &Network) -> Value {
    let (known_from, file) = match &network.origin {
        Origin::File(path) => ("file", Some(path.display().to_string())),
        Origin::Cache => ("cache", None),
        Origin::Traces => ("traces", None),
    };
    let range = |range: &host_local::inventory::Usage| {
        json!({"set": range.set, "first": range.first, "last": range.last, "total": number(range.total),
            "used": number(range.used), "free": number(range.total.saturating_sub(range.used))})
    };
    json!({
        "name": network.name, "knownFrom": known_from, "file": file, "default": network.is_default != IsDefault::No, "plugins": network.plugins,
        "links": network.links.iter().map(shared).collect::<Vec<_>>(),
        "ranges": network.ranges.iter().map(range).collect::<Vec<_>>(),
        "heldByHand": network.by_hand,
        "unreadable": network.unreadable,
        "attachments": network.attachments.iter().map(attachment).collect::<Vec<_>>(),
        "faults": network.faults,
        "unnamed": network.nameless,
    })
}

fn shared(link: &Shared) -> Value {
    json!({"name": link.name, "kind": link.kind, "up": link.up, "mtu": link.mtu_bytes, "addresses": link.addresses,
        "ports": link.ports})
}

pub(crate) fn attachment(attachment: &Attachment) -> Value {
    let link = |link: &crate::node_networks::HostLink| json!({"name": link.name, "master": link.master, "up": link.up});
    let port = |port: &crate::node_networks::Forward| {
        json!({"protocol": port.protocol.name(), "hostAddress": port.address, "hostPort": port.port,
            "containerPort": port.to.port(), "conditional": port.is_conditional})
    };
    json!({
        "container": attachment.id.container_id.as_str(), "ifname": attachment.id.ifname.as_str(),
        "name": attachment.name, "pod": attachment.pod.as_ref().map(PodName::to_json),
        "netns": Some(&attachment.netns).filter(|netns| !netns.is_empty()),
        "addresses": attachment.addresses,
        "links": attachment.links.iter().map(link).collect::<Vec<_>>(),
        "ports": attachment.ports.iter().map(port).collect::<Vec<_>>(),
        "toBitsPerSecond": attachment.limits.to_bytes.map(|bytes| number(u128::from(bytes) * 8)),
        "fromBitsPerSecond": attachment.limits.from_bytes.map(|bytes| number(u128::from(bytes) * 8)),
        "rules": attachment.rules.iter().map(ToString::to_string).collect::<Vec<_>>(), "others": attachment.others, "since": attachment.since.map(time), "maker": attachment.maker.as_str(),
        "life": word(attachment.life), "faults": attachment.faults, "complete": attachment.is_complete,
    })
}

fn time(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()
}

/// A number of more digits than JSON's readers keep is a text.
fn number(number: u128) -> Value {
    u64::try_from(number).map_or_else(|_| json!(number.to_string()), |number| json!(number))
}
