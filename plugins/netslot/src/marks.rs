//! The marks by which what a pool has made is found again: its folder, with a mounted namespace for each slot, and the aliases of its
//! links.
//!
//! ```text
//! /run/netslot/NAME/lock     locked as long as a process has the pool open
//! /run/netslot/NAME/17       the namespace of slot 17
//! /run/netslot/NAME/17.owner the process that slot 17 was handed over to
//! ```
//!
//! A slot's file is made before all else of the slot, and removed after it. So a killed process leaves nothing without a mark.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cni_filter::{Filter, Names, Stale};
use netops::error::Result as OpResult;
use netops::link::{self, Link};
use netops::lock::{self, Lock};
use netops::{Kernel, Netns, OpError, file, link_removal};
use processes::ProcessId;

use crate::error::{Error, Result};

/// The names of all that a pool makes.
#[derive(Debug)]
pub(crate) struct Marks {
    pub(crate) name: String,
    folder: PathBuf,
    /// The name of the pool in aliases and in the comments of rules. With its colon it is no name of a CNI network.
    owner: String,
    /// The start of the names of its links.
    link_prefix: String,
}

/// The outcome of [`crate::reconcile`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Reconciled {
    /// The slots that were removed.
    pub removed: usize,
    /// The slots of processes that live, which were handed over to these.
    pub living: usize,
    /// The pools that a process has open, which were not touched.
    pub open: Vec<String>,
    /// Why something could not be removed.
    pub left: Vec<OpError>,
}

impl Marks {
    pub(crate) fn new(run_folder: &Path, name: &str) -> Self {
        let owner = format!("netslot:{name}");
        let key = Names { network: &owner, container: "", ifname: "" }.key();
        let link_prefix = format!("ns{}", key.get(..7).unwrap_or_default());
        Self { name: name.to_owned(), folder: run_folder.join(name), owner, link_prefix }
    }

    pub(crate) fn link(&self, index: u32) -> String {
        format!("{}{index}", self.link_prefix)
    }

    pub(crate) fn alias(&self, index: u32) -> String {
        format!("{}/{index}", self.owner)
    }

    /// The names in the comments of rules, of a slot or of a part of the pool.
    pub(crate) fn names<'a>(&'a self, of: &'a str) -> Names<'a> {
        Names { network: &self.owner, container: of, ifname: "" }
    }

    pub(crate) fn netns(&self, index: u32) -> PathBuf {
        self.folder.join(index.to_string())
    }

    fn owner_file(&self, index: u32) -> PathBuf {
        self.folder.join(format!("{index}.owner"))
    }

    /// Takes the pool's lock, in a folder that is made.
    pub(crate) fn open(&self) -> Result<Lock> {
        let path = self.folder.join("lock");
        file::make_folders(&self.folder)
            .map_err(|error| OpError::io("create", self.folder.display().to_string(), &error))?;
        let holder = || lock::find_holder(&path).unwrap_or_else(|| "a process".to_owned());
        Lock::try_take(&path, 0o600)?.ok_or_else(|| Error::Open { name: self.name.clone(), holder: holder() })
    }

    /// Records the process that a slot belongs to from now on.
    pub(crate) fn hand_over(&self, index: u32, to: &ProcessId) -> OpResult<()> {
        file::replace(&self.owner_file(index), to.to_string().as_bytes(), 0o600)
    }

    /// Ends that.
    pub(crate) fn take_back(&self, index: u32) -> OpResult<()> {
        file::remove(&self.owner_file(index))
    }

    /// Returns whether the slot was handed over to a process that lives, as far as this one can see.
    pub(crate) fn is_living(&self, index: u32) -> bool {
        let text = file::read_plain(&self.owner_file(index), 1024).unwrap_or_default();
        let owner = str::from_utf8(&text).ok().and_then(|text| text.parse::<ProcessId>().ok());
        owner.is_some_and(|owner| owner.runs().unwrap_or(true))
    }

    /// The numbers of all slots that have a mark. Lists the node's links.
    fn list(&self, host: &Kernel) -> OpResult<BTreeSet<u32>> {
        let entries = std::fs::read_dir(&self.folder)
            .map_err(|error| OpError::io("list", self.folder.display().to_string(), &error))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let number = |name: String| name.split('.').next()?.parse::<u32>().ok();
        let marked: BTreeSet<_> = names.filter_map(number).collect();
        let links = link::list(host, None)?.into_iter();
        let by_alias = links.filter_map(|link| {
            let number = link.alias?.strip_prefix(&self.owner)?.strip_prefix('/')?.parse().ok()?;
            (self.link(number) == link.name).then_some(number)
        });
        Ok(by_alias.chain(marked).collect())
    }

