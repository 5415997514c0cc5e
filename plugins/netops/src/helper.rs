//! Starts a few helper processes at most on a node.
//!
//! A helper makes a slow system call for a plugin and may outlive it; it then becomes a child of PID 1 (or of the
//! nearest subreaper). Some PID 1 never wait for children that they did not start. Without a limit every helper would
//! stay there as a zombie until the node runs out of pids. So the helpers are recorded in a file, and while
//! [`HELPERS`] of them exist, the plugin makes the call itself and waits. A helper is identified by its pid, its start
//! time and its PID namespace.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::kill;
use nix::unistd::{Pid, geteuid, getpid};

use crate::file;
use crate::lock::FOLDER;

/// How many helpers there can be: as many as DEL of a usual chain starts (bandwidth, firewall, portmap, bridge), each of
/// which exists for 20 ms.
const HELPERS: usize = 4;

/// The right to start a helper. No other process has it until this value is dropped.
pub(crate) struct Turn {
    record: File,
    /// The helpers that exist.
    others: Vec<Helper>,
}

impl Turn {
    /// Takes the turn. `None`: [`HELPERS`] still exist, in whatever state, or that cannot be determined.
    pub(crate) fn find() -> Option<Self> {
        Self::find_in(|| open(Path::new(FOLDER)))
    }

    /// The same while other helpers exist, otherwise `None`. Makes no file.
    pub(crate) fn find_beside_others() -> Option<Self> {
        let turn = Self::find_in(|| options().open(path(Path::new(FOLDER))?))?;
        (!turn.others.is_empty()).then_some(turn)
    }

    fn find_in(open: impl FnOnce() -> std::io::Result<File>) -> Option<Self> {
        // The pids in the /proc of another PID namespace belong to other processes.
        if std::fs::read_link("/proc/self").ok()?.as_os_str() != OsStr::new(&getpid().to_string()) {
            return None;
        }
        let record = open().ok()?;
        let meta = record.metadata().ok()?;
        // Only a folder that no other user has made, can lock or can change.
        if meta.uid() != geteuid().as_raw() || meta.mode() & 0o077 != 0 {
            return None;
        }
        // Called by its full path: std's method of the same name has another contract.
        fs2::FileExt::try_lock_exclusive(&record).ok()?;
        let mut text = [0; HELPERS * Helper::TEXT_BYTES_MAX];
        let length = record.read_at(&mut text, 0).ok()?;
        let recorded = text.get(..length)?.split_inclusive(|byte| *byte == b'\n');
        let others: Vec<Helper> = recorded.map(Helper::parse).filter(|helper| !helper.is_gone()).collect();
        (others.len() < HELPERS).then_some(Self { record, others })
    }

    /// Records the helper that was started in this turn.
    pub(crate) fn note(self, pid: Pid) {
        // Without a start time, any process with the same pid counts as the helper.
        let helper = Helper { pid, started: started(pid).unwrap_or(UNKNOWN) };
        let lines: String =
            self.others.iter().chain([&helper]).map(|Helper { pid, started }| format!("{pid} {started}\n")).collect();
        if let Err(error) = self.record.set_len(0).and_then(|()| self.record.write_all_at(lines.as_bytes(), 0)) {
            tracing::warn!(%error, "cannot note a helper process");
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // The helper that was just forked may have the file still open. It cannot fail for an open file.
        fs2::FileExt::unlock(&self.record).ok();
    }
}

/// The record of a PID namespace, as a helper is a process of one.
fn path(folder: &Path) -> std::io::Result<PathBuf> {
    Ok(folder.join(format!("helper.{}", std::fs::metadata("/proc/self/ns/pid")?.ino())))
}

fn open(folder: &Path) -> std::io::Result<File> {
    let path = path(folder)?;
    let open = || options().create(true).truncate(false).mode(0o600).open(&path);
    match open() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
            open()
        }
        opened => opened,
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW);
    options
}

const UNKNOWN: u64 = 0;

/// A helper as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Helper {
    pid: Pid,
    /// In clock ticks since the boot.
    started: u64,
}

impl Helper {
    /// Two numbers in decimal, a space and a newline.
    const TEXT_BYTES_MAX: usize = 11 + 1 + 20 + 1;

    /// A damaged line stands for a helper that may exist.
    fn parse(line: &[u8]) -> Self {
        let parts = std::str::from_utf8(line).ok().and_then(|text| text.trim_end().split_once(' '));
        let parsed = parts.and_then(|(pid, started)| Some((pid.parse().ok()?, started.parse().ok()?)));
        let (pid, started) = parsed.filter(|(pid, _)| *pid > 0).unwrap_or((getpid().as_raw(), UNKNOWN));
        Self { pid: Pid::from_raw(pid), started }
    }

    fn is_gone(self) -> bool {
        if kill(self.pid, None) == Err(Errno::ESRCH) {
            return true;
        }
        // Another process may have the same pid by now.
        self.started != UNKNOWN && started(self.pid).is_some_and(|started| started != self.started)
    }
}

/// The start time of a process: field 22 of its `stat`, after the name, which may contain anything (proc_pid_stat(5)).
fn started(pid: Pid) -> Option<u64> {
    let stat = file::read_small(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_is_gone_when_its_pid_is_free_or_belongs_to_another_process() {
        let me = Helper { pid: getpid(), started: started(getpid()).unwrap() };
        assert!(!me.is_gone());
        assert!(Helper { started: me.started + 1, ..me }.is_gone());
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let child = Pid::from_raw(ended.id().cast_signed());
        let child = Helper { pid: child, started: started(child).unwrap() };
        // A zombie still exists.
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
    fn a_damaged_record_stands_for_a_running_helper() {
        let helper = Helper { pid: Pid::from_raw(12), started: 345 };
        assert_eq!(Helper::parse(b"12 345\n"), helper);
        for damaged in [&b"12"[..], b"-1 5\n", b"0 5\n", b"\0\0\0\0", b"12 345 6\n", b"99999999999 1\n"] {
            assert!(!Helper::parse(damaged).is_gone(), "{damaged:?}");
        }
    }
}
