//! What the interface had before ADD: a file for each attachment, in the reference's form, for either side's DEL.
//!
//! The file has three keys more than the reference's: `attachment`, by which GC knows the network, `netns` and
//! `netnsNumbers`, which say where the interface is, for a runtime that asks before GC whether the container lives. The
//! reference's name of the file joins container and interface by `_`, which both may contain: the key also shows whose it
//! is. Where the name is taken by another container's interface, the file has a name with `:` in place of the `_`, which
//! neither can contain.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use cni_spec::gc::Sweep;
use cni_spec::{Attachment, CniError, NetworkName};
use interface::error::{On, failed_on};
use interface::inventory::{Item, Sign};
use netops::link::{Link, Settings};
use netops::{Netns, OpError, file};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::conf::{DATA_DIR, DataDir};

/// The longest record that is read, in bytes: a path has 4096 at most, the rest less than 1000.
const BYTES_MAX: u64 = 1 << 14;

#[derive(Debug, Clone)]
pub struct RecordFile {
    path: PathBuf,
    attachment: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Recorded {
    /// `NETWORK/CONTAINER/IFNAME`; the reference's have none.
    attachment: Option<String>,
    /// Where the interface is; the reference's and those of earlier versions do not say.
    #[serde(flatten)]
    place: Option<NamespacePath>,
    #[serde(flatten)]
    pub old: Old,
}

/// The namespace of the container's interface.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NamespacePath {
    #[serde(rename = "netns")]
    path: PathBuf,
    #[serde(rename = "netnsNumbers")]
    numbers: [u64; 2],
}

impl From<&Netns> for NamespacePath {
    fn from(netns: &Netns) -> Self {
        Self { path: netns.path().to_owned(), numbers: netns.identity().numbers() }
    }
}

/// Settings that ADD changed, as they were.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Old {
    mac: Option<String>,
    promisc: Option<bool>,
    mtu: Option<u32>,
    allmulti: Option<bool>,
    #[serde(rename = "txQLen")]
    tx_queue_len: Option<u32>,
    pub offloads: BTreeMap<String, bool>,
}

impl Old {
    /// The link's values of all that `wanted` changes.
    pub fn of(link: &Link, wanted: &Settings) -> Self {
        Self {
            mac: wanted.mac.and(link.mac).map(|mac| mac.to_string()),
            promisc: wanted.promisc.map(|_| link.promisc),
            mtu: wanted.mtu_bytes.map(|_| link.mtu_bytes),
            allmulti: wanted.allmulti.map(|_| link.allmulti),
            tx_queue_len: wanted.tx_queue_len.map(|_| link.tx_queue_len),
            offloads: BTreeMap::new(),
        }
    }

    /// The changes that bring them back.
    pub fn settings(&self) -> Settings {
        Settings {
            mac: self.mac.as_deref().and_then(|mac| mac.parse().ok()),
            promisc: self.promisc,
            mtu_bytes: self.mtu.filter(|mtu| *mtu != 0),
            allmulti: self.allmulti,
            tx_queue_len: self.tx_queue_len,
            ..Settings::default()
        }
    }

    /// The settings of this record, and those of `later` where it has none.
    fn or(self, later: &Self) -> Self {
        Self {
            mac: self.mac.or_else(|| later.mac.clone()),
            promisc: self.promisc.or(later.promisc),
            mtu: self.mtu.or(later.mtu),
            allmulti: self.allmulti.or(later.allmulti),
            tx_queue_len: self.tx_queue_len.or(later.tx_queue_len),
            offloads: later.offloads.clone().into_iter().chain(self.offloads).collect(),
        }
    }

