//! Profiles of plugins: the config of each, and what the node must have for it. They are data, so that they can be
//! printed, sent to a child and read from a file.

mod address_pool;
mod file;
mod given;
mod host_local_ranges;

use crate::spec_version;
use crate::subject::Subject;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub use address_pool::Pool;
pub use file::ProfileFile;

pub const NETWORK: &str = "conformance";

/// The JSON pointer of the object in a config that names its delegate, unless the profile says otherwise.
const IPAM: &str = "/ipam";

/// The kind of a plugin, which decides the rules that bind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Makes an interface.
    Interface,
    /// Adjusts what a plugin before it made.
    Chained,
    /// Hands out addresses to other plugins.
    Ipam,
    /// A whole list, run as a runtime would.
    List,
    /// Calls plugins: see [`crate::runtime`].
    #[value(skip)]
    Runtime,
}

impl Role {
    pub const ALL: &'static [Self] = &[Self::Interface, Self::Chained, Self::Ipam, Self::List];
    /// Roles that are one executable.
    pub const PLUGINS: &'static [Self] = &[Self::Interface, Self::Chained, Self::Ipam];
}

/// A profile of a plugin: its config, and what the node must have for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The name in reports; for a built-in profile that of the executable, or that and a variant, `bridge-dual-stack`.
    pub name: String,
    pub role: Role,
    /// The plugin objects in order, without `name` and `cniVersion`; one unless it is a list.
    ///
    /// `capabilities` stand in them as in a file; what a runtime makes of them is [`Profile::config`]'s. `{n}` in a text
    /// is the number of the pod, from 1, `{9+n}` nine more, `{n:02x}` two hexadecimal digits; a text that is nothing but
    /// `{30000+n}` becomes a number.
    pub plugins: Vec<Value>,
    /// The executable that is tested, for a list that of its first plugin; for an IPAM plugin not the `type` of its
    /// config.
    pub executable: String,
    /// The things that the node must have before ADD.
    #[serde(default)]
    pub stage: Vec<Stage>,
    /// Names of kernel features without which it cannot work: [`testns::Feature`] as displayed.
    #[serde(default)]
    pub needs: Vec<String>,
    /// The oldest version with which it makes sense: there were no chains before 0.3.0, and no results without addresses.
    #[serde(default)]
    pub oldest: Option<String>,
    /// The way to make its pool of addresses small, where that is not as in a config of host-local.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pool>,
    /// The value that a runtime passes for each capability, where that is not the kit's own sample.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub samples: Map<String, Value>,
    /// Keys of the prevResult of a chained plugin, in place of those of what the kit lays, in the newest form.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub prev_result: Map<String, Value>,
    /// JSON pointer of the object in the config that names its delegate, where that is not `/ipam`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegate: Option<String>,
    /// Rules, starts of their names, or `RULE/CASE`, that do not bind it, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unbound: BTreeMap<String, String>,
}

/// A thing that is laid on the node before ADD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// A link of the node that is up and has a neighbour, to be the master of another. It has the node's default route.
    Cable {
        /// The link's name.
        name: String,
    },
    /// For each pod a link of the node that is to be moved into its container.
    Device {
        /// The link's name, with `{n}`.
        name: String,
    },
    /// For each pod a veth from a bridge of the node to its container with addresses: what a plugin before made.
    Attached,
    /// A DHCP server of the kit's, and for each pod links of its network in the container, up and without addresses:
    /// what an interface plugin has made when it asks for an address.
    DhcpServer {
        /// Names of the links.
        links: Vec<String>,
    },
    /// A folder that plugins write to beside those that every node has: it is empty.
    Folder {
        /// The folder's path.
        path: PathBuf,
    },
    /// A file that has to be there, in a folder that plugins may write to.
    File {
        /// The file's path.
        path: PathBuf,
        /// The file's whole content.
        text: String,
    },
    /// A process that has to run, started before the first call.
    Daemon {
        /// An executable of the subject.
        executable: String,
        /// The executable's arguments.
        arguments: Vec<String>,
        /// The socket that exists as soon as it is ready.
        socket: String,
    },
}

