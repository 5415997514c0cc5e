//! The CNI protocol as types: the data between a runtime and a plugin.
//!
//! Everything is parsed once, at the edge, and trusted afterwards. The crate is pure except for `exec`, which runs
//! one plugin once and needs the feature of that name. It knows no kernel object and no plugin.
//!
//! ```
//! use cni_spec::{AddResult, Interface, Ip, Route, SpecVersion};
//!
//! let eth0 = Interface::new("eth0").mac("0a:00:00:00:00:05").sandbox("/run/netns/c1");
//! let ip = Ip::new("10.0.0.2/24".parse()?, Some("10.0.0.1".parse()?));
//! let result = AddResult::default().interface(eth0).ip(ip.of(0)).route(Route::new("0.0.0.0/0".parse()?, None));
//! assert_eq!(AddResult::from_value(&result.to_value(SpecVersion::V1_1_0)?, SpecVersion::V1_1_0)?, result);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Reading order: the terms ([`error`], [`version`], [`names`], [`attachment`]), input ([`args`], [`conf`], [`gc`]), output
//! ([`result`], older forms in [`legacy`]), and the call itself (`exec`).

#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod args;
pub mod attachment;
pub mod conf;
pub mod error;
#[cfg(feature = "exec")]
pub mod exec;
pub mod gc;
pub mod json;
pub mod legacy;
pub mod names;
pub mod result;
pub mod version;

pub use args::CniArgs;
pub use attachment::Attachment;
pub use conf::{ConfObject, FromAnyConf, FromConf, NetConf};
pub use error::{CniError, Code};
pub use names::{ContainerId, IfName, NetworkName, PluginPath, PluginType};
pub use result::{AddResult, Dns, Interface, Ip, Route};
pub use version::SpecVersion;

/// The verbs of the protocol (SPEC 2, CNI operations).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Command {
    /// Adds a container to a network, or applies modifications.
    Add,
    /// Removes a container from a network, or un-applies modifications.
    Del,
    /// Checks that a container's networking is as expected.
    Check,
    /// Removes what belongs to no valid attachment.
    Gc,
    /// Reports whether ADD can be served.
    Status,
    /// Reports the supported versions.
    Version,
}

impl Command {
    /// All verbs, in the order of the specification.
    pub const ALL: [Command; 6] =
        [Command::Add, Command::Del, Command::Check, Command::Gc, Command::Status, Command::Version];

    /// The verb as `CNI_COMMAND` spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Command::Add => "ADD",
            Command::Del => "DEL",
            Command::Check => "CHECK",
            Command::Gc => "GC",
            Command::Status => "STATUS",
            Command::Version => "VERSION",
        }
    }

    /// The verb spelled `text`, exactly; `None` for anything else.
    #[must_use]
    pub fn find(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.as_str() == text)
    }
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
