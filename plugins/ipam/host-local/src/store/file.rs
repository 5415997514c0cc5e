//! The files of a network's folder, one at a time: what a reservation file says, and how one comes to be.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use cni_spec::{ContainerId, IfName};
use nix::libc::{EEXIST, EOPNOTSUPP, EPERM, O_NOFOLLOW, O_NONBLOCK};

/// Where a reservation is written before it gets its address for a name.
pub(super) const TEMPORARY: &str = ".reservation";
/// A container ID is a file name elsewhere, so at most 255 bytes; what is longer than this is no reservation.
const MAX_BYTES: u64 = 4096;

/// Who holds an address: a container and its interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The container.
    pub container_id: ContainerId,
    /// Its interface.
    pub ifname: IfName,
}

impl Owner {
    /// What its reservation files contain. The reference compares it byte by byte, without white space around.
    pub(crate) fn content(&self) -> String {
        format!("{}\r\n{}", self.container_id, self.ifname)
    }

    /// What they contained before the interface was noted.
    pub(crate) fn old_content(&self) -> &str {
        self.container_id.as_str()
    }
}

/// What a file with an address for a name says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// It names an owner: the text, without white space around it.
    Owned(String),
    /// It names nobody, so nobody will ever release it: empty, since its writer died between creating and
    /// writing it, or after a power loss; or not ours at all.
    Debris,
    /// It is no file, or cannot be read: taken, and not to be touched.
    Opaque,
}

impl Content {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let Ok(text) = std::str::from_utf8(bytes).map(str::trim) else { return Content::Debris };
        let mut lines = text.lines();
        let container = lines.next().is_some_and(|id| ContainerId::parse(id).is_ok());
        let ifname = lines.next().is_none_or(|ifname| IfName::parse(ifname).is_ok());
        match container && ifname && lines.next().is_none() {
            true => Content::Owned(text.to_owned()),
            false => Content::Debris,
        }
    }
}

/// Reads a reservation; `None` if there is none. Follows no link and waits for no fifo's writer.
pub(super) fn read(path: &Path) -> Option<Content> {
    let read = |file: File| {
        let mut bytes = Vec::new();
        if !file.metadata()?.is_file() {
            return Ok(Content::Opaque);
        }
        file.take(MAX_BYTES).read_to_end(&mut bytes)?;
        Ok::<_, io::Error>(Content::parse(&bytes))
    };
    let file = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path);
    match file.and_then(read) {
        Ok(content) => Some(content),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot read a reservation, which stays as it is");
            Some(Content::Opaque)
        }
    }
}

/// Makes the reservation `name` in `folder`: complete, or not at all, and never over another one.
///
/// The content is written to a temporary file, which then gets the address as a second name: `link` fails if the
/// name is taken, and a name that appears has its content. Nothing is forced to the disk: a reservation
/// guards a running container, and a power loss ends both; what it leaves half written is recognised as debris.
///
/// # Errors
/// `EEXIST`: the name is taken.
pub(super) fn create(folder: &Path, name: &str, content: &str) -> io::Result<()> {
    let temporary = folder.join(TEMPORARY);
    let path = folder.join(name);
    let mut file = create_new(&temporary)?;
    let made = file.write_all(content.as_bytes()).and_then(|()| give_name(&temporary, &path));
    let removed = remove(&temporary);
    made?;
    // Only now is the name ours to take back.
    removed.or_else(|error| fs::remove_file(&path).and(Err(error)))
}

/// Gives a complete file its address for a name.
fn give_name(temporary: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(temporary, path) {
        // `EPERM` and `EOPNOTSUPP`: a file system without second names, such as vfat.
        Err(error) if matches!(error.raw_os_error(), Some(EPERM | EOPNOTSUPP)) => rename_if_free(temporary, path),
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

/// Removes a file; content if there is none.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// Writes and removes a file as an ADD would, to find a full disk or a store that is not to be written to.
pub(super) fn probe(folder: &Path) -> io::Result<()> {
    let temporary = folder.join(TEMPORARY);
    let written = create_new(&temporary).and_then(|mut file| file.write_all(&[b'0'; 64]));
    let removed = remove(&temporary);
    written.and(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_nobody_is_debris() {
        for owned in ["c1", "c1\r\neth0", " c1\r\neth0\n", "c1\neth0", "0123.a-b_c"] {
            assert_eq!(Content::parse(owned.as_bytes()), Content::Owned(owned.trim().to_owned()));
        }
        for debris in
            ["", " \n", "\0\0\0", "hello world", "../c1\r\neth0", "c1\r\neth/0", "c1\r\neth0\r\nmore", "\u{fffd}"]
        {
            assert_eq!(Content::parse(debris.as_bytes()), Content::Debris, "{debris:?}");
        }
        assert_eq!(Content::parse(&[0xff, 0xfe]), Content::Debris);
    }

    #[test]
    fn a_reservation_never_replaces_another() {
        let folder = tempfile::tempdir().unwrap();
        create(folder.path(), "10.0.0.1", "a\r\neth0").unwrap();
        let taken = create(folder.path(), "10.0.0.1", "b\r\neth0").unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
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
        create(folder.path(), "10.0.0.1", "a\r\neth0").unwrap();
        fs::hard_link(folder.path().join("10.0.0.1"), folder.path().join(TEMPORARY)).unwrap();
        create(folder.path(), "10.0.0.2", "b\r\neth0").unwrap();
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
