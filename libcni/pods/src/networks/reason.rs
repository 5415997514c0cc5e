//! Why a file, or a whole folder, is unusable: as data, and as one line for an operator.

use cni_spec::{CniError, PluginType, SpecVersion};
use nix::errno::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An unusable file.
#[derive(Debug)]
pub struct PassedOver {
    /// The file; the network's name, if the runtime has given it.
    pub path: PathBuf,
    pub reason: Reason,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ignored: {}", self.path.display(), self.reason)
    }
}

/// Why a file is unusable. Its text is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The file, or one in the list's own folder, cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    /// The text is not JSON (code 6), or a key is missing or wrong (code 7).
    #[error("{}{error}", within(path.as_deref()))]
    Invalid {
        /// The file, if it is one in the list's own folder.
        path: Option<PathBuf>,
        error: CniError,
    },
    /// A list without any plugin, also in its own folder.
    #[error("it has no plugins")]
    NoPlugins,
    /// The network's name, or the file name that replaces it, is invalid.
    #[error("cannot use {name:?} as network name: {}", error.msg)]
    BadName { name: String, error: CniError },
    #[error("cniVersion {version:?} is not known; known are {}", SpecVersion::ALL.map(SpecVersion::as_str).join(", "))]
    UnknownVersion { version: String },
    #[error("executable of plugin {plugin} not found in {}", list(looked_in))]
    MissingExecutable { plugin: PluginType, looked_in: Vec<PathBuf> },
    #[error("cannot run {} of plugin {plugin}: {errno}", path.display())]
    NotExecutable {
        plugin: PluginType,
        path: PathBuf,
        /// The errno; `EACCES` where the file's mode does not allow it.
        errno: Errno,
    },
    /// A plugin does not answer VERSION, or not in time, or not in a valid form.
    #[error("plugin {plugin} does not answer VERSION: {error}")]
    NoVersion { plugin: PluginType, path: PathBuf, error: CniError },
    #[error("plugin {plugin} does not speak cniVersion {version:?}; it speaks {}", speaks.join(", "))]
    UnsupportedVersion {
        plugin: PluginType,
        /// The network's version; empty text is 0.1.0.
        version: String,
        /// The supported versions, in the plugin's order.
        speaks: Vec<String>,
    },
    #[error("network name {name:?} is taken by {}", by.display())]
    NameTaken {
        name: String,
        /// The earlier file; the name itself, if the runtime has given the network.
        by: PathBuf,
    },
}

/// Why a folder is unusable. Its text is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The folder does not exist (yet).
    #[error("no folder {}: no such file or directory", dir.display())]
    NoFolder { dir: PathBuf },
    #[error("cannot read {}: {error}", dir.display())]
    Unreadable { dir: PathBuf, error: io::Error },
}

fn within(path: Option<&Path>) -> String {
    path.map(|path| format!("{}: ", path.display())).unwrap_or_default()
}

fn list(dirs: &[PathBuf]) -> String {
    if dirs.is_empty() {
        return "no folder: none is configured".into();
    }
    dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(":")
}
