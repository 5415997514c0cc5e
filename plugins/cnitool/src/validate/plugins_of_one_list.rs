//! Plugins of one list that do not fit together.

use cni_spec::json;

use crate::parsed_network::{Network, Plugin};
use crate::validate::finding::{Level, Notes, join};
use crate::validate::known_plugins::{self, KnownPlugin, Role};

/// Capabilities that runtimes have data for (CONVENTIONS, "Dynamic Plugin specific fields").
const CAPABILITIES: [&str; 12] = [
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
    // Of our firewall, for callers that know it.
    "egressPolicy",
];

/// A plugin that does nothing unless a runtime gives it what this capability asks for, or the config has one of these keys.
const USELESS_WITHOUT: [(&str, &str, &[&str]); 2] =
    [("portmap", "portMappings", &[]), ("bandwidth", "bandwidth", &["ingressRate", "egressRate"])];

/// Keys that stand among the capabilities by mistake: the plugin, and the key.
const OWN_KEYS: [(&str, &str); 1] = [("portmap", "snat")];

/// Plugins whose rules or limits are once for an attachment.
const ONCE: [&str; 3] = ["bandwidth", "firewall", "portmap"];

pub(crate) fn compare(network: &Network, known: &[KnownPlugin], notes: &mut Notes<'_>) {
    let mut maker: Option<&str> = None;
    for (index, (plugin, written)) in network.plugins.iter().zip(&network.conf.plugins).enumerate() {
        let (key, name) = (join(&plugin.base, "type"), &*plugin.plugin_type);
        let is_chained =
            |known: &KnownPlugin| known.chained_by.is_some_and(|key| plugin.object.get(key) == Some(&true.into()));
        let role = |known: &KnownPlugin| if is_chained(known) { Role::Chained } else { known.role };
        match known_plugins::find(known, name).map(role) {
            Some(Role::Chained) if index == 0 => {
                let text = format!("{name} changes what an earlier plugin made, and comes first");
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
        let is_earlier = |earlier: &Plugin| earlier.plugin_type == name;
        if ONCE.contains(&name) && network.plugins.iter().take(index).any(is_earlier) {
            notes.value(Level::Warning, &key, format!("{name} is in the list twice")).help =
                "Remove one of both.".to_owned();
        }
        idle(plugin, notes);
        capabilities(plugin, &written.capabilities, notes);
        useless(plugin, &written.capabilities, notes);
    }
}

/// Keys that do nothing without another one.
fn idle(own: &Plugin, notes: &mut Notes<'_>) {
    let base = &own.base;
    let gateway = ["isGateway", "isDefaultGateway"].into_iter().find(|key| own.is_set(key));
    if let Some(key) = gateway.filter(|_| own.bridge.is_some() && own.ipam.is_empty()) {
        let text = format!("key {key} does nothing without ipam: the bridge gets no address, and containers none");
        notes.value(Level::Warning, &join(base, key), text).help =
            "Name an address plugin by ipam.type, such as host-local.".to_owned();
    }
}

fn capabilities(own: &Plugin, wanted: &[String], notes: &mut Notes<'_>) {
    let (base, plugin) = (&own.base, &*own.plugin_type);
    for name in wanted.iter().filter(|name| OWN_KEYS.contains(&(plugin, name.as_str()))) {
        let key = join(base, &format!("capabilities.{name}"));
        // kube-router writes snat so.
        notes.key(Level::Note, &key, format!("no runtime knows capability {name}")).help =
            format!("It is a key of {plugin} itself: write it beside capabilities.");
    }
    for name in wanted.iter().filter(|name| !CAPABILITIES.contains(&name.as_str())) {
        if let Some(meant) = json::resembling(name, CAPABILITIES) {
            let key = join(base, &format!("capabilities.{name}"));
            notes.key(Level::Warning, &key, format!("no runtime knows capability {name}")).help =
                format!("Did you mean {meant}?");
        }
    }
    if json::member(&own.object, "runtimeConfig").is_some() && !wanted.is_empty() {
        let key = join(base, "runtimeConfig");
        notes.key(Level::Warning, &key, "a runtime replaces key runtimeConfig by what the capabilities ask for");
    }
}

fn useless(own: &Plugin, wanted: &[String], notes: &mut Notes<'_>) {
    for (plugin, capability, keys) in USELESS_WITHOUT.iter().filter(|(plugin, ..)| *plugin == own.plugin_type) {
        let has_own = keys.iter().any(|key| json::member(&own.object, key).is_some());
        if has_own || wanted.iter().any(|have| have == capability) {
            continue;
        }
        let text = format!("without capability {capability} no runtime gives {plugin} anything to do");
        notes.value(Level::Warning, &join(&own.base, "type"), text).help =
            format!("Add \"capabilities\": {{\"{capability}\": true}}.");
    }
}
