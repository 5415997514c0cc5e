//! A hash table in a file: each look-up or change touches a page or two, however many entries there are.
//!
//! Pages are read when first needed and written by [`Table::write`] only, so that an operation that fails on the
//! way leaves the file as it was. A page that does not pass its checksum makes the whole table [`Damaged`].

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::page::{Kind, PAGE_BYTES, Page, SLOTS, Slot, mix};

/// The file is not what was written to it; the reservations themselves must be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damaged;

#[derive(Debug)]
pub(super) struct Table {
    /// The source of pages that are not in memory; none for a table that was just built.
    file: Option<File>,
    /// Random for each built file: pages of different files cannot be mixed up.
    pub(super) seed: u64,
    /// A power of two.
    pub(super) buckets: u64,
    pub(super) entries: u64,
    pages: HashMap<u64, Page>,
    dirty: BTreeSet<u64>,
}

impl Table {
    /// An empty table with room for `entries`.
    pub(super) fn new(seed: u64, entries: u64) -> Self {
        let buckets = (entries / 8 + 1).next_power_of_two().max(4);
        let pages = (0..buckets).map(|number| (number, Page::default())).collect();
        Self { file: None, seed, buckets, entries: 0, pages, dirty: (0..buckets).collect() }
    }

    /// The table in `file`; the header supplied the rest.
    pub(super) fn open(file: File, seed: u64, buckets: u64, entries: u64) -> Result<Self, Damaged> {
        let bytes = file.metadata().map_err(|_unreadable| Damaged)?.len();
        let expected = buckets.checked_add(1).and_then(|pages| pages.checked_mul(PAGE_BYTES as u64));
        if !buckets.is_power_of_two() || expected != Some(bytes) {
            return Err(Damaged);
        }
        Ok(Self { file: Some(file), seed, buckets, entries, pages: HashMap::new(), dirty: BTreeSet::new() })
    }

    /// Returns whether the table has changes to write.
    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    fn page(&mut self, number: u64) -> Result<&mut Page, Damaged> {
        if !self.pages.contains_key(&number) {
            let mut bytes = [0; PAGE_BYTES];
            let file = self.file.as_ref().ok_or(Damaged)?;
            file.read_exact_at(&mut bytes, (number + 1) * PAGE_BYTES as u64).map_err(|_unreadable| Damaged)?;
            self.pages.insert(number, Page::decode(&bytes, self.seed, number).ok_or(Damaged)?);
        }
        self.pages.get_mut(&number).ok_or(Damaged)
    }

    /// The pages that can contain an entry with `hash`, nearest first.
    fn path(&self, hash: u64) -> impl Iterator<Item = u64> + use<> {
        let mask = self.buckets - 1;
        (0..self.buckets).map(move |step| hash.wrapping_add(step) & mask)
    }

    /// All entries with `hash` that `wanted` selects.
    pub(super) fn list(&mut self, hash: u64, wanted: impl Fn(&Slot) -> bool) -> Result<Vec<Slot>, Damaged> {
        let mut found = Vec::new();
        for number in self.path(hash) {
            let page = self.page(number)?;
            found.extend(page.slots.iter().copied().filter(&wanted));
            if page.passed == 0 {
                break;
            }
        }
        Ok(found)
    }

    /// Adds an entry that is not there yet.
    pub(super) fn insert(&mut self, slot: Slot) -> Result<(), Damaged> {
        if (self.entries + 1) * 10 > self.buckets * SLOTS as u64 * 7 {
            self.grow()?;
        }
        for number in self.path(hash_of(&slot)) {
            let page = self.page(number)?;
            let fits = page.slots.len() < SLOTS;
            if fits {
                page.slots.push(slot);
            } else {
                page.passed += 1;
            }
            self.dirty.insert(number);
            if fits {
                self.entries += 1;
                return Ok(());
            }
        }
        Err(Damaged)
    }

    /// Removes the entries equal to `slot`; succeeds if there is none.
    pub(super) fn remove(&mut self, slot: &Slot) -> Result<(), Damaged> {
        let mut passed = Vec::new();
        for number in self.path(hash_of(slot)) {
            let page = self.page(number)?;
            if let Some(at) = page.slots.iter().position(|present| present == slot) {
                page.slots.swap_remove(at);
                self.dirty.insert(number);
                self.entries = self.entries.saturating_sub(1);
                for earlier in passed {
                    let page = self.page(earlier)?;
                    page.passed = page.passed.saturating_sub(1);
                    self.dirty.insert(earlier);
                }
                return Ok(());
            }
            if page.passed == 0 {
                break;
            }
            passed.push(number);
        }
        Ok(())
    }

    /// Changes the value of the word `slot`, in place.
    pub(super) fn set_word(&mut self, slot: &Slot, value: u64) -> Result<(), Damaged> {
        for number in self.path(hash_of(slot)) {
            let page = self.page(number)?;
            if let Some(present) = page.slots.iter_mut().find(|present| *present == slot) {
                present.value = value;
                self.dirty.insert(number);
                return Ok(());
            }
            if page.passed == 0 {
                break;
            }
        }
        Err(Damaged)
    }

    pub(super) fn all(&mut self) -> Result<Vec<Slot>, Damaged> {
        let mut slots = Vec::new();
        for number in 0..self.buckets {
            slots.extend_from_slice(&self.page(number)?.slots);
        }
        Ok(slots)
    }

    /// Moves all entries into twice as many pages: once for each doubling, so a constant per entry.
    fn grow(&mut self) -> Result<(), Damaged> {
        let slots = self.all()?;
        let mut larger = Table::new(mix(self.seed), self.buckets * 8);
        debug_assert!(larger.buckets > self.buckets);
        for slot in slots {
            larger.insert(slot)?;
        }
        *self = larger;
        Ok(())
    }

    /// Writes the pages that changed; all of them, and nothing else, if the table was built anew.
    pub(super) fn write(&mut self, file: &File) -> io::Result<()> {
        if self.file.is_none() {
            file.set_len(0)?;
            let mut bytes = vec![0; PAGE_BYTES];
            for number in 0..self.buckets {
                let page = self.pages.get(&number).map(|page| page.encode(self.seed, number));
                bytes.extend(page.unwrap_or_default());
            }
            file.write_all_at(&bytes, 0)?;
        } else {
            for number in &self.dirty {
                let Some(page) = self.pages.get(number) else { continue };
                file.write_all_at(&page.encode(self.seed, *number), (number + 1) * PAGE_BYTES as u64)?;
            }
        }
        self.dirty.clear();
        Ok(())
    }
}

/// The page of an entry.
fn hash_of(slot: &Slot) -> u64 {
    match slot.kind {
        Kind::Owner | Kind::OwnerThisBoot => owner_home(slot.value),
        Kind::Word => word_home(slot.v6, slot.level, slot.key),
    }
}

/// The page of an owner's entries. The hash is evenly distributed already.
pub(super) fn owner_home(owner: u64) -> u64 {
    owner
}

/// The page of a word of the trie.
#[expect(clippy::cast_possible_truncation, reason = "both halves of the prefix are mixed in")]
pub(super) fn word_home(v6: bool, level: u8, prefix: u128) -> u64 {
    mix(mix(mix((prefix >> 64) as u64) ^ prefix as u64) ^ u64::from(level) << 1 ^ u64::from(v6))
}
