//! The parts of which cases are made, out of `keys.json`: plugins, their keys, and earlier state of the node.
//!
//! A key is its path, values that are right, and values that are refused or that only one of the two plugins may accept; a path alone
//! is a switch. Each node has `dev1` and `dev2`, and the masters `up0` and `up1`; `{pod}` is the pod's number.

use serde_json::{Value, json};
use std::sync::LazyLock;

pub(crate) struct Plugin {
    pub(crate) name: &'static str,
    pub(crate) is_ipam: bool,
    /// The source of addresses. For some plugins the wrong value is to have none.
    pub(crate) ipam: Key,
    pub(crate) keys: Vec<Key>,
}

pub(crate) struct Key {
    pub(crate) path: String,
    pub(crate) right: Vec<Value>,
    pub(crate) wrong: Vec<Value>,
}

static PARTS: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(include_str!("keys.json")).unwrap());

fn key(part: &Value) -> Key {
    let switch = json!([part, [true, true, true, false, null], ["true", 1]]);
    let whole = if part.is_string() { switch } else { part.clone() };
    let (path, right, wrong) = serde_json::from_value(whole).unwrap();
    Key { path, right, wrong }
}

fn list<T>(part: &'static Value, each: fn(&'static Value) -> T) -> Vec<T> {
    part.as_array().unwrap().iter().map(each).collect()
}

fn texts(part: &'static Value) -> Vec<&'static str> {
    list(part, |text| text.as_str().unwrap())
}

pub(crate) fn plugins() -> Vec<Plugin> {
    list(&PARTS["plugins"], |part| Plugin {
        name: part["name"].as_str().unwrap(),
        is_ipam: part["is_ipam"] == true,
        ipam: key(part.get("ipam").unwrap_or(&PARTS["ipam"])),
        keys: list(&part["keys"], key),
    })
}

pub(crate) fn version() -> Key {
    key(&PARTS["version"])
}

/// Keys that all plugins have, or that a runtime sets.
pub(crate) fn common() -> Vec<Key> {
    list(&PARTS["common"], key)
}

/// `CNI_ARGS`.
pub(crate) fn args() -> Vec<&'static str> {
    texts(&PARTS["args"])
}

/// Shell commands that may have run on the node before. At most one of each row is used.
pub(crate) fn before() -> Vec<Vec<&'static str>> {
    list(&PARTS["before"], texts)
}

/// The chain, which is no plugin: bridge, and behind it those of [`CHAINED`] for which the config has an object. All else in the config is
/// bridge's.
pub(crate) const CHAIN: &str = "chain";

/// In the order of ADD.
const CHAINED: [&str; 4] = ["portmap", "firewall", "tuning", "bandwidth"];

/// The parts of each chain: addresses on the bridge, and a version that the reference's firewall knows.
pub(crate) fn make_chain(config: &mut Value, version: &str) {
    config["cniVersion"] = version.into();
    config["bridge"] = "br0".into();
    config["isGateway"] = true.into();
}

pub(crate) fn steps_of_chain(config: &Value) -> Vec<(&'static str, Value)> {
    let mut of_bridge = config.clone();
    of_bridge["type"] = "bridge".into();
    let mut steps = Vec::new();
    for plugin in CHAINED {
        let own = of_bridge.as_object_mut().and_then(|config| config.remove(plugin));
        if let Some(mut own) = own.filter(Value::is_object) {
            own["type"] = plugin.into();
            ["name", "cniVersion"].into_iter().for_each(|key| own[key] = config[key].clone());
            steps.push((plugin, own));
        }
    }
    steps.insert(0, ("bridge", of_bridge));
    steps
}
