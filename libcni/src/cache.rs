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
//! configuration, namespace and arguments. In between, key `running` identifies the plugin's process: pid, start time
//! in clock ticks, boot. The reference library takes an intent for an ADD with an empty result: its DEL and GC run with
//! a `prevResult` without addresses, and succeed; its CHECK fails in the plugins, as the interfaces are missing from
//! that result.

use crate::attachment::{Attachment, AttachmentId, CapabilityArgs};
use crate::conflist::{NetworkConf, PassedOver};
use crate::error::{Clash, Error};
use crate::lock::Locks;
use crate::process::ProcessId;
use crate::regular;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cni_spec::{AddResult, CniArgs, CniError, Code, ContainerId, IfName, NetworkName, SpecVersion};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// Where runtimes keep it.
pub const DEFAULT_DIR: &str = "/var/lib/cni";
const KIND: &str = "cniCacheV1";
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

/// The cached data of one attachment.
#[derive(Debug, Clone)]
pub struct Cached {
    /// The network's name.
    pub network: NetworkName,
    /// Container, interface, namespace, arguments and capability arguments of the ADD.
    pub attachment: Attachment,
    /// The network configuration that ADD used; empty in files of the oldest format.
    pub config: Vec<u8>,
    /// The result as JSON; `None` in an intent.
    result: Option<Box<RawValue>>,
    /// The plugin that ran last while an ADD was in progress.
    pub(crate) running: Option<ProcessId>,
    /// The file that it was listed from.
    stamp: Option<Stamp>,
}

/// Identifies a file: each write of an entry makes a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    /// Seconds and nanoseconds of the last change of the inode.
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self { inode: found.ino(), changed: (found.ctime(), found.ctime_nsec()) })
    }
}

/// The content of an attachment's file.
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
}

/// The file, key for key.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    kind: String,
    container_id: String,
    config: String,
    if_name: String,
    network_name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    netns: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cni_args: Option<Vec<(String, String)>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capability_args: Option<CapabilityArgs>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    /// Last, so that it can be overwritten in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    running: Option<String>,
}

impl Cached {
    /// The entry of an ADD; without a result it is the intent.
    pub(crate) fn of(
        network: &NetworkConf,
        name: &NetworkName,
        attachment: &Attachment,
        result: Option<Box<RawValue>>,
    ) -> Self {
        let (network, config) = (name.clone(), network.bytes.clone());
        Self { network, attachment: attachment.clone(), config, result, running: None, stamp: None }
    }

    /// Whether `other` was listed from the same file, so that no ADD or DEL has come in between.
    pub(crate) fn is_unchanged(&self, other: &Cached) -> bool {
        self.stamp.is_some() && self.stamp == other.stamp && self.attachment.id == other.attachment.id
    }

