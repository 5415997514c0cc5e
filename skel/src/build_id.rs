//! Whether a file is this very build, so that what it would do as a child can be done in this process.
//!
//! The linker writes a hash over all that it writes, the build ID, among the first notes of an executable (`--build-id`,
//! which gcc asks of it, and `cni-plugins` by itself). So files of the same size whose first bytes are the same, build ID
//! included, are the same build, wherever they lie: a copy, a hard link, a symbolic link. Nothing is executed from the
//! file, so it does no harm if it is replaced after the look. An executable that somebody patched after linking and that
//! kept size and build ID is taken for what was built.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const OWN: &str = "/proc/self/exe";

/// Of an executable: its header, program headers and first notes. They take 700 bytes.
const START_BYTES: usize = 2 << 10;

/// What the build ID's note begins with (elf(5), `Elf64_Nhdr`): the length of its name, of its hash (SHA-1), and its type
/// `NT_GNU_BUILD_ID`; then the name.
const NOTE: [u8; 16] = *b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";

/// Whether `file` may be this executable, or a copy of it: it is, or `/proc` is not there to say.
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

/// The start of a file, if the build ID is in it.
fn start_with_id(file: &Path) -> Option<[u8; START_BYTES]> {
    start(file).ok().filter(|start| start.windows(NOTE.len()).any(|window| window == NOTE))
}

fn start(file: &Path) -> io::Result<[u8; START_BYTES]> {
    let mut start = [0; START_BYTES];
    File::open(file)?.read_exact_at(&mut start, 0)?;
    Ok(start)
}
