//! The files of a network's folder: the format and the creation of a reservation.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cni_spec::{Attachment, ContainerId, IfName};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use nix::libc::{EEXIST, EINVAL, EISDIR, ELOOP, EMLINK, ENOSYS, EOPNOTSUPP, EPERM};

/// The temporary name of a reservation, if the file system has no unnamed files, or without /proc, which is needed to
/// name them.
const TEMPORARY: &str = ".reservation";
/// Temporary names of earlier versions of this plugin: now the folder has only what the reference has there.
const LEFT: [&str; 3] = [TEMPORARY, ".index", ".released"];
/// A container ID is no longer than a variable of the environment may be (`MAX_ARG_STRLEN`, linux/binfmts.h), and an
/// interface's name is short.
const MAX_BYTES: u64 = 128 * 1024 + 64;

/// The content of an attachment's reservation files. The reference compares it byte by byte, without white space
/// around.
pub(crate) fn content_of(owner: &Attachment) -> String {
    format!("{}\r\n{}", owner.container_id, owner.ifname)
}

/// The content in the older format, without the interface.
pub(crate) fn old_content_of(owner: &Attachment) -> &str {
    owner.container_id.as_str()
}

/// The content of a file whose name is an address. It holds the address, unless it is debris.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// A text. It may name a container and its interface, or be an operator's.
    Held(String),
    /// Empty: its writer died between creating and writing it, or the machine lost its power. No DEL finds it.
    Debris,
    /// The entry is no file, too long, or unreadable: it reserves the address, and is not changed.
    Opaque,
}

impl Content {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        match bytes.iter().all(|byte| *byte == 0) {
            true => Content::Debris,
            false => Content::Held(String::from_utf8_lossy(bytes).into_owned()),
        }
    }

    /// The text by which DEL and CHECK find it; they compare without white space around it.
    pub(crate) fn holder(&self) -> Option<&str> {
        match self {
            Content::Held(text) => Some(text.trim()),
            Content::Debris | Content::Opaque => None,
        }
    }

    /// The container, and the interface except in the older form, if the file is byte for byte what an ADD writes.
    pub(crate) fn attachment(&self) -> Option<(&str, Option<&str>)> {
        let Content::Held(text) = self else { return None };
        let (id, ifname) = text.split_once("\r\n").map_or((text.as_str(), None), |(id, name)| (id, Some(name)));
        let names = ContainerId::parse(id).is_ok() && ifname.is_none_or(|name| IfName::parse(name).is_ok());
        names.then_some((id, ifname))
    }
}

/// Reads a reservation; `None` if there is none. Follows no link and does not block on a fifo.
pub(crate) fn read(path: &Path) -> Option<Content> {
    try_read(path).unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), %error, "cannot read a reservation, which stays as it is");
        Some(Content::Opaque)
    })
}

/// As [`read`], for a caller that shows what it cannot read.
pub(crate) fn try_read(path: &Path) -> io::Result<Option<Content>> {
    let read = |file: File| {
        let mut bytes = Vec::new();
        if !file.metadata()?.is_file() {
            return Ok(Content::Opaque);
        }
        let whole = file.take(MAX_BYTES + 1).read_to_end(&mut bytes)? as u64 <= MAX_BYTES;
        Ok::<_, io::Error>(if whole { Content::parse(&bytes) } else { Content::Opaque })
    };
    let file = netops::file::open(path, OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK, 0);
    match file.and_then(read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // The system's words for it are "Too many levels of symbolic links".
        Err(error) if error.raw_os_error() == Some(ELOOP) => Err(io::Error::new(error.kind(), "it is a symbolic link")),
        content => content.map(Some),
    }
}

/// Makes the reservation `name` in `folder`: complete, or not at all, and never over another one.
///
/// The content is written to a file without a name, which then gets the address as its name: `link` fails if the name
/// is taken, and a name that appears has its content. Nothing is flushed to the disk: a reservation guards a running
/// container, and a power loss ends both; a half-written file is recognised as debris.
pub(super) fn create(folder: &Path, name: &str, content: &str) -> io::Result<()> {
    let path = folder.join(name);
    match unnamed(folder)? {
        Some(mut file) => {
            file.write_all(content.as_bytes())?;
            let unnamed = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
            match nix::unistd::linkat(AT_FDCWD, &unnamed, AT_FDCWD, &path, AtFlags::AT_SYMLINK_FOLLOW) {
                // No /proc is mounted; or the folder is gone, which the other way detects, too.
                Err(Errno::ENOENT) => create_by_name(&folder.join(TEMPORARY), &path, content),
                Err(errno) if has_no_second_names(errno as i32) => {
                    create_by_name(&folder.join(TEMPORARY), &path, content)
                }
                named => Ok(named?),
            }
        }
        None => create_by_name(&folder.join(TEMPORARY), &path, content),
    }
}

