//! The networks of a folder: read once ([`Networks::read`]), or watched ([`Folder`]).
//!
//! `*.conflist` are lists of plugins, `*.conf` and `*.json` single plugins; all three count together, in the order of
//! their file names, and the first that can be used is the default network. A file that cannot be used is passed over,
//! and told about with its reason: it hides no other.
//!
//! A file can be used when it is read and valid, each of its plugins has an executable in the runtime's folders, and
//! each of these speaks the file's version by its own answer to VERSION. Whether the node can serve ADD is another
//! question, which STATUS answers.
//!
//! Reading order: what was found (this file), how it is found (`scan`, with `walk` noting what that depends on), which
//! of it can be used (`judge`, `versions`), and when that may have changed (`folder`, `watch`, `mounts`).

mod folder;
mod judge;
mod mounts;
mod reason;
mod scan;
mod versions;
mod walk;
mod watch;

pub use folder::Folder;
pub use reason::{PassedOver, Problem, Reason, WatchError};

use libcni::{NetworkConf, Runtime};
use std::collections::BTreeSet;
use std::path::Path;
use versions::Versions;

/// What files are called that hold networks.
const EXTENSIONS: &[&str] = &["conflist", "conf", "json"];

/// A network that can be used.
#[derive(Debug, Clone)]
pub struct Network {
    /// Its configuration, with the file it came from.
    pub conf: NetworkConf,
    /// The capabilities that its plugins enable.
    pub capabilities: BTreeSet<String>,
}

/// What a folder held when it was read.
#[derive(Debug)]
pub struct Networks {
    /// The networks that can be used, in the order of their files' names, each name once.
    pub usable: Vec<Network>,
    /// The other files, in the order of their names.
    pub passed_over: Vec<PassedOver>,
    /// What is wrong with the folder itself.
    pub problem: Option<Problem>,
    /// Which of a [`Folder`]'s readings this is.
    generation: u64,
}

impl Networks {
    /// Reads a folder once, and asks each executable for its versions. What is wrong is part of the answer.
    ///
    /// An executable has 5 seconds to answer; all are asked at the same time.
    pub async fn read(dir: &Path, runtime: &Runtime) -> Self {
        judge::judge(scan::scan(dir, runtime.plugin_path()), runtime, &Versions::default()).await
    }

    /// The default network: the first that can be used.
    #[must_use]
    pub fn default(&self) -> Option<&Network> {
        self.usable.first()
    }

    /// The network of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Network> {
        self.usable.iter().find(|network| network.conf.name == name)
    }
}
