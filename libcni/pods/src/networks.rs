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
//! Reading order: the outcome (this file), the search (`scan`), the checks (`usable`, `versions`), and repeated
//! queries (`folder`).

mod folder;
mod reason;
mod scan;
mod usable;
mod versions;

pub(crate) use folder::Folder;
pub use reason::{PassedOver, Problem, Reason};

use libcni::NetworkConf;
use std::collections::BTreeSet;

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
