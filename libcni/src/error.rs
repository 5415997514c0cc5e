//! What can go wrong at the runtime's end.

use crate::attachment::AttachmentId;
use crate::conflist::PassedOver;
use cni_spec::{CniError, Code, Command, NetworkName};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// An operation that failed.
///
/// The text is one line. A plugin's error keeps its code: see [`Error::code`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder holds no network configuration at all.
    #[error("no net configurations found in {}", dir.display())]
    NoConfig {
        /// The folder.
        dir: PathBuf,
    },
    /// The folder holds network configurations, but none of this name.
    #[error("no net configuration with name {name:?} in {}{}", dir.display(), PassedOver::list(passed_over))]
    NoNetwork {
        /// The folder.
        dir: PathBuf,
        /// The name that was looked for.
        name: String,
        /// The files that could not be used; the network may be in one of them.
        passed_over: Vec<PassedOver>,
    },
    /// A file or folder of configuration could not be read.
    #[error("cannot read {}", path.display())]
    ReadConfig {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A network configuration is invalid.
    #[error("{}{error}", path.as_ref().map(|path| format!("{}: ", path.display())).unwrap_or_default())]
    Config {
        /// The file, if it came from one.
        path: Option<PathBuf>,
        /// Code 6 or 7, and what is wrong with it.
        error: CniError,
    },
    /// A name, an argument or a version cannot be used; nothing has run.
    #[error("{0}")]
    Invalid(CniError),
    /// The network's version has no CHECK.
    #[error("configuration version {version:?} of network {network} does not support the CHECK command")]
    NoCheck {
        /// The network.
        network: String,
        /// Its version.
        version: String,
    },
    /// A plugin failed, or could not be run.
    #[error(transparent)]
    Plugin(Box<PluginError>),
    /// The cache could not be read or written.
    #[error("cannot {verb} cache {}", path.display())]
    Cache {
        /// "read", "write", "remove" or "list".
        verb: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A cached result cannot be used with the network's version.
    #[error("cannot use cached result {}: {error}", path.display())]
    CachedResult {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: CniError,
    },
    /// The network configuration that ADD left in the cache cannot be used; nothing has run.
    #[error("cannot use cached network config {}: {error}", path.display())]
    CachedConf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: CniError,
    },
    /// The attachment's ADD was begun and not finished, so there is nothing to check.
    #[error("cannot check {}/{} in network {network}: its ADD was not finished; DEL and then ADD are the way on", id.container_id, id.ifname)]
    Incomplete {
        /// The network.
        network: NetworkName,
        /// The attachment.
        id: AttachmentId,
    },
    /// Plugins that a runtime left running for the attachment could not be ended; nothing has run.
    #[error("{error}")]
    Orphans {
        /// Code 104, 109 or 5, and which process it is.
        error: CniError,
    },
    /// Several of one operation that carries on past errors.
    #[error("{}", Error::lines(errors))]
    Several {
        /// At least two, in the order they happened.
        errors: Vec<Error>,
    },
}

/// A plugin's failure, with whose it was.
///
/// As text: `plugin type="bridge" failed (add): msg; details`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginError {
    /// `type` of the plugin.
    pub plugin: String,
    /// `name` in the plugin's own object, if it has one.
    pub name: Option<String>,
    /// What it was asked to do.
    pub command: Command,
    /// Its own words. After a failed ADD, the details end with what was rolled back and what was left.
    pub error: CniError,
}

impl fmt::Display for PluginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plugin type={:?}", self.plugin)?;
        if let Some(name) = &self.name {
            write!(f, " name={name:?}")?;
        }
        let verb = match self.command {
            Command::Add => "add",
            Command::Del => "delete",
            Command::Check => "check",
            Command::Gc => "gc",
            Command::Status => "status",
            Command::Version => "version",
        };
        write!(f, " failed ({verb}): {}", self.error)
    }
}

impl std::error::Error for PluginError {}

impl Error {
    /// The code of the plugin's error, or of the reason why nothing ran; `None` for a failure of this side.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        self.cni_error().map(|error| error.code)
    }

    /// The error object behind this error; of several, the first one's.
    #[must_use]
    pub fn cni_error(&self) -> Option<&CniError> {
        match self {
            Error::Plugin(plugin) => Some(&plugin.error),
            Error::Config { error, .. }
            | Error::Invalid(error)
            | Error::CachedResult { error, .. }
            | Error::CachedConf { error, .. }
            | Error::Orphans { error } => Some(error),
            Error::Several { errors } => errors.iter().find_map(Error::cni_error),
            Error::NoConfig { .. }
            | Error::NoNetwork { .. }
            | Error::ReadConfig { .. }
            | Error::NoCheck { .. }
            | Error::Incomplete { .. }
            | Error::Cache { .. } => None,
        }
    }

    /// One error out of any number; `None` out of none.
    #[must_use]
    pub fn join(mut errors: Vec<Error>) -> Option<Self> {
        match errors.len() {
            0 | 1 => errors.pop(),
            _ => Some(Error::Several { errors }),
        }
    }

    /// The error and its causes on one line.
    #[must_use]
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }

    fn lines(errors: &[Error]) -> String {
        errors.iter().map(Error::with_causes).collect::<Vec<_>>().join("\n")
    }
}

impl From<PluginError> for Error {
    fn from(error: PluginError) -> Self {
        Error::Plugin(Box::new(error))
    }
}
