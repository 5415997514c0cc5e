//! Whether a file is of this very build, so that this process can do what it would do as a child.
//!
//! The linker writes a hash over its whole output, the build ID, among the first notes of an executable (`--build-id`,
//! which gcc passes by default, and `cni-plugins` explicitly). So files of the same size with the same first bytes,
//! build ID included, are of the same build in any place: a copy, a hard link, a symbolic link. Nothing is executed
//! from the file, so it does no harm if the file is replaced after the check. An executable that was patched after
//! linking, with size and build ID unchanged, is not detected.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const OWN: &str = "/proc/self/exe";

/// Size of the part that is compared: an executable's header, program headers and first notes take 700 bytes.
const START_BYTES: usize = 2 << 10;

/// The start of the build ID's note (elf(5), `Elf64_Nhdr`): the length of its name, of its hash (SHA-1), and its type
/// `NT_GNU_BUILD_ID`; then the name.
const NOTE: [u8; 16] = *b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";

/// Whether `file` may be this executable, or a copy of it: it is, or without `/proc` it is unknown.
pub(crate) fn may_be_in(file: &Path) -> bool {
    is_in(file) || !Path::new(OWN).exists()
}

/// Whether `file` is this executable, or a copy of it.
pub(crate) fn is_in(file: &Path) -> bool {
    let (Ok(own), Ok(other)) = (Path::new(OWN).metadata(), file.metadata()) else { return false };
    if (own.dev(), own.ino()) == (other.dev(), other.ino()) {
        return true;
    }
    own.len() == other.len()
        && other.is_file()
        && start_with_id(Path::new(OWN)).is_some_and(|own| start(file).ok() == Some(own))
}

fn start_with_id(file: &Path) -> Option<[u8; START_BYTES]> {
    start(file).ok().filter(|start| start.windows(NOTE.len()).any(|window| window == NOTE))
}

fn start(file: &Path) -> io::Result<[u8; START_BYTES]> {
    let mut start = [0; START_BYTES];
    File::open(file)?.read_exact_at(&mut start, 0)?;
    Ok(start)
}
