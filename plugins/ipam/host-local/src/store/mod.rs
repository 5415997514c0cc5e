//! A network's folder of reservations, locked: the files, and the index beside them.
//!
//! Reading order in `Store`: `create` and `find` lock the folder; `owned_by` and `next_free` query; `reserve` and
//! `release` change; `finish` writes the index. Without `finish`, or after a kill at any point, the folder's seal is
//! broken and the next call reads the folder.

mod file;
pub(crate) mod last_reserved;
pub(crate) mod private_files;
pub(crate) mod released;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cni_spec::Attachment;
use netops::boot::Boot;
use netops::lock::Lock;
use netops::{Errno, OpError};
use nix::fcntl::OFlag;

use crate::address::Address;
use crate::index::{Damaged, Index, OwnerHash, Seal, Stamp, seal};
use crate::range::Span;
pub(crate) use file::{Content, content_of, old_content_of, read, try_read};
use futures::channel::oneshot;
pub(crate) use last_reserved::read as last_reserved;
use netops::error::Cause;
use private_files::PrivateFiles;

/// The folders of a store, and the time to wait for its lock.
#[derive(Debug, Clone)]
pub struct StoreLocation {
    pub folder: PathBuf,
    /// The folder of the plugin's private files about stores.
    pub private_files: PathBuf,
    pub deadline: Duration,
}

/// A network's folder, locked.
pub(crate) struct Store {
    folder: PathBuf,
    dir: File,
    private_files: PrivateFiles,
    /// `None` where it cannot be known, as without /proc: then no index is trusted or written, and no reservation is
    /// of an earlier one.
    boot: Option<Boot>,
    index: Index,
    /// The addresses reserved since the folder was locked.
    made: HashSet<(Address, OwnerHash)>,
    /// Whether the index differs from the folder, so that it must not be sealed.
    suspect: bool,
    /// Whether an entry of the folder was changed, so that the seal is broken.
    changed: bool,
    /// Whether the folder was read, so that the index is authoritative.
    scanned: bool,
    // Last, as fields are dropped in order: nothing is written after the lock is released.
    _lock: Lock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// The address is now the owner's.
    Done,
    Taken,
}

/// A network's reservations: the store, or a snapshot of it.
pub(crate) trait Reservations {
    fn next_free(&mut self, span: Span) -> Result<Option<Address>, OpError>;

    /// Reserves `address` for `owner`, if it is free. After an error nothing is left in the folder.
    fn reserve(&mut self, address: Address, owner: &Attachment) -> Result<Reserved, OpError>;

    /// Deletes the reservation of `address`, which has been read and found to have `content`.
    fn release(&mut self, address: Address, content: &str) -> Result<(), OpError>;

    /// Where the search in range set `set` continues.
    fn last_reserved(&self, set: usize) -> Option<Address>;

    /// Records where the search in range set `set` continues.
    fn set_last_reserved(&mut self, set: usize, address: Address) -> Result<(), OpError>;

    /// Deletes the reservations of earlier boots except those of `keep`, once a boot. Returns how many.
    fn reclaim_earlier_boots(&mut self, keep: Option<&Attachment>) -> Result<usize, OpError>;

    fn folder(&self) -> &Path;
}

fn open(folder: &Path) -> io::Result<File> {
    netops::file::open(folder, OFlag::O_RDONLY, 0)
}

