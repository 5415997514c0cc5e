//! The last ADD result by attachment: what DEL, CHECK and GC know of a container after a restart of its runtime.
//!
//! Place and format are the reference's, so either side reads what the other wrote. A file appears whole or not
//! at all, whatever becomes of the runtime. One that cannot be understood counts as missing, with a warning.
//!
//! Like the reference's, files are not flushed to the disk, so a power cut may cost those of the last seconds. The
//! containers, links and rules end with the node's power; an address that is still reserved then is GC's.
//!
//! An entry is written twice. Before the first plugin of an ADD runs it is an *intent*: all keys but `result`. After the
//! last one it is replaced by the complete entry. So whatever happens to the runtime in between, configuration, namespace
//! and arguments are there for DEL. In between, key `running` says which process the plugin is: number, start in clock
//! ticks, boot. The reference library takes an intent for an ADD with an empty result: its DEL and GC run with a
//! `prevResult` that has no addresses, and succeed; its CHECK has nothing to find, and its plugins fail it.

use crate::attachment::{Attachment, AttachmentId, CapabilityArgs};
use crate::conflist::{NetworkConf, PassedOver};
use crate::error::{Clash, Error};
use crate::process::ProcessId;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cni_spec::{AddResult, CniArgs, CniError, Code, ContainerId, IfName, NetworkName, SpecVersion};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where runtimes keep it.
pub const DEFAULT_DIR: &str = "/var/lib/cni";
const KIND: &str = "cniCacheV1";
/// Files being written start like this; a name of an entry starts alphanumeric.
const UNFINISHED: &str = ".unfinished-";

/// The cache of one folder.
#[derive(Debug, Clone)]
pub struct Cache {
    results: PathBuf,
}

/// What the cache knows of one attachment.
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
    /// The plugin that ran last while an ADD was under way.
    pub(crate) running: Option<ProcessId>,
}

/// What is in the file of an attachment.
#[derive(Debug)]
pub(crate) enum Look {
    /// Nothing, or nothing that can be understood.
    Nothing,
    Own(Box<Cached>),
    /// Another attachment's entry, as the parts of a name may contain `-`.
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
    /// Last, so that it can be written where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    running: Option<String>,
}

impl Cached {
    /// What an ADD knows: without a result, its intent.
    pub(crate) fn of(
        network: &NetworkConf,
        name: &NetworkName,
        attachment: &Attachment,
        result: Option<Box<RawValue>>,
    ) -> Self {
        let (network, config) = (name.clone(), network.bytes.clone());
        Self { network, attachment: attachment.clone(), config, result, running: None }
    }

    /// Whether the ADD was finished. If not, this is an intent: the runtime that began the ADD is still at it, or died
    /// before it could finish or roll back, or could not roll back everything. DEL finishes it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.result.is_some()
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

