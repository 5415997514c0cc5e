//! The target folder of an installation.

use super::source::FOR_TESTS;
use super::{Action, Item};
use crate::causes::refused;
use crate::validate::executables::is_of_this_suite;
use anyhow::{Context, bail};
use libcni::cni_spec::Code;
use netops::error::Cause;
use netops::lock::{Lock, find_holder};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The folder of replaced foreign files.
pub(super) const REPLACED: &str = ".replaced";
/// The prefix of a stage's name.
const STAGE: &str = ".cni-install-";

/// The entry at a file's place before the installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing.
    Absent,
    /// An executable of this suite.
    Ours,
    /// Anything else, also a symbolic link: `install` makes none.
    Foreign,
}

/// The lock, which is there while an `install` runs, or was killed.
const LOCK: &str = ".cni-install.lock";

/// Each one meets an install that is just ending.
const LOCK_TRIES: usize = 10;

/// A locked folder, which no other `install` changes meanwhile.
///
/// The lock is on a file that only its owner can open, as any user could lock the folder itself for as long as that user
/// likes. It is in the folder, not in `/run`, as containers of a node share the former only.
pub(super) struct Folder {
    dir: PathBuf,
    lock: Lock,
    /// The folders that were made, the deepest first.
    made: Made,
}

/// Folders that were made: without an installation they go again.
struct Made(Vec<PathBuf>);

impl Made {
    /// Makes the folder and those above it that do not exist.
    fn make(dir: &Path) -> io::Result<Self> {
        let absent = dir.ancestors().take_while(|above| !above.as_os_str().is_empty() && !above.exists());
        let made = Self(absent.map(Path::to_owned).collect());
        std::fs::create_dir_all(dir)?;
        Ok(made)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // A folder with an installation in it stays.
        self.0.iter().take_while(|dir| std::fs::remove_dir(dir).is_ok()).for_each(drop);
    }
}

impl Folder {
    /// Makes the folder if it does not exist, locks it, and removes what an interrupted `install` left.
    pub(super) fn lock(dir: &Path) -> anyhow::Result<Self> {
        let failed = |verb| format!("cannot {verb} {}", dir.display());
        refuse_other(dir)?;
        let made = Made::make(dir).with_context(|| failed("make folder"))?;
        let lock = lock(&dir.join(LOCK)).with_context(|| failed("install into"))?;
        let folder = Self { lock, dir: dir.to_owned(), made };
        for entry in std::fs::read_dir(dir).with_context(|| failed("list"))? {
            let entry = entry.with_context(|| failed("list"))?;
            if entry.file_name().to_string_lossy().starts_with(STAGE) {
                std::fs::remove_dir_all(entry.path())
                    .with_context(|| format!("cannot remove {}", entry.path().display()))?;
            }
        }
        Ok(folder)
    }

    /// Whether the folder was made by this call.
    pub(super) fn is_new(&self) -> bool {
        !self.made.0.is_empty()
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A name for a stage of this process.
    pub(super) fn stage(&self) -> PathBuf {
        self.path(&format!("{STAGE}{}", std::process::id()))
    }

    /// Plugins for tests in the folder that are ours. Their files do what a caller's arguments say, as root, so they
    /// are removed unless requested.
    pub(super) fn list_for_tests(&self) -> anyhow::Result<Vec<Item>> {
        let items = FOR_TESTS.iter().map(|name| self.examine((*name).to_owned(), Action::Remove, None));
        let is_ours = |item: &anyhow::Result<Item>| item.as_ref().is_ok_and(|item| item.standing == Standing::Ours);
        items.filter(is_ours).collect()
    }

    /// Examines what is at a file's place; `new` is the file that is to replace it.
    pub(super) fn examine(&self, name: String, action: Action, new: Option<&Path>) -> anyhow::Result<Item> {
        let path = self.path(&name);
        let failed = || format!("cannot look at {}", path.display());
        let standing = match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Standing::Absent,
            Err(error) => return Err(error).with_context(failed),
            Ok(meta) if meta.is_dir() => bail!("cannot install {}: a folder is in its place", path.display()),
            Ok(meta) if meta.is_file() && is_of_this_suite(&path).with_context(failed)? => Standing::Ours,
            // What another installer cut short is no plugin of anybody.
            Ok(meta) if meta.is_file() && is_cut(&path, new).with_context(failed)? => Standing::Ours,
            Ok(_) => Standing::Foreign,
        };
        Ok(Item { name, standing, action })
    }

    /// Flushes the folder's entries to the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }
}

/// Whether a file has only the beginning of another one.
fn is_cut(path: &Path, whole: Option<&Path>) -> io::Result<bool> {
    let Some(whole) = whole else { return Ok(false) };
    let (part, whole) = (std::fs::read(path)?, std::fs::read(whole)?);
    Ok(part.len() < whole.len() && whole.starts_with(&part))
}

impl Drop for Folder {
    /// Removes the lock's file while it is locked: an `install` that waits for nothing sees that it is another file.
    fn drop(&mut self) {
        // If it stays, the next install uses it.
        drop(std::fs::remove_file(self.lock.path()));
    }
}

/// Refuses what is there and is no folder.
fn refuse_other(dir: &Path) -> anyhow::Result<()> {
    let what = match dir.read_link() {
        Ok(target) if !dir.exists() => format!("it is a link to {}, which does not exist", target.display()),
        _ if dir.exists() && !dir.is_dir() => "it is no folder".to_owned(),
        _ => return Ok(()),
    };
    let msg = format!("cannot install into {}: {what}", dir.display());
    Err(refused(Code::EXISTS, msg, "Name a folder by --bin-dir; one that does not exist is made."))
}

/// Locks a file that the install before may be removing: the lock counts if the file still has its name.
fn lock(path: &Path) -> anyhow::Result<Lock> {
    for _ in 0..LOCK_TRIES {
        let taken = Lock::try_take(path, 0o600).map_err(|error| match error.cause {
            Cause::Kernel { errno, .. } => anyhow::Error::from(io::Error::from(errno)),
            _ => error.into(),
        });
        let Some(lock) = taken? else {
            let holder = find_holder(path).map_or(String::new(), |holder| format!(": {holder}"));
            bail!("another install is under way{holder}");
        };
        let identity = |meta: io::Result<Metadata>| meta.ok().map(|meta| (meta.dev(), meta.ino()));
        if identity(lock.file().metadata()) == identity(path.symlink_metadata()) {
            return Ok(lock);
        }
    }
    bail!("other installs come and go: try again")
}
