//! JSON Schemas (draft 2020-12) of networks, plugins and results: what editors and other validators check files by.
//!
//! The crate `confs` makes them from what the parsers say, in a test that fails when they differ.

use serde_json::{Map, Value};

macro_rules! schemas {
    ($($name:literal),* $(,)?) => {
        /// The schemas: of a list, of any plugin in one, of ADD's result, and of each plugin.
        pub const NAMES: &[&str] = &[$($name),*];
        const TEXTS: &[&str] = &[$(include_str!(concat!("../schemas/", $name, ".json"))),*];
    };
}
schemas!(
    "conflist",
    "plugin",
    "result",
    "bandwidth",
    "bridge",
    "dhcp",
    "dummy",
    "firewall",
    "host-device",
    "host-local",
    "ipvlan",
    "loopback",
    "macvlan",
    "portmap",
    "ptp",
    "sbr",
    "static",
    "tap",
    "tuning",
    "vlan",
    "vrf",
);

/// A schema, complete by itself: others that it refers to are in its `$defs`. `None`: there is none of this name.
#[must_use]
pub fn find(name: &str) -> Option<Value> {
    let mut whole: Value = serde_json::from_str(&text(name)?).ok()?;
    let (mut wanted, mut defs) = (referred(&whole.to_string()), Map::new());
    while let Some(name) = wanted.pop() {
        if defs.contains_key(name) {
            continue;
        }
        let text = text(name)?;
        wanted.extend(referred(&text));
        let mut definition: Map<String, Value> = serde_json::from_str(&text).ok()?;
        definition.remove("$schema");
        defs.insert(name.to_owned(), definition.into());
    }
    if !defs.is_empty() {
        whole.as_object_mut()?.insert("$defs".to_owned(), defs.into());
    }
    Some(whole)
}

/// The text of a file, with references to files as references to definitions.
fn text(name: &str) -> Option<String> {
    let at = NAMES.iter().position(|one| *one == name)?;
    let file = |name: &str| format!("\"{name}.json\"");
    let own = TEXTS.get(at)?;
    Some(NAMES.iter().fold((*own).to_owned(), |text, name| text.replace(&file(name), &format!("\"#/$defs/{name}\""))))
}

/// The definitions that a text refers to.
fn referred(text: &str) -> Vec<&'static str> {
    NAMES.iter().copied().filter(|name| text.contains(&format!("\"#/$defs/{name}\""))).collect()
}
