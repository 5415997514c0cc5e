//! `last_reserved_ip.N`: where the search in range set N continues. A hint: a wrong or missing content only changes the
//! round-robin order. An unreadable file is logged and counts as missing, as in the reference.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::libc::ELOOP;

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
