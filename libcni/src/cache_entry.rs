//! An entry of the cache: one attachment, as its file has it.

use crate::attachment::{AttachmentId, CapabilityArgs, RuntimeConf};
use crate::conflist::NetworkConf;
use crate::namespace::{self, Mark, Namespace, is_of_earlier_boot};
use crate::orphaned_plugin::RunningPlugin;
use crate::plain_file;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cni_spec::{AddResult, CniArgs, CniError, Code, ContainerId, IfName, NetworkName, SpecVersion, json};
use processes::ProcessId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

const KIND: &str = "cniCacheV1";

/// The cached data of one attachment.
#[derive(Debug, Clone)]
pub struct Cached {
    /// The network's name.
    pub network: NetworkName,
    /// Container, interface, namespace, arguments and capability arguments of the ADD. The namespace of an entry that does
    /// not name one, as older versions of the reference's library write, is the result's.
    pub attachment: RuntimeConf,
    /// The network configuration that ADD used; empty in files of the oldest format.
    pub config: Vec<u8>,
    /// The result as JSON; `None` in an intent.
    result: Option<Box<RawValue>>,
    /// The namespace that was at the path at that time; `None` in the entries of other libraries.
    mark: Option<Mark>,
    /// The runtime whose ADD was in progress.
    pub(crate) runtime: Option<ProcessId>,
    /// The plugin that ran last while an ADD was in progress.
    pub(crate) running: Option<RunningPlugin>,
    stamp: Option<Stamp>,
}

/// Identifies a file: each write of an entry makes a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    /// Seconds and nanoseconds of the last change of the inode.
    changed: (i64, i64),
    /// The time at which the entry's content was written.
    written: SystemTime,
}

impl Stamp {
    fn of(found: &Metadata) -> io::Result<Self> {
        let changed = (found.ctime(), found.ctime_nsec());
        Ok(Self { inode: found.ino(), changed, written: found.modified()? })
    }
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
    /// A key of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// A key of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    runtime: Option<String>,
    /// A key of ours. Last, so that it can be overwritten in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    running: Option<String>,
}

