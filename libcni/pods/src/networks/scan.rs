//! A reading of the folder and the executables' metadata. Runs no plugin.

use super::{Problem, Reason};
use cni_spec::{PluginPath, PluginType};
use libcni::conflist::{NO_PLUGINS, search_order};
use libcni::{Error, NetworkConf};
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(super) struct Scan {
    pub(super) problem: Option<Problem>,
    pub(super) files: Files,
    /// Every plugin of these files.
    pub(super) executables: HashMap<PluginType, Lookup>,
    pub(super) looked_in: Vec<PathBuf>,
}

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
    /// Device, inode and size; times of the last write and the last change, in seconds and nanoseconds: these differ when a
    /// file was replaced or written.
    identity: ([u64; 3], [i64; 4]),
}

impl Executable {
    /// The regular file at `path`, links followed.
    fn find(path: &Path) -> Option<Self> {
        let meta = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
        Some(Self { path: path.to_owned(), identity: ([meta.dev(), meta.ino(), meta.size()], times) })
    }

    pub(super) fn is_as_it_was(&self) -> bool {
        Self::find(&self.path).as_ref() == Some(self)
    }
}

/// Reads everything once. The networks that the runtime has given come before those of the folder.
pub(super) fn scan(dir: &Path, given: &[NetworkConf], path: &PluginPath) -> Scan {
    let (problem, of_folder) = match scan_folder(dir) {
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
    Scan { problem, files, executables, looked_in: path.dirs().to_vec() }
}

type Files = Vec<(PathBuf, Result<NetworkConf, Reason>)>;

fn scan_folder(dir: &Path) -> Result<Files, Problem> {
    if dir.metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Err(Problem::NoFolder { dir: dir.to_owned() });
    }
    let files =
        search_order(dir).map_err(|error| Problem::Unreadable { dir: dir.to_owned(), error: into_io(error) })?;
    let scanned = files.into_iter().map(|path| {
        let conf = scan_file(&path);
        (path, conf)
    });
    Ok(scanned.collect())
}

fn scan_file(path: &Path) -> Result<NetworkConf, Reason> {
    let conf = NetworkConf::read(path).map_err(|error| reason(error, path))?;
    with_name(conf.named_by_file())
}

/// The network, unless its name is invalid or it has no plugins.
fn with_name(conf: NetworkConf) -> Result<NetworkConf, Reason> {
    match conf.network_name() {
        Ok(_) if conf.plugins.is_empty() => Err(Reason::NoPlugins),
        Ok(_) => Ok(conf),
        Err(error) => Err(Reason::BadName { name: conf.name, error }),
    }
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
