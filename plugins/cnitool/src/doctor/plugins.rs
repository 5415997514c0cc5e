//! The plugins that a network's ADD calls, as JSON: those of its file, and those that plugins of other projects call by it.

use std::fs;
use std::net::IpAddr;

use cni_spec::json;
use ipnetwork::IpNetwork;
use libcni::NetworkConf;
use serde_json::{Map, Value, json};

/// The file that flannel's daemon writes, where key `subnetFile` names no other.
pub(crate) const FLANNEL_FILE: &str = "/run/flannel/subnet.env";

/// The objects of a network's file.
pub(crate) fn written(network: &NetworkConf) -> impl Iterator<Item = Value> + '_ {
    (0..network.plugins.len()).filter_map(|index| cni_spec::json::parse(&network.plugin_conf(index)?).ok())
}

/// The objects of a network's file, in place of flannel's and Multus' those of the plugins that these call.
pub(crate) fn plugins(network: &NetworkConf) -> impl Iterator<Item = Value> + '_ {
    written(network).flat_map(called)
}

/// The plugins that an object of a file stands for.
pub(crate) fn called(plugin: Value) -> Vec<Value> {
    let type_of = |plugin: &Value| text(plugin, "type").to_owned();
    match type_of(&plugin).as_str() {
        "flannel" => vec![delegate_of_flannel(&plugin).unwrap_or(plugin)],
        "multus" | "multus-shim" => {
            let all = delegates(&plugin);
            if all.is_empty() { vec![plugin] } else { all.into_iter().flat_map(called).collect() }
        }
        _ => vec![plugin],
    }
}

/// The plugins of Multus' networks.
pub(crate) fn delegates(plugin: &Value) -> Vec<Value> {
    let list = |of: &Value, key| json::member(of, key).and_then(Value::as_array).cloned().unwrap_or_default();
    let plugins = |network: Value| match json::member(&network, "plugins") {
        Some(_) => list(&network, "plugins"),
        None => vec![network],
    };
    list(plugin, "delegates").into_iter().flat_map(plugins).collect()
}

pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    json::member(value, key).and_then(Value::as_str).unwrap_or_default()
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

/// The network of an address in it.
fn whole(net: IpNetwork) -> IpNetwork {
    let network: IpAddr = net.network();
    IpNetwork::new(network, net.prefix()).unwrap_or(net)
}
