//! The seal shows that no other process has changed the folder since the index was written.
//!
//! A folder's mtime alone is not enough: the kernel stamps with the time of its last tick (1 to 10 ms ago), so the Go
//! plugin can make or delete a reservation right after us and leave the very same mtime. Waiting for the next tick
//! would cost more than the whole operation. Instead the folder's mtime is *set*, a day or so into the past, and both
//! stamps as they then read are noted in the index. Every creation, deletion or renaming of an entry stamps mtime and
//! ctime with one and the same instant, at any clock granularity and wherever the clock was stepped to; in a sealed
//! folder the two are hours apart. So a folder whose stamps equal a noted seal has had no entry changed since.
//! Setting the mtime back by hand, as `rsync -a`, `tar` and `cp -a` do, moves the ctime and so breaks the seal; a
//! copy has another inode.
//!
//! The time by which the mtime is set back is random. A process whose private files are elsewhere (another mount namespace)
//! seals the same folder, perhaps in the same second of a file system that keeps whole seconds: its seal differs.

use std::fs::{File, FileTimes};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

/// A folder's device, inode, mtime and ctime with nanoseconds, as by `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(pub(super) [u64; 6]);

impl Stamp {
    /// The folder's stamp now.
    pub(crate) fn read(dir: &File) -> io::Result<Self> {
        let stat = dir.metadata()?;
        let time = |number: i64| number.cast_unsigned();
        Ok(Self([
            stat.dev(),
            stat.ino(),
            time(stat.mtime()),
            time(stat.mtime_nsec()),
            time(stat.ctime()),
            time(stat.ctime_nsec()),
        ]))
    }

    /// Returns whether the stamp can be a seal: a change of an entry never leaves mtime and ctime different.
    pub(super) fn is_seal(&self) -> bool {
        let [_, _, mtime, mtime_ns, ctime, ctime_ns] = self.0;
        (mtime, mtime_ns) != (ctime, ctime_ns)
    }
}

/// The purpose of a seal. Each has its own range of times, so that one cannot be mistaken for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seal {
    /// For the index: nothing has changed since it was written.
    Index,
    /// For reading the folder: nothing has changed meanwhile.
    Reading,
}

/// Seals the folder; `None` where the file system does not keep the mtime it is given.
pub(crate) fn seal(dir: &File, what: Seal) -> io::Result<Option<Stamp>> {
    const STRETCH_S: u64 = 1 << 16;
    let stretch = match what {
        Seal::Index => 1,
        Seal::Reading => 2,
    };
    // Seeded anew from the kernel's random numbers.
    let random = RandomState::new().hash_one(stretch);
    let back = Duration::from_secs(stretch * STRETCH_S + random % STRETCH_S) + Duration::from_nanos(random >> 36);
    let past = SystemTime::now().checked_sub(back).unwrap_or(SystemTime::UNIX_EPOCH);
    dir.set_times(FileTimes::new().set_modified(past))?;
    Ok(Some(Stamp::read(dir)?).filter(Stamp::is_seal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// Each change happens directly after sealing, in the same tick; a hundred times, as one try could be at a tick's edge.
    #[test]
    fn a_changed_entry_breaks_the_seal() {
        type Change = (&'static str, fn(&Path) -> io::Result<()>);
        let changes: [Change; 4] = [
            ("made", |dir| fs::write(dir.join("new"), "")),
            ("deleted", |dir| fs::remove_file(dir.join("old"))),
            ("came and went", |dir| fs::write(dir.join("new"), "").and_then(|()| fs::remove_file(dir.join("new")))),
            ("renamed", |dir| fs::rename(dir.join("old"), dir.join("new"))),
        ];
        for (name, change) in changes.iter().cycle().take(400) {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("old"), "").unwrap();
            let dir = File::open(folder.path()).unwrap();
            let sealed = seal(&dir, Seal::Index).unwrap().unwrap();
            assert_eq!(Stamp::read(&dir).unwrap(), sealed);
            change(folder.path()).unwrap();
            assert_ne!(Stamp::read(&dir).unwrap(), sealed, "{name}");
        }
    }

    #[test]
    fn one_seal_is_not_another() {
        let folder = tempfile::tempdir().unwrap();
        let dir = File::open(folder.path()).unwrap();
        let seconds = |what| seal(&dir, what).unwrap().unwrap().0[2];
        assert!(seconds(Seal::Reading) < seconds(Seal::Index));
        let drawn: std::collections::HashSet<u64> = (0..20).map(|_| seconds(Seal::Index)).collect();
        assert!(drawn.len() > 10, "whole seconds do not distinguish two seals");
    }

    #[test]
    fn a_file_written_in_place_does_not_break_the_seal() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("old"), "").unwrap();
        let dir = File::open(folder.path()).unwrap();
        let sealed = seal(&dir, Seal::Index).unwrap();
        fs::write(folder.path().join("old"), "text").unwrap();
        assert_eq!(Stamp::read(&dir).ok(), sealed, "or each write of the index would break it");
    }
}
