//! Who is tested: a folder of executables.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A folder of executables, with a name for reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// What reports call it.
    pub label: String,
    /// The folder.
    pub bin_dir: PathBuf,
    /// More folders in which executables that it delegates to are looked up.
    #[serde(default)]
    pub also: Vec<PathBuf>,
}

impl Subject {
    /// The executable of a plugin, if it is there.
    #[must_use]
    pub fn find(&self, plugin: &str) -> Option<PathBuf> {
        self.dirs().map(|dir| dir.join(plugin)).find(|path| path.is_file())
    }

    /// Its folders, in the order of `CNI_PATH`.
    pub fn dirs(&self) -> impl DoubleEndedIterator<Item = &Path> {
        std::iter::once(&self.bin_dir).chain(&self.also).map(PathBuf::as_path)
    }
}
