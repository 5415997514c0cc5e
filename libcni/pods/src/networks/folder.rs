//! A folder whose networks always match the disk.
//!
//! Watches are placed before the reading that they are for: a reading that depended on something not yet watched is
//! repeated, until one depends on nothing new. So every change after a reading is announced, and the kernel queues the
//! events until a task reads them. That task records the change for all others; no background task is needed.

use super::inotify::Watches;
use super::mounts::Mounts;
use super::scan::{Executable, Lookup, Scan, scan};
use super::versions::Versions;
use super::walk::Needs;
use super::{Networks, Problem, WatchError, usable};
use futures::future::select;
use libcni::Runtime;
use nix::errno::Errno;
use nix::sys::inotify::{InitFlags, Inotify};
use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

/// How often a reading is repeated because links or folders move meanwhile. After that, the next caller continues.
const SCANS_MAX: u32 = 8;

/// A watched folder. All methods take `&self`, and any number of tasks may use it at the same time.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use pods::networks::Folder;
///
/// let folder = Folder::open("/etc/cni/net.d", libcni::Runtime::builder().build())?;
/// loop {
///     let networks = folder.networks().await;
///     println!("{} networks", networks.usable.len());
///     for file in &networks.passed_over {
///         println!("{file}");
///     }
///     folder.changed_since(&networks).await;
/// }
/// # }
/// ```
///
/// The watch notices every change of the folder, of its files and of the executables, also where links lead out of it, and
/// also while the folder, its parents or the executables do not exist. It does not notice a change on another machine's
/// side of a network file system, and a change of a script's interpreter.
#[derive(Debug)]
pub struct Folder {
    dir: PathBuf,
    runtime: Runtime,
    inotify: AsyncFd<Queue>,
    /// The watch of mounts; none where there is no /proc.
    mounts: Option<Mounts>,
    versions: Versions,
    state: Mutex<State>,
    /// Held while reading; it contains what the last reading depended on.
    reading: tokio::sync::Mutex<Needs>,
    /// Wakes the tasks that wait for a change when another task has seen it.
    seen: Notify,
}

#[expect(deprecated, reason = "its successor has to be called with unsafe; a Queue keeps its one descriptor open")]
fn watched(inotify: Inotify) -> std::io::Result<AsyncFd<Queue>> {
    AsyncFd::with_interest(Queue(inotify), Interest::READABLE)
}

/// The kernel's events, as a descriptor that can be awaited.
#[derive(Debug)]
struct Queue(Inotify);

impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[derive(Debug, Default)]
struct State {
    watches: Watches,
    /// Changes seen so far.
    generation: u64,
    current: Option<Arc<Networks>>,
    /// When an executable that failed has to be asked again.
    retry_at: Option<Instant>,
}

impl State {
    /// Whether every change that was seen so far has been read.
    fn is_read(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.generation == self.generation)
    }

    /// The last reading, if it is still valid.
    fn current(&self) -> Option<&Arc<Networks>> {
        let current = self.current.as_ref()?;
        let is_watched = !matches!(current.problem, Some(Problem::NotWatched(_)));
        let is_due = self.retry_at.is_some_and(|at| at <= Instant::now());
        (self.is_read() && is_watched && !is_due).then_some(current)
    }
}