    /// The links of these slots that are there. One of the name whose alias is another is not the pool's.
    fn find_links(&self, host: &Kernel, indexes: &[u32]) -> OpResult<Vec<Link>> {
        let names: Vec<_> = indexes.iter().map(|index| self.link(*index)).collect();
        let found = link::find_all(host, &names.iter().map(String::as_str).collect::<Vec<_>>())?.into_iter();
        let own =
            |(link, index): (Option<Link>, &u32)| link.filter(|link| link.alias.as_ref() == Some(&self.alias(*index)));
        Ok(found.zip(indexes).filter_map(own).collect())
    }

    /// Removes slots: their links with one grace period of the kernel, then their namespaces' marks. The processes in a namespace keep
    /// it, without an interface.
    pub(crate) fn remove(&self, host: &Kernel, indexes: &[u32]) -> Vec<OpError> {
        let mut errors: Vec<_> = match self.find_links(host, indexes).as_deref() {
            Err(error) => vec![error.clone()],
            Ok([link]) => host.run(link_removal::request(&link.into())).err().into_iter().collect(),
            Ok(links) => link_removal::remove_all_by(host, links).into_iter().map(|left| left.error).collect(),
        };
        errors.retain(|error| !error.is_absent());
        for index in indexes {
            errors.extend(Netns::remove_at(&self.netns(*index)).err());
            errors.extend(self.take_back(*index).err());
        }
        errors
    }

    /// Removes what dead processes have left; returns how many slots, and those of living ones. Call it with the lock held.
    pub(crate) fn reconcile(&self, host: &Kernel, filter: &mut Filter) -> (usize, BTreeSet<u32>, Vec<OpError>) {
        let (living, dead): (BTreeSet<u32>, BTreeSet<u32>) = match self.list(host) {
            Ok(all) => all.into_iter().partition(|index| self.is_living(*index)),
            Err(error) => return (0, BTreeSet::new(), vec![error]),
        };
        let dead: Vec<_> = dead.into_iter().collect();
        let mut errors = self.remove(host, &dead);
        errors.extend(self.remove_rules(filter, &living).err());
        (dead.len(), living, errors)
    }

    /// Removes the ports of all but these slots, and without any the pool's other rules.
    fn remove_rules(&self, filter: &mut Filter, living: &BTreeSet<u32>) -> OpResult<()> {
        let numbers: Vec<_> = living.iter().map(u32::to_string).collect();
        let valid: Vec<_> = numbers.iter().map(|number| self.names(number)).collect();
        let stale = Stale::new(&self.owner, &valid.as_slice().into());
        filter.gc_ports(&stale)?;
        if living.is_empty() {
            filter.gc_shared_masquerade(&stale)?;
            filter.remove_egress_of_many(self.names(crate::rules::GROUP))?;
        }
        Ok(())
    }
}

/// Removes what killed processes have left of their pools, whose marks are in `run_folder`, usually [`crate::RUN_FOLDER`]: links,
/// namespaces, rules. Does not touch a pool that a process has open, nor a slot that was handed over to a process that lives.
/// Call it in the network namespace of the pools.
///
/// # Errors
/// The folder cannot be read, or the node has no packet filter. [`Reconciled::left`] has all others.
pub fn reconcile(run_folder: &Path) -> Result<Reconciled> {
    let mut done = Reconciled::default();
    let entries = match std::fs::read_dir(run_folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(done),
        entries => entries.map_err(|error| OpError::io("list", run_folder.display().to_string(), &error))?,
    };
    let (host, mut filter) = (Kernel::host()?, Filter::open("")?);
    for name in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
        let marks = Marks::new(run_folder, &name);
        match marks.open() {
            Ok(_lock) => {
                let (removed, living, left) = marks.reconcile(&host, &mut filter);
                done.removed += removed;
                done.living += living.len();
                done.left.extend(left);
            }
            Err(Error::Open { name, .. }) => done.open.push(name),
            Err(Error::Op(error)) => done.left.push(error),
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