impl Store {
    /// Locks the folder, making it if it is missing.
    pub(crate) async fn create(place: &StoreLocation) -> Result<Self, OpError> {
        let mkdir = |error: io::Error| OpError::io("create", format!("store {}", place.folder.display()), &error);
        match open(&place.folder) {
            Ok(dir) => Self::lock(place, dir).await,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                netops::file::make_folders(&place.folder).map_err(mkdir)?;
                Self::lock(place, open(&place.folder).map_err(mkdir)?).await
            }
            Err(error) => Err(mkdir(error)),
        }
    }

    /// Locks the folder, `None` if there is none, or it is empty and no lock can be made, as on a full disk.
    pub(crate) async fn find(place: &StoreLocation) -> Result<Option<Self>, OpError> {
        let is_empty = || fs::read_dir(&place.folder).is_ok_and(|mut entries| entries.next().is_none());
        match open(&place.folder) {
            Ok(dir) => match Self::lock(place, dir).await {
                Err(_no_lock) if is_empty() => Ok(None),
                outcome => outcome.map(Some),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(OpError::io("open", format!("store {}", place.folder.display()), &error)),
        }
    }

    async fn lock(place: &StoreLocation, dir: File) -> Result<Self, OpError> {
        let lock = take(&place.folder.join("lock"), place.deadline).await?;
        let unknown = |error: &OpError| tracing::warn!(%error, "the folder is read instead of its index");
        let boot = Boot::read().inspect_err(unknown).ok();
        let private_files = PrivateFiles::about(&dir, &place.private_files);
        let private_files =
            private_files.map_err(|error| OpError::io("open", format!("store {}", place.folder.display()), &error))?;
        Self::load(place.folder.clone(), dir, private_files, lock, boot)
    }

    fn load(
        folder: PathBuf,
        dir: File,
        private_files: PrivateFiles,
        lock: Lock,
        boot: Option<Boot>,
    ) -> Result<Self, OpError> {
        let trusted = boot.as_ref().and_then(|boot| Index::open(&private_files, &dir, &boot.id));
        let scan = trusted.is_none();
        let index = trusted.unwrap_or_else(|| Index::new(0));
        let (suspect, changed, scanned) = (false, false, false);
        let made = HashSet::new();
        let mut store = Self { folder, dir, private_files, boot, index, made, suspect, changed, scanned, _lock: lock };
        if scan {
            store.scan()?;
        }
        Ok(store)
    }

    /// Reads the whole folder and rebuilds the index. Returns all entries whose names are addresses.
    ///
    /// An operator who deletes reservations by hand does so without the lock, and reading takes a while; so the folder
    /// is sealed for the reading too, and if that seal is broken at the end, the index is not kept for the next call.
    pub(crate) fn scan(&mut self) -> Result<Vec<(Address, Content)>, OpError> {
        tracing::debug!(folder = %self.folder.display(), "reading the folder: the index is missing, old or damaged");
        let mut made = self.made.clone();
        made.extend(self.made_this_boot());
        file::remove_left(&self.folder);
        let sealed = seal(&self.dir, Seal::Reading).unwrap_or_default();
        let found = self.list().map_err(|error| OpError::io("read", self.object(), &error))?;
        self.suspect |= sealed.is_none() || Stamp::read(&self.dir).ok() != sealed;
        let mut index = Index::new(found.len());
        for (address, content) in &found {
            let noted = match (content, content.holder().map(OwnerHash::of)) {
                (_, Some(owner)) => index.insert(*address, Some(owner), made.contains(&(*address, owner))),
                // Counts as free: the ADD that gets the address replaces it.
                (Content::Debris, None) => Ok(()),
                (Content::Held(_) | Content::Opaque, None) => index.insert(*address, None, false),
            };
            noted.map_err(|Damaged| self.index_fault())?;
        }
        self.index = index;
        self.scanned = true;
        Ok(found)
    }

    fn made_this_boot(&self) -> Vec<(Address, OwnerHash)> {
        self.boot.as_ref().map(|boot| Index::made_this_boot(&self.private_files, &boot.id)).unwrap_or_default()
    }

    fn list(&self) -> io::Result<Vec<(Address, Content)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(address) = Address::from_file_name(name)
                && let Some(content) = file::read(&self.folder.join(name))
            {
                found.push((address, content));
            }
        }
        Ok(found)
    }

    fn object(&self) -> String {
        format!("store {}", self.folder.display())
    }

    fn index_fault(&self) -> OpError {
        OpError::state("index", self.object(), "an index in memory cannot be damaged")
    }

    fn path(&self, address: Address) -> PathBuf {
        self.folder.join(address.to_string())
    }

    /// Queries or changes the index. A damaged one is rebuilt from the folder, which already has any change that `ask`
    /// records: recording it twice has no effect.
    fn ask<T>(&mut self, ask: impl Fn(&mut Index) -> Result<T, Damaged>) -> Result<T, OpError> {
        if let Ok(answer) = ask(&mut self.index) {
            return Ok(answer);
        }
        tracing::warn!(folder = %self.folder.display(), "the index is damaged and is built anew");
        self.scan()?;
        ask(&mut self.index).map_err(|Damaged| self.index_fault())
    }

    /// The addresses that `owner` holds: those recorded with its interface, and those recorded in the older form with
    /// only the container.
    pub(crate) fn owned_by(&mut self, owner: &Attachment) -> Result<Vec<Address>, OpError> {
        let mut held = self.holding(&content_of(owner))?;
        held.extend(self.holding(old_content_of(owner))?);
        Ok(held)
    }

    /// As [`Store::owned_by`], but only the folder itself can show that there are none.
    pub(crate) fn owned_by_for_certain(&mut self, owner: &Attachment) -> Result<Vec<Address>, OpError> {
        let held = self.owned_by(owner)?;
        if !held.is_empty() || self.scanned {
            return Ok(held);
        }
        self.scan()?;
        self.owned_by(owner)
    }

    /// The addresses whose files have this content.
    fn holding(&mut self, content: &str) -> Result<Vec<Address>, OpError> {
        let owner = OwnerHash::of(content);
        loop {
            let mut noted = self.ask(|index| index.owned_by(owner))?;
            let count = noted.len();
            noted.retain(|address| {
                let file = file::read(&self.path(*address));
                file.as_ref().and_then(Content::holder) == Some(content)
            });
            if noted.len() == count || self.scanned {
                return Ok(noted);
            }
            self.scan()?; // a file was changed in place: what else was?
        }
    }

    /// Makes the file of `address` with this content, if it is free. `owner` is who can find it by its content.
    pub(crate) fn occupy(
        &mut self,
        address: Address,
        content: &str,
        owner: Option<OwnerHash>,
    ) -> Result<Reserved, OpError> {
        let failed = |error: &io::Error| OpError::io("create", format!("reservation {address}"), error);
        let path = self.path(address);
        let name = address.to_string();
        self.changed = true;
        let created = match file::create(&self.folder, &name, content) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if file::read(&path) != Some(Content::Debris) {
                    // The index did not have it: the seal is intact, so the file was put there without the lock.
                    self.suspect = true;
                    self.ask(|index| index.insert(address, None, false))?;
                    return Ok(Reserved::Taken);
                }
                tracing::warn!(%address, "replacing an empty reservation");
                file::remove(&path).and_then(|()| file::create(&self.folder, &name, content))
            }
            outcome => outcome,
        };
        if let Err(error) = created {
            self.suspect = true;
            return Err(failed(&error).request(format!("link {}", path.display())));
        }
        tracing::debug!(%address, path = %path.display(), "reserved");
        self.ask(|index| index.insert(address, owner, owner.is_some()))?;
        Ok(Reserved::Done)
    }

    /// Deletes what `owner` holds, all sets at once, in either form. Returns the addresses.
    pub(crate) fn release_all(&mut self, owner: &Attachment) -> Result<Vec<Address>, OpError> {
        let full = content_of(owner);
        let held = self.holding(&full)?;
        let (content, held) = match held.is_empty() {
            false => (full.as_str(), held),
            true => (old_content_of(owner), self.holding(old_content_of(owner))?),
        };
        let outcomes: Vec<_> = held.iter().map(|address| self.release(*address, content)).collect();
        outcomes.into_iter().collect::<Result<Vec<()>, _>>()?;
        Ok(held)
    }

    /// The reservations of earlier boots except those of `keep`: address and content.
    ///
    /// Such a reservation is a file that was last written before the last boot, and that the index does not have as made
    /// since. The second condition protects against a clock that was behind when a container was started and was
    /// corrected later; see README.md.
    pub(crate) fn list_earlier_boots(&mut self, keep: Option<&Attachment>) -> Result<Vec<(Address, String)>, OpError> {
        if self.index.reclaimed || self.boot.is_none() {
            return Ok(Vec::new());
        }
        let mut made = self.made.clone();
        made.extend(self.made_this_boot());
        let kept = keep.map(content_of);
        let mut stale = Vec::new();
        for (address, content) in self.scan()? {
            // A text that no ADD writes is a reservation by hand, for longer than a boot.
            let Some(text) = content.attachment().and(content.holder()) else { continue };
            let known = made.contains(&(address, OwnerHash::of(text))) || kept.as_deref() == Some(text);
            if !known && self.is_of_earlier_boot(&self.path(address)) {
                stale.push((address, text.to_owned()));
            }
        }
        Ok(stale)
    }

    fn is_of_earlier_boot(&self, path: &Path) -> bool {
        let written = fs::symlink_metadata(path).and_then(|stat| stat.modified()).unwrap_or_else(|_| SystemTime::now());
        self.boot.as_ref().is_some_and(|boot| boot.is_after(written))
    }

    pub(crate) fn private_files(&self) -> &PrivateFiles {
        &self.private_files
    }

    /// Writes the index and seals the folder. An error does not fail the operation: the next one reads the folder.
    pub(crate) fn finish(mut self) {
        if self.suspect || !(self.changed || self.scanned || self.index.is_dirty()) {
            return;
        }
        let Some(boot) = &self.boot else { return };
        if let Err(error) = self.index.save(&self.private_files, &self.dir, &boot.id) {
            tracing::warn!(folder = %self.folder.display(), %error, "cannot write the index: the next call reads the folder");
        }
    }
}

