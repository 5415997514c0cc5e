//! Files that are written completely or not at all, and small ones of the kernel's.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Error, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::libc::{O_DIRECTORY, O_NOFOLLOW};
use nix::sys::stat::Mode;

use crate::error::{OpError, Result};

/// Makes a folder and those above it. Other users can read and not write the ones that are made, whatever the umask is.
///
/// # Errors
/// `ENOSPC`, `EROFS`, `EACCES`; `EEXIST`: the path leads to no folder.
pub fn make_folders(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// Writes `content` to `path` and replaces an existing file. Readers see the old file or the new one, even after a
/// crash of the machine.
///
/// Only one process at a time may write a path: the writer uses [`unfinished`] first, which [`remove`] removes, too. The
/// folder may be another user's: what is in that file's place is removed and never opened.
///
/// # Errors
/// `ENOENT`: the folder does not exist; `ENOSPC`, `EROFS`, `EACCES`; `EISDIR`, `EEXIST`: another user keeps the unfinished
/// file's place. The old file is untouched then.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    replace_with(path, mode, |_file| Ok(content))
}

/// As [`replace`], with content that is made when the new file is open: the content can name the file's own number, which a copy of it does not have.
///
/// # Errors
/// As [`replace`], and the content's own.
pub fn replace_with<C: AsRef<[u8]>>(
    path: &Path,
    mode: u32,
    content: impl FnOnce(&File) -> std::io::Result<C>,
) -> Result<()> {
    let temporary = unfinished(path);
    let mut file =
        create(&temporary, mode).map_err(|error| OpError::io("create", temporary.display().to_string(), &error))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let written = content(&file)
        .and_then(|content| file.write_all(content.as_ref()))
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&temporary, path))
        .and_then(|()| OpenOptions::new().read(true).custom_flags(O_DIRECTORY).open(folder)?.sync_all());
    written.map_err(|error| {
        // A partial file is useless. If it cannot be removed, it only takes space.
        drop(std::fs::remove_file(&temporary));
        OpError::io("write", path.display().to_string(), &error)
    })
}

/// Creates a file. In its place may be what a killed writer left, or what another user put there, such as a pipe.
fn create(path: &Path, mode: u32) -> std::io::Result<File> {
    let new = || OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    match new() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => std::fs::remove_file(path).and_then(|()| new()),
        created => created,
    }
}

/// Where [`replace`] writes first: `.NAME.new` in the same folder, with a hash as the name if that would be longer than a file's name
/// may be. A killed writer leaves it, perhaps in part.
#[must_use]
pub fn unfinished(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    let usual = format!(".{}.new", name.to_string_lossy());
    if usual.len() <= NAME_BYTES_MAX {
        return path.with_file_name(usual);
    }
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    path.with_file_name(format!(".{:016x}.new", hasher.finish()))
}

/// `NAME_MAX`, include/uapi/linux/limits.h.
const NAME_BYTES_MAX: usize = 255;

/// Removes a file, and what a killed [`replace`] of it left. Neither has to be there.
///
/// # Errors
/// Either file still exists.
pub fn remove(path: &Path) -> Result<()> {
    // A read-only file system refuses before it looks whether the file is there.
    let is_absent = |path: &Path| path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    [path, &unfinished(path)].into_iter().try_for_each(|path| match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound && !is_absent(path) => {
            Err(OpError::io("remove", path.display().to_string(), &error))
        }
        Ok(()) | Err(_) => Ok(()),
    })
}

/// Reads a plain file of a folder that others may have put something else into. It is not waited for, and no link is followed.
///
/// # Errors
/// `NotFound`; `InvalidData`: it is no plain file, or longer than `bytes_max`; others as `open(2)` and `read(2)`.
pub fn read_plain(path: &Path, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    read_plain_with(path, bytes_max).map(|(content, _about)| content)
}

/// As [`read_plain`], with what the kernel says about the file that was read.
///
/// # Errors
/// As [`read_plain`].
pub fn read_plain_with(path: &Path, bytes_max: u64) -> std::io::Result<(Vec<u8>, Metadata)> {
    let file = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | nix::libc::O_NONBLOCK).open(path);
    // Of a link, and of a socket.
    let no_file = |error: &Error| matches!(error.raw_os_error(), Some(nix::libc::ELOOP | nix::libc::ENXIO));
    let file = file.map_err(|error| if no_file(&error) { Error::from(ErrorKind::InvalidData) } else { error })?;
    let about = file.metadata()?;
    if !about.is_file() || about.len() > bytes_max {
        return Err(Error::from(ErrorKind::InvalidData));
    }
    let mut content = Vec::new();
    file.take(bytes_max).read_to_end(&mut content)?;
    Ok((content, about))
}

