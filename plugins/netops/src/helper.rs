//! At most one helper process on a node.
//!
//! A helper makes a slow call in a plugin's place and outlives it, so it becomes the child of PID 1 (or of the nearest
//! subreaper). Where that never waits for children that it did not start, each helper would stay as a zombie until pids run
//! out. So the last helper is noted, and there is no other until it is gone: a caller that does not get the turn makes the call
//! itself and waits. A process is known by its number and its start time, and by the namespace that the number counts in.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::kill;
use nix::unistd::{Pid, geteuid, getpid};

/// What is noted lives no longer than the processes: in a folder that is empty after a boot.
const FOLDER: &str = "/run/cni";

/// The right to start a helper; others are kept from it until this is dropped.
pub(crate) struct Turn {
    note: File,
}

impl Turn {
    /// The turn, unless the last helper is still there, in whatever state, or that cannot be known.
    pub(crate) fn find() -> Option<Self> {
        // The numbers in a foreign /proc are of other processes.
        if std::fs::read_link("/proc/self").ok()?.as_os_str() != OsStr::new(&getpid().to_string()) {
            return None;
        }
        let note = open(Path::new(FOLDER)).ok()?;
        let meta = note.metadata().ok()?;
        // Nothing that another user has made, can lock or can change.
        if meta.uid() != geteuid().as_raw() || meta.mode() & 0o077 != 0 {
            return None;
        }
        // Named in full: std's method of the same name has another contract.
        fs2::FileExt::try_lock_exclusive(&note).ok()?;
        let mut text = [0; 64];
        let length = note.read_at(&mut text, 0).ok()?;
        Helper::parse(text.get(..length)?).is_none_or(Helper::is_gone).then_some(Self { note })
    }

    /// Notes the helper that was started in this turn, so that the next turn is after its end.
    pub(crate) fn note(self, pid: Pid) {
        // One that cannot be told from its successors is taken to be there for as long as there is one of its number.
        let started = started(pid).unwrap_or(UNKNOWN);
        let text = format!("{pid} {started}\n");
        if let Err(error) = self.note.set_len(0).and_then(|()| self.note.write_all_at(text.as_bytes(), 0)) {
            tracing::warn!(%error, "cannot note a helper process");
        }
    }
}

/// A note for each namespace of process numbers.
fn open(folder: &Path) -> std::io::Result<File> {
    let path: PathBuf = folder.join(format!("helper.{}", std::fs::metadata("/proc/self/ns/pid")?.ino()));
    let open = || {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
    };
    match open() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
            open()
        }
        opened => opened,
    }
}

const UNKNOWN: u64 = 0;

/// A helper as it was noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Helper {
    pid: Pid,
    /// In clock ticks since the boot.
    started: u64,
}

impl Helper {
    /// `None` for an empty note. One that is damaged is of a helper that may be there.
    fn parse(text: &[u8]) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        let parts = std::str::from_utf8(text).ok().and_then(|text| text.trim_end().split_once(' '));
        let parsed = parts.and_then(|(pid, started)| Some((pid.parse().ok()?, started.parse().ok()?)));
        let (pid, started) = parsed.filter(|(pid, _)| *pid > 0).unwrap_or((getpid().as_raw(), UNKNOWN));
        Some(Self { pid: Pid::from_raw(pid), started })
    }

    fn is_gone(self) -> bool {
        if kill(self.pid, None) == Err(Errno::ESRCH) {
            return true;
        }
        // Another process may have the number by now.
        self.started != UNKNOWN && started(self.pid).is_some_and(|started| started != self.started)
    }
}

/// When a process started: field 22 of its `stat`, behind a name that may have anything in it (proc_pid_stat(5)).
fn started(pid: Pid) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_is_gone_when_its_number_is_free_or_anothers() {
        let me = Helper { pid: getpid(), started: started(getpid()).unwrap() };
        assert!(!me.is_gone());
        assert!(Helper { started: me.started + 1, ..me }.is_gone());
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let child = Pid::from_raw(ended.id().cast_signed());
        let child = Helper { pid: child, started: started(child).unwrap() };
        // A zombie is there.
        while started(child.pid).is_some() && !is_zombie(child.pid) {
            std::thread::yield_now();
        }
        assert!(!child.is_gone());
        ended.wait().unwrap();
        assert!(child.is_gone());
    }

    fn is_zombie(pid: Pid) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z ")
    }

    #[test]
    fn a_damaged_note_is_of_a_helper_that_is_there() {
        assert_eq!(Helper::parse(b""), None);
        let helper = Helper { pid: Pid::from_raw(12), started: 345 };
        assert_eq!(Helper::parse(b"12 345\n"), Some(helper));
        for damaged in [&b"12"[..], b"-1 5\n", b"0 5\n", b"\0\0\0\0", b"12 345 6\n", b"99999999999 1\n"] {
            assert!(!Helper::parse(damaged).unwrap().is_gone(), "{damaged:?}");
        }
    }
}
