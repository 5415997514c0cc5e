//! The networks of a folder: which files have them, in which order, which one is found under a name, and which is the default.

use crate::NetworkConf;
use crate::error::{Error, why_unread};
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// A file that was found before a network and could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedOver {
    /// The file.
    pub path: PathBuf,
    /// The reason, on one line.
    pub reason: String,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ignored: {}", self.path.display(), self.reason)
    }
}

impl PassedOver {
    pub(crate) fn list(all: &[Self]) -> String {
        all.iter().map(|one| format!("; {one}")).collect()
    }
}

/// A network found in a folder.
#[derive(Debug, Clone)]
pub struct Found {
    /// The network.
    pub network: NetworkConf,
    /// Unusable files found before it.
    pub passed_over: Vec<PassedOver>,
}

/// Finds a network by name in the files of a folder: of those that have it, the first in [`search_order`]. A broken file
/// is skipped and reported.
///
/// # Errors
/// [`Error::NoConfig`] if there is no such file at all, also when there is no folder; [`Error::NoNetwork`] if none
/// has this name; [`Error::ReadConfig`] if the folder cannot be read.
pub fn find(dir: &Path, name: &str) -> Result<Found, Error> {
    let files = search_order(dir)?;
    if files.is_empty() {
        return Err(Error::NoConfig { dir: dir.to_owned() });
    }
    let (mut passed_over, mut names) = (Vec::new(), Vec::new());
    for path in files {
        match NetworkConf::read(&path) {
            Ok(network) if network.name == name => return Ok(Found { network, passed_over }),
            Ok(network) => names.push(network.name),
            Err(error) => {
                // The path is reported beside the reason; a plugin's own file, in the folder of the network's name, in it.
                let reason = match error {
                    Error::Config { path: Some(part), error } if part != path => format!("{}: {error}", part.display()),
                    Error::Config { error, .. } => error.to_string(),
                    Error::ReadConfig { path: read, source } if read == path => why_unread(&path, &source),
                    other => other.with_causes(),
                };
                passed_over.push(PassedOver { path, reason });
            }
        }
    }
    Err(Error::NoNetwork { dir: dir.to_owned(), name: name.to_owned(), names, passed_over })
}

/// The extensions of files with networks. Files with `conflist` have a list of plugins, the others one plugin.
pub const EXTENSIONS: [&str; 3] = ["conf", "conflist", "json"];

/// The files of `dir` with networks, sorted by name whatever their extension: the order of containerd, CRI-O and kubelets,
/// which give a pod the first network by default. Names are compared byte by byte: `100-a.conf` comes before `20-b.conflist`.
///
/// # Errors
/// As [`conf_files`].
pub fn search_order(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    conf_files(dir, &EXTENSIONS)
}

/// The network that runtimes give a pod by default: that of the first file by name.
#[derive(Debug, Clone)]
pub struct DefaultNetwork {
    /// The first network that can be read; without a name in its file it has the file's name, as CRI-O calls it.
    pub network: NetworkConf,
    /// A file before it, which cannot be read. CRI-O and kubelets skip it; containerd reads no other file, and has no
    /// network.
    pub blocked_by: Option<PathBuf>,
    /// The number of files with networks in the folder, broken ones included.
    pub files: usize,
}

/// The default network of a folder; `None`: no file can be read.
///
/// # Errors
/// As [`conf_files`].
pub fn default_network(dir: &Path) -> Result<Option<DefaultNetwork>, Error> {
    let files = search_order(dir)?;
    let read = files.iter().enumerate().find_map(|(place, path)| Some((place, NetworkConf::read(path).ok()?)));
    Ok(read.map(|(place, network)| {
        let blocked_by = files.first().filter(|_| place > 0).cloned();
        DefaultNetwork { network: network.named_by_file(), blocked_by, files: files.len() }
    }))
}

/// The files of `dir` with one of these extensions, exactly so spelled, sorted by name. A missing folder has no files.
/// A folder is left out, and a link is not: what it leads to may change while `dir` stays as it is.
///
/// # Errors
/// [`Error::ReadConfig`] if the folder cannot be read.
pub fn conf_files(dir: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::ReadConfig { path: dir.to_owned(), source };
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let has_extension = path.extension().is_some_and(|have| extensions.iter().any(|want| have == *want));
        if has_extension && !entry.file_type().map_err(failed)?.is_dir() {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}
