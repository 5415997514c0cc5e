//! `last_reserved_ip.N`: where the search in range set N continues. A hint: a wrong or missing content only changes the
//! round-robin order. An unreadable file is logged and counts as missing, as in the reference.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use netops::{Errno, OpError};
use nix::fcntl::OFlag;
use nix::libc::ELOOP;
use nix::unistd::{AccessFlags, access};

use crate::address::Address;

/// Longer than any address.
const MAX_BYTES: usize = 64;

fn name(set: usize) -> String {
    format!("last_reserved_ip.{set}")
}

/// The file is opened so, whatever is in its place.
const HOW: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK);

pub(crate) fn read(folder: &Path, set: usize) -> Option<Address> {
    let read = |file: File| {
        if !file.metadata()?.is_file() {
            return Err(no_file());
        }
        let mut bytes = [0; MAX_BYTES];
        let length = file.read_at(&mut bytes, 0)?;
        Ok::<_, io::Error>(String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned())
    };
    let file = netops::file::open(folder.join(name(set)), HOW, 0);
    match file.and_then(read) {
        Ok(text) => text.parse::<std::net::IpAddr>().ok().map(Address::from),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(set, %error, "cannot read last_reserved_ip: the search starts at the range's start");
            None
        }
    }
}

/// Records the address last reserved. The file keeps its block, so that a full disk does not matter once it exists; it
/// is truncated before it is written, so that a killed process leaves a part of the old address at worst. A symbolic
/// link in its place is replaced by a file: its target is not for this plugin to write.
pub(super) fn write(folder: &Path, set: usize, address: Address) -> io::Result<()> {
    let open = || open(folder, set, OFlag::O_CREAT);
    let (file, length) = match open() {
        Err(error) if is_link(&error) => {
            tracing::warn!(set, "last_reserved_ip is a link: a file replaces it");
            fs::remove_file(folder.join(name(set)))?;
            open()?
        }
        opened => opened?,
    };
    let text = address.to_string();
    if length > text.len() as u64 {
        file.set_len(text.len() as u64)?;
    }
    file.write_all_at(text.as_bytes(), 0)
}

/// The error of `O_NOFOLLOW` for a link (open(2)).
fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ELOOP)
}

/// Whether [`write`] would need a new file, or a block for an empty one.
pub(super) fn needs_room(folder: &Path, set: usize) -> io::Result<bool> {
    match open(folder, set, OFlag::empty()) {
        Ok((_, length)) => Ok(length == 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound || is_link(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

/// The file and its length in bytes.
fn open(folder: &Path, set: usize, how: OFlag) -> io::Result<(File, u64)> {
    let file = netops::file::open(folder.join(name(set)), HOW | OFlag::O_WRONLY | how, 0o600)?;
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok((file, metadata.len())) } else { Err(no_file()) }
}

pub(super) fn no_file() -> io::Error {
    io::Error::other("it is no regular file")
}

/// Checks that an ADD could write a reservation and the address last reserved for each of `sets` sets, and make folder and lock
/// where they are missing.
pub(crate) fn require_writable(folder: &Path, sets: usize) -> Result<(), OpError> {
    // `symlink_metadata`: a dangling link exists, and makes ADD fail.
    let there = folder.ancestors().find(|ancestor| ancestor.symlink_metadata().is_ok()).unwrap_or(Path::new("."));
    let missing = folder.ancestors().take_while(|ancestor| *ancestor != there).count();
    let files = match missing {
        0 => sets + missing_files(folder, sets)?,
        missing => missing + 1 + 2 * sets,
    };
    has_room(there, files).map_err(|errno| OpError::errno("write", format!("store {}", folder.display()), errno))
}

/// The number of files that stay after DEL and have to be made.
fn missing_files(folder: &Path, sets: usize) -> Result<usize, OpError> {
    let lock = folder.join("lock");
    let mut files = match fs::symlink_metadata(&lock) {
        Ok(found) if found.is_file() => 0,
        Ok(_) => return Err(OpError::io("open", format!("lock {}", lock.display()), &no_file())),
        Err(_absent) => 1,
    };
    for set in 0..sets {
        let object = || format!("{}/last_reserved_ip.{set}", folder.display());
        let needs_room = needs_room(folder, set).map_err(|error| OpError::io("write", object(), &error))?;
        files += usize::from(needs_room);
    }
    Ok(files)
}

/// Whether so many small files can be made in a folder. A file system that says nothing of its room has enough.
fn has_room(folder: &Path, files: usize) -> Result<(), Errno> {
    // Of a file the kernel would say EACCES, as it cannot be executed.
    if folder.is_file() {
        return Err(Errno::ENOTDIR);
    }
    access(folder, AccessFlags::W_OK | AccessFlags::X_OK)?;
    let about = rustix::fs::statvfs(folder).map_err(|errno| Errno::from_raw(errno.raw_os_error()))?;
    let files = files as u64;
    let is_full = |all: u64, free: u64| all > 0 && free < files;
    match is_full(about.f_files, about.f_ffree) || is_full(about.f_blocks, about.f_bfree) {
        true => Err(Errno::ENOSPC),
        false => Ok(()),
    }
}
