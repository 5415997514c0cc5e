//! Files of the sources, for tests that read them.

use crate::subjects::skip;
use std::path::{Path, PathBuf};

/// The root of the sources; where they are not on this machine, prints that the test is skipped.
pub(crate) fn sources_or_skip() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    if !root.exists() {
        skip("the source is not on this machine");
    }
    Some(root.to_owned()).filter(|root| root.exists())
}

/// The files below a folder with this extension, but for what cargo has built.
pub(crate) fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") && !path.is_symlink() {
            found.extend(files_below(&path, extension));
        } else if path.extension().is_some_and(|own| own == extension) {
            found.push(path);
        }
    }
    found
}