impl Stage {
    /// Whether each container gets something.
    pub(crate) fn lays_in_containers(&self) -> bool {
        matches!(self, Self::Device { .. } | Self::Attached | Self::DhcpServer { .. })
    }
}

impl Profile {
    pub fn find(name: &str) -> Option<Self> {
        Self::built_in().into_iter().find(|profile| profile.name == name)
    }

    /// All built-in profiles: those of the reference set.
    pub fn built_in() -> Vec<Self> {
        let read = serde_json::from_str(include_str!("profile/built_in.json"));
        read.unwrap_or_else(|error| panic!("built_in.json: {error}"))
    }

    /// The profile of a user's config: the text of a `.conf` (one plugin) or `.conflist`.
    pub fn given(name: &str, text: &str, role: Option<Role>) -> Result<Self, String> {
        let config = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        given::of_config(name, &config, role)
    }

    /// The same with the kit's own IPAM plugin in place of any that the subject does not have.
    pub fn for_subject(mut self, subject: &Subject) -> Self {
        for plugin in &mut self.plugins {
            let Some(delegate) = plugin.pointer_mut(self.delegate.as_deref().unwrap_or(IPAM)) else { continue };
            let name = delegate.get("type").and_then(Value::as_str).unwrap_or_default();
            if !name.is_empty() && name != self.executable && subject.find(name).is_none() {
                *delegate = crate::kit_ipam::in_place_of(delegate);
            }
        }
        self
    }

    /// The same with the kit's own IPAM plugin in place of another, and the name of that one.
    pub(crate) fn with_kit_ipam(mut self) -> Option<(Self, String)> {
        let is_asked = self.role == Role::Interface && self.delegate.is_none();
        let ipam = self.plugins.first_mut().filter(|_| is_asked)?.get_mut("ipam")?;
        let name = ipam.get("type")?.as_str().filter(|name| *name != crate::kit_ipam::NAME)?.to_owned();
        *ipam = crate::kit_ipam::in_place_of(ipam);
        Some((self, name))
    }

    /// The object of a config that names its delegate, if it has one.
    pub fn delegate_of<'a>(&self, config: &'a mut Value) -> Option<&'a mut Value> {
        config.pointer_mut(self.delegate.as_deref().unwrap_or(IPAM)).filter(|delegate| delegate.get("type").is_some())
    }

    /// Returns whether the profile makes sense with a version.
    pub fn allows(&self, version: &str) -> bool {
        self.oldest.as_deref().is_none_or(|oldest| spec_version::is_from(version, oldest))
    }

    /// Returns whether the plugin is called with a prevResult on ADD.
    pub fn is_chained(&self) -> bool {
        self.role == Role::Chained
    }

    pub fn executable(&self, index: usize) -> &str {
        let kind = || self.plugins.get(index)?.get("type")?.as_str();
        match self.role {
            Role::List => kind().unwrap_or(&self.executable),
            _ => &self.executable,
        }
    }

    /// The config of one of its plugins as a runtime writes it to stdin, for the pod of that number: with name, version
    /// and sample values of its capabilities.
    pub fn config(&self, index: usize, version: &str, pod: usize) -> Value {
        let mut config = self.plugins.get(index).cloned().unwrap_or_else(|| json!({}));
        if let Some(object) = config.as_object_mut() {
            let capabilities = object.remove("capabilities");
            let samples = self.samples(capabilities.as_ref().and_then(Value::as_object));
            object.insert("cniVersion".to_owned(), json!(version));
            object.insert("name".to_owned(), json!(NETWORK));
            if !samples.is_empty() {
                object.insert("runtimeConfig".to_owned(), Value::Object(samples));
            }
        }
        fill(&mut config, "n", pod);
        config
    }

    /// A sample value of each capability that is enabled and known.
    fn samples(&self, capabilities: Option<&Map<String, Value>>) -> Map<String, Value> {
        let enabled = capabilities.into_iter().flatten().filter(|(_, enabled)| **enabled == json!(true));
        let value = |name: &String| self.samples.get(name).cloned().or_else(|| sample(name));
        enabled.filter_map(|(name, _)| Some((name.clone(), value(name)?))).collect()
    }

    /// The prevResult of a chained plugin for a pod: what the kit laid, with the profile's own keys.
    pub(crate) fn prev_result(&self, laid: Value, pod: usize) -> Value {
        let mut result = laid;
        for (key, value) in &self.prev_result {
            let mut value = value.clone();
            fill(&mut value, "n", pod);
            result[key] = value;
        }
        result
    }
}

