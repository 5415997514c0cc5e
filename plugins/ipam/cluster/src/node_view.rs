//! The node's copy of its records: `cluster/view` in its data folder.
//!
//! The file is in a folder of its own, so that its replacement does not break the seal of host-local's index.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cluster_keys::{Conf, Standing};
use cni_spec::{CniError, Code};
use host_local::address::Address;
use host_local::range::{Range, RangeSet, Span};
use interface::error::{On, failed_on};
use netops::OpError;
use nix::fcntl::OFlag;
use rustix::fs::{AtFlags, StatxFlags, StatxTimestamp, makedev, statx};
use serde::{Deserialize, Serialize};

use crate::protocol::{Memory, Network, WHOLE, size};

/// A node's folder for the plugin's own files, in the network's data folder.
const FOLDER: &str = "cluster";
const BYTES_MAX: u64 = 16 << 20;

/// The node's copy of its records.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct View {
    /// The number of the file itself: a copy of the file has another one.
    pub inode: u64,
    /// The number of the file system's device, in this boot.
    pub device: u64,
    /// When the file was made, in nanoseconds since 1970; `None`: the file system does not say. A file system may give the number of
    /// a file that is gone to a copy of it.
    pub made_at_ns: Option<u64>,
    /// Whether the file is a copy: the folder was restored from a backup, or copied from another machine.
    #[serde(skip)]
    pub is_copy: bool,
    /// The node's name.
    pub node: String,
    /// The number of this data folder.
    pub store_id: String,
    /// The number of the store's history, and how many nodes had been forgotten in it.
    pub network: Network,
    /// The boot in which the node has written to the store last.
    pub boot: String,
    /// When that write began, in milliseconds since the machine's start; `None`: it confirmed nothing.
    pub read_at_ms: Option<u64>,
    /// The Ethernet addresses of the node's record that were compared with those of all others.
    pub compared: BTreeSet<String>,
    /// Whether these are all of the machine's, as far as the last write tells.
    #[serde(skip)]
    pub is_compared: bool,
    /// The node's own records.
    #[serde(flatten)]
    pub memory: Memory,
    #[serde(flatten)]
    pub standing: Standing,
    /// What the store had left when the node last looked for room, and for how many nodes.
    pub left: u128,
    /// See `left`.
    pub sharers: usize,
    /// The shard in which the node has found room last.
    pub cursor: Option<IpAddr>,
    /// When the node has last looked into the store, in milliseconds since the machine's start.
    pub checked_at_ms: u64,
    /// When the node's records were changed last, likewise.
    pub changed_at_ms: u64,
    /// When the store was told that an address is wanted, in milliseconds since the machine's start; 0: it was not, or the want is served.
    pub wants_at_ms: u64,
    /// The details of why the store is away.
    pub away_details: String,
}

/// A view whose file is still open.
#[derive(Debug)]
pub struct OpenView {
    /// The view.
    pub view: View,
    file: File,
}

impl OpenView {
    /// Whether the file is still the node's view: the file of a view that was replaced has no name any more.
    pub(crate) fn is_current(&self) -> Result<bool, CniError> {
        let about = self.file.metadata();
        let about = about.map_err(|error| fault(&OpError::io("look at", "the view", &error)))?;
        Ok(about.nlink() > 0 && self.view.is_trusted_now()?)
    }
}

/// A file's number, the one of its device, and when the file was made: no copy can take over all of them. The standard library does not know the
/// time where it is built on musl, as releases are; kernels before 4.11 have no statx.
fn origin(file: &File) -> std::io::Result<(u64, u64, Option<u64>)> {
    let Ok(about) = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::BTIME) else {
        let about = file.metadata()?;
        return Ok((about.ino(), about.dev(), None));
    };
    let made = Some(about.stx_btime).filter(|_| about.stx_mask & StatxFlags::BTIME.bits() != 0);
    let made_at_ns = |made: StatxTimestamp| {
        u64::try_from(made.tv_sec).ok()?.checked_mul(1_000_000_000)?.checked_add(made.tv_nsec.into())
    };
    Ok((about.stx_ino, makedev(about.stx_dev_major, about.stx_dev_minor), made.and_then(made_at_ns)))
}

impl View {
    /// The file.
    #[must_use]
    pub fn path(folder: &Path) -> PathBuf {
        folder.join(FOLDER).join("view")
    }

    /// The lock of all that speak with the store.
    #[must_use]
    pub fn lock(folder: &Path) -> PathBuf {
        folder.join(FOLDER).join("lock")
    }

    /// Reads the file; `None` if there is none.
    ///
    /// # Errors
    /// Code 106: it cannot be read, or is damaged.
    pub fn read(folder: &Path) -> Result<Option<Self>, CniError> {
        Ok(Self::open(folder)?.map(|open| open.view))
    }