impl Reservations for Store {
    fn next_free(&mut self, span: Span) -> Result<Option<Address>, OpError> {
        self.ask(|index| index.next_free(span))
    }

    fn reserve(&mut self, address: Address, owner: &Attachment) -> Result<Reserved, OpError> {
        let content = content_of(owner);
        let hash = OwnerHash::of(&content);
        let reserved = self.occupy(address, &content, Some(hash))?;
        if reserved == Reserved::Done {
            self.made.insert((address, hash));
        }
        Ok(reserved)
    }

    fn release(&mut self, address: Address, content: &str) -> Result<(), OpError> {
        let path = self.path(address);
        self.changed = true;
        file::remove(&path).map_err(|error| {
            self.suspect = true;
            let request = format!("unlink {}", path.display());
            OpError::io("delete", format!("reservation {address}"), &error).request(request)
        })?;
        tracing::debug!(%address, path = %path.display(), "released");
        let owner = OwnerHash::of(content);
        self.ask(|index| index.remove(address, owner))
    }

    fn last_reserved(&self, set: usize) -> Option<Address> {
        last_reserved::read(&self.folder, set)
    }

    fn set_last_reserved(&mut self, set: usize, address: Address) -> Result<(), OpError> {
        self.changed = true;
        last_reserved::write(&self.folder, set, address)
            .map_err(|error| OpError::io("write", format!("{}/last_reserved_ip.{set}", self.folder.display()), &error))
    }

