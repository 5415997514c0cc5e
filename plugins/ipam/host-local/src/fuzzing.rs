//! The private decoders, for the targets of conformance/fuzz. Not a public interface: it changes with them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use cni_spec::{Attachment, CniArgs, CniError, Dns};

use crate::address::Address;
use crate::conf;
use crate::index::{Index, NAME, OwnerHash};
use crate::range::Span;
use crate::store::private_files::PrivateFiles;
use crate::store::released::Released;
use crate::store::{Content, content_of};

/// The owner that a reservation file names.
pub fn reserved_for(content: &[u8]) -> Option<String> {
    Content::parse(content).holder().map(str::to_owned)
}

/// The contents of `owner`'s reservation files.
pub fn reservation(owner: &Attachment) -> String {
    content_of(owner)
}

/// A line about a released address, read and written again.
pub fn released(line: &str) -> Option<(Address, String)> {
    Released::parse(line).map(|released| (released.address, released.line()))
}

pub fn resolv_conf(text: &str) -> Dns {
    crate::add::parse(text)
}

pub fn requested_by(args: &CniArgs) -> Result<Option<Address>, CniError> {
    conf::requested_by(args, &[])
}

/// Answers of an index: the addresses of each owner, and the first free one of each span. `None` where it reports that
/// it is damaged.
#[derive(Debug, PartialEq, Eq)]
pub struct Answers {
    pub owned: Vec<Option<Vec<Address>>>,
    pub free: Vec<Option<Option<Address>>>,
}

/// Writes an index of `taken` into `folder`, flips bits at `damage`, and queries the index that is found there
/// afterwards. `None` if there is none.
pub fn index_answers(
    folder: &Path,
    taken: &[(Address, &str)],
    damage: &[(u64, u8)],
    spans: &[Span],
) -> io::Result<Option<Answers>> {
    const BOOT: &str = "0b1c3d1e-5f67-4f5c-8a6c-3a3e0f7a1c11";
    let damaged = |_| io::Error::other("an index in memory cannot be damaged");
    let dir = File::open(folder)?;
    let mut index = Index::new(0);
    for (address, owner) in taken {
        index.insert(*address, Some(OwnerHash::of(owner)), true).map_err(damaged)?;
    }
    let private_files = PrivateFiles::about(&dir, &folder.join("notes"))?;
    fs::create_dir_all(folder.join("notes"))?; // before the folder is sealed
    index.save(&private_files, &dir, BOOT)?;
    let file = private_files.write(NAME)?;
    let length = file.metadata()?.len();
    for (place, bits) in damage {
        let mut byte = [0];
        file.read_exact_at(&mut byte, place % length)?;
        file.write_all_at(&[byte[0] ^ bits], place % length)?;
    }
    let Some(mut index) = Index::open(&private_files, &dir, BOOT) else { return Ok(None) };
    let owned = taken.iter().map(|(_, owner)| {
        let mut addresses = index.owned_by(OwnerHash::of(owner)).ok();
        addresses.iter_mut().for_each(|addresses| addresses.sort());
        addresses
    });
    let owned = owned.collect();
    Ok(Some(Answers { owned, free: spans.iter().map(|span| index.next_free(*span).ok()).collect() }))
}