    /// The network configuration that ADD used: enough for DEL when the file it came from has changed or is gone.
    ///
    /// # Errors
    /// Code 6 or 7 when it is none, as in files of the oldest format.
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
        })
    }

    /// The file, with a place for the plugin that runs or without.
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
        Self { results: dir.join("results") }
    }

    /// The file of an attachment.
    #[must_use]
    pub fn path(&self, network: &NetworkName, id: &AttachmentId) -> PathBuf {
        self.results.join(format!("{network}-{}-{}", id.container_id, id.ifname))
    }

    /// Makes the folder, 0700, if it is not there: a node that cannot cache is told so before anything runs.
    pub(crate) fn prepare(&self) -> Result<(), Error> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.results)
            .map_err(failed("write", &self.results))
    }

    /// What is known of an attachment. A broken file is as good as none, with a warning.
    ///
    /// # Errors
    /// [`Error::Cache`] if the file is there and cannot be read.
    pub fn find(&self, network: &NetworkName, id: &AttachmentId) -> Result<Option<Cached>, Error> {
        match self.look(network, id)? {
            Look::Own(cached) => Ok(Some(*cached)),
            Look::Nothing => Ok(None),
            Look::Others(other) => {
                let path = self.path(network, id);
                tracing::warn!(path = %path.display(), "a cached result counts as missing: it is {}", told(&other));
                Ok(None)
            }
        }
    }

    /// What is in the file of an attachment.
    pub(crate) fn look(&self, network: &NetworkName, id: &AttachmentId) -> Result<Look, Error> {
        let path = self.path(network, id);
        let bytes = match std::fs::read(&path) {
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

    /// That an attachment's file is another's, which is not to be overwritten.
    pub(crate) fn clash(&self, network: &NetworkName, id: &AttachmentId, other: &Cached) -> Error {
        let path = self.path(network, id);
        let (other_network, other) = (other.network.clone(), other.attachment.id.clone());
        Error::Clash(Box::new(Clash { path, network: network.clone(), id: id.clone(), other_network, other }))
    }

    /// All attachments, or those of one container. No folder is no attachments.
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

    /// Writes the entry of an ADD that begins, in which its plugins can be noted.
    pub(crate) fn begin(&self, entry: &Cached) -> Result<Noted, Error> {
        let path = self.path(&entry.network, &entry.attachment.id);
        let blank = " ".repeat(ProcessId::TEXT_BYTES);
        let bytes = entry.to_bytes(Some(&blank)).map_err(|error| failed("write", &path)(error.into()))?;
        let file = replace(&path, &bytes).map_err(failed("write", &path))?;
        let place = bytes.len() - blank.len() - r#""}"#.len();
        Ok(Noted { file, place: place as u64, path })
    }

    /// Writes the entry of an ADD that was finished.
    pub(crate) fn finish(&self, entry: &Cached) -> Result<(), Error> {
        let path = self.path(&entry.network, &entry.attachment.id);
        let bytes = entry.to_bytes(None).map_err(|error| failed("write", &path)(error.into()))?;
        replace(&path, &bytes).map(drop).map_err(failed("write", &path))
    }

    /// Removes an entry, and says whether there was one. Another attachment's under the same file name stays.
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

    /// Removes what writers left that died before a file was in its place.
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

/// The entry of an ADD under way.
#[derive(Debug)]
pub(crate) struct Noted {
    file: File,
    /// Where the plugin is noted, in bytes from the start.
    place: u64,
    path: PathBuf,
}

impl Noted {
    /// Notes that a child of this number is the plugin that runs, so that whoever comes after this process can end it.
    ///
    /// Written in place, over as many bytes: one system call. Half of it would be no process, and the plugin of a
    /// runtime that died in the middle of it does not begin.
    pub(crate) fn note(&self, child: Pid) -> Result<(), Error> {
        let noted = ProcessId::of(child).and_then(|plugin| match plugin {
            Some(plugin) => self.file.write_all_at(plugin.to_string().as_bytes(), self.place),
            // It has ended already, and there is nothing to end.
            None => Ok(()),
        });
        noted.map_err(failed("write", &self.path))
    }
}

fn failed(verb: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::Cache { verb, path: path.to_owned(), source, details: String::new() }
}

/// Whether the file's name allows that it is an entry of `container`. The name alone cannot tell: all its parts may
/// contain `-`.
fn may_be_of(path: &Path, container: Option<&ContainerId>) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    !name.starts_with('.') && container.is_none_or(|id| name.contains(&format!("-{id}-")))
}

/// Whether it is an unfinished file whose writer is gone. A process that is there may write just now.
fn is_abandoned(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let Some((writer, _)) = name.and_then(|name| name.strip_prefix(UNFINISHED)?.split_once('-')) else { return false };
    writer.parse::<u32>().is_ok_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

/// `Ok(None)`: it has just been deleted, or it is of the oldest format, which does not say whose it is.
fn read_entry(path: &Path) -> Result<Option<Cached>, String> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(|error| error.to_string())?,
    };
    match wire(&bytes)? {
        Some(wire) => Cached::from_wire(wire).map(Some).map_err(|error| error.to_string()),
        None => Ok(None),
    }
}

/// The entry of `bytes`; `None` if it is another JSON object, such as the bare result of the oldest format.
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

/// The entry in a file of this attachment's, which may be another's. The oldest format does not say whose it is.
pub(crate) fn parse(bytes: &[u8], network: &NetworkName, id: &AttachmentId) -> Result<Cached, String> {
    if let Some(wire) = wire(bytes)? {
        return Cached::from_wire(wire).map_err(|error| error.to_string());
    }
    let result = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let attachment = Attachment::from(id.clone());
    let cached =
        Cached { network: network.clone(), attachment, config: Vec::new(), result: Some(result), running: None };
    // Any object would do as JSON; only a result counts.
    cached.result(SpecVersion::V0_1_0).map_err(|error| error.to_string())?;
    Ok(cached)
}

/// Whose an entry is.
fn told(Cached { network, attachment: Attachment { id, .. }, .. }: &Cached) -> String {
    format!("that of {}/{} in network {network}", id.container_id, id.ifname)
}

/// Puts a file in its place, all or nothing, readable by its owner only.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<File> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let unfinished = path.with_file_name(format!("{UNFINISHED}{}-{count}", std::process::id()));
    let written = (|| {
        // A leftover of this name is from a process that is gone.
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
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
