//! The plugins that plugins of other projects call by a network's file.

use std::fs;
use std::net::IpAddr;

use cni_spec::json;
use ipnetwork::IpNetwork;
use serde_json::{Map, Value, json};

use super::{Plugin, list, text};

/// The file that flannel's daemon writes, where key `subnetFile` names no other.
pub(crate) const FLANNEL_FILE: &str = "/run/flannel/subnet.env";

/// The plugins that one of a list stands for.
pub(super) fn by(plugin: &Plugin) -> Vec<Plugin> {
    let decode = |object| Plugin::decode(String::new(), object);
    let found: Vec<Plugin> = match plugin.plugin_type.as_str() {
        "flannel" => delegate_of_flannel(&plugin.object).map(decode).into_iter().collect(),
        "multus" | "multus-shim" => delegates(&plugin.object).flat_map(|object| by(&decode(object.clone()))).collect(),
        _ => Vec::new(),
    };
    if found.is_empty() { vec![plugin.clone()] } else { found }
}

/// The plugins of Multus' networks.
pub(crate) fn delegates(plugin: &Value) -> impl Iterator<Item = &Value> {
    list(plugin, "delegates").iter().flat_map(|network| match json::member(network, "plugins") {
        Some(_) => list(network, "plugins"),
        None => std::slice::from_ref(network),
    })
}

/// The bridge that flannel calls, by its key `delegate` and the file of its daemon.
fn delegate_of_flannel(plugin: &Value) -> Option<Value> {
    let file = Some(text(plugin, "subnetFile")).filter(|file| !file.is_empty()).unwrap_or(FLANNEL_FILE);
    let Subnets { subnets, mtu_bytes } = Subnets::parse(&fs::read_to_string(file).ok()?);
    let mut object: Map<String, Value> =
        json::member(plugin, "delegate").and_then(Value::as_object).cloned().unwrap_or_default();
    object.entry("type").or_insert_with(|| json!("bridge"));
    if !object.contains_key("isDefaultGateway") {
        object.entry("isGateway").or_insert_with(|| json!(true));
    }
    if let Some(mtu) = mtu_bytes {
        object.entry("mtu").or_insert_with(|| json!(mtu));
    }
    let ranges: Vec<Value> = subnets.iter().map(|net| json!([{"subnet": net.to_string()}])).collect();
    object.insert("ipam".to_owned(), json!({"type": "host-local", "ranges": ranges}));
    Some(Value::Object(object))
}

/// The contents of flannel's file.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Subnets {
    /// The node's subnets.
    pub(crate) subnets: Vec<IpNetwork>,
    pub(crate) mtu_bytes: Option<u64>,
}

impl Subnets {
    pub(crate) fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for (key, value) in text.lines().filter_map(|line| line.trim().split_once('=')) {
            match key {
                "FLANNEL_SUBNET" | "FLANNEL_IPV6_SUBNET" => found.subnets.extend(value.parse::<IpNetwork>().map(whole)),
                "FLANNEL_MTU" => found.mtu_bytes = value.parse().ok(),
                _ => {}
            }
        }
        found
    }
}

fn whole(net: IpNetwork) -> IpNetwork {
    let network: IpAddr = net.network();
    IpNetwork::new(network, net.prefix()).unwrap_or(net)
}
