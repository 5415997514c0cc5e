//! The subject of a test: a folder of executables.

use serde::{Deserialize, Serialize};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A folder of executables, with a name for reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    pub label: String,
    pub bin_dir: PathBuf,
    /// More folders in which executables that it delegates to are looked up.
    #[serde(default)]
    pub also: Vec<PathBuf>,
}

impl Subject {
    /// Reads `DIR` or `LABEL=DIR`. Without a label, the folder's whole path is its own.
    pub fn parse(text: &str, also: &[PathBuf]) -> Result<Self, String> {
        let (label, dir) = match text.split_once('=') {
            // A folder may have the sign in its name.
            Some((label, dir)) if !label.is_empty() && !label.contains('/') => (label.to_owned(), dir),
            _ => (String::new(), text),
        };
        let bin_dir = folder(Path::new(dir))?;
        let label = if label.is_empty() { bin_dir.display().to_string() } else { label };
        Ok(Self { label, bin_dir, also: also.to_vec() })
    }

    /// The executable of a plugin, if it is there.
    pub fn find(&self, plugin: &str) -> Option<PathBuf> {
        self.dirs().map(|dir| dir.join(plugin)).find(|path| runs(path))
    }

    /// Returns the subject's folders, in the order of `CNI_PATH`.
    pub fn dirs(&self) -> impl DoubleEndedIterator<Item = &Path> {
        std::iter::once(&self.bin_dir).chain(&self.also).map(PathBuf::as_path)
    }

    /// Names of the executables in its own folder, sorted.
    pub fn executables(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.bin_dir).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries
            .filter(|entry| runs(&entry.path()))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// Whether a path is a file that can be run.
fn runs(path: &Path) -> bool {
    path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

pub fn folder(path: &Path) -> Result<PathBuf, String> {
    let real = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
    match real.is_dir() {
        true => Ok(real),
        false => Err(format!("{} is no folder", path.display())),
    }
}