impl Cached {
    /// The entry of an ADD; without a result it is the intent.
    pub(crate) fn of(
        network: &NetworkConf,
        name: &NetworkName,
        attachment: &RuntimeConf,
        result: Option<Box<RawValue>>,
    ) -> Self {
        let (network, config, mark) = (name.clone(), network.bytes.clone(), Mark::of(&attachment.netns));
        Self {
            network,
            attachment: attachment.clone(),
            config,
            result,
            mark,
            runtime: None,
            running: None,
            stamp: None,
        }
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

    /// When the file that it was read from was written. `None`: it was not read from one.
    #[must_use]
    pub fn written(&self) -> Option<SystemTime> {
        Some(self.stamp?.written)
    }

    /// The state of the namespace that ADD used. If the path now leads to another namespace, the old one counts as gone, and
    /// so does one of an earlier boot.
    #[must_use]
    pub fn namespace(&self) -> Namespace {
        let path = self.attachment.netns.as_str();
        let is_older = || self.written().is_some_and(is_of_earlier_boot);
        match (Namespace::of(path), &self.mark) {
            (Namespace::Present, Some(mark)) => mark.find(path),
            // A process of this boot may have the number of one of the last.
            (Namespace::Present, None) if path.starts_with("/proc/") && is_older() => Namespace::Gone,
            (Namespace::Unknown, None) if path.is_empty() && is_older() => Namespace::Gone,
            (Namespace::Unknown, Some(mark)) if mark.is_of_earlier_boot() => Namespace::Gone,
            (state, _) => state,
        }
    }

    /// Whether the namespace at `path` is the one that ADD used.
    pub(crate) fn is_of(&self, path: &str) -> bool {
        match &self.mark {
            Some(mark) => mark.find(path) == Namespace::Present,
            None => self.attachment.netns == path,
        }
    }

    /// Whether an empty file is at the path of the namespace: it is gone, or mounted in another mount namespace.
    #[must_use]
    pub fn is_unmounted(&self) -> bool {
        namespace::is_bare(&self.attachment.netns)
    }

    /// A process that is in the namespace that ADD used, though the path leads to it no more.
    pub(crate) fn process(&self) -> Option<u32> {
        self.mark.as_ref()?.process()
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

    /// Whether the file has the oldest format, a bare result: without the attachment's namespace, arguments and configuration.
    #[must_use]
    pub fn is_bare_result(&self) -> bool {
        self.config.is_empty()
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

    /// The same entry, as read from this file.
    pub(crate) fn stamped(self, stamp: Stamp) -> Self {
        Self { stamp: Some(stamp), ..self }
    }

    fn from_wire(wire: Wire) -> Result<Self, CniError> {
        let unreadable = |error| CniError::new(Code::DECODING, format!("cannot read key config: {error}"));
        let id = AttachmentId {
            container_id: ContainerId::parse(&wire.container_id)?,
            ifname: IfName::parse(&wire.if_name)?,
        };
        let sandbox = || wire.result.as_deref().and_then(|result| sandbox(result, &id.ifname));
        let netns = Some(wire.netns).filter(|netns| !netns.is_empty()).or_else(sandbox).unwrap_or_default();
        let attachment = RuntimeConf {
            id,
            netns,
            args: CniArgs::from_pairs(wire.cni_args.unwrap_or_default()),
            capability_args: wire.capability_args.unwrap_or_default(),
        };
        Ok(Self {
            network: NetworkName::parse(&wire.network_name)?,
            attachment,
            config: STANDARD.decode(&wire.config).map_err(unreadable)?,
            result: wire.result,
            mark: wire.namespace.map(Mark::recorded),
            runtime: wire.runtime.and_then(|text| text.parse().ok()),
            running: wire.running.and_then(|text| text.parse().ok()),
            stamp: None,
        })
    }

    /// The file's content, with or without room for the running plugin.
    pub(crate) fn to_bytes(&self, running: Option<&str>) -> serde_json::Result<Vec<u8>> {
        let RuntimeConf { id, netns, args, capability_args } = &self.attachment;
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
            namespace: self.mark.as_ref().map(Mark::to_string),
            runtime: self.runtime.as_ref().map(ProcessId::to_string),
            running: running.map(str::to_owned),
        })
    }
}

/// The namespace in a result: that of this interface, else of another one.
fn sandbox(result: &RawValue, ifname: &IfName) -> Option<String> {
    let result = json::parse(result.get().as_bytes()).ok()?;
    let interfaces = json::member(&result, "interfaces")?.as_array()?;
    let text = |interface: &Value, key| json::member(interface, key)?.as_str().map(str::to_owned);
    let sandbox = |interface| text(interface, "sandbox").filter(|path| !path.is_empty());
    let is_its = |interface: &&Value| text(interface, "name").as_deref() == Some(ifname.as_str());
    let of_its = interfaces.iter().filter(is_its).find_map(sandbox);
    of_its.or_else(|| interfaces.iter().find_map(sandbox))
}

/// The bytes of an entry's file, and the file.
pub(crate) fn read(path: &Path) -> io::Result<(Stamp, Vec<u8>)> {
    let file: File = plain_file::open(path)?;
    Ok((Stamp::of(&file.metadata()?)?, plain_file::read_whole(file)?))
}

/// `Ok(None)`: it has just been deleted, or it has the oldest format, which does not name its attachment.
pub(crate) fn read_entry(path: &Path) -> Result<Option<Cached>, String> {
    let (stamp, bytes) = match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| error.to_string())?,
    };
    let Some(wire) = wire(&bytes)? else { return Ok(None) };
    let cached = Cached::from_wire(wire).map_err(|error| error.to_string())?;
    Ok(Some(cached.stamped(stamp)))
}

/// Whether a file has the oldest format: a result, and nothing about its attachment.
pub(crate) fn is_bare_result(path: &Path) -> bool {
    let Ok((_, bytes)) = read(path) else { return false };
    let value = cni_spec::json::parse(&bytes).ok().filter(|value| cni_spec::json::member(value, "kind").is_none());
    value.is_some_and(|value| AddResult::from_value(&value, SpecVersion::V0_1_0).is_ok())
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
    let attachment = RuntimeConf::from(id.clone());
    let cached = Cached {
        network: network.clone(),
        attachment,
        config: Vec::new(),
        result: Some(result),
        mark: None,
        runtime: None,
        running: None,
        stamp: None,
    };
    // Any object is valid JSON; only a result counts.
    cached.result(SpecVersion::V0_1_0).map_err(|error| error.to_string())?;
    Ok(cached)
}
