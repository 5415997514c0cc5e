use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use proptest::prelude::*;

const BOOT: &str = "11111111-2222-3333-4444-555555555555";

struct Folder {
    temp: tempfile::TempDir,
    private_files: PrivateFiles,
    dir: File,
}

impl Folder {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = File::open(temp.path()).unwrap();
        fs::create_dir(temp.path().join("notes")).unwrap();
        let private_files = PrivateFiles::about(&dir, &temp.path().join("notes")).unwrap();
        Self { temp, private_files, dir }
    }

    fn open(&self) -> Option<Index> {
        Index::open(&self.private_files, &self.dir, BOOT)
    }

    fn save(&self, index: &mut Index) {
        index.save(&self.private_files, &self.dir, BOOT).unwrap();
    }

    fn file(&self) -> std::path::PathBuf {
        self.private_files.path(NAME)
    }
}

fn v4(bits: u32) -> Address {
    Address { family: Family::V4, bits: bits.into() }
}

fn owner(number: u32) -> OwnerHash {
    OwnerHash::of(&format!("c{number}\r\neth0"))
}

fn filled(count: u32) -> Index {
    let mut index = Index::new(0);
    for number in 0..count {
        index.insert(v4(number), Some(owner(number)), true).unwrap();
    }
    index
}

#[test]
fn without_a_whole_seal_it_is_not_trusted() {
    let folder = Folder::new();
    assert!(folder.open().is_none(), "there is none");
    folder.save(&mut filled(100));
    assert!(folder.open().is_some());
    assert!(Index::open(&folder.private_files, &folder.dir, "another boot").is_none());

    fs::write(folder.temp.path().join("10.0.0.1"), "").unwrap();
    assert!(folder.open().is_none(), "a file was made");
    folder.save(&mut filled(100));
    assert!(folder.open().is_some());
    fs::remove_file(folder.temp.path().join("10.0.0.1")).unwrap();
    assert!(folder.open().is_none(), "a file was deleted");

    // Another folder with the same content is another folder.
    let copy = Folder::new();
    folder.save(&mut filled(100));
    fs::copy(folder.file(), copy.file()).unwrap();
    copy.dir.set_times(fs::FileTimes::new().set_modified(folder.dir.metadata().unwrap().modified().unwrap())).unwrap();
    assert!(copy.open().is_none());
}

#[test]
fn an_older_copy_written_back_in_place_is_not_trusted() {
    let folder = Folder::new();
    folder.save(&mut filled(100));
    let old = fs::read(folder.file()).unwrap();
    let mut index = folder.open().unwrap();
    index.insert(v4(100), Some(owner(100)), true).unwrap();
    folder.save(&mut index);
    fs::write(folder.file(), old).unwrap();
    assert!(folder.open().is_none());
}

#[test]
fn a_damaged_file_gives_no_wrong_answer() {
    let folder = Folder::new();
    folder.save(&mut filled(300));
    let good = fs::read(folder.file()).unwrap();
    type Damage = (&'static str, fn(&mut Vec<u8>));
    let damages: [Damage; 6] = [
        ("empty", Vec::clear),
        ("cut", |bytes| bytes.truncate(bytes.len() - 1)),
        ("longer", |bytes| bytes.push(0)),
        ("zeros", |bytes| bytes.fill(0)),
        ("pages of zeros", |bytes| bytes[PAGE_BYTES..].fill(0)),
        ("pages changed places", |bytes| {
            let (_, pages) = bytes.split_at_mut(PAGE_BYTES);
            pages.rotate_left(PAGE_BYTES);
        }),
    ];
    for (name, damage) in damages {
        let mut bytes = good.clone();
        damage(&mut bytes);
        fs::write(folder.file(), bytes).unwrap();
        let answer = folder.open().map(|mut index| index.owned_by(owner(7)));
        assert!(matches!(answer, None | Some(Err(Damaged))), "{name}: {answer:?}");
    }
}

#[test]
fn what_was_made_this_boot_survives_a_broken_seal() {
    let folder = Folder::new();
    let mut index = filled(2);
    index.insert(v4(9), Some(owner(9)), false).unwrap();
    folder.save(&mut index);
    fs::write(folder.temp.path().join("x"), "").unwrap();
    let made: BTreeSet<Address> =
        Index::made_this_boot(&folder.private_files, BOOT).into_iter().map(|(address, _)| address).collect();
    assert_eq!(made, BTreeSet::from([v4(0), v4(1)]));
    assert_eq!(Index::made_this_boot(&folder.private_files, "another boot"), []);
}

proptest! {
    /// Any order of changes, with the file closed and opened in between, has the result of a map.
    #[test]
    fn the_index_agrees_with_a_map(
        steps in proptest::collection::vec((any::<bool>(), 0u32..300, 0u32..20), 1..400),
    ) {
        let folder = Folder::new();
        folder.save(&mut Index::new(0));
        let mut map = BTreeMap::new();
        for chunk in steps.chunks(37) {
            let mut index = folder.open().unwrap();
            for (add, address, number) in chunk {
                match (add, map.get(address)) {
                    (true, None) => {
                        index.insert(v4(*address), Some(owner(*number)), true).unwrap();
                        map.insert(*address, *number);
                    }
                    (false, Some(number)) => {
                        index.remove(v4(*address), owner(*number)).unwrap();
                        map.remove(address);
                    }
                    (true, Some(_)) | (false, None) => {}
                }
            }
            folder.save(&mut index);
        }
        let mut index = folder.open().unwrap();
        for number in 0..20 {
            let held: BTreeSet<Address> = index.owned_by(owner(number)).unwrap().into_iter().collect();
            let expected = map.iter().filter(|(_, owner)| **owner == number).map(|(address, _)| v4(*address));
            prop_assert_eq!(held, expected.collect::<BTreeSet<_>>());
        }
        let free = (0..).find(|address| !map.contains_key(address)).map(v4);
        prop_assert_eq!(index.next_free(Span { first: v4(0), last: v4(1000) }).unwrap(), free);
    }
}
