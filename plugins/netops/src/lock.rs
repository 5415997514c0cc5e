//! File locks by `flock(2)`, which also exclude the processes that lock the same files as the reference does.
//!
//! Waiting has a deadline and does not poll: a thread sleeps in the kernel until the lock is free. The error at the
//! deadline names the holder.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc::{self, O_NOFOLLOW, O_NONBLOCK};

use crate::error::{Cause, LockTimeout, OpError, Result};
use crate::netns::Netns;
use crate::{file, unsafe_calls};

const REQUEST: &str = "flock LOCK_EX";

/// How often a lock is asked for where nothing can wait for it.
const PAUSE: Duration = Duration::from_millis(5);

/// The suite's files of the node that need not outlive a boot. What a container can open, such as its own namespace, it
/// could lock for ever; this folder is root's.
pub(crate) const FOLDER: &str = "/run/cni";

/// The permission bits of users other than owner and group.
const OTHERS: u32 = 0o007;

/// A held lock. Dropping it, or the end of the process, releases it; dropping it also while a child that was just forked has
/// the file still open.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock on `path`. A missing file is created with permissions `bits`.
    ///
    /// # Errors
    /// [`Cause::Held`] after `deadline`, naming the holder; `ENOENT`: the folder does not exist; `EROFS`, `EACCES`.
    pub fn take(path: &Path, bits: u32, deadline: Duration) -> Result<Self> {
        Self::take_opened(open(path, bits)?, path, deadline)
    }

    /// Takes a lock of the node, `/run/cni/NAME.lock`, for what calls would choose alike at the same time, such as a
    /// routing table.
    ///
    /// # Errors
    /// As [`Lock::take`]; the folder cannot be created.
    pub fn of_node(name: &str, deadline: Duration) -> Result<Self> {
        Self::take(&node_path(name)?, 0o600, deadline)
    }

    /// Takes a lock of the node for one network namespace, so that calls in others do not wait: a byte of `/run/cni/NAME.lock`
    /// (`F_OFD_SETLK`), by the namespace's inode number, which no other namespace has at the time.
    ///
    /// # Errors
    /// As [`Lock::of_node`].
    pub fn of_netns(name: &str, netns: &Netns, deadline: Duration) -> Result<Self> {
        let path = node_path(name)?;
        let file = open(&path, 0o600)?;
        let [_, inode] = netns.identity().numbers();
        let range = processes::byte_range(libc::F_WRLCK, i64::try_from(inode).unwrap_or_default(), 1);
        let attempt = || match fcntl(&file, FcntlArg::F_OFD_SETLK(&range)) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(errno) => Err(OpError::errno("take", object(&path), errno).request("fcntl F_OFD_SETLK")),
        };
        if !attempt()? {
            let take = move |file: &File| match fcntl(file, FcntlArg::F_OFD_SETLKW(&range)) {
                Ok(_) => Ok(()),
                Err(errno) => Err(errno.into()),
            };
            wait(&file, &path, deadline, take, &attempt)?;
        }
        Ok(Self { file, path })
    }

    /// Takes the lock as [`Lock::take`] does, without waiting; `None` if another process holds it.
    ///
    /// # Errors
    /// As [`Lock::take`], without the deadline.
    pub fn try_take(path: &Path, bits: u32) -> Result<Option<Self>> {
        let file = open(path, bits)?;
        Ok(attempt(&file, path)?.then(|| Self { file, path: path.to_owned() }))
    }

    /// Takes the lock on an existing file, which may be read-only. Only root may be able to open it: a process that can
    /// open the file can lock it for as long as it likes.
    ///
    /// # Errors
    /// As [`Lock::take`].
    pub fn take_existing(path: &Path, deadline: Duration) -> Result<Self> {
        let file = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path);
        let file = file.map_err(|error| OpError::io("open", object(path), &error).request("open"))?;
        Self::take_opened(file, path, deadline)
    }

    /// Takes the lock on an open file, which errors call `path`. The caller has seen that no other user can lock it.
    pub(crate) fn take_opened(file: File, path: &Path, deadline: Duration) -> Result<Self> {
        if !attempt(&file, path)? {
            wait(&file, path, deadline, fs2::FileExt::lock_exclusive, &|| attempt(&file, path))?;
        }
        Ok(Self { file, path: path.to_owned() })
    }

    /// The path of the locked file.
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

impl Drop for Lock {
    fn drop(&mut self) {
        // Unlocking an open file cannot fail; the end of the process would release the lock, too.
        fs2::FileExt::unlock(&self.file).ok();
    }
}

/// The process that holds the lock on an existing file, as `process PID (NAME)`; `None`: there is no file, or no lock on it.
/// Takes no lock and opens no file.
#[must_use]
pub fn find_holder(path: &Path) -> Option<String> {
    processes::find_holder(&path.metadata().ok()?)
}

/// The process that holds the lock as [`find_holder`] finds it, if it was stopped by a signal or a debugger.
#[must_use]
pub fn find_stopped_holder(path: &Path) -> Option<String> {
    processes::find_stopped_holder(&path.metadata().ok()?)
}

/// Reads a file while no process has it open for writing; `None`: a process has it open. One that opens it for writing
/// during the read waits until the read is done.
///
/// Where the kernel does not tell, for a file of another user or on a file system without leases, the file is read as it is.
///
/// # Errors
/// As `open(2)` and `read(2)`, which follows no link; `InvalidData`: it is no plain file.
pub fn read_unless_written(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::from(ErrorKind::InvalidData));
    }
    // The end of the open file gives the lease back.
    if unsafe_calls::take_read_lease(&file) == Err(Errno::EAGAIN) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// The path of a lock of the node; its folder exists then.
