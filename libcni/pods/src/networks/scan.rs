//! A reading of the folder and the executables' metadata, with what it depended on. Runs no plugin.

use super::walk::Needs;
use super::{EXTENSIONS, Problem, Reason};
use cni_spec::{NetworkName, PluginPath, PluginType};
use libcni::conflist::{NO_PLUGINS, conf_files};
use libcni::{Error, NetworkConf};
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
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
    pub(super) needs: Needs,
}

/// A plugin's executable.
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

/// Reads everything once.
pub(super) fn scan(dir: &Path, path: &PluginPath) -> Scan {
    let mut needs = Needs::default();
    let (problem, files) = match scan_folder(dir, &mut needs) {
        Ok(files) => (None, files),
        Err(problem) => (Some(problem), Vec::new()),
    };
    let folders: Vec<_> = path.dirs().iter().map(|dir| (dir.as_path(), needs.walk(dir))).collect();
    let mut executables = HashMap::new();
    for plugin in files.iter().filter_map(|(_, file)| file.as_ref().ok()).flat_map(|conf| &conf.plugins) {
        if !executables.contains_key(&plugin.plugin_type) {
            let found = look_up(&plugin.plugin_type, &folders, &mut needs);
            executables.insert(plugin.plugin_type.clone(), found);
        }
    }
    Scan { problem, files, executables, looked_in: path.dirs().to_vec(), needs }
}

type Files = Vec<(PathBuf, Result<NetworkConf, Reason>)>;

fn scan_folder(dir: &Path, needs: &mut Needs) -> Result<Files, Problem> {
    let Some(at) = needs.walk(dir) else { return Err(Problem::NoFolder { dir: dir.to_owned() }) };
    needs.list(&at, EXTENSIONS);
    let files = conf_files(dir, EXTENSIONS)
        .map_err(|error| Problem::Unreadable { dir: dir.to_owned(), error: into_io(error) })?;
    Ok(files
        .into_iter()
        .map(|path| {
            let conf = scan_file(&path, &at, needs);
            (path, conf)
        })
        .collect())
}

/// Reads one file in the folder `at`.
fn scan_file(path: &Path, at: &Path, needs: &mut Needs) -> Result<NetworkConf, Reason> {
    let name = path.file_name().map(Path::new).unwrap_or(path);
    needs.file_in(at.to_owned(), name);
    must_be_readable(path)?;
    if path.extension().is_some_and(|extension| extension == "conflist") {
        scan_own_folder(path, at, needs)?;
    }
    let conf = NetworkConf::read(path).map_err(|error| reason(error, path))?;
    let conf = match conf.name.as_str() {
        "" => conf.named(&name.to_string_lossy()),
        _ => conf,
    };
    match conf.network_name() {
        Ok(_) => Ok(conf),
        Err(error) => Err(Reason::BadName { name: conf.name, error }),
    }
}

/// Records the folder that may have more plugins of a list, `<name>/*.conf`.
fn scan_own_folder(path: &Path, at: &Path, needs: &mut Needs) -> Result<(), Reason> {
    let list = std::fs::read(path).ok().and_then(|bytes| NetworkConf::parse(&bytes).ok());
    let Some(name) = list.and_then(|list| NetworkName::parse(&list.name).ok()) else { return Ok(()) };
    let Some(own) = needs.walk_in(at.to_owned(), Path::new(name.as_str())) else { return Ok(()) };
    needs.list(&own, &["conf"]);
    let dir = path.with_file_name(name.as_str());
    let files = conf_files(&dir, &["conf"]).map_err(|error| reason(error, path))?;
    for file in &files {
        needs.file_in(own.clone(), Path::new(file.file_name().unwrap_or_default()));
    }
    files.iter().try_for_each(|file| must_be_readable(file))
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

fn look_up(plugin: &PluginType, folders: &[(&Path, Option<PathBuf>)], needs: &mut Needs) -> Lookup {
    for (dir, at) in folders {
        let Some(at) = at else { continue };
        let is_there = needs.file_in(at.clone(), Path::new(plugin.as_str())).is_some();
        let found = is_there.then(|| Executable::find(&dir.join(plugin.as_str()))).flatten();
        let Some(executable) = found else { continue };
        return match access(&executable.path, AccessFlags::X_OK) {
            Ok(()) => Lookup::Found(executable),
            Err(errno) => Lookup::NotExecutable { path: executable.path, errno },
        };
    }
    Lookup::Missing
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
