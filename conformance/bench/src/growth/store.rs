//! Reservations as an ADD leaves them.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use std::io::Write;

use crate::scene::NETWORK;

/// Fills the store of this thread's node with reservations until there are `count`, in the order in which they would be
/// handed out; the address last handed out is the last of them.
pub(super) fn fill(count: usize) -> Result<(), String> {
    let folder = Path::new("/var/lib/cni/networks").join(NETWORK);
    let made = fs::create_dir_all(&folder).and_then(|()| (0..count).try_for_each(|number| reserve(&folder, number)));
    made.map_err(|error| format!("cannot fill the store: {error}"))
}

fn reserve(folder: &Path, number: usize) -> std::io::Result<()> {
    // Behind the addresses that the pods of the smaller sizes have had.
    let address = Ipv4Addr::from_bits(FIRST.to_bits() + u32::try_from(number).unwrap_or(u32::MAX));
    let path = folder.join(address.to_string());
    if path.exists() {
        return Ok(());
    }
    write(&path, &format!("crowd{number}\r\neth0"))?;
    write(&folder.join("last_reserved_ip.0"), &address.to_string())
}

const FIRST: Ipv4Addr = Ipv4Addr::new(10, 88, 16, 0);

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