/// A file that vanishes with its descriptor; `None` where the file system has no such files (vfat, NFS).
fn unnamed(folder: &Path) -> io::Result<Option<File>> {
    match netops::file::open(folder, OFlag::O_WRONLY | OFlag::O_TMPFILE, 0o600) {
        Ok(file) => Ok(Some(file)),
        Err(error) if matches!(error.raw_os_error(), Some(EOPNOTSUPP | EISDIR | EINVAL | ENOSYS)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether link(2) fails so on a file system where a file has one name: `EPERM` on vfat, the others on FUSE, virtiofs and 9p.
fn has_no_second_names(errno: i32) -> bool {
    matches!(errno, EPERM | EOPNOTSUPP | ENOSYS | EMLINK)
}

/// As [`create`], with a second name for a temporary file.
fn create_by_name(temporary: &Path, path: &Path, content: &str) -> io::Result<()> {
    let mut file = create_new(temporary)?;
    let made = file.write_all(content.as_bytes()).and_then(|()| give_name(temporary, path));
    let removed = remove(temporary);
    made?;
    // Only now does the name belong to this call, which may remove it.
    removed.or_else(|error| fs::remove_file(path).and(Err(error)))
}

/// Links a complete file to its address.
fn give_name(temporary: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(temporary, path) {
        Err(error) if error.raw_os_error().is_some_and(has_no_second_names) => rename_if_free(temporary, path),
        outcome => outcome,
    }
}

/// Renames a file unless the name is taken. Two steps, but under the lock.
fn rename_if_free(temporary: &Path, path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(_) => Err(io::Error::from_raw_os_error(EEXIST)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::rename(temporary, path),
        Err(error) => Err(error),
    }
}

/// Creates the temporary file. One that a killed process left may be a *second name of a reservation*, if it was
/// killed between `link` and `unlink`; so it is unlinked, and never opened for writing.
fn create_new(path: &Path) -> io::Result<File> {
    let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match open() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            open()
        }
        outcome => outcome,
    }
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// Removes what an earlier version of this plugin left beside the reservations.
pub(super) fn remove_left(folder: &Path) {
    for name in LEFT {
        // In a read-only store it stays.
        if let Err(error) = remove(&folder.join(name)) {
            tracing::debug!(name, %error, "cannot remove an old file of this plugin");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operator's text has a line's end, or more words than one.
    #[test]
    fn only_what_an_add_writes_is_an_attachment() {
        let attachment =
            |text: &str| Content::parse(text.as_bytes()).attachment().map(|(id, ifname)| format!("{id} {ifname:?}"));
        assert_eq!(attachment("c1\r\neth0").unwrap(), r#"c1 Some("eth0")"#);
        assert_eq!(attachment("c1").unwrap(), "c1 None");
        for other in
            ["printer\n", "reserved for the printer", "default_pod:abc", "c1\r\neth0\n", "c1\neth0", "c1\r\neth/0"]
        {
            assert_eq!(attachment(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_reservation_never_replaces_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        create(folder.path(), "10.0.0.1", "a\r\neth0").unwrap();
        let by_name = create_by_name(&path(TEMPORARY), &path("10.0.0.1"), "b\r\neth0");
        for taken in [create(folder.path(), "10.0.0.1", "b\r\neth0"), by_name] {
            assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(fs::read(folder.path().join("10.0.0.1")).unwrap(), b"a\r\neth0");
        assert!(!folder.path().join(TEMPORARY).exists());
    }

    #[test]
    fn without_second_names_a_reservation_never_replaces_another_either() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("one"), "a").unwrap();
        fs::write(path("two"), "b").unwrap();
        rename_if_free(&path("one"), &path("10.0.0.1")).unwrap();
        let taken = rename_if_free(&path("two"), &path("10.0.0.1")).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(path("10.0.0.1")).unwrap(), b"a");
    }

    /// Killed between `link` and `unlink`, ADD leaves the temporary file as a second name of a reservation.
    #[test]
    fn a_left_temporary_file_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let temporary = folder.path().join(TEMPORARY);
        create(folder.path(), "10.0.0.1", "a\r\neth0").unwrap();
        fs::hard_link(folder.path().join("10.0.0.1"), &temporary).unwrap();
        create_by_name(&temporary, &folder.path().join("10.0.0.2"), "b\r\neth0").unwrap();
        assert_eq!(fs::read(folder.path().join("10.0.0.1")).unwrap(), b"a\r\neth0");
        assert_eq!(fs::read(folder.path().join("10.0.0.2")).unwrap(), b"b\r\neth0");
    }

    #[test]
    fn a_fifo_a_link_and_a_folder_are_opaque() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path("link")).unwrap();
        fs::create_dir(path("dir")).unwrap();
        for name in ["fifo", "link", "dir"] {
            assert_eq!(read(&path(name)), Some(Content::Opaque), "{name}");
        }
        assert_eq!(read(&path("none")), None);
    }
}
