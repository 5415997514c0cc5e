//! The networks of a folder, read again for each query.
//!
//! `*.conflist` are lists of plugins, `*.conf` and `*.json` single plugins; all three count together, in the order of
//! their file names, and the first usable one is the default network. An unusable file is skipped, and reported with
//! its reason: it hides no other.
//!
//! A file is usable when it is readable and valid, each of its plugins has an executable in the runtime's folders, and
//! each of these reports by VERSION that it supports the file's version. Whether the node can serve ADD is a separate
//! question, which STATUS answers.
//!
//! Reading order: the outcome and repeated queries (this file), the search (`scan`), and the checks (`usable`).

mod scan;
mod usable;

use crate::networks::scan::{Executable, Lookup, Scan, scan};
use crate::networks::usable::Versions;
use cni_spec::{CniError, Code, PluginType, SpecVersion};
use libcni::{NetworkConf, Runtime};
use nix::errno::Errno;
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};
use tokio::sync::Mutex;

/// A usable network.
#[derive(Debug, Clone)]
pub struct Network {
    /// The network's configuration, with the file it came from.
    pub conf: NetworkConf,
    /// The capabilities that its plugins enable.
    pub capabilities: BTreeSet<String>,
}

/// The content of a folder when it was read.
#[derive(Debug)]
pub struct Networks {
    /// The usable networks, in the order of their files' names, each name once.
    pub usable: Vec<Network>,
    /// The other files, in the order of their names.
    pub passed_over: Vec<PassedOver>,
    /// An error of the folder itself.
    pub problem: Option<Problem>,
}

impl Networks {
    /// The default network: the first usable one.
    pub fn default(&self) -> Option<&Network> {
        self.usable.first()
    }

    pub fn find(&self, name: &str) -> Option<&Network> {
        self.usable.iter().find(|network| network.conf.name == name)
    }
}

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

/// The time for which the last reading is returned where a network's file is no JSON any more: it may be in the middle of being
/// written.
const WRITTEN_WITHIN: Duration = Duration::from_millis(200);

/// A folder of networks, after those that the runtime has given. Any number of tasks may use it at the same time.
///
/// An executable counts as changed when its inode, size or times differ; a script's interpreter does not count.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: PathBuf,
    given: Vec<NetworkConf>,
    runtime: Runtime,
    versions: Versions,
    /// Held while reading and asking, so that callers at the same time ask an executable once.
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    networks: Option<Arc<Networks>>,
    /// The time at which one of their files was first seen that may be in the middle of being written.
    unfinished: Option<Instant>,
}

impl Last {
    /// The last networks, if a new reading may lack one of them because its file is unfinished.
    fn find_while_unfinished(&mut self, scan: &Scan) -> Option<Arc<Networks>> {
        let networks = self.networks.as_ref()?;
        let is_used = |path: &Path| networks.usable.iter().any(|network| network.conf.path() == Some(path));
        let is_cut = |reason: &Reason| matches!(reason, Reason::Invalid { error, .. } if error.code == Code::DECODING);
        let is_unfinished = scan.files.iter().any(|(path, file)| file.as_ref().is_err_and(is_cut) && is_used(path));
        if !is_unfinished || self.unfinished.get_or_insert_with(Instant::now).elapsed() >= WRITTEN_WITHIN {
            return None;
        }
        Some(networks.clone())
    }
}

impl Folder {
    /// A folder, which need not exist yet. Reads nothing. A file with the name of a given network is ignored.
    pub(crate) fn new(dir: PathBuf, given: Vec<NetworkConf>, runtime: Runtime) -> Self {
        Self { dir, given, runtime, versions: Versions::default(), last: Mutex::default() }
    }

    /// The current networks. May be dropped at any point. Has to be called in a tokio runtime with I/O and time enabled.
    pub(crate) async fn networks(&self) -> Arc<Networks> {
        let mut last = self.last.lock().await;
        let scan = scan(&self.dir, &self.given, self.runtime.plugin_path());
        if let Some(networks) = last.find_while_unfinished(&scan) {
            return networks;
        }
        let executables: HashSet<Executable> = scan.executables.values().filter_map(Lookup::found).cloned().collect();
        let networks = Arc::new(usable::select(scan, &self.runtime, &self.versions).await);
        self.versions.forget_others(&executables);
        *last = Last { networks: Some(networks.clone()), unfinished: None };
        networks
    }
}
