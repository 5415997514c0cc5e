//! A hint that saves reading the folder: which addresses are taken, and which owner holds which.
//!
//! The reservation files are authoritative, and the index is never trusted where they can be read: an owner's address
//! is read before it counts, and an address is taken by exclusive creation. What the files cannot show at a constant
//! cost is that something is *absent*: that an owner holds nothing more, that no address before this one is free. For
//! that the index must be complete, and it is used only if all of these hold, otherwise the folder is read and the
//! index rebuilt:
//!
//! - the folder still carries the [seal](mod@validity) that was set when the index was last written: no entry has come,
//!   gone or been renamed since, by any process;
//! - the machine has not been started anew, so no power loss can have kept the seal and lost a page;
//! - the header and each page used pass their checksums, whose seed is drawn anew for each build.
//!
//! All of it happens under the folder's lock, which the Go plugin takes too. The file is one of the
//! [private files](crate::store::private_files): not in the folder, private to this crate, and it may be deleted at any time.

mod next_free;
mod page;
mod table;
mod validity;

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::FileExt;

use sha2::{Digest, Sha256};

use crate::address::{Address, Family};
use crate::range::Span;
use crate::store::private_files::PrivateFiles;
use page::{Kind, PAGE_BYTES, Slot, checksum, u64_at};
pub(crate) use table::Damaged;
use table::{Table, owner_home};
pub(crate) use validity::{Seal, Stamp, seal};

pub(crate) const NAME: &str = "index";
const MAGIC: u64 = u64::from_le_bytes(*b"hl-idx\x00\x01");
const HEADER_WORDS: usize = 16;

/// The owner of a reservation in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct OwnerHash(u64);

impl OwnerHash {
    /// A hash of a reservation file's content, without white space around it.
    pub(crate) fn of(content: &str) -> Self {
        let digest = Sha256::digest(content.as_bytes());
        Self(u64_at(&digest, 0).unwrap_or(0))
    }
}

#[derive(Debug)]
pub(crate) struct Index {
    table: Table,
    /// Whether all reservations of an earlier boot are known to be gone.
    pub(crate) reclaimed: bool,
}

impl Index {
    pub(crate) fn new(reservations: usize) -> Self {
        let seed = RandomState::new().hash_one(reservations);
        Self { table: Table::new(seed, reservations as u64), reclaimed: false }
    }

    /// The index of the store `dir`, if it is valid.
    pub(crate) fn open(private_files: &PrivateFiles, dir: &File, boot: &str) -> Option<Self> {
        let header = Header::read(private_files, boot)?;
        let sealed = header.stamp.is_seal() && Stamp::read(dir).ok()? == header.stamp;
        sealed.then(|| header.index()).flatten()
    }

    /// Asks the index of the store `dir` without the folder's lock; `None` where it is not valid, or another process has changed
    /// the folder meanwhile.
    pub(crate) fn glance<T>(
        private_files: &PrivateFiles,
        dir: &File,
        boot: &str,
        ask: impl FnOnce(&mut Self) -> Result<T, Damaged>,
    ) -> Option<T> {
        let before = Stamp::read(dir).ok()?;
        let answer = ask(&mut Self::open(private_files, dir, boot)?).ok()?;
        // A writer changes the folder first, its index afterwards.
        (Stamp::read(dir).ok()? == before).then_some(answer)
    }

    /// The reservations that this crate is known to have made since the last boot, even from an index whose seal is
    /// broken: they are not of an earlier boot.
    pub(crate) fn made_this_boot(private_files: &PrivateFiles, boot: &str) -> Vec<(Address, OwnerHash)> {
        let Some(mut index) = Header::read(private_files, boot).and_then(Header::index) else { return Vec::new() };
        let slots = index.table.all().unwrap_or_default();
        let made = slots.iter().filter(|slot| slot.kind == Kind::OwnerThisBoot);
        made.map(|slot| (address_of(slot), OwnerHash(slot.value))).collect()
    }

    /// Records that `address` is taken, by `owner` if it has one. Repeating it has no effect.
    pub(crate) fn insert(
        &mut self,
        address: Address,
        owner: Option<OwnerHash>,
        this_boot: bool,
    ) -> Result<(), Damaged> {
        next_free::take(&mut self.table, address)?;
        let Some(owner) = owner else { return Ok(()) };
        let kind = if this_boot { Kind::OwnerThisBoot } else { Kind::Owner };
        let slot = slot_of(kind, address, owner);
        if self.owner_slots(owner)?.iter().any(|present| address_of(present) == address) {
            return Ok(());
        }
        self.table.insert(slot)
    }

