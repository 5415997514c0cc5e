//! Leases in files, one each: what the daemon needs to go on after its own end, and where DEL notes a release when no
//! daemon runs.
//!
//! The folder belongs to the daemon of one socket and lies beside it, on a file system that ends with the boot, as the
//! containers do. Only root can read it.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use cni_spec::gc::Sweep;
use cni_spec::{CniError, Code};
use netops::file;
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::daemon::RecordOfIpv6;
use crate::ipv6::Given;
use crate::lease::Lease;
use crate::rpc::{Extras, Granted, Names, Sandbox};

const SUFFIX: &str = "json";
/// The longest record that is read, in bytes; a lease has a few kilobytes.
const BYTES_MAX: u64 = 1 << 20;

/// The suffix of a record that DEL could only rename, which takes no space.
const RELEASED: &str = "released";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    pub names: Names,
    pub sandbox: Sandbox,
    /// The link's index there; 0 until it is known.
    pub index: u32,
    pub mac: [u8; 6],
    pub client_id: Vec<u8>,
    pub provide: Vec<(u8, Vec<u8>)>,
    pub request: Vec<u8>,
    pub priority: u32,
    #[serde(default)]
    pub extras: Extras,
}

/// A lease, and the attachment it was requested for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseRecord {
    pub subject: Subject,
    pub lease: Lease,
    /// The IPv6 address, where it was asked for and is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<RecordOfIpv6>,
    /// The time at which the lease was requested, in seconds since the boot.
    pub since_seconds: u64,
    pub boot: String,
    /// The lease has ended, and another is looked for.
    pub is_lost: bool,
    /// The last error; empty if there was none.
    pub last_error: String,
    /// DEL was called while no daemon ran.
    pub is_released: bool,
}

impl LeaseRecord {
    pub fn addresses(&self) -> Vec<IpAddr> {
        let ipv6 = self.ipv6.as_ref().and_then(|held| match &held.given {
            Given::Leased(lease) => Some(lease.network().ip()),
            Given::Slaac(_) => None,
        });
        [self.lease.address.ip().into()].into_iter().chain(ipv6).collect()
    }

    /// What ADD returns; `None` as long as something of it is missing.
    pub fn granted(self) -> Option<Granted> {
        let ipv6 = self.ipv6.filter(|held| !held.is_lost).map(|held| held.given);
        let is_whole = !self.is_lost && ipv6.is_some() == self.subject.extras.ipv6;
        is_whole.then_some(Granted { lease: self.lease, ipv6 })
    }
}

/// The folder of the daemon that listens on `socket`.
pub fn folder(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".leases");
    name.into()
}

/// The file of an attachment: a hash, as the three names may be longer together than a file's name.
pub fn path(folder: &Path, names: &Names) -> PathBuf {
    let Names { network, container_id, ifname } = names;
    let hash = Sha256::digest(format!("{network}/{container_id}/{ifname}"));
    let digits: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    folder.join(digits).with_extension(SUFFIX)
}

pub fn create(folder: &Path) -> Result<(), String> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| failed("create", folder, &error))?;
    let found = fs::symlink_metadata(folder).map_err(|error| failed("read", folder, &error))?;
    match found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(format!("cannot use {}: other users may change it; remove it", folder.display())),
    }
}

/// Writes a record; all of it or nothing.
pub fn write(folder: &Path, record: &LeaseRecord) -> Result<(), String> {
    create(folder)?;
    let bytes = serde_json::to_vec(record).map_err(|error| error.to_string())?;
    file::replace(&path(folder, &record.subject.names), &bytes, 0o600).map_err(|error| error.to_string())
}

pub fn remove(folder: &Path, names: &Names) -> Result<(), String> {
    let path = path(folder, names);
    [path.with_extension(RELEASED), path]
        .iter()
        .try_for_each(|path| file::remove(path).map_err(|error| error.to_string()))
}

