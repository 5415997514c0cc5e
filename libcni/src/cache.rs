//! The last ADD result by attachment: the data of a container that DEL, CHECK and GC need after a restart of its
//! runtime.
//!
//! Place and format are the reference's, so either side reads what the other wrote. A file appears whole or not at all,
//! even if the runtime is killed. An invalid file counts as missing, with a warning.
//!
//! Like the reference's, files are not flushed to the disk, so a power cut may lose those of the last seconds. The
//! containers, links and rules end with the node's power; GC frees an address that is still reserved then.
//!
//! An entry is written twice. Before the first plugin of an ADD runs it is an *intent*: all keys but `result`. After
//! the last one the complete entry replaces it. So whatever happens to the runtime in between, DEL has the
//! configuration, namespace and arguments. Key `namespace` identifies the namespace behind its path. While ADD is in
//! progress, keys `runtime` and `running` identify the runtime's process and the plugin's: pid, start time in clock
//! ticks, boot, PID namespace. The reference library takes an intent for an ADD with an empty result: its DEL and GC run with a
//! `prevResult` without addresses, and succeed; its CHECK fails in the plugins, as the interfaces are missing from it.

use crate::attachment::{AttachmentId, RuntimeConf};
use crate::cache_entry::{self, Cached, read_entry};
use crate::conflist::PassedOver;
use crate::error::{Clash, Error};
use crate::lock::Locks;
use crate::orphaned_plugin::RunningPlugin;
use cni_spec::{ContainerId, NetworkName};
use nix::unistd::Pid;
use processes::ProcessId;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// Where runtimes keep it.
pub const DEFAULT_DIR: &str = "/var/lib/cni";
/// Names of files being written start like this; the name of an entry starts alphanumeric.
const UNFINISHED: &str = ".unfinished-";
/// The age of a file that is no longer being written.
const ABANDONED: Duration = Duration::from_secs(60);

/// The cache of one folder.
#[derive(Debug, Clone)]
pub struct Cache {
    results: PathBuf,
    pub(crate) locks: Locks,
}

#[derive(Debug)]
pub(crate) enum Look {
    /// No file, or an invalid one.
    Nothing,
    Own(Box<Cached>),
    /// Another attachment's entry; the names can coincide, as the parts of a name may contain `-`.
    Others(Box<Cached>),
}

/// All entries that could be read, and the files that could not.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// The attachments, by file name.
    pub cached: Vec<Cached>,
    /// Foreign and broken files.
    pub passed_over: Vec<PassedOver>,
    /// Files of the oldest format, a bare result: valid, but only their names tell of which attachment they are, and not
    /// unambiguously.
    pub nameless: Vec<PathBuf>,
}

impl Listing {
    pub(crate) fn stale(self, network: &NetworkName, valid: &[AttachmentId]) -> Vec<Cached> {
        let is_stale = |cached: &Cached| cached.network == *network && !valid.contains(&cached.attachment.id);
        self.cached.into_iter().filter(is_stale).collect()
    }
}