/// Opens a file, close-on-exec, by one system call: musl's `open` sets the flag once more, for kernels that ignore it. A
/// file that is created gets permissions `bits`.
///
/// # Errors
/// As `open(2)`.
pub fn open(path: impl AsRef<Path>, how: OFlag, bits: u32) -> std::io::Result<File> {
    loop {
        match openat(AT_FDCWD, path.as_ref(), how | OFlag::O_CLOEXEC, Mode::from_bits_retain(bits)) {
            Err(Errno::EINTR) => (),
            opened => return Ok(opened?.into()),
        }
    }
}

/// A file in `/proc` that the kernel writes into one read, of less than 1 KiB: three system calls instead of seven.
///
/// # Errors
/// As `open(2)` and `read(2)`; `InvalidData`: it is longer, or no text.
pub fn read_small(path: impl AsRef<Path>) -> std::io::Result<String> {
    let mut bytes = [0; 1024];
    let length = open(path, OFlag::O_RDONLY, 0)?.read(&mut bytes)?;
    match bytes.get(..length).filter(|_| length < bytes.len()).map(str::from_utf8) {
        Some(Ok(text)) => Ok(text.to_owned()),
        Some(Err(_)) | None => Err(Error::from(ErrorKind::InvalidData)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_longest_name_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a".repeat(255));
        replace(&path, b"new", 0o644).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_small_file_is_read_whole_or_not_at_all() {
        assert_eq!(read_small("/proc/self/comm").unwrap(), std::fs::read_to_string("/proc/self/comm").unwrap());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("small");
        for (length, is_small) in [(0, true), (1023, true), (1024, false), (5000, false)] {
            std::fs::write(&path, "x".repeat(length)).unwrap();
            assert_eq!(read_small(&path).ok(), is_small.then(|| "x".repeat(length)));
        }
    }

    #[test]
    fn what_is_no_plain_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        std::fs::create_dir_all(folder.join("folder")).unwrap();
        nix::unistd::mkfifo(&folder.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::write(folder.join("plain"), "12345").unwrap();
        std::os::unix::fs::symlink("plain", folder.join("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap();
        for name in ["folder", "pipe", "link", "socket"] {
            assert_eq!(read_plain(&folder.join(name), 5).unwrap_err().kind(), ErrorKind::InvalidData, "{name}");
        }
        assert_eq!(read_plain(&folder.join("plain"), 4).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(read_plain(&folder.join("plain"), 5).unwrap(), b"12345");
        assert_eq!(read_plain(&folder.join("none"), 5).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn the_old_file_survives_a_failure_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let path = folder.join("state");
        replace(&path, b"one", 0o600).unwrap();
        replace(&path, b"two", 0o600).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        let onto_folder = folder.join("sub");
        std::fs::create_dir_all(onto_folder.join("x")).unwrap();
        assert!(replace(&onto_folder, b"three", 0o600).is_err());
        let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["state", "sub"]);
    }

    /// In a folder of another user: a pipe would make the writer wait, and a file would stay that user's to change.
    #[test]
    fn what_another_user_put_in_the_place_of_the_unfinished_file_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let (path, victim) = (folder.join("state"), folder.join("victim"));
        std::fs::write(&victim, "safe").unwrap();
        let put: [&dyn Fn(&Path); 3] = [
            &|place| nix::unistd::mkfifo(place, nix::sys::stat::Mode::S_IRWXU).unwrap(),
            &|place| std::os::unix::fs::symlink(&victim, place).unwrap(),
            &|place| std::fs::hard_link(&victim, place).unwrap(),
        ];
        for put in put {
            put(&unfinished(&path));
            replace(&path, b"new", 0o644).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"new");
            assert_eq!(std::fs::read(&victim).unwrap(), b"safe");
        }
        std::fs::create_dir(unfinished(&path)).unwrap();
        assert!(replace(&path, b"newer", 0o644).unwrap_err().to_string().contains(".state.new"));
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn what_a_killed_writer_left_is_overwritten_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let path = folder.join("state");
        std::fs::write(unfinished(&path), "half of a longer text").unwrap();
        replace(&path, b"whole", 0o600).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        std::fs::write(unfinished(&path), "half").unwrap();
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
    }
}
