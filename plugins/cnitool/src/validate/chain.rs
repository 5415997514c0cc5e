//! Plugins of one list that do not fit together.

use cni_spec::json;
use libcni::NetworkConf;
use serde_json::Value;

use crate::validate::finding::{Level, Notes, join};
use crate::validate::known::{self, Known, Role};
use crate::validate::network::base;
use crate::validate::source::Source;

/// Capabilities that runtimes have data for (CONVENTIONS, "Dynamic Plugin specific fields").
const CAPABILITIES: [&str; 11] = [
    "portMappings",
    "ipRanges",
    "bandwidth",
    "dns",
    "ips",
    "mac",
    "infinibandGUID",
    "deviceID",
    "aliases",
    "cgroupPath",
    "CNIDeviceInfoFile",
];

/// A plugin that does nothing unless a runtime gives it what this capability asks for, or the config has one of these keys.
const USELESS_WITHOUT: [(&str, &str, &[&str]); 2] =
    [("portmap", "portMappings", &[]), ("bandwidth", "bandwidth", &["ingressRate", "egressRate"])];

pub(crate) fn compare(source: &Source, network: &NetworkConf, known: &[Known], notes: &mut Notes<'_>) {
    let mut maker: Option<&str> = None;
    for (index, plugin) in network.plugins.iter().enumerate() {
        let base = base(source, index);
        let (key, name) = (join(&base, "type"), plugin.plugin_type.as_str());
        match known::find(known, name).map(|known| known.role) {
            Some(Role::Chained) if index == 0 => {
                let text = format!("{name} changes what an earlier plugin made, and stands first");
                notes.value(Level::Error, &key, text).help =
                    "Put the plugin that makes the interface before it.".to_owned();
            }
            Some(Role::Address) => {
                notes.value(Level::Error, &key, format!("{name} makes no interface")).help =
                    format!("It belongs into another plugin's ipam object: \"ipam\": {{\"type\": \"{name}\"}}.");
            }
            // ipvlan takes its master from the result before it.
            Some(Role::Interface) if name != "ipvlan" => match maker {
                Some(first) => {
                    let text = format!("{name} makes the container's interface, which {first} has made already");
                    notes.value(Level::Error, &key, text).help = "Give each interface a network of its own.".to_owned();
                }
                None => maker = Some(name),
            },
            Some(Role::Interface | Role::Chained | Role::Any) | None => (),
        }
        let value = network.plugin_conf(index).and_then(|bytes| json::parse(&bytes).ok()).unwrap_or_default();
        capabilities(&base, &value, &plugin.capabilities, notes);
        useless(&base, name, &value, &plugin.capabilities, notes);
    }
}

fn capabilities(base: &str, value: &Value, wanted: &[String], notes: &mut Notes<'_>) {
    for name in wanted.iter().filter(|name| !CAPABILITIES.contains(&name.as_str())) {
        if let Some(meant) = json::resembling(name, CAPABILITIES) {
            let key = join(base, &format!("capabilities.{name}"));
            notes.key(Level::Warning, &key, format!("no runtime knows capability {name}")).help =
                format!("Did you mean {meant}?");
        }
    }
    if json::member(value, "runtimeConfig").is_some() && !wanted.is_empty() {
        let key = join(base, "runtimeConfig");
        notes.key(Level::Warning, &key, "a runtime replaces key runtimeConfig by what the capabilities ask for");
    }
}

fn useless(base: &str, name: &str, value: &Value, wanted: &[String], notes: &mut Notes<'_>) {
    for (plugin, capability, keys) in USELESS_WITHOUT.iter().filter(|(plugin, ..)| *plugin == name) {
        let has_own = keys.iter().any(|key| json::member(value, key).is_some());
        if has_own || wanted.iter().any(|have| have == capability) {
            continue;
        }
        let text = format!("without capability {capability} no runtime gives {plugin} anything to do");
        notes.value(Level::Warning, &join(base, "type"), text).help =
            format!("Add \"capabilities\": {{\"{capability}\": true}}.");
    }
}