impl Folder {
    /// Watches a folder, which need not exist yet. Reads nothing. Has to be called in a tokio runtime with I/O and time
    /// enabled, and used in the same.
    ///
    /// # Errors
    /// `EMFILE` or `ENOSPC`: the node's limit of watches is reached, with the name of the sysctl. `ENOENT`: the path is
    /// relative and there is no working directory.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O.
    pub fn open(dir: impl AsRef<Path>, runtime: Runtime) -> Result<Self, WatchError> {
        let failed = |errno| WatchError { path: dir.as_ref().to_owned(), errno };
        let failed_io = |error: std::io::Error| failed(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw));
        let dir = std::path::absolute(dir.as_ref()).map_err(failed_io)?;
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(failed)?;
        let mounts = Mounts::open()
            .inspect_err(|error| tracing::warn!(%error, "mounts over {} will not be noticed", dir.display()))
            .ok();
        let inotify = watched(inotify).map_err(failed_io)?;
        let mut state = State::default();
        let mut needs = Needs::default();
        needs.walk(&dir);
        match state.watches.place(&inotify.get_ref().0, &needs) {
            // The search permission on a parent does not imply the read permission: what can be watched is, and each
            // reading reports the rest.
            Ok(()) | Err(WatchError { errno: Errno::EACCES, .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(Self {
            dir,
            runtime,
            inotify,
            mounts,
            versions: Versions::default(),
            state: Mutex::new(state),
            reading: tokio::sync::Mutex::new(needs),
            seen: Notify::new(),
        })
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The current networks.
    ///
    /// While nothing has changed, this returns the last reading after one read of the watch and one check of the
    /// mounts. Otherwise one caller reads, and all callers that came meanwhile get the same. May be dropped at any
    /// point.
    pub async fn networks(&self) -> Arc<Networks> {
        if let Some(current) = self.look().current() {
            return current.clone();
        }
        let mut needs = self.reading.lock().await;
        let generation = {
            let state = self.look();
            if let Some(current) = state.current() {
                return current.clone();
            }
            state.generation
        };
        self.read(&mut needs, generation).await
    }

    /// Reads the changes up to `generation`.
    async fn read(&self, needs: &mut Needs, generation: u64) -> Arc<Networks> {
        let begin = Instant::now();
        let (scan, problem) = self.scan_watched(needs);
        let executables: HashSet<Executable> = scan.executables.values().filter_map(Lookup::found).cloned().collect();
        let mut networks = usable::select(scan, &self.runtime, &self.versions).await;
        networks.problem = networks.problem.or(problem);
        networks.generation = generation;
        let networks = Arc::new(networks);
        tracing::debug!(
            dir = %self.dir.display(),
            usable = networks.usable.len(),
            passed_over = networks.passed_over.len(),
            elapsed_us = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX),
            "read the networks"
        );
        let mut state = self.lock();
        state.retry_at = self.versions.keep(&executables);
        state.current = Some(networks.clone());
        networks
    }

    /// Reads the folder with watches on everything that the reading depends on, which it records in `needs`.
    fn scan_watched(&self, needs: &mut Needs) -> (Scan, Option<Problem>) {
        let mut rounds = 0;
        loop {
            let placed = self.lock().watches.place(&self.inotify.get_ref().0, needs);
            let mut scan = scan(&self.dir, self.runtime.plugin_path());
            let is_settled = scan.needs == *needs;
            *needs = std::mem::take(&mut scan.needs);
            rounds += 1;
            if is_settled || rounds == SCANS_MAX {
                if !is_settled {
                    // The folder changes as fast as it is read: the next caller reads again.
                    self.lock().generation += 1;
                    self.seen.notify_waiters();
                }
                return (scan, placed.err().map(Problem::NotWatched));
            }
        }
    }

    /// Waits until the folder's networks may have changed: returns at once when a change was not read yet, otherwise at
    /// the next. Any number of tasks may wait, and each is notified.
    pub async fn changed(&self) {
        let generation = {
            let state = self.look();
            if !state.is_read() {
                return;
            }
            state.generation
        };
        self.changed_from(generation).await;
    }

    /// Waits until the networks may differ from `networks`, even if another task has read the change meanwhile.
    pub async fn changed_since(&self, networks: &Networks) {
        self.changed_from(networks.generation).await;
    }

    async fn changed_from(&self, generation: u64) {
        loop {
            let mut seen = pin!(self.seen.notified());
            // Registration comes before the check, so that a change that another task sees in between wakes this one.
            seen.as_mut().enable();
            if self.look().generation != generation {
                return;
            }
            select(seen, pin!(self.announced())).await;
        }
    }

    /// Waits until the kernel has queued an event.
    async fn announced(&self) {
        let entries = pin!(async {
            match self.inotify.readable().await {
                Ok(mut ready) => {
                    // The read takes all events; one that comes meanwhile makes the descriptor ready again.
                    drop(self.look());
                    ready.clear_ready();
                }
                Err(_) => std::future::pending().await, // the runtime is shutting down
            }
        });
        let mounts = pin!(async {
            match &self.mounts {
                Some(mounts) => mounts.changed().await,
                None => std::future::pending().await,
            }
        });
        select(entries, mounts).await;
    }

    /// Takes the kernel's events without waiting, and records whether they matter.
    fn look(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        let mut matters = false;
        loop {
            match self.inotify.get_ref().0.read_events() {
                Ok(events) => matters |= events.iter().any(|event| state.watches.matter(event)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(error) => {
                    tracing::error!(%error, "cannot read the watch of {}", self.dir.display());
                    matters = true;
                    break;
                }
            }
        }
        matters |= self.mounts.as_ref().is_some_and(Mounts::have_changed) && state.watches.are_misplaced();
        if matters {
            state.generation += 1;
            self.seen.notify_waiters();
        }
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
