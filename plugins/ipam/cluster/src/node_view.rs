//! The node's copy of its records: `cluster/view` in its data folder.
//!
//! The file is in a folder of its own, so that its replacement does not break the seal of host-local's index.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use cluster_keys::Conf;
use cni_spec::{CniError, Code};
use host_local::address::Address;
use host_local::range::{Range, RangeSet, Span};
use interface::error::{On, failed_on};
use netops::OpError;
use serde::{Deserialize, Serialize};

use crate::protocol::Memory;

/// A node's folder for the plugin's own files, in the network's data folder.
const FOLDER: &str = "cluster";
const BYTES_MAX: u64 = 16 << 20;

/// The node's copy of its records.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct View {
    /// The number of the file itself: a copy of the file has another one.
    pub inode: u64,
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
    /// Whether the store has ever recorded the number.
    pub is_recorded: bool,
    /// The boot in which the store was read last.
    pub boot: String,
    /// When that reading began, in milliseconds since the machine's start; `None`: it confirmed nothing.
    pub read_at_ms: Option<u64>,
    /// How long that is trusted.
    pub trust_seconds: u32,
    /// The number of writes that the store had then.
    pub writes: u64,
    /// The number of nodes that the store had then.
    pub nodes: usize,
    /// The number of nodes that were silent for longer than a node with any ADD is.
    pub silent: usize,
    /// Whether the outcome of a write is unknown.
    pub pending: bool,
    /// The node's runs: first and last address.
    pub runs: Vec<(IpAddr, IpAddr)>,
    /// The claims that the node holds, and their addresses.
    pub claims: BTreeMap<String, BTreeSet<IpAddr>>,
    /// The first addresses of runs that were seen without a reservation.
    pub empty: Vec<IpAddr>,
    /// Until when no run is claimed ahead, as none was left; in milliseconds since the machine's start.
    pub quiet_until_ms: u64,
    /// Until when the store is not asked for what can wait, as it was away; in milliseconds since the machine's start.
    pub away_until_ms: u64,
}

/// When a file was made, which no copy can take over.
fn made_at_ns(about: &fs::Metadata) -> Option<u64> {
    let made = about.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(made.as_nanos()).ok()
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
        let path = Self::path(folder);
        let (bytes, about) = match netops::file::read_plain_with(&path, BYTES_MAX) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fault(&OpError::io("read", path.display().to_string(), &error))),
            Ok(bytes) => bytes,
        };
        let view: Result<Self, _> = serde_json::from_slice(&bytes);
        let is_copy = |view: &Self| {
            let other_time = view.made_at_ns.zip(made_at_ns(&about)).is_some_and(|(own, found)| own != found);
            view.inode != about.ino() || other_time
        };
        view.map(|view| Some(Self { is_copy: is_copy(&view), ..view })).map_err(|error| {
            let text = format!("cannot read {}: {error}", path.display());
            CniError::new(Code::STATE, text).detail(
                "The file is damaged. End the node's containers of this network, remove the network's data folder, and \
                 run: cnitool cluster forget NETWORK NODE.",
            )
        })
    }

    /// Writes the file, whole or not at all. A copy stays one until the store has confirmed it.
    ///
    /// # Errors
    /// Code 106: it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), CniError> {
        let text = |file: &fs::File| {
            let about = file.metadata()?;
            let inode = if self.is_copy { 0 } else { about.ino() };
            Ok(cni_spec::json::to_text(&Self { inode, made_at_ns: made_at_ns(&about), ..self.clone() }))
        };
        netops::file::replace_with(&Self::path(folder), 0o600, text).map_err(|error| fault(&error))
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

    /// The runs.
    pub fn spans(&self) -> impl Iterator<Item = Span> {
        self.runs.iter().map(|(first, last)| Span { first: (*first).into(), last: (*last).into() })
    }

    /// Whether a run has the address.
    #[must_use]
    pub fn owns(&self, address: Address) -> bool {
        self.spans().any(|run| run.contains(address))
    }

    /// Whether the node may give the address: of its runs, or, to a container with a claim, of that claim.
    pub(crate) fn may_give(&self, address: Address, claim: Option<&str>) -> bool {
        match claim {
            Some(claim) => self.claims.get(claim).is_some_and(|own| own.contains(&address.ip())),
            None => self.owns(address),
        }
    }

    /// Whether a run or a claim of the node has the address.
    #[must_use]
    pub fn holds(&self, address: Address) -> bool {
        self.owns(address) || self.claims.values().any(|own| own.contains(&address.ip()))
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
        let of_range = |range: &Range| self.spans().filter_map(|run| cut(range, run)).collect::<Vec<_>>();
        set.ranges().iter().flat_map(of_range).collect()
    }

    /// Host-local's keys with the node's runs in place of the ranges; `None` if the node has none of a set.
    #[must_use]
    pub fn within(&self, conf: &Conf) -> Option<host_local::conf::Conf> {
        let sets = conf.local.sets.iter().map(|set| RangeSet::new(self.owned(set)).ok());
        Some(host_local::conf::Conf { sets: sets.collect::<Option<_>>()?, ..conf.local.clone() })
    }

    /// The runs and claims of this view, to compare with the store's records.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory { runs: self.runs.iter().copied().collect(), claims: self.claims.clone() }
    }
}

/// The error object of a failed operation on the node's files.
pub(crate) fn fault(error: &OpError) -> CniError {
    failed_on(On::Files("dataDir"), error)
}