    /// Reads the file, and keeps it open.
    ///
    /// # Errors
    /// As [`View::read`].
    pub fn open(folder: &Path) -> Result<Option<OpenView>, CniError> {
        let path = Self::path(folder);
        let read = || {
            let mut file = netops::file::open(&path, OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK, 0)?;
            // Most views are read at once.
            let (origin, mut bytes) = (origin(&file)?, Vec::with_capacity(4096));
            file.by_ref().take(BYTES_MAX).read_to_end(&mut bytes)?;
            Ok::<_, std::io::Error>((bytes, origin, file))
        };
        let (bytes, (inode, device, made_at_ns), file) = match read() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fault(&OpError::io("read", path.display().to_string(), &error))),
            Ok(read) => read,
        };
        let view: Result<Self, _> = serde_json::from_slice(&bytes);
        let is_copy = |view: &Self| {
            let other_time = view.made_at_ns.zip(made_at_ns).is_some_and(|(own, found)| own != found);
            (view.inode, view.device) != (inode, device) || other_time
        };
        let opened = view.map(|view| Some(OpenView { view: Self { is_copy: is_copy(&view), ..view }, file }));
        opened.map_err(|error| {
            let text = format!("cannot read {}: {error}", path.display());
            CniError::new(Code::STATE, text).detail(format!(
                "The file is damaged. End the node's containers of this network, remove {}, and run, with this node's name in the list: \
                 cnitool cluster show {network}; cnitool cluster forget {network} NODE --force.",
                folder.display(),
                network = folder.file_name().unwrap_or_default().display(),
            ))
        })
    }

    /// Writes the file, whole or not at all. A copy stays one until the store has confirmed it.
    ///
    /// # Errors
    /// Code 106: it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), CniError> {
        let text = |file: &fs::File| {
            let (inode, device, made_at_ns) = origin(file)?;
            let inode = if self.is_copy { 0 } else { inode };
            Ok(cni_spec::json::to_text(&Self { inode, device, made_at_ns, ..self.clone() }))
        };
        netops::file::replace_with(&Self::path(folder), 0o600, text).map_err(|error| fault(&error))
    }

    /// Removes the file: the node has left.
    ///
    /// # Errors
    /// Code 106: it cannot be removed.
    pub(crate) fn remove(folder: &Path) -> Result<(), CniError> {
        netops::file::remove(&Self::path(folder)).map_err(|error| fault(&error))
    }

    /// Makes the folder for the file and its lock.
    ///
    /// # Errors
    /// Code 106: it cannot be made.
    pub fn make_folder(folder: &Path) -> Result<(), CniError> {
        let path = folder.join(FOLDER);
        netops::file::make_folders(&path)
            .map_err(|error| fault(&OpError::io("create", path.display().to_string(), &error)))
    }

    /// How many addresses the node takes at once, and keeps without using them; 0: others need all.
    pub(crate) fn keeps(&self, conf: &Conf) -> u128 {
        size(self.left, self.sharers, conf.claim_size.min(WHOLE))
    }

    /// How far a call counts the free addresses of its runs, to see whether the node has few or many.
    pub(crate) fn counts(&self, conf: &Conf) -> usize {
        usize::try_from(2 * self.keeps(conf) + 1).unwrap_or_default()
    }

    /// Whether a run has the address.
    #[must_use]
    pub fn owns(&self, address: Address) -> bool {
        self.memory.spans().any(|run| run.contains(address))
    }

    /// Whether a run or a claim of the node has the address.
    #[must_use]
    pub fn holds(&self, address: Address) -> bool {
        self.owns(address) || self.memory.claims.values().any(|own| own.contains(&address.ip()))
    }

    /// The part of a set that the node owns.
    #[must_use]
    pub fn owned(&self, set: &RangeSet) -> Vec<Range> {
        let cut =
            |range: &Range, run: Span| {
                let (first, last) = (range.first.max(run.first), range.last.min(run.last));
                (first.family == range.first.family && first <= last && run.first.family == first.family)
                    .then_some(Range { first, last, ..*range })
            };
        let of_range = |range: &Range| self.memory.spans().filter_map(|run| cut(range, run)).collect::<Vec<_>>();
        set.ranges().iter().flat_map(of_range).collect()
    }

    /// Host-local's keys with the node's runs in place of the ranges; `None` if the node has none of a set.
    #[must_use]
    pub fn within(&self, conf: &Conf) -> Option<host_local::conf::Conf> {
        let sets = conf.local.sets.iter().map(|set| RangeSet::new(self.owned(set)).ok());
        Some(host_local::conf::Conf { sets: sets.collect::<Option<_>>()?, ..conf.local.clone() })
    }
}

/// The error object of a failed operation on the node's files.
pub(crate) fn fault(error: &OpError) -> CniError {
    failed_on(On::Files("dataDir"), error)
}
