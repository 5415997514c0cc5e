//! A folder whose networks always match the disk.
//!
//! Each query reads the files and looks the executables up, which takes some tens of microseconds. Only executables that
//! changed are asked for their versions. So there is no watch that could miss a change behind a link, a mount or a network
//! file system, and no limit of watches to reach.

use super::scan::{Executable, Lookup, Scan, scan};
use super::versions::Versions;
use super::{Networks, Reason, usable};
use cni_spec::Code;
use libcni::{NetworkConf, Runtime};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

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