/// All records that can be read. The others are logged and stay, but for those of attachments that are gone: nothing in them
/// can be given back.
pub fn list(folder: &Path) -> Result<Vec<LeaseRecord>, String> {
    let (records, damaged) = look(folder)?;
    for Damaged { path, why, is_released } in damaged {
        if is_released {
            tracing::warn!(
                why,
                "a damaged lease of an attachment that is gone is removed: its server keeps it until it ends"
            );
            file::remove(&path).map_err(|error| error.to_string())?;
        } else {
            tracing::warn!(why, "a lease file is ignored");
        }
    }
    Ok(records)
}

struct Damaged {
    path: PathBuf,
    why: String,
    is_released: bool,
}

/// As [`list`], without a change.
fn look(folder: &Path) -> Result<(Vec<LeaseRecord>, Vec<Damaged>), String> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), Vec::new())),
        entries => entries.map_err(|error| failed("read", folder, &error))?,
    };
    let (mut records, mut damaged) = (Vec::new(), Vec::new());
    for entry in entries {
        let path = entry.map_err(|error| failed("read", folder, &error))?.path();
        let is_released = path.extension().is_some_and(|suffix| suffix == RELEASED);
        if !is_released && path.extension().is_none_or(|suffix| suffix != SUFFIX) {
            continue;
        }
        match read(&path) {
            Ok(record) => records.push(LeaseRecord { is_released: is_released || record.is_released, ..record }),
            Err(why) => damaged.push(Damaged { path, why, is_released }),
        }
    }
    Ok((records, damaged))
}

fn read(path: &Path) -> Result<LeaseRecord, String> {
    let bytes = file::read_plain(path, BYTES_MAX).map_err(|error| failed("read", path, &error))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Notes that an attachment's lease is to be released; false if there is none.
pub(crate) fn note_release(folder: &Path, names: &Names) -> Result<bool, CniError> {
    let path = path(folder, names);
    match path.exists() {
        true => note(folder, &path, read(&path)).map(|()| true),
        false => Ok(path.with_extension(RELEASED).exists()),
    }
}

/// The records of a network's attachments that GC removes, whose release is not noted yet.
pub fn list_stale(folder: &Path, network: &str, sweep: &Sweep<Names>) -> Result<Vec<LeaseRecord>, CniError> {
    let stale = sweep.by(Names::clone);
    let mut records = list_of(folder, network)?;
    records.retain(|record| stale.has(&record.subject.names));
    Ok(records)
}

/// The records of a network's attachments whose release is not noted yet: what GC goes through. Changes nothing.
pub fn list_of(folder: &Path, network: &str) -> Result<Vec<LeaseRecord>, CniError> {
    let mut records = list_unreleased(folder)?;
    records.retain(|record| record.subject.names.network == network);
    Ok(records)
}

/// The records of all attachments whose release is not noted yet. Changes nothing.
pub(crate) fn list_unreleased(folder: &Path) -> Result<Vec<LeaseRecord>, CniError> {
    let (mut records, _damaged) = look(folder).map_err(|why| CniError::new(Code::STATE, why))?;
    records.retain(|record| !record.is_released);
    Ok(records)
}

/// Notes that the leases of a network's attachments that GC removes are to be released.
pub(crate) fn note_stale(folder: &Path, network: &str, sweep: &Sweep<Names>) -> Result<(), CniError> {
    let noted = list_stale(folder, network, sweep)?
        .into_iter()
        .map(|record| note(folder, &path(folder, &record.subject.names), Ok(record)));
    CniError::join(noted.filter_map(Result::err).collect()).map_or(Ok(()), Err)
}

/// Writes the note into the record. Where that is not possible, as no space is left or the record is torn, its file gets
/// another name.
fn note(folder: &Path, path: &Path, record: Result<LeaseRecord, String>) -> Result<(), CniError> {
    let written = record.and_then(|record| write(folder, &LeaseRecord { is_released: true, ..record }));
    let Err(why) = written else { return Ok(()) };
    fs::rename(path, path.with_extension(RELEASED))
        .map_err(|error| state_error(why).detail(failed("rename", path, &error)))
}

fn state_error(why: String) -> CniError {
    CniError::new(Code::STATE, format!("cannot note that a lease is to be released: {why}"))
}

fn failed(what: &str, path: &Path, error: &io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}