fn node_path(name: &str) -> Result<PathBuf> {
    file::make_folders(Path::new(FOLDER)).map_err(|error| OpError::io("create", FOLDER, &error))?;
    Ok(Path::new(FOLDER).join(format!("{name}.lock")))
}

fn open(path: &Path, bits: u32) -> Result<File> {
    let failed = |error: &io::Error| OpError::io("open", object(path), error).request("open O_CREAT");
    let how = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = file::open(path, how, bits).map_err(|error| failed(&error))?;
    let metadata = file.metadata().map_err(|error| failed(&error))?;
    if !metadata.is_file() {
        return Err(OpError::state("open", object(path), "it is no regular file"));
    }
    close_to_others(&file, metadata.mode()).map_err(|error| failed(&error))?;
    Ok(file)
}

/// Removes the permissions of other users from a lock file; a copy of its folder may have added them. A process that
/// can open the file could block every call.
fn close_to_others(file: &File, mode: u32) -> io::Result<()> {
    if mode & OTHERS == 0 {
        return Ok(());
    }
    match file.set_permissions(Permissions::from_mode(mode & !OTHERS)) {
        // The file belongs to another user: a user's own store in a test, or a mapped user namespace. Or its file system has
        // no permissions (vfat, 9p).
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) => Ok(()),
        done => done,
    }
}

fn object(path: &Path) -> String {
    format!("lock {}", path.display())
}

// Called by their full paths: std's methods of the same names have another contract.
fn attempt(file: &File, path: &Path) -> Result<bool> {
    match fs2::FileExt::try_lock_exclusive(file) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == fs2::lock_contended_error().raw_os_error() => Ok(false),
        Err(error) => Err(OpError::io("take", object(path), &error).request(REQUEST)),
    }
}

/// Waits on a second thread, because `take`, such as `flock`, has no timeout. The thread shares the open file, so the lock it gets is
/// the caller's. If the caller has given up, the lock is released with the thread's copy of the file.
fn wait(
    file: &File,
    path: &Path,
    deadline: Duration,
    take: impl FnOnce(&File) -> io::Result<()> + Send + 'static,
    attempt: &dyn Fn() -> Result<bool>,
) -> Result<()> {
    let failed = |error: &io::Error| OpError::io("take", object(path), error).request(REQUEST);
    let waiter = file.try_clone().map_err(|error| failed(&error))?;
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().name("flock".into()).stack_size(128 * 1024).spawn(move || {
        // After the deadline the receiver is gone. The lock is released with `waiter`.
        drop(sender.send(take(&waiter)));
    });
    let is_taken = match thread {
        Ok(_waits) => receiver.recv_timeout(deadline).ok().transpose().map_err(|error| failed(&error))?.is_some(),
        // The cgroup has no room for a thread.
        Err(_) => ask_until(attempt, deadline)?,
    };
    if is_taken { Ok(()) } else { Err(held(file, path, deadline)) }
}

fn held(file: &File, path: &Path, deadline: Duration) -> OpError {
    let held = LockTimeout { holder: holder(file), waited: deadline };
    OpError::new("take", object(path), Cause::Held(Box::new(held))).request(REQUEST)
}

/// Asks for a lock until the deadline. `false`: it was held all the time.
#[expect(
    clippy::disallowed_methods,
    reason = "where no thread can be made, nothing can wait for a lock with a deadline"
)]
fn ask_until(attempt: &dyn Fn() -> Result<bool>, deadline: Duration) -> Result<bool> {
    let start = Instant::now();
    while !attempt()? {
        if start.elapsed() > deadline {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(true)
}

/// The holder of the lock, for messages.
fn holder(file: &File) -> String {
    let found = file.metadata().ok().and_then(|found| processes::find_holder(&found));
    found.unwrap_or_else(|| "another process".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_two_namespaces_do_not_wait_for_each_other() {
        let node = testns::Node::new();
        let [one, other] = [node.container(), node.container()].map(|pod| Netns::open(pod.namespace().path()).unwrap());
        let name = format!("netops-test-{}", std::process::id());
        let take = |netns, within_ms| Lock::of_netns(&name, netns, Duration::from_millis(within_ms));
        let held = take(&one, 20_000).unwrap();
        take(&other, 20_000).unwrap();
        assert!(matches!(take(&one, 30).unwrap_err().cause, Cause::Held(_)));
        drop(held);
        // The thread that gave up waiting may have it for a moment.
        take(&one, 20_000).unwrap();
    }

    #[test]
    fn the_deadline_names_the_holder_and_the_lock_is_free_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Lock::take(&path, 0o600, Duration::from_secs(1)).unwrap();
        let error = Lock::take(&path, 0o600, Duration::from_millis(30)).unwrap_err();
        let holder = format!("process {}", std::process::id());
        assert!(error.to_string().contains(&holder), "{error}");
        assert!(matches!(&error.cause, Cause::Held(held) if held.holder.starts_with(&holder)));
        drop(first);
        // The thread that gave up waiting now gets the lock and releases it at once.
        Lock::take(&path, 0o600, Duration::from_secs(20)).unwrap();
    }

    #[test]
    fn a_file_is_read_only_while_nobody_writes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let writer = File::create(&path).unwrap();
        assert_eq!(read_unless_written(&path).unwrap(), None);
        drop(writer);
        assert_eq!(read_unless_written(&path).unwrap(), Some(Vec::new()));
        // A reader, and a lease that was given back, block no writer.
        let reader = File::open(&path).unwrap();
        std::fs::write(&path, "whole").unwrap();
        assert_eq!(read_unless_written(&path).unwrap(), Some(b"whole".to_vec()));
        drop(reader);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(read_unless_written(&link).is_err() && read_unless_written(Path::new("/dev/zero")).is_err());
    }
}
