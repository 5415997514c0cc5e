//! Recently released addresses, while `releaseCooldownSeconds` is set: one of the [private files](super::private_files).
//!
//! A line an address: `<unix seconds> <address> <container> <interface>`. A hint like the index: lines that do not
//! parse are skipped, and without the file no address has to wait.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::private_files::PrivateFiles;
use crate::address::Address;
use cni_spec::Attachment;

const NAME: &str = "released";
/// A hundred thousand lines. More are not read, and dropped.
const MAX_BYTES: u64 = 8 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Released {
    at: SystemTime,
    pub(crate) address: Address,
    owner: String,
}

impl Released {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (seconds, rest) = line.split_once(' ')?;
        let (address, owner) = rest.split_once(' ')?;
        let at = UNIX_EPOCH.checked_add(Duration::from_secs(seconds.parse().ok()?))?;
        Some(Self { at, address: Address::from_file_name(address)?, owner: owner.to_owned() })
    }

    pub(crate) fn line(&self) -> String {
        let seconds = self.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        format!("{seconds} {} {}\n", self.address, self.owner)
    }

    /// The time until the address may be given again; `None` if it may be now. A time in the future means that the clock was set
    /// back, and does not count.
    fn waits(&self, cool_down: Duration, now: SystemTime) -> Option<Duration> {
        let since = now.duration_since(self.at).ok()?;
        cool_down.checked_sub(since).filter(|rest| !rest.is_zero())
    }

    pub(crate) fn was_of(&self, owner: &Attachment) -> bool {
        self.owner == owner_text(owner)
    }
}

fn owner_text(owner: &Attachment) -> String {
    format!("{} {}", owner.container_id, owner.ifname)
}

/// The addresses that still have to wait, oldest first, with the remaining time. Drops the other lines when they are
/// the majority.
pub(crate) fn read(private_files: &PrivateFiles, cool_down: Duration) -> Vec<(Released, Duration)> {
    let (waiting, count) = parse(private_files, cool_down);
    if waiting.len() * 2 < count {
        let lines: String = waiting.iter().map(|(released, _)| released.line()).collect();
        let shorten = |mut file: File| file.set_len(0).and_then(|()| file.write_all(lines.as_bytes()));
        if let Err(error) = private_files.write(NAME).and_then(shorten) {
            tracing::warn!(%error, "cannot shorten the list of released addresses");
        }
    }
    waiting
}

/// As [`read`], but changes nothing.
pub(crate) fn peek(private_files: &PrivateFiles, cool_down: Duration) -> Vec<(Released, Duration)> {
    parse(private_files, cool_down).0
}

/// The addresses that still have to wait, and the number of all lines.
fn parse(private_files: &PrivateFiles, cool_down: Duration) -> (Vec<(Released, Duration)>, usize) {
    let mut bytes = Vec::new();
    if private_files.read(NAME).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes)).is_err() {
        return (Vec::new(), 0);
    }
    let text = String::from_utf8_lossy(&bytes);
    let now = SystemTime::now();
    let all: Vec<Released> = text.lines().filter_map(Released::parse).collect();
    let count = all.len();
    let waiting = |released: Released| released.waits(cool_down, now).map(|rest| (released, rest));
    (all.into_iter().filter_map(waiting).collect(), count)
}

/// Records that `owner` released `addresses` just now.
pub(crate) fn note(private_files: &PrivateFiles, addresses: &[Address], owner: &Attachment) -> io::Result<()> {
    let released = |address: &Address| Released { at: SystemTime::now(), address: *address, owner: owner_text(owner) };
    let lines: String = addresses.iter().map(|address| released(address).line()).collect();
    let mut file = private_files.write(NAME)?;
    file.seek(SeekFrom::End(0))?;
    file.write_all(lines.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private_files(folder: &tempfile::TempDir) -> PrivateFiles {
        PrivateFiles::about(&File::open(folder.path()).unwrap(), &folder.path().join("notes")).unwrap()
    }

    #[test]
    fn an_address_waits_and_a_clock_set_back_does_not_count() {
        let at = UNIX_EPOCH + Duration::from_secs(1000);
        let released = Released::parse("1000 10.0.0.5 c1 eth0").unwrap();
        let (second, ten) = (Duration::from_secs(1), Duration::from_secs(10));
        assert_eq!(released.waits(ten, at), Some(ten));
        assert_eq!(released.waits(ten, at + second * 9), Some(second));
        assert_eq!(released.waits(ten, at + ten), None);
        assert_eq!(released.waits(ten, at - second), None);
    }

    #[test]
    fn lines_that_do_not_parse_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let text = format!("x\n\n{now} 10.0.0.5 c1 eth0\n{now} 10.0.0.06 c1 eth0\n99999999999999999999 10.0.0.7 a b\n");
        let private_files = private_files(&folder);
        private_files.write(NAME).unwrap().write_all(text.as_bytes()).unwrap();
        let waiting = read(&private_files, Duration::from_secs(60));
        let addresses: Vec<String> = waiting.iter().map(|(released, _)| released.address.to_string()).collect();
        assert_eq!(addresses, ["10.0.0.5"]);
    }

    #[test]
    fn what_is_noted_is_read_and_the_rest_is_dropped_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let old: String = (1..50).map(|n| format!("{n} 10.0.0.{n} c eth0\n")).collect();
        let private_files = private_files(&folder);
        private_files.write(NAME).unwrap().write_all(old.as_bytes()).unwrap();
        let owner = Attachment::parse("n", "c1", "eth0").unwrap();
        let address = Address::from_file_name("fd00::5").unwrap();
        note(&private_files, &[address], &owner).unwrap();
        let waiting = read(&private_files, Duration::from_secs(60));
        assert_eq!(waiting.len(), 1);
        assert!(waiting[0].0.was_of(&owner));
        assert_eq!(std::fs::read_to_string(private_files.path(NAME)).unwrap().lines().count(), 1);
    }
}
