//! A reading of the folder and the executables' metadata. Runs no plugin.

use super::{EXTENSIONS, Problem, Reason};
use cni_spec::{NetworkName, PluginPath, PluginType};
use libcni::conflist::{NO_PLUGINS, conf_files, is_list};
use libcni::{Error, NetworkConf};
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use serde::de::IgnoredAny;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The largest file that is read. A network has some kilobytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The outcome.
pub(super) struct Scan {
    pub(super) problem: Option<Problem>,
    /// Files in the order of their names.
    pub(super) files: Vec<(PathBuf, Result<NetworkConf, Reason>)>,
    /// Every plugin of these files.
    pub(super) executables: HashMap<PluginType, Lookup>,
    pub(super) looked_in: Vec<PathBuf>,
    contents: Contents,
}

/// Each file that was read, with its bytes or why it has none, and each folder that could not be read. They are read before the file is parsed: if it changes in
/// between, the next reading differs.
type Contents = Vec<(PathBuf, Result<Vec<u8>, String>)>;

/// All that a reading depends on: where two of these are equal, so are the readings.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    problem: Option<String>,
    contents: Contents,
    executables: HashMap<PluginType, Lookup>,
}

impl Scan {
    pub(super) fn seen(&self) -> Seen {
        Seen {
            problem: self.problem.as_ref().map(ToString::to_string),
            contents: self.contents.clone(),
            executables: self.executables.clone(),
        }
    }
}

impl Seen {
    /// Whether a file is no JSON that was not so `before`: a writer may be in the middle of it.
    pub(super) fn may_be_unfinished(&self, before: &Self) -> bool {
        let is_json = |bytes: &[u8]| serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
        let is_cut = |file: &(PathBuf, Result<Vec<u8>, String>)| file.1.as_ref().is_ok_and(|bytes| !is_json(bytes));
        self.contents.iter().any(|file| is_cut(file) && !before.contents.contains(file))
    }
}

/// A plugin's executable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lookup {
    Missing,
    NotExecutable { path: PathBuf, errno: Errno },
    Found(Executable),
}

impl Lookup {
    pub(super) fn found(&self) -> Option<&Executable> {
        match self {
            Lookup::Found(executable) => Some(executable),
            Lookup::Missing | Lookup::NotExecutable { .. } => None,
        }
    }
}

/// An executable's identity when it was examined.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Executable {
    pub(super) path: PathBuf,
    identity: Identity,
}

/// Differs when a file was replaced or written. Times are seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Identity {
    dev: u64,
    ino: u64,
    size_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Executable {
    /// The regular file at `path`, links followed.
    fn find(path: &Path) -> Option<Self> {
        let meta = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let identity = Identity {
            dev: meta.dev(),
            ino: meta.ino(),
            size_bytes: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        };
        Some(Self { path: path.to_owned(), identity })
    }

    /// Whether the file was neither replaced nor written.
    pub(super) fn is_as_it_was(&self) -> bool {
        Self::find(&self.path).as_ref() == Some(self)
    }
}

/// Reads everything once. The networks that the runtime has given come before those of the folder.
pub(super) fn scan(dir: &Path, given: &[NetworkConf], path: &PluginPath) -> Scan {
    let mut contents = Contents::new();
    let (problem, of_folder) = match scan_folder(dir, &mut contents) {
        Ok(files) => (None, files),
        Err(problem) => (Some(problem), Vec::new()),
    };
    let given = given.iter().map(|conf| (PathBuf::from(&conf.name), with_name(conf.clone())));
    let files: Files = given.chain(of_folder).collect();
    let mut executables = HashMap::new();
    for plugin in files.iter().filter_map(|(_, file)| file.as_ref().ok()).flat_map(|conf| &conf.plugins) {
        if !executables.contains_key(&plugin.plugin_type) {
            executables.insert(plugin.plugin_type.clone(), look_up(&plugin.plugin_type, path.dirs()));
        }
    }
    Scan { problem, files, executables, looked_in: path.dirs().to_vec(), contents }
}

type Files = Vec<(PathBuf, Result<NetworkConf, Reason>)>;