    /// Records that `address` is free. Repeating it has no effect.
    pub(crate) fn remove(&mut self, address: Address, owner: OwnerHash) -> Result<(), Damaged> {
        next_free::give_back(&mut self.table, address)?;
        for slot in self.owner_slots(owner)? {
            if address_of(&slot) == address {
                self.table.remove(&slot)?;
            }
        }
        Ok(())
    }

    /// The addresses that `owner` holds according to the index.
    pub(crate) fn owned_by(&mut self, owner: OwnerHash) -> Result<Vec<Address>, Damaged> {
        Ok(self.owner_slots(owner)?.iter().map(address_of).collect())
    }

    fn owner_slots(&mut self, owner: OwnerHash) -> Result<Vec<Slot>, Damaged> {
        self.table.list(owner_home(owner.0), |slot| slot.kind != Kind::Word && slot.value == owner.0)
    }

    /// The first address of `span` that is not recorded as taken.
    pub(crate) fn next_free(&mut self, span: Span) -> Result<Option<Address>, Damaged> {
        next_free::next(&mut self.table, span)
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.table.is_dirty()
    }

    /// Writes what changed, and seals the folder. This comes last, after every change to the folder's entries.
    ///
    /// The header goes first, so that a process that is killed here leaves none.
    pub(crate) fn save(&mut self, private_files: &PrivateFiles, dir: &File, boot: &str) -> io::Result<()> {
        let file = private_files.write(NAME)?;
        file.write_all_at(&[0; PAGE_BYTES], 0)?;
        self.table.write(&file)?;
        let Some(stamp) = seal(dir, Seal::Index)? else { return Ok(()) };
        let header = Header { stamp, ..Header::of(self) };
        file.write_all_at(&header.encode(boot), 0)
    }
}

fn slot_of(kind: Kind, address: Address, owner: OwnerHash) -> Slot {
    Slot { kind, v6: address.family == Family::V6, level: 0, value: owner.0, key: address.bits }
}

fn address_of(slot: &Slot) -> Address {
    Address { family: if slot.v6 { Family::V6 } else { Family::V4 }, bits: slot.key }
}

/// Page 0.
struct Header {
    stamp: Stamp,
    seed: u64,
    buckets: u64,
    entries: u64,
    reclaimed: bool,
    file: Option<File>,
}

impl Header {
    fn of(index: &Index) -> Self {
        let Table { seed, buckets, entries, .. } = index.table;
        Self { stamp: Stamp([0; 6]), seed, buckets, entries, reclaimed: index.reclaimed, file: None }
    }

    /// The header of an index written since the last boot.
    fn read(private_files: &PrivateFiles, boot: &str) -> Option<Self> {
        let file = private_files.read(NAME).ok()?;
        let mut bytes = [0; PAGE_BYTES];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let (body, sum) = bytes.split_at(HEADER_WORDS * 8);
        if u64_at(body, 0)? != MAGIC || u64_at(sum, 0)? != checksum(body, boot_number(boot)) {
            return None;
        }
        let word = |number: usize| u64_at(body, number * 8);
        let mut stamp = [0; 6];
        for (place, value) in stamp.iter_mut().enumerate() {
            *value = word(1 + place)?;
        }
        Some(Self {
            stamp: Stamp(stamp),
            seed: word(7)?,
            buckets: word(8)?,
            entries: word(9)?,
            reclaimed: word(10)? == 1,
            file: Some(file),
        })
    }

    fn index(self) -> Option<Index> {
        let table = Table::open(self.file?, self.seed, self.buckets, self.entries).ok()?;
        Some(Index { table, reclaimed: self.reclaimed })
    }

    /// The boot is not written but included in the checksum: a header of another boot does not pass.
    fn encode(&self, boot: &str) -> Vec<u8> {
        let more = [self.seed, self.buckets, self.entries, u64::from(self.reclaimed)];
        let words = [MAGIC].into_iter().chain(self.stamp.0).chain(more);
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.resize(HEADER_WORDS * 8, 0);
        let sum = checksum(&bytes, boot_number(boot));
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.resize(PAGE_BYTES, 0);
        bytes
    }
}

fn boot_number(boot: &str) -> u64 {
    OwnerHash::of(boot).0
}

#[cfg(test)]
mod tests;