    fn to_object(&self) -> Map<String, Value> {
        let all = [
            ("mac", self.mac.clone().map(Value::from)),
            ("promisc", self.promisc.map(Value::from)),
            ("mtu", self.mtu.map(Value::from)),
            ("allmulti", self.allmulti.map(Value::from)),
            ("txQLen", self.tx_queue_len.map(Value::from)),
            ("offloads", (!self.offloads.is_empty()).then(|| json!(self.offloads))),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }
}

impl Recorded {
    /// Returns whether the settings may be the attachment's: the file names no other one.
    pub fn is_of(&self, attachment: &Attachment) -> bool {
        self.attachment.as_ref().is_none_or(|own| *own == attachment.to_string())
    }
}

impl RecordFile {
    /// The attachment's file: the one that it has, or is to have.
    pub fn of(data_dir: &DataDir, attachment: &Attachment) -> Self {
        let Attachment { container_id, ifname, .. } = attachment;
        // Neither name can contain a slash, nor be `..`.
        let [plain, own] = ['_', ':'].map(|mark| Self {
            path: data_dir.0.join(format!("{container_id}{mark}{ifname}.json")),
            attachment: attachment.to_string(),
        });
        let is_anothers = |kept: Recorded| {
            // Before the container is the network: a record of the same interface in another one is an earlier attachment's.
            kept.attachment.is_some_and(|owner| !owner.ends_with(&format!("/{container_id}/{ifname}")))
        };
        let is_taken = || plain.read().ok().flatten().is_some_and(is_anothers);
        if own.path.exists() || is_taken() { own } else { plain }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records settings. What the attachment's file has already stays: an ADD before this one found it.
    pub fn keep(&self, old: &Old, place: &NamespacePath) -> Result<(), CniError> {
        let earlier = self.read().ok().flatten().filter(|kept| kept.attachment.as_ref() == Some(&self.attachment));
        let mut object = earlier.unwrap_or_default().old.or(old).to_object();
        object.insert("attachment".to_owned(), self.attachment.clone().into());
        object.insert("netns".to_owned(), place.path.display().to_string().into());
        object.insert("netnsNumbers".to_owned(), place.numbers.to_vec().into());
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| refused("create", folder, &error))?;
        self.write(Value::Object(object).to_string().as_bytes())
    }

    pub fn write(&self, content: &[u8]) -> Result<(), CniError> {
        file::replace(&self.path, content, 0o600).map_err(|error| failed_on(On::Files("dataDir"), &error))
    }

    pub fn read(&self) -> Result<Option<Recorded>, CniError> {
        let Some(bytes) = self.read_bytes()? else { return Ok(None) };
        parse(&self.path, &bytes).map(Some)
    }

    /// The whole file, if there is one.
    pub fn read_bytes(&self) -> Result<Option<Vec<u8>>, CniError> {
        read(&self.path)
    }

    pub fn remove(&self) -> Result<(), CniError> {
        remove(&self.path)
    }
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Recorded, CniError> {
    serde_json::from_slice(bytes).map_err(|error| {
        let error = OpError::state("read", path.display().to_string(), error.to_string());
        failed_on(On::Files("dataDir"), &error)
    })
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, CniError> {
    match file::read_plain(path, BYTES_MAX) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            let text = format!("it is no regular file of at most {BYTES_MAX} bytes");
            Err(refused("read", path, &std::io::Error::other(text)))
        }
        Err(error) => Err(refused("read", path, &error)),
    }
}

fn remove(path: &Path) -> Result<(), CniError> {
    file::remove(path).map_err(|error| failed_on(On::Files("dataDir"), &error))
}

fn refused(op: &'static str, path: &Path, error: &std::io::Error) -> CniError {
    failed_on(On::Files("dataDir"), &OpError::io(op, path.display().to_string(), error))
}

/// Removes the records of attachments to the network that GC removes.
pub fn collect(data_dir: &DataDir, network: &NetworkName, sweep: &Sweep<&Attachment>) -> Vec<CniError> {
    let records = match list(data_dir, network) {
        Ok(records) => records,
        Err(error) => return vec![error],
    };
    let stale = sweep.by(|attachment| attachment.to_string());
    records.iter().filter(|found| stale.has(&found.owner)).filter_map(|found| remove(&found.path).err()).collect()
}

/// What GC would remove if no attachment to the network were valid. Changes nothing.
pub fn inventory(data_dir: &DataDir, network: &NetworkName) -> Result<Vec<Item>, CniError> {
    let mark = |found: Listed| {
        let (container, ifname) = found.owner.split_once('/').and_then(|(_, rest)| rest.split_once('/'))?;
        let attachment = Attachment::parse(network.as_str(), container, ifname).ok()?;
        let sign =
            found.place.map_or(Sign::Undecided, |NamespacePath { path, numbers }| Sign::Namespace { path, numbers });
        let object = format!("tuning record {}", found.path.display());
        Some(Item { owner: (&attachment).into(), object, signs: vec![sign] })
    };
    Ok(list(data_dir, network)?.into_iter().filter_map(mark).collect())
}

/// The names of the networks that have a record in the usual folder.
pub fn networks() -> Result<BTreeSet<String>, CniError> {
    let owners = list_all(Path::new(DATA_DIR))?.into_iter();
    Ok(owners.filter_map(|found| Some(found.owner.split_once('/')?.0.to_owned())).collect())
}

/// The record of an attachment to a network.
struct Listed {
    path: PathBuf,
    /// `NETWORK/CONTAINER/IFNAME`.
    owner: String,
    place: Option<NamespacePath>,
}

/// The network's records. The reference's do not say their network, and are left out.
fn list(data_dir: &DataDir, network: &NetworkName) -> Result<Vec<Listed>, CniError> {
    let prefix = format!("{network}/");
    let mut all = list_all(&data_dir.0)?;
    all.retain(|found| found.owner.starts_with(&prefix));
    Ok(all)
}

fn list_all(folder: &Path) -> Result<Vec<Listed>, CniError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(refused("list", folder, &error)),
    };
    let listed = |path: PathBuf| {
        let find = |path: &Path| read(path).ok().flatten().and_then(|bytes| parse(path, &bytes).ok());
        // A file of a killed writer is whole, or names no attachment yet.
        let Recorded { attachment, place, .. } = find(&path).or_else(|| find(&file::unfinished(&path)))?;
        Some(Listed { path, owner: attachment?, place })
    };
    let paths: BTreeSet<PathBuf> = entries.flatten().filter_map(|entry| record_of(&entry.path())).collect();
    Ok(paths.into_iter().filter_map(listed).collect())
}