/// A value that a runtime could pass for a capability (CONVENTIONS, "Dynamic Plugin specific fields").
fn sample(capability: &str) -> Option<Value> {
    Some(match capability {
        "portMappings" => json!([
            { "hostPort": "{20000+n}", "containerPort": 80, "protocol": "tcp" },
            { "hostPort": "{20000+n}", "containerPort": 53, "protocol": "udp" },
        ]),
        "bandwidth" => json!({
            "ingressRate": 8_000_000, "ingressBurst": 8_000_000, "egressRate": 8_000_000, "egressBurst": 8_000_000,
        }),
        "ipRanges" => json!([[{ "subnet": "10.76.0.0/16" }]]),
        "dns" => json!({ "servers": ["10.76.0.1"], "searches": ["conformance.test"], "options": ["ndots:5"] }),
        "mac" => json!("0a:00:00:00:00:{n:02x}"),
        "aliases" => json!(["pod-{n}"]),
        _ => return None,
    })
}

/// Puts a number in the place of a placeholder: `{n}`, `{K+n}` and `{n:02x}` in texts; a text that is nothing but `{K+n}`
/// becomes a number.
fn fill(value: &mut Value, name: &str, number: usize) {
    match value {
        Value::String(text) => {
            let base = text.strip_prefix('{').and_then(|text| text.strip_suffix(&format!("+{name}}}"))?.parse().ok());
            match base {
                Some(base) => *value = json!(number.saturating_add(base)),
                None => *text = filled(text, name, number),
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| fill(value, name, number)),
        Value::Object(object) => object.values_mut().for_each(|value| fill(value, name, number)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The same in a text.
fn filled(text: &str, name: &str, number: usize) -> String {
    let sum_ends = format!("+{name}}}");
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(&sum_ends) {
        match before.rsplit_once('{').and_then(|(start, base)| Some((start, base.parse::<usize>().ok()?))) {
            Some((start, base)) => out.push_str(&format!("{start}{}", number.saturating_add(base))),
            None => out.push_str(&format!("{before}{sum_ends}")),
        }
        rest = after;
    }
    out.push_str(rest);
    let hex = format!("{:02x}", number % 256);
    out.replace(&format!("{{{name}:02x}}"), &hex).replace(&format!("{{{name}}}"), &number.to_string())
}

/// The same in a name.
pub fn fill_text(text: &str, pod: usize) -> String {
    filled(text, "n", pod)
}

#[cfg(test)]
mod tests {
    use super::Profile;

    #[test]
    fn names_of_built_in_profiles_differ_and_start_with_their_executable() {
        let all = Profile::built_in();
        for profile in &all {
            assert_eq!(all.iter().filter(|other| other.name == profile.name).count(), 1, "{}", profile.name);
            assert!(profile.name.starts_with(&profile.executable), "{}", profile.name);
            assert_eq!(profile.plugins.len(), 1, "{}", profile.name);
        }
    }

    #[test]
    fn needs_are_features_that_can_be_tried_out() {
        for need in Profile::built_in().iter().flat_map(|profile| &profile.needs) {
            assert!(testns::Feature::ALL.iter().any(|feature| feature.to_string() == *need), "{need}");
        }
    }
}
