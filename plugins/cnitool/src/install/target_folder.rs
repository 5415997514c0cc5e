//! The target folder of an installation.

use super::executables::FOR_TESTS;
use super::{Action, Item};
use crate::error_remedies::refused;
use crate::validate::plugin_executables::is_of_this_suite;
use anyhow::Context;
use libcni::cni_spec::Code;
use libcni::{Cancellation, aside};
use netops::error::Cause;
use netops::lock::{Lock, find_holder, read_unless_written};
use std::fs::{File, Metadata, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};
use tokio::time::timeout;

pub(super) const REPLACED: &str = ".replaced";
const STAGE: &str = ".cni-install-";

/// The entry at a file's place before the installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Absent,
    Ours,
    /// Anything else, also a symbolic link: `install` makes none.
    Foreign,
    /// A file that another program has open for writing.
    Written,
}

/// Device, inode and time of change, by which a file is known to be as it was: nothing can set the last one.
pub(super) type Identity = (u64, u64, i64, i64);

pub(super) fn identity(meta: &Metadata) -> Identity {
    (meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec())
}

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
    /// Makes the folder and those above it that do not exist; as its files, others may read them, whatever the umask is.
    fn make(dir: &Path) -> io::Result<Self> {
        let absent = dir.ancestors().take_while(|above| !above.as_os_str().is_empty() && !above.exists());
        let made = Self(absent.map(Path::to_owned).collect());
        std::fs::create_dir_all(dir)?;
        made.0.iter().try_for_each(|dir| std::fs::set_permissions(dir, Permissions::from_mode(0o755)))?;
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

    pub(super) fn is_new(&self) -> bool {
        !self.made.0.is_empty()
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

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
        let found = find(&path).with_context(failed)?;
        let standing = match &found {
            None => Standing::Absent,
            Some(meta) if meta.is_dir() => {
                let msg = format!("cannot install {}: a folder is in its place", path.display());
                return Err(refused(Code::EXISTS, msg, "Nothing was changed. Move the folder elsewhere."));
            }
            Some(meta) if meta.is_file() => standing(&path, new).with_context(failed)?,
            Some(_) => Standing::Foreign,
        };
        Ok(Item { name, standing, action, found: found.as_ref().map(identity) })
    }

    /// Whether a foreign file that is to be replaced takes the place of one that was kept earlier.
    pub(super) fn has_kept(&self, item: &Item) -> bool {
        let kept = self.path(REPLACED).join(&item.name);
        let differs = || std::fs::read(&kept).ok() != std::fs::read(self.path(&item.name)).ok();
        item.standing == Standing::Foreign && kept.symlink_metadata().is_ok() && differs()
    }

    /// Refuses files that another program has changed since they were examined.
    pub(super) fn refuse_changed(&self, items: &[Item]) -> anyhow::Result<()> {
        for item in items {
            let path = self.path(&item.name);
            let now = find(&path).with_context(|| format!("cannot look at {}", path.display()))?;
            if now.as_ref().map(identity) != item.found {
                return Err(Busy::writer(&path));
            }
        }
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }
}

/// The metadata of what is at a path, itself if it is a symbolic link.
pub(super) fn find(path: &Path) -> io::Result<Option<Metadata>> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// The standing of a file. A file with only the beginning of the new one is a cut-off copy, unless a program is writing it.
fn standing(path: &Path, new: Option<&Path>) -> io::Result<Standing> {
    if is_of_this_suite(path)? {
        return Ok(Standing::Ours);
    }
    let Some(bytes) = read_unless_written(path)? else { return Ok(Standing::Written) };
    let whole = new.map(std::fs::read).transpose()?.unwrap_or_default();
    let is_cut = bytes.len() < whole.len() && whole.starts_with(&bytes);
    Ok(if is_cut { Standing::Ours } else { Standing::Foreign })
}

impl Drop for Folder {
    /// Removes the lock's file while it is locked: an `install` that waits for nothing sees that it is another file.
    fn drop(&mut self) {
        // If it stays, the next install uses it.
        drop(std::fs::remove_file(self.lock.path()));
    }
}

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
            return Err(Busy::error(format!("another install is under way{holder}")));
        };
        let identity = |meta: io::Result<Metadata>| meta.ok().map(|meta| (meta.dev(), meta.ino()));
        if identity(lock.file().metadata()) == identity(path.symlink_metadata()) {
            return Ok(lock);
        }
    }
    Err(Busy::error("other installs come and go: try again"))
}

/// The lock's file, which is there while an `install` runs, or was killed.
const LOCK: &str = ".cni-install.lock";

/// How long one wait for another `install` may take.
const LOCK_DEADLINE: Duration = Duration::from_secs(60);

/// The interval of looks at a file that is being written: inotify reports a close only to watches that existed before it.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// The error that another program is at work. Nothing was changed, and a later try can succeed.
#[derive(Debug)]
pub(super) struct Busy(String);

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Busy {}

impl Busy {
    fn error(what: impl Into<String>) -> anyhow::Error {
        Self(what.into()).into()
    }

    pub(super) fn writer(path: &Path) -> anyhow::Error {
        let path = path.display();
        Self::error(format!("cannot replace {path}: another program is writing it; nothing was changed, try again"))
    }

    pub(super) fn is(error: &anyhow::Error) -> bool {
        error.chain().any(|cause| cause.is::<Self>())
    }
}

/// Says what is waited for, and waits until another `install` of the folder has ended, and a moment; `None`: cancelled.
pub(super) async fn wait(error: &anyhow::Error, dir: &Path, cancellation: &Cancellation) -> Option<()> {
    tracing::warn!("{error:#}; it is waited for");
    let path = dir.join(LOCK);
    // At the deadline, or where nothing can wait, the caller's next try tells.
    let ended = aside(move || drop(Lock::take_existing(&path, LOCK_DEADLINE)));
    tokio::select! {
        () = cancellation.cancelled() => return None,
        _ = ended => {}
    }
    timeout(AGAIN, cancellation.cancelled()).await.is_err().then_some(())
}
