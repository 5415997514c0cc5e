//! Reading files that anybody may have put there: a pipe or a device in a file's place must not keep the reader waiting.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The longest file that is read. Configs and cache entries have some kilobytes.
const BYTES_MAX: u64 = 64 << 20;

/// Opens a regular file for reading, or a symbolic link to one.
///
/// # Errors
/// As `open(2)`; it is something else.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// Reads a regular file whole.
///
/// # Errors
/// As [`open`] and `read(2)`; it is longer than 64 MiB.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_whole(open(path)?)
}

/// Reads an open file to its end.
/// Errors: as `read(2)`; it is longer than 64 MiB.
pub(crate) fn read_whole(file: File) -> io::Result<Vec<u8>> {
    let too_long = || io::Error::other(format!("it is longer than {BYTES_MAX} bytes"));
    let length = file.metadata()?.len();
    if length > BYTES_MAX {
        return Err(too_long());
    }
    // Read at once, and the end.
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default() + 1);
    match file.take(BYTES_MAX + 1).read_to_end(&mut bytes)? as u64 > BYTES_MAX {
        true => Err(too_long()),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::from_bits_retain(0o600)).unwrap();
        for (name, target) in [("link", at("file")), ("zero", "/dev/zero".into()), ("nothing", at("none"))] {
            std::os::unix::fs::symlink(target, at(name)).unwrap();
        }
        assert_eq!((read(&at("file")).unwrap(), read(&at("link")).unwrap()), (b"text".to_vec(), b"text".to_vec()));
        for name in ["fifo", "zero"] {
            assert_eq!(read(&at(name)).unwrap_err().to_string(), "it is no regular file");
        }
        assert_eq!(read(&at("nothing")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(read(folder.path()).is_err());
    }
}
