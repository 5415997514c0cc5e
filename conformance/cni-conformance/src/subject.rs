//! The subject of a test: a folder of executables.

use serde::{Deserialize, Serialize};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A folder of executables, with a name for reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The subject's name in reports.
    pub label: String,
    /// The folder.
    pub bin_dir: PathBuf,
    /// More folders in which executables that it delegates to are looked up.
    #[serde(default)]
    pub also: Vec<PathBuf>,
}

impl Subject {
    /// Reads `DIR` or `LABEL=DIR`. Without a label, the folder's whole path is its own.
    ///
    /// # Errors
    /// If there is no such folder.
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
    #[must_use]
    pub fn find(&self, plugin: &str) -> Option<PathBuf> {
        self.dirs().map(|dir| dir.join(plugin)).find(|path| runs(path))
    }

    /// Returns the subject's folders, in the order of `CNI_PATH`.
    pub fn dirs(&self) -> impl DoubleEndedIterator<Item = &Path> {
        std::iter::once(&self.bin_dir).chain(&self.also).map(PathBuf::as_path)
    }

    /// Names of the executables in its own folder, sorted.
    #[must_use]
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

/// The real path of a folder.
///
/// # Errors
/// If there is none.
pub fn folder(path: &Path) -> Result<PathBuf, String> {
    let real = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
    match real.is_dir() {
        true => Ok(real),
        false => Err(format!("{} is no folder", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::Subject;
    use std::path::Path;

    #[test]
    fn a_folder_may_have_a_label() {
        let parse = |text| Subject::parse(text, &[]).map(|subject| (subject.label, subject.bin_dir));
        assert_eq!(parse("/"), Ok(("/".to_owned(), Path::new("/").to_owned())));
        let here = Path::new(".").canonicalize().unwrap();
        assert_eq!(parse("."), Ok((here.display().to_string(), here)));
        assert_eq!(parse("root=/"), Ok(("root".to_owned(), Path::new("/").to_owned())));
        assert!(parse("root=/no/such/folder").is_err());
        assert!(parse("").is_err());
        assert!(parse("/proc/self/status").is_err());
    }
}
