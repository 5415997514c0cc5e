//! A case: everything that a run depends on, as JSON, so that it can be printed and run again, or a part of it.

use std::fmt;
use std::path::Path;

use serde_json::{Value, json};

use crate::keys::{self, Key};
use faults::random::Random;

/// `plugin`: the plugin that is called, or [`keys::CHAIN`]. `before`: shell commands that set up the node. `config`: the config on stdin.
/// `args`: `CNI_ARGS`. `blind`: DEL gets no prevResult.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Case(pub(crate) Value);

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Case {
    /// The case that belongs to a seed, of one of these plugins.
    pub(crate) fn random(seed: u64, names: &[&str]) -> Self {
        let mut numbers = Random::from_seed(seed);
        let mut plugins = keys::plugins();
        plugins.retain(|plugin| names.contains(&plugin.name));
        let plugin = numbers.pick(&plugins);
        let mut config = json!({"name": "net", "type": plugin.name});
        set(&mut numbers, &mut config, &keys::version());
        if plugin.is_ipam || !numbers.one_in(12) {
            set(&mut numbers, &mut config, &plugin.ipam);
        }
        // Without a device, or a master, there is nothing to compare but refusals.
        let needed = match plugin.name {
            "host-device" => 1,
            "vlan" => 2,
            _ => 0,
        };
        for key in &plugin.keys[..needed] {
            if !numbers.one_in(8) {
                set(&mut numbers, &mut config, key);
            }
        }
        let mut common = keys::common();
        if plugin.name == keys::CHAIN {
            let version = *numbers.pick(&["0.4.0", "1.0.0", "1.1.0"]);
            keys::make_chain(&mut config, version);
            common.retain(|key| key.path != "prevResult");
        }
        for (key, one_in) in plugin.keys.iter().map(|key| (key, 4)).chain(common.iter().map(|key| (key, 8))) {
            // Without an address plugin, keys below `ipam` would make one that has no type.
            if numbers.one_in(one_in) && (config["ipam"].is_object() || !key.path.starts_with("ipam.")) {
                set(&mut numbers, &mut config, key);
            }
        }
        // The commands need iproute2: without it nodes are new ones.
        let rows = if Path::new("/usr/bin/ip").exists() { keys::before() } else { Vec::new() };
        let before: Vec<_> =
            rows.iter().filter_map(|row| if numbers.one_in(6) { Some(*numbers.pick(row)) } else { None }).collect();
        let args = if numbers.one_in(6) { *numbers.pick(&keys::args()) } else { "" };
        // The reference's firewall removes nothing without prevResult.
        let blind = numbers.one_in(3) && plugin.name != keys::CHAIN;
        Self(json!({"plugin": plugin.name, "before": before, "args": args, "config": config, "blind": blind}))
    }

    pub(crate) fn parse(text: &str) -> Self {
        Self(serde_json::from_str(text).unwrap())
    }

    /// The plugin that is called, or [`keys::CHAIN`].
    pub(crate) fn plugin(&self) -> &str {
        self.0["plugin"].as_str().unwrap()
    }

    /// The commands that set up the node.
    pub(crate) fn before(&self) -> impl Iterator<Item = &str> {
        self.0["before"].as_array().into_iter().flatten().map(|command| command.as_str().unwrap())
    }

    /// The plugins that ADD calls one after the other, each with its config.
    pub(crate) fn steps(&self) -> Vec<(&str, Value)> {
        match self.plugin() {
            keys::CHAIN => keys::steps_of_chain(self.config()),
            plugin => vec![(plugin, self.config().clone())],
        }
    }

    /// The config on stdin; of a chain all configs in one.
    pub(crate) fn config(&self) -> &Value {
        &self.0["config"]
    }

    pub(crate) fn args(&self) -> &str {
        self.0["args"].as_str().unwrap_or_default()
    }

    pub(crate) fn is_blind(&self) -> bool {
        self.0["blind"] == true
    }
}

/// Sets a key. The value is sometimes wrong, and the key sometimes has other capitals.
fn set(numbers: &mut Random, config: &mut Value, key: &Key) {
    let values = if !key.wrong.is_empty() && numbers.one_in(40) { &key.wrong } else { &key.right };
    let value = numbers.pick(values).clone();
    let place = key.path.split('.').fold(config, |object, name| {
        if !object.is_object() {
            *object = json!({});
        }
        let name = if numbers.one_in(40) { name.to_uppercase() } else { name.to_owned() };
        // Go merges two objects whose keys differ only in capitals.
        let there = object.as_object().and_then(|object| {
            let is_same = |(key, value): &(&String, &Value)| value.is_object() && key.eq_ignore_ascii_case(&name);
            Some(object.iter().find(is_same)?.0.clone())
        });
        &mut object[there.unwrap_or(name)]
    });
    *place = value;
}
