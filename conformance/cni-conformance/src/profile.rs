//! How a plugin is to be used: its config, and what the node must have for it. Data, so that it can be printed, sent to
//! a child and read from a file.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What kind of plugin it is, which decides the rules that bind it.
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
}

impl Role {
    /// Each of them.
    pub const ALL: &'static [Self] = &[Self::Interface, Self::Chained, Self::Ipam, Self::List];
    /// Those that are one executable.
    pub const PLUGINS: &'static [Self] = &[Self::Interface, Self::Chained, Self::Ipam];
}

/// How a plugin is to be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// What reports call it; for a built-in one the name of the executable.
    pub name: String,
    /// What kind of plugin it is.
    pub role: Role,
    /// The plugin objects in order, without `name` and `cniVersion`; one unless it is a list.
    pub plugins: Vec<Value>,
    /// The executable that is tested; for an IPAM plugin not the `type` of its config.
    pub executable: String,
    /// What the node must have before ADD.
    #[serde(default)]
    pub stage: Vec<Stage>,
    /// Names of kernel features without which it cannot work.
    #[serde(default)]
    pub needs: Vec<String>,
}

/// One thing that is laid on the node before ADD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// A link of the node that is up and has a neighbour, to be somebody's master or to be moved.
    Cable {
        /// Its name.
        name: String,
    },
}

impl Profile {
    /// The built-in profile of an executable of the reference set.
    #[must_use]
    pub fn find(executable: &str) -> Option<Self> {
        Self::built_in().into_iter().find(|profile| profile.name == executable)
    }

    /// All built-in profiles.
    #[must_use]
    pub fn built_in() -> Vec<Self> {
        let range = json!({ "type": "host-local", "ranges": [[{ "subnet": "10.77.0.0/24" }]] });
        let profile = |name: &str, role, object: Value| Self {
            name: name.to_owned(),
            role,
            plugins: vec![object],
            executable: name.to_owned(),
            stage: Vec::new(),
            needs: Vec::new(),
        };
        vec![
            profile(
                "bridge",
                Role::Interface,
                json!({ "type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "ipMasq": true, "ipam": range }),
            ),
            profile("host-local", Role::Ipam, json!({ "type": "ipam-user", "ipam": range })),
            profile("loopback", Role::Interface, json!({ "type": "loopback" })),
        ]
    }

    /// The network config of one of its plugins: the object with name and version.
    #[must_use]
    pub fn config(&self, index: usize, version: &str) -> Value {
        let mut config = self.plugins.get(index).cloned().unwrap_or_default();
        config["name"] = json!("conformance");
        config["cniVersion"] = json!(version);
        config
    }
}
