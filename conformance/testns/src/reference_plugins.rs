//! The Go reference plugins, which tests compare with and run beside ours.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::feature::skip;

/// A folder with the reference's plugins in place of the one that `conformance/fetch-reference` fills.
const FOLDER: &str = "CNI_REFERENCE";

static REFERENCE: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let target = || {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
    };
    let folder = std::env::var_os(FOLDER).map_or_else(|| target().join("reference"), PathBuf::from);
    folder.join("bridge").is_file().then(|| folder.canonicalize().unwrap_or(folder))
});

/// The folder of the reference's plugins: `CNI_REFERENCE`, else `target/reference`, if it has them.
#[must_use]
pub fn find_reference() -> Option<&'static Path> {
    REFERENCE.as_deref()
}

/// The same; where there are none, prints that `test` is skipped.
#[must_use]
pub fn reference_or_skip(test: &str) -> Option<&'static Path> {
    if find_reference().is_none() {
        skip(test, "no reference plugins: conformance/fetch-reference fetches them");
    }
    find_reference()
}