    fn reclaim_earlier_boots(&mut self, keep: Option<&Attachment>) -> Result<usize, OpError> {
        let stale = self.list_earlier_boots(keep)?;
        for (address, text) in &stale {
            self.release(*address, text)?;
            tracing::info!(%address, owner = text.replace("\r\n", " "), "released a reservation of an earlier boot");
        }
        self.changed |= !self.index.reclaimed;
        self.index.reclaimed = true;
        Ok(stale.len())
    }

    fn folder(&self) -> &Path {
        &self.folder
    }
}

#[cfg(test)]
mod tests;

/// The reference's permissions.
const BITS: u32 = 0o750;

/// How long a call waits before it says for whom.
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes the lock `path`, on a thread of its own if it is held. If the caller goes away meanwhile, the thread drops the
/// lock.
async fn take(path: &Path, deadline: Duration) -> Result<Lock, OpError> {
    match Lock::try_take(path, BITS) {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => wait(path.to_owned(), deadline).await,
        // CHECK, and DEL of an absent reservation, need no writable store.
        Err(error) if error.os_errno() == Some(Errno::EROFS) => Lock::take_existing(path, deadline),
        Err(error) => Err(error),
    }
}

async fn wait(path: PathBuf, deadline: Duration) -> Result<Lock, OpError> {
    tracing::info!(lock = %path.display(), "another process holds the lock: waiting for it");
    let lost = || OpError::state("take", format!("lock {}", path.display()), "the waiting thread ended");
    let (sender, receiver) = oneshot::channel();
    let waiting = path.clone();
    std::thread::Builder::new()
        .spawn(move || drop(sender.send(take_with_word(&waiting, deadline))))
        .map_err(|error| OpError::io("start", "a thread that waits for the lock", &error))?;
    receiver.await.map_err(|_canceled| lost())?
}

/// Takes the lock, and says who holds it if that takes long: the runtime may give up first.
fn take_with_word(path: &Path, deadline: Duration) -> Result<Lock, OpError> {
    match Lock::take(path, BITS, deadline.min(PATIENCE)) {
        Err(error) if matches!(error.cause, Cause::Held(_)) && deadline > PATIENCE => {
            tracing::warn!(%error, "still waiting for it");
            let waited_in_all = |mut error: OpError| {
                if let Cause::Held(held) = &mut error.cause {
                    held.waited = deadline;
                }
                error
            };
            Lock::take(path, BITS, deadline.saturating_sub(PATIENCE)).map_err(waited_in_all)
        }
        taken => taken,
    }
}