impl Cache {
    /// The cache below `dir`, which need not exist yet.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { results: dir.join("results"), locks: Locks::new(dir) }
    }

    /// The folder of the entries. It need not exist before the first ADD.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.results
    }

    /// The file of an attachment.
    #[must_use]
    pub fn path(&self, network: &NetworkName, id: &AttachmentId) -> PathBuf {
        self.results.join(format!("{network}-{}-{}", id.container_id, id.ifname))
    }

    /// Makes the folder, 0700, if it does not exist: so a node that cannot cache fails before any plugin runs.
    pub(crate) fn prepare(&self) -> Result<(), Error> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.results)
            .map_err(failed("write", &self.results))
    }

    /// The cached data of an attachment. An invalid file counts as missing, with a warning.
    ///
    /// # Errors
    /// [`Error::Cache`] if the file is there and cannot be read.
    pub fn find(&self, network: &NetworkName, id: &AttachmentId) -> Result<Option<Cached>, Error> {
        match self.look(network, id)? {
            Look::Own(cached) => Ok(Some(*cached)),
            Look::Nothing => Ok(None),
            Look::Others(other) => {
                let path = self.path(network, id);
                tracing::warn!(path = %path.display(), "a cached result counts as missing: it is {}", attachment_of(&other));
                Ok(None)
            }
        }
    }

    /// As [`Cache::find`], without a warning or an error: for a look before an operation, which reports both.
    #[must_use]
    pub fn peek(&self, network: &NetworkName, id: &AttachmentId) -> Option<Cached> {
        let (stamp, bytes) = cache_entry::read(&self.path(network, id)).ok()?;
        let cached = cache_entry::parse(&bytes, network, id).ok()?;
        ((&cached.network, &cached.attachment.id) == (network, id)).then(|| cached.stamped(stamp))
    }

    pub(crate) fn look(&self, network: &NetworkName, id: &AttachmentId) -> Result<Look, Error> {
        let path = self.path(network, id);
        let (stamp, bytes) = match cache_entry::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Look::Nothing),
            read => read.map_err(failed("read", &path))?,
        };
        match cache_entry::parse(&bytes, network, id).map(|cached| cached.stamped(stamp)) {
            Ok(cached) if (&cached.network, &cached.attachment.id) == (network, id) => Ok(Look::Own(Box::new(cached))),
            Ok(other) => Ok(Look::Others(Box::new(other))),
            Err(reason) => {
                tracing::warn!(path = %path.display(), %reason, "a cached result is broken and counts as missing");
                Ok(Look::Nothing)
            }
        }
    }

    /// The error that an attachment's file belongs to another one and must not be overwritten.
    pub(crate) fn clash(&self, network: &NetworkName, id: &AttachmentId, other: &Cached) -> Error {
        let path = self.path(network, id);
        let (other_network, other) = (other.network.clone(), other.attachment.id.clone());
        Error::Clash(Box::new(Clash { path, network: network.clone(), id: id.clone(), other_network, other }))
    }

    /// All attachments, or those of one container. A missing folder means no attachments.
    ///
    /// # Errors
    /// [`Error::Cache`] if the folder cannot be read.
    pub fn list(&self, container: Option<&ContainerId>) -> Result<Listing, Error> {
        let failed = failed("list", &self.results);
        let entries = match std::fs::read_dir(&self.results) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Listing::default()),
            entries => entries.map_err(&failed)?,
        };
        let mut paths =
            entries.map(|entry| entry.map(|entry| entry.path()).map_err(&failed)).collect::<Result<Vec<_>, _>>()?;
        paths.retain(|path| may_be_of(path, container));
        paths.sort_unstable();
        let mut listing = Listing::default();
        for path in paths {
            match read_entry(&path) {
                Ok(Some(cached)) if self.is_copy(&path, &cached) => {
                    let reason = "it is a copy of another file of the cache".to_owned();
                    listing.passed_over.push(PassedOver { path, reason });
                }
                Ok(Some(cached)) if container.is_none_or(|id| *id == cached.attachment.id.container_id) => {
                    listing.cached.push(cached);
                }
                Ok(None) if cache_entry::is_bare_result(&path) => listing.nameless.push(path),
                Ok(_) => {}
                Err(reason) => listing.passed_over.push(PassedOver { path, reason }),
            }
        }
        Ok(listing)
    }

    /// Whether the attachment of this file has a file under its own name, too: a backup, for example.
    fn is_copy(&self, path: &Path, cached: &Cached) -> bool {
        let own = self.path(&cached.network, &cached.attachment.id);
        own != path && matches!(self.look(&cached.network, &cached.attachment.id), Ok(Look::Own(_)))
    }

    /// Writes the entry of an ADD that begins; the running plugins can be recorded in it.
    pub(crate) fn begin(&self, entry: &Cached) -> Result<Noted, Error> {
        let path = self.path(&entry.network, &entry.attachment.id);
        let blank = " ".repeat(RunningPlugin::TEXT_BYTES);
        // Before it forks the first plugin: that has its locks until it is executed.
        let mut entry = entry.clone();
        entry.runtime = ProcessId::of(Pid::this()).map_err(failed("write", &path))?;
        let bytes = entry.to_bytes(Some(&blank)).map_err(|error| failed("write", &path)(error.into()))?;
        let file = replace(&path, &bytes).map_err(failed("write", &path))?;
        let place = bytes.len() - blank.len() - r#""}"#.len();
        Ok(Noted { file, place: place as u64, path })
    }

    /// Writes the entry of a finished ADD.
    pub(crate) fn finish(&self, entry: &Cached) -> Result<(), Error> {
        let path = self.path(&entry.network, &entry.attachment.id);
        let bytes = entry.to_bytes(None).map_err(|error| failed("write", &path)(error.into()))?;
        replace(&path, &bytes).map(drop).map_err(failed("write", &path))
    }

    /// Removes an entry, and returns whether there was one. Another attachment's entry under the same file name stays.
    pub(crate) fn remove(&self, network: &NetworkName, id: &AttachmentId) -> Result<bool, Error> {
        let path = self.path(network, id);
        if let Ok(Some(other)) = read_entry(&path)
            && (&other.network, &other.attachment.id) != (network, id)
        {
            return Ok(false);
        }
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            outcome => outcome.map(|()| true).map_err(failed("remove", &path)),
        }
    }

    /// Removes temporary files of writers that died before they renamed them.
    pub(crate) fn remove_unfinished(&self) -> Result<(), Error> {
        let failed = failed("list", &self.results);
        let entries = match std::fs::read_dir(&self.results) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(&failed)?,
        };
        for entry in entries {
            let path = entry.map_err(&failed)?.path();
            if is_abandoned(&path) {
                std::fs::remove_file(&path).map_err(self::failed("remove", &path))?;
            }
        }
        Ok(())
    }
}