/// The record that a file of the folder is, or is to become.
fn record_of(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let finished = name.strip_prefix('.').and_then(|name| name.strip_suffix(".new")).unwrap_or(name);
    finished.ends_with(".json").then(|| path.with_file_name(finished))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> NamespacePath {
        NamespacePath { path: "/run/netns/c".into(), numbers: [4, 4_026_532_000] }
    }

    #[test]
    fn a_repeated_add_keeps_what_the_first_one_found() {
        let folder = tempfile::tempdir().unwrap();
        let record = RecordFile::of(&DataDir(folder.path().join("a/b")), &Attachment::parse("n", "c", "eth0").unwrap());
        assert_eq!(record.read().unwrap(), None);
        record.keep(&Old { mtu: Some(1500), ..Old::default() }, &place()).unwrap();
        record.keep(&Old { mtu: Some(1400), promisc: Some(false), ..Old::default() }, &place()).unwrap();
        let kept = record.read().unwrap().unwrap();
        assert_eq!(kept.place, Some(place()));
        assert_eq!(kept.old, Old { mtu: Some(1500), promisc: Some(false), ..Old::default() });
        assert!(kept.is_of(&Attachment::parse("n", "c", "eth0").unwrap()));
        assert!(!kept.is_of(&Attachment::parse("m", "c", "eth0").unwrap()));
    }

    #[test]
    fn the_references_records_are_read_and_ours_are_alike() {
        let text = br#"{"mac":"02:00:00:00:00:01","promisc":false,"mtu":1500,"allmulti":true,"txQLen":1000}"#;
        let kept = parse(Path::new("x"), text).unwrap();
        assert_eq!(Value::Object(kept.old.to_object()).to_string().as_bytes(), text);
        assert!(kept.is_of(&Attachment::parse("n", "c", "eth0").unwrap()));
        assert_eq!(kept.place, None);
    }

    #[test]
    fn gc_also_removes_what_a_killed_writer_left() {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = DataDir(folder.path().to_owned());
        let of = |id: &str| RecordFile::of(&data_dir, &Attachment::parse("n", id, "eth0").unwrap());
        of("gone").keep(&Old::default(), &place()).unwrap();
        std::fs::rename(of("gone").path(), file::unfinished(of("gone").path())).unwrap();
        of("valid").keep(&Old::default(), &place()).unwrap();
        let valid = [Attachment::parse("n", "valid", "eth0").unwrap()];
        let owners = inventory(&data_dir, &valid[0].network).unwrap().into_iter().map(|item| item.owner);
        assert!(owners.eq([Attachment::parse("n", "gone", "eth0").unwrap(), valid[0].clone()].iter().map(Into::into)));
        assert_eq!(collect(&data_dir, &valid[0].network, &(&[&valid[0]]).into()), []);
        let names: Vec<_> = std::fs::read_dir(&data_dir.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["valid_eth0.json"]);
    }

    #[test]
    fn what_is_no_regular_file_is_an_error_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let record = RecordFile::of(&DataDir(folder.path().to_owned()), &Attachment::parse("n", "c", "eth0").unwrap());
        nix::unistd::mkfifo(record.path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(record.read().unwrap_err().msg.contains("no regular file"));
        record.remove().unwrap();
        std::fs::create_dir(record.path()).unwrap();
        assert!(record.read().unwrap_err().msg.contains("no regular file"));
    }
}