fn scan_folder(dir: &Path, contents: &mut Contents) -> Result<Files, Problem> {
    if dir.metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Err(Problem::NoFolder { dir: dir.to_owned() });
    }
    let files = conf_files(dir, EXTENSIONS)
        .map_err(|error| Problem::Unreadable { dir: dir.to_owned(), error: into_io(error) })?;
    Ok(files
        .into_iter()
        .map(|path| {
            let conf = scan_file(&path, contents);
            (path, conf)
        })
        .collect())
}

fn scan_file(path: &Path, contents: &mut Contents) -> Result<NetworkConf, Reason> {
    let bytes = read(path, contents)?;
    if is_list(path) {
        scan_own_folder(path, &bytes, contents)?;
    }
    let conf = NetworkConf::read(path).map_err(|error| reason(error, path))?;
    let conf = match conf.name.as_str() {
        "" => conf.named(&path.file_name().unwrap_or_default().to_string_lossy()),
        _ => conf,
    };
    with_name(conf)
}

/// The network, unless its name is invalid or it has no plugins.
fn with_name(conf: NetworkConf) -> Result<NetworkConf, Reason> {
    match conf.network_name() {
        Ok(_) if conf.plugins.is_empty() => Err(Reason::NoPlugins),
        Ok(_) => Ok(conf),
        Err(error) => Err(Reason::BadName { name: conf.name, error }),
    }
}

/// Reads the folder that may have more plugins of a list, `<name>/*.conf`.
fn scan_own_folder(path: &Path, list: &[u8], contents: &mut Contents) -> Result<(), Reason> {
    let name = NetworkConf::parse(list).ok().and_then(|list| NetworkName::parse(&list.name).ok());
    let Some(name) = name else { return Ok(()) };
    let folder = path.with_file_name(name.as_str());
    let files = conf_files(&folder, &["conf"]).map_err(|error| {
        contents.push((folder, Err(error.to_string())));
        reason(error, path)
    })?;
    files.iter().try_for_each(|file| read(file, contents).map(drop))
}

/// Reads a file and records what it has.
fn read(path: &Path, contents: &mut Contents) -> Result<Vec<u8>, Reason> {
    let read = must_be_readable(path)
        .and_then(|()| std::fs::read(path).map_err(|error| Reason::Unreadable { path: path.to_owned(), error }));
    let recorded = read.as_ref().map(Vec::clone).map_err(ToString::to_string);
    contents.push((path.to_owned(), recorded));
    read
}

/// A pipe would block, a device may have no end, and a file that is too large is no configuration.
fn must_be_readable(path: &Path) -> Result<(), Reason> {
    let error = match path.metadata() {
        Ok(meta) if !meta.is_file() => std::io::Error::other("not a regular file"),
        Ok(meta) if meta.len() > FILE_BYTES_MAX => std::io::Error::from(std::io::ErrorKind::FileTooLarge),
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    Err(Reason::Unreadable { path: path.to_owned(), error })
}

fn look_up(plugin: &PluginType, folders: &[PathBuf]) -> Lookup {
    let Some(executable) = folders.iter().find_map(|dir| Executable::find(&dir.join(plugin.as_str()))) else {
        return Lookup::Missing;
    };
    match access(&executable.path, AccessFlags::X_OK) {
        Ok(()) => Lookup::Found(executable),
        Err(errno) => Lookup::NotExecutable { path: executable.path, errno },
    }
}

fn reason(error: Error, file: &Path) -> Reason {
    match error {
        Error::Config { error, .. } if error.msg.ends_with(NO_PLUGINS) => Reason::NoPlugins,
        Error::Config { path, error } => Reason::Invalid { path: path.filter(|path| path != file), error },
        Error::ReadConfig { path, source } => Reason::Unreadable { path, error: source },
        other => Reason::Unreadable { path: file.to_owned(), error: into_io(other) },
    }
}

fn into_io(error: Error) -> std::io::Error {
    match error {
        Error::ReadConfig { source, .. } => source,
        other => std::io::Error::other(other.with_causes()),
    }
}