/// The entry of an ADD in progress.
#[derive(Debug)]
pub(crate) struct Noted {
    file: File,
    /// Offset of the field `running`, in bytes.
    place: u64,
    path: PathBuf,
}

impl Noted {
    /// Records that the child with this pid is the running plugin of this process, so that a later process can end it when
    /// this one is dead.
    ///
    /// The pid is written in place, over the same number of bytes, with one system call. A partial write names no valid
    /// process; the plugin of a runtime that died during the write has not begun.
    pub(crate) fn note(&self, child: Pid) -> Result<(), Error> {
        let noted = RunningPlugin::of(child).and_then(|running| match running {
            Some(running) => self.file.write_all_at(running.to_string().as_bytes(), self.place),
            // The child has ended already, so no later process needs to end it.
            None => Ok(()),
        });
        noted.map_err(failed("write", &self.path))
    }
}

fn failed(verb: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::Cache { verb, path: path.to_owned(), source, details: String::new() }
}

/// Whether a file of this name can be an entry of `container`. The name alone does not decide: all its parts may
/// contain `-`.
fn may_be_of(path: &Path, container: Option<&ContainerId>) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    !name.starts_with('.') && container.is_none_or(|id| name.contains(&format!("-{id}-")))
}

/// Whether a file is a temporary one that its writer has left. A writer needs milliseconds. Its pid, which is in the name,
/// is no evidence: it may be of another PID namespace, or in use again.
fn is_abandoned(path: &Path) -> bool {
    let is_unfinished =
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(UNFINISHED));
    let written = || std::fs::symlink_metadata(path).and_then(|found| found.modified());
    let age = || SystemTime::now().duration_since(written().ok()?).ok();
    is_unfinished && age().is_some_and(|age| age > ABANDONED)
}

/// The attachment that an entry belongs to, for messages.
fn attachment_of(Cached { network, attachment: RuntimeConf { id, .. }, .. }: &Cached) -> String {
    format!("that of {}/{} in network {network}", id.container_id, id.ifname)
}

/// Writes a file as a whole or not at all, readable by its owner only.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<File> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let (mut file, unfinished) = loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let unfinished = path.with_file_name(format!("{UNFINISHED}{}-{count}", std::process::id()));
        match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished) {
            // Left by a process that is gone, or in use by one with this pid in another PID namespace.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            file => break (file?, unfinished),
        }
    };
    let written = (|| {
        file.write_all(bytes)?;
        std::fs::rename(&unfinished, path)?;
        Ok(file)
    })();
    if written.is_err()
        && let Err(error) = std::fs::remove_file(&unfinished)
    {
        tracing::debug!(%error, path = %unfinished.display(), "cannot remove an unfinished file");
    }
    written
}
