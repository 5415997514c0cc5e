//! The one file lock: `flock(2)`, which excludes the reference's lock files' users too.
//!
//! Waiting has a deadline and does not poll: a thread sleeps in the kernel until the lock is free. Whoever
//! gives up says who held it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use crate::error::{OpError, Result};

/// A held lock; dropping it, or the process's end, releases it.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock on `path`, making the file (with `mode`) if it is missing.
    ///
    /// # Errors
    /// [`crate::error::Cause::State`] after `deadline`, naming the holder; `ENOENT`: no such folder; `EROFS`, `EACCES`.
    pub fn take(path: &Path, mode: u32, deadline: Duration) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(mode)
            .open(path)
            .map_err(|error| OpError::io("open", object(path), &error).request("open O_CREAT"))?;
        Self::take_on(file, path, deadline)
    }

    /// Takes the lock on a file or folder that exists.
    ///
    /// # Errors
    /// As [`Lock::take`].
    pub fn take_existing(path: &Path, deadline: Duration) -> Result<Self> {
        let file = File::open(path).map_err(|error| OpError::io("open", object(path), &error).request("open"))?;
        Self::take_on(file, path, deadline)
    }

    fn take_on(file: File, path: &Path, deadline: Duration) -> Result<Self> {
        let failed = |error: &std::io::Error| OpError::io("take", object(path), error).request("flock LOCK_EX");
        match fs2::FileExt::try_lock_exclusive(&file) {
            Ok(()) => (),
            Err(error) if error.raw_os_error() == fs2::lock_contended_error().raw_os_error() => {
                wait(&file, path, deadline)?;
            }
            Err(error) => return Err(failed(&error)),
        }
        Ok(Self { file, path: path.to_owned() })
    }

    /// The file it is on.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }
}

fn object(path: &Path) -> String {
    format!("lock {}", path.display())
}

/// Waits on a second thread, as `flock` has no timeout. The thread shares the open file, so the lock it
/// gets is the caller's; if the caller has given up, the lock ends with the thread's copy of the file.
fn wait(file: &File, path: &Path, deadline: Duration) -> Result<()> {
    let failed = |error: &std::io::Error| OpError::io("take", object(path), error).request("flock LOCK_EX");
    let waiter = file.try_clone().map_err(|error| failed(&error))?;
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new()
        .name("flock".into())
        .stack_size(128 * 1024)
        .spawn(move || {
            // Nobody listens any more after the deadline; the lock goes with `waiter`.
            drop(sender.send(fs2::FileExt::lock_exclusive(&waiter)));
        })
        .map_err(|error| failed(&error))?;
    match receiver.recv_timeout(deadline) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(failed(&error)),
        Err(_deadline) => {
            let sentence = format!("{} held it for {} ms", holder(file), deadline.as_millis());
            Err(OpError::state("take", object(path), sentence).request("flock LOCK_EX"))
        }
    }
}

/// Who holds the lock, by `/proc/locks` and `/proc/PID/comm`.
fn holder(file: &File) -> String {
    let unknown = || "another process".to_owned();
    let Ok(stat) = file.metadata() else {
        return unknown();
    };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let device = stat.dev();
    let id = format!("{:02x}:{:02x}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device), stat.ino());
    let Some(pid) = holder_in(&locks, &id) else {
        return unknown();
    };
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match comm.trim() {
        "" => format!("process {pid}"),
        comm => format!("process {pid} ({comm})"),
    }
}

/// The process in a line like `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`; `->` marks those who wait.
fn holder_in(locks: &str, id: &str) -> Option<i32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, "FLOCK", _, _, pid, file, ..] if *file == id => pid.parse().ok().filter(|pid| *pid > 0),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("netops-lock-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path.join("lock")
    }

    #[test]
    fn the_second_waits_for_the_first() {
        let path = scratch("order");
        let first = Lock::take(&path, 0o600, Duration::from_secs(1)).unwrap();
        let again = path.clone();
        let (sender, receiver) = mpsc::channel();
        let second = std::thread::spawn(move || {
            sender.send("started").unwrap();
            let lock = Lock::take(&again, 0o600, Duration::from_secs(20)).unwrap();
            sender.send("taken").unwrap();
            drop(lock);
        });
        assert_eq!(receiver.recv().unwrap(), "started");
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err());
        drop(first);
        assert_eq!(receiver.recv().unwrap(), "taken");
        second.join().unwrap();
    }

    #[test]
    fn the_deadline_names_the_holder_and_the_lock_is_free_afterwards() {
        let path = scratch("deadline");
        let first = Lock::take(&path, 0o600, Duration::from_secs(1)).unwrap();
        let error = Lock::take(&path, 0o600, Duration::from_millis(30)).unwrap_err();
        let holder = format!("process {}", std::process::id());
        assert!(error.to_string().contains(&holder), "{error}");
        drop(first);
        // The thread that waited in vain gets the lock now and lets go of it at once.
        Lock::take(&path, 0o600, Duration::from_secs(20)).unwrap();
    }

    #[test]
    fn waiting_lines_are_no_holders() {
        let locks = "1: -> FLOCK  ADVISORY  WRITE 9 fe:00:12 0 EOF\n2: FLOCK  ADVISORY  WRITE 7 fe:00:12 0 EOF\n";
        assert_eq!(holder_in(locks, "fe:00:12"), Some(7));
        assert_eq!(holder_in(locks, "fe:00:13"), None);
        assert_eq!(holder_in("garbage\n\n1:", "x"), None);
    }
}
