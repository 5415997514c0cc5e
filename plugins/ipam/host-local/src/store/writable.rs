//! Whether an ADD could write its files, found out without writing any and without the lock: STATUS is asked every few
//! seconds, also while others hold it.

use std::fs;
use std::path::Path;

use netops::{Errno, OpError};
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};

use super::last_reserved;

/// Checks that an ADD could write a reservation and the address last reserved for each of `sets` sets, and make folder and lock
/// where they are missing.
pub(crate) fn require(folder: &Path, sets: usize) -> Result<(), OpError> {
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
        Ok(_) => return Err(OpError::io("open", format!("lock {}", lock.display()), &last_reserved::no_file())),
        Err(_absent) => 1,
    };
    for set in 0..sets {
        let object = || format!("{}/last_reserved_ip.{set}", folder.display());
        let needs_room =
            last_reserved::needs_room(folder, set).map_err(|error| OpError::io("write", object(), &error))?;
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
    let about = statvfs(folder)?;
    let files = files as u64;
    let is_full = |all: u64, free: u64| all > 0 && free < files;
    match is_full(about.files(), about.files_free()) || is_full(about.blocks(), about.blocks_free()) {
        true => Err(Errno::ENOSPC),
        false => Ok(()),
    }
}