    /// Whether the ADD was finished. If not, this is an intent: the runtime that began the ADD is still at work, or
    /// died before it could finish or roll back, or could not roll back everything. DEL finishes it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.result.is_some()
    }

    /// When the file that it was listed from was written. `None`: it was not listed.
    #[must_use]
    pub fn written(&self) -> Option<SystemTime> {
        let (seconds, nanoseconds) = self.stamp?.changed;
        let since = Duration::new(seconds.try_into().ok()?, nanoseconds.try_into().ok()?);
        SystemTime::UNIX_EPOCH.checked_add(since)
    }

    /// The result, read as its own version, or `version` if it names none.
    ///
    /// # Errors
    /// Code 6 or 1 when it cannot be read.
    pub fn result(&self, version: SpecVersion) -> Result<Option<AddResult>, CniError> {
        let Some(result) = &self.result else { return Ok(None) };
        let value = cni_spec::json::parse(result.get().as_bytes())?;
        AddResult::from_value(&value, version).map(Some)
    }

    /// The result as JSON, in the form of the version that ADD used.
    #[must_use]
    pub fn result_json(&self) -> Option<&str> {
        self.result.as_deref().map(RawValue::get)
    }

    /// The network configuration that ADD used: sufficient for DEL when the file it came from has changed or is gone.
    ///
    /// # Errors
    /// Code 6 or 7 when there is none, as in files of the oldest format.
    pub fn network_conf(&self) -> Result<NetworkConf, CniError> {
        if self.config.is_empty() {
            return Err(CniError::new(Code::INVALID_CONFIG, "the file is of the oldest format, which has none"));
        }
        NetworkConf::parse(&self.config)
    }

    fn from_wire(wire: Wire) -> Result<Self, CniError> {
        let unreadable = |error| CniError::new(Code::DECODING, format!("cannot read key config: {error}"));
        let id = AttachmentId {
            container_id: ContainerId::parse(&wire.container_id)?,
            ifname: IfName::parse(&wire.if_name)?,
        };
        let attachment = Attachment {
            id,
            netns: wire.netns,
            args: CniArgs::from_pairs(wire.cni_args.unwrap_or_default()),
            capability_args: wire.capability_args.unwrap_or_default(),
        };
        Ok(Self {
            network: NetworkName::parse(&wire.network_name)?,
            attachment,
            config: STANDARD.decode(&wire.config).map_err(unreadable)?,
            result: wire.result,
            running: wire.running.and_then(|text| text.parse().ok()),
            stamp: None,
        })
    }

    /// The file's content, with or without room for the running plugin.
    pub(crate) fn to_bytes(&self, running: Option<&str>) -> serde_json::Result<Vec<u8>> {
        let Attachment { id, netns, args, capability_args } = &self.attachment;
        let pairs = args.pairs();
        serde_json::to_vec(&Wire {
            kind: KIND.to_owned(),
            container_id: id.container_id.to_string(),
            config: STANDARD.encode(&self.config),
            if_name: id.ifname.to_string(),
            network_name: self.network.to_string(),
            netns: netns.clone(),
            cni_args: (!pairs.is_empty()).then(|| pairs.to_vec()),
            capability_args: (!capability_args.is_empty()).then(|| capability_args.clone()),
            result: self.result.clone(),
            running: running.map(str::to_owned),
        })
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

    /// The content of an attachment's file.
    pub(crate) fn look(&self, network: &NetworkName, id: &AttachmentId) -> Result<Look, Error> {
        let path = self.path(network, id);
        let bytes = match regular::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Look::Nothing),
            bytes => bytes.map_err(failed("read", &path))?,
        };
        match parse(&bytes, network, id) {
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
                Ok(Some(cached)) if container.is_none_or(|id| *id == cached.attachment.id.container_id) => {
                    listing.cached.push(cached);
                }
                Ok(_) => {}
                Err(reason) => listing.passed_over.push(PassedOver { path, reason }),
            }
        }
        Ok(listing)
    }

    /// Writes the entry of an ADD that begins; the running plugins can be recorded in it.
    pub(crate) fn begin(&self, entry: &Cached) -> Result<Noted, Error> {
        let path = self.path(&entry.network, &entry.attachment.id);
        let blank = " ".repeat(ProcessId::TEXT_BYTES);
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
    /// Records that the child with this pid is the running plugin, so that a later process can end it.
    ///
    /// It is written in place, over the same number of bytes, with one system call. A partial write names no valid
    /// process; the plugin of a runtime that died during the write has not begun.
    pub(crate) fn note(&self, child: Pid) -> Result<(), Error> {
        let noted = ProcessId::of(child).and_then(|plugin| match plugin {
            Some(plugin) => self.file.write_all_at(plugin.to_string().as_bytes(), self.place),
            // It has ended already, so no later process needs to end it.
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

/// Whether it is a temporary file that its writer has left. A writer needs milliseconds. Its pid, which is in the name,
/// is no evidence: it may be of another PID namespace, or in use again.
fn is_abandoned(path: &Path) -> bool {
    let is_unfinished =
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(UNFINISHED));
    let written = || std::fs::symlink_metadata(path).and_then(|found| found.modified());
    let age = || SystemTime::now().duration_since(written().ok()?).ok();
    is_unfinished && age().is_some_and(|age| age > ABANDONED)
}

/// `Ok(None)`: it has just been deleted, or it has the oldest format, which does not name its attachment.
fn read_entry(path: &Path) -> Result<Option<Cached>, String> {
    let read = || -> io::Result<_> {
        let file = regular::open(path)?;
        Ok((Stamp::of(&file)?, regular::read_whole(file)?))
    };
    let (stamp, bytes) = match read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| error.to_string())?,
    };
    let Some(wire) = wire(&bytes)? else { return Ok(None) };
    let cached = Cached::from_wire(wire).map_err(|error| error.to_string())?;
    Ok(Some(Cached { stamp: Some(stamp), ..cached }))
}

/// The entry in `bytes`; `None` if it is another JSON object, such as the bare result of the oldest format.
fn wire(bytes: &[u8]) -> Result<Option<Wire>, String> {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(default)]
        kind: Option<String>,
    }
    let Kind { kind } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    match kind.as_deref() {
        Some(KIND) => serde_json::from_slice(bytes).map(Some).map_err(|error| error.to_string()),
        Some(_) | None => Ok(None),
    }
}

/// The entry in the file under this attachment's name, which may be another's. The oldest format does not name it.
pub(crate) fn parse(bytes: &[u8], network: &NetworkName, id: &AttachmentId) -> Result<Cached, String> {
    if let Some(wire) = wire(bytes)? {
        return Cached::from_wire(wire).map_err(|error| error.to_string());
    }
    let result = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let attachment = Attachment::from(id.clone());
    let cached = Cached {
        network: network.clone(),
        attachment,
        config: Vec::new(),
        result: Some(result),
        running: None,
        stamp: None,
    };
    // Any object is valid JSON; only a result counts.
    cached.result(SpecVersion::V0_1_0).map_err(|error| error.to_string())?;
    Ok(cached)
}

/// The attachment that an entry belongs to, for messages.
fn attachment_of(Cached { network, attachment: Attachment { id, .. }, .. }: &Cached) -> String {
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
