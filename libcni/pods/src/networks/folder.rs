//! A folder whose networks always match the disk.
//!
//! Each query reads the files and looks the executables up, which takes some tens of microseconds. Only where something
//! differs from the last reading are executables asked for their versions. So there is no watch that could miss a
//! change behind a link, a mount or a network file system, and no limit of watches to reach.

use super::scan::{Executable, Lookup, Scan, Seen, scan};
use super::versions::Versions;
use super::{Networks, usable};
use libcni::{NetworkConf, Runtime};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// The time for which the last reading is returned where a network's file is no JSON any more: it may be in the middle of being
/// written.
const WRITTEN_WITHIN: Duration = Duration::from_millis(200);

/// A folder of networks. All methods take `&self`, and any number of tasks may use it at the same time.
///
/// ```no_run
/// # async fn example() {
/// use pods::networks::Folder;
///
/// let folder = Folder::new("/etc/cni/net.d", libcni::Runtime::builder().build());
/// let networks = folder.networks().await;
/// println!("{} networks", networks.usable.len());
/// for file in &networks.passed_over {
///     println!("{file}");
/// }
/// # }
/// ```
///
/// An executable counts as changed when its inode, size or times differ; a script's interpreter does not count.
#[derive(Debug)]
pub struct Folder {
    dir: PathBuf,
    given: Vec<NetworkConf>,
    runtime: Runtime,
    versions: Versions,
    /// Held while reading and asking: callers that come meanwhile share the outcome.
    last: Mutex<Option<Last>>,
}

/// The last reading.
#[derive(Debug)]
struct Last {
    seen: Seen,
    networks: Arc<Networks>,
    /// When an executable that failed has to be asked again.
    retry_at: Option<Instant>,
    /// The time at which a file was first seen that may be in the middle of being written.
    unfinished: Option<Instant>,
}

impl Last {
    /// Whether the networks are still those of a new reading, or the new one may lack a network because its file is unfinished.
    fn holds(&mut self, scan: &Scan, seen: &Seen) -> bool {
        if *seen == self.seen {
            self.unfinished = None;
            return self.retry_at.is_none_or(|at| Instant::now() < at);
        }
        let is_used = |path: &Path| self.networks.usable.iter().any(|network| network.conf.path() == Some(path));
        scan.files.iter().any(|(path, file)| file.is_err() && is_used(path))
            && seen.may_be_unfinished(&self.seen)
            && self.unfinished.get_or_insert_with(Instant::now).elapsed() < WRITTEN_WITHIN
    }
}

impl Folder {
    /// A folder, which need not exist yet. Reads nothing.
    pub fn new(dir: impl AsRef<Path>, runtime: Runtime) -> Self {
        Self {
            dir: dir.as_ref().to_owned(),
            given: Vec::new(),
            runtime,
            versions: Versions::default(),
            last: Mutex::default(),
        }
    }

    /// The folder with these networks before those of its files. One of a file that has the name of one of these is ignored.
    pub fn with(mut self, given: Vec<NetworkConf>) -> Self {
        self.given = given;
        self
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The current networks: where nothing has changed, the same `Arc` as before. May be dropped at any point. Has to be
    /// called in a tokio runtime with I/O and time enabled.
    pub async fn networks(&self) -> Arc<Networks> {
        let mut last = self.last.lock().await;
        let begin = Instant::now();
        let scan = scan(&self.dir, &self.given, self.runtime.plugin_path());
        let seen = scan.seen();
        if let Some(last) = last.as_mut()
            && last.holds(&scan, &seen)
        {
            return last.networks.clone();
        }
        let executables: HashSet<Executable> = scan.executables.values().filter_map(Lookup::found).cloned().collect();
        let networks = Arc::new(usable::select(scan, &self.runtime, &self.versions).await);
        tracing::debug!(
            dir = %self.dir.display(),
            usable = networks.usable.len(),
            passed_over = networks.passed_over.len(),
            elapsed_us = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX),
            "read the networks"
        );
        let retry_at = self.versions.keep(&executables);
        *last = Some(Last { seen, networks: networks.clone(), retry_at, unfinished: None });
        networks
    }
}
