//! The hidden folder in which an installation is prepared, and the swap.

use super::executables::{CNITOOL, Source};
use super::target_folder::{Folder, REPLACED, Standing};
use super::{Action, Item};
use crate::args::SharedFile;
use anyhow::{Context, bail};
use libcni::Runtime;
use libcni::cni_spec::PluginType;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The new files, ready to be renamed; removed with all that is still in it when dropped.
pub(super) struct Stage<'a> {
    folder: &'a Folder,
    dir: PathBuf,
}

impl<'a> Stage<'a> {
    /// Copies each executable, under each of its names, and flushes it to the disk.
    pub(super) fn fill(folder: &'a Folder, source: &Source, items: &[Item], link: SharedFile) -> anyhow::Result<Self> {
        let stage = Self { folder, dir: folder.stage() };
        for dir in [&stage.dir, &stage.new_dir(), &stage.old_dir()] {
            fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        let mut copied: Vec<(&Path, PathBuf)> = Vec::new();
        for item in to_install(items) {
            let (from, to) = (source.of(&item.name), stage.new_dir().join(&item.name));
            let failed = || format!("cannot copy {} to {}", from.display(), to.display());
            let first = copied.iter().find(|(source, _)| *source == from).map(|(_, copy)| copy);
            match (first, link) {
                (Some(first), SharedFile::Hard) => link_or_copy(first, &to).with_context(failed)?,
                // From the first copy, which is on the same file system: blocks can be shared with it.
                (Some(first), SharedFile::None) => copy(first, &to).with_context(failed)?,
                (None, _) => {
                    copy(from, &to).with_context(failed)?;
                    copied.push((from, to));
                }
            }
        }
        Ok(stage)
    }

    fn new_dir(&self) -> PathBuf {
        self.dir.join("new")
    }

    fn old_dir(&self) -> PathBuf {
        self.dir.join("old")
    }

    /// Runs each new file: plugins have to answer VERSION.
    pub(super) async fn check(&self, items: &[Item]) -> anyhow::Result<()> {
        let runtime = Runtime::builder().plugin_dirs([self.new_dir()]).build();
        for item in to_install(items) {
            if item.name == CNITOOL {
                let status = Command::new(self.new_dir().join(CNITOOL)).arg("--version").stdout(Stdio::null()).status();
                let status = status.context("cannot run the copy of cnitool; nothing was changed")?;
                if !status.success() {
                    bail!("the copy of cnitool ended with {status}; nothing was changed");
                }
                continue;
            }
            let answer = runtime.version(&PluginType::parse(&item.name)?).await;
            answer.with_context(|| format!("cannot use the copy of {}; nothing was changed", item.name))?;
        }
        Ok(())
    }

    /// Renames all files to their places. If one rename fails, all are reverted.
    pub(super) fn swap(&self, items: &[Item]) -> anyhow::Result<()> {
        for item in items.iter().filter(|item| item.standing != Standing::Absent) {
            self.keep(item).with_context(|| {
                format!("cannot keep {}; nothing was changed", self.folder.path(&item.name).display())
            })?;
        }
        for (index, item) in items.iter().enumerate() {
            let path = self.folder.path(&item.name);
            let (verb, done) = match item.action {
                Action::Install => ("put in place", fs::rename(self.new_dir().join(&item.name), &path)),
                Action::Remove => ("remove", fs::remove_file(&path)),
            };
            if let Err(error) = done {
                self.swap_back(&items[..index])?;
                return Err(error).with_context(|| format!("cannot {verb} {}; all is as before", path.display()));
            }
        }
        self.folder.sync().with_context(|| format!("cannot flush {}", self.folder.dir().display()))
    }

    /// Gives the existing file a second name for [`Stage::swap_back`], and a permanent one if it is foreign.
    fn keep(&self, item: &Item) -> anyhow::Result<()> {
        let (path, old) = (self.folder.path(&item.name), self.old_dir().join(&item.name));
        link_or_copy(&path, &old)?;
        if item.standing == Standing::Foreign {
            let replaced = self.folder.path(REPLACED);
            fs::create_dir_all(&replaced).with_context(|| format!("cannot make folder {}", replaced.display()))?;
            let kept = self.dir.join("kept");
            link_or_copy(&path, &kept)?;
            fs::rename(&kept, replaced.join(&item.name))?;
            // Both are names of one file: rename leaves both.
            fs::remove_file(&kept).or_else(if_absent)?;
        }
        Ok(())
    }

    /// Undoes the renames, newest first.
    fn swap_back(&self, done: &[Item]) -> anyhow::Result<()> {
        for item in done.iter().rev() {
            let path = self.folder.path(&item.name);
            let outcome = match item.standing {
                Standing::Absent => fs::remove_file(&path),
                Standing::Ours | Standing::Foreign | Standing::Written => {
                    fs::rename(self.old_dir().join(&item.name), &path)
                }
            };
            outcome.with_context(|| format!("cannot put {} back; each file is a working one", path.display()))?;
        }
        Ok(())
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::warn!("cannot remove {}: {error}; the next install will", self.dir.display());
        }
    }
}

fn to_install(items: &[Item]) -> impl Iterator<Item = &Item> {
    items.iter().filter(|item| item.action == Action::Install)
}

fn if_absent(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// A second name for a file, itself if it is a symbolic link; a copy where the file system has no second names.
fn link_or_copy(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        Err(_) if from.is_symlink() => std::os::unix::fs::symlink(fs::read_link(from)?, to),
        Err(_) => copy(from, to),
    }
}

/// A copy that is on the disk when this returns. `fs::copy` uses `copy_file_range`, which shares the blocks where the
/// file system can (btrfs, XFS, bcachefs, NFS 4.2).
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    fs::set_permissions(to, Permissions::from_mode(0o755))?;
    File::open(to)?.sync_all()
}
