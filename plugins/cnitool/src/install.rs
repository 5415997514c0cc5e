//! `cnitool install`: plugins and `cnitool` into a folder, all or none of them.
//!
//! Everything is copied to a hidden folder inside the target, so it is on the same file system; each plugin there has
//! to answer VERSION; only then is one file after the other renamed over its predecessor. So at every moment each name
//! is a complete, working executable, old or new, and a running plugin keeps the file from which it was started. If a
//! step fails, the renames are reverted.

mod executables;
pub(crate) mod platforms;
mod target_folder;
mod watch;

use crate::args::{Install, SharedFile};
use crate::error_remedies::{Remedy, refused};
use crate::install::executables::CNITOOL;
use crate::output::{Output, Table};
use anyhow::{Context, bail};
use executables::Source;
use libcni::cni_spec::{Code, PluginType};
use libcni::{Cancellation, Runtime};
use platforms::Platform;
use serde_json::json;
use std::fs;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use target_folder::{Busy, Folder, Identity, REPLACED, Standing};

/// Where Calico's installer has its volume, if it sets no variable.
const STAGE_DIR: &str = "/stage";

/// A name in the folder, what is there, and what is done with it.
struct Item {
    name: String,
    standing: Standing,
    found: Option<Identity>,
    action: Action,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Install,
    /// A plugin for tests that an earlier release installed without being asked.
    Remove,
}

impl Item {
    /// The table's text about the file that was there.
    fn before(&self) -> &'static str {
        match (self.action, self.standing) {
            (Action::Remove, _) => "removed",
            (Action::Install, Standing::Absent) => "",
            (Action::Install, Standing::Ours) => "ours",
            (Action::Install, Standing::Foreign | Standing::Written) => "foreign",
        }
    }
}

pub(crate) async fn run(install: &Install, output: Output, cancellation: &Cancellation) -> anyhow::Result<()> {
    let source = Source::find(install.from.as_deref())?;
    let mut names = source.choose(&install.plugins)?;
    names.push(executables::CNITOOL.to_owned());
    let dir = target(install, &source, output)?;
    if install.watch && source.is_in(&dir) {
        bail!(
            "cannot watch {}: the executables to put back are in it. Use cnitool and --from of another folder; nothing was \
             changed",
            dir.display(),
        );
    }
    let Some(items) = put(install, &dir, &source, &names, cancellation).await? else { return Ok(()) };
    let mut table = Table::new(&["name", "path", "replaced"]);
    for item in items {
        table.row([json!(item.name), json!(dir.join(&item.name).display().to_string()), json!(item.before())]);
    }
    output.table(&table)?;
    if !install.watch {
        return Ok(());
    }
    watch::run(install, &dir, &source, &names, output, cancellation).await
}

fn target(install: &Install, source: &Source, output: Output) -> anyhow::Result<PathBuf> {
    if let Some(dir) = &install.bin_dir {
        return Ok(dir.clone());
    }
    if let Some(platform) = install.platform.as_deref().and_then(Platform::find) {
        return platform.target(install.root.as_deref().unwrap_or(Path::new("/")), source, output);
    }
    let named = install.stage_dir.as_deref().filter(|dir| !dir.is_empty());
    Ok(named.map_or_else(|| STAGE_DIR.into(), PathBuf::from))
}

/// Installs these names, all or none of them; `None`: cancelled. Who watches the folder waits for others that work in it.
async fn put(
    install: &Install,
    dir: &Path,
    source: &Source,
    names: &[String],
    cancellation: &Cancellation,
) -> anyhow::Result<Option<Vec<Item>>> {
    loop {
        let done = match Folder::lock(dir) {
            Ok(folder) => put_all(install, &folder, source, names).await,
            Err(error) => Err(error),
        };
        let error = match done {
            Err(error) if install.watch && Busy::is(&error) => error,
            done => return done.map(Some),
        };
        if target_folder::wait(&error, dir, cancellation).await.is_none() {
            return Ok(None);
        }
    }
}

/// Installs these names, and removes plugins for tests unless the names were chosen.
async fn put_all(install: &Install, folder: &Folder, source: &Source, names: &[String]) -> anyhow::Result<Vec<Item>> {
    let mut items = examine(folder, source, names)?;
    refuse_written(folder, &items)?;
    if !install.replace_foreign {
        refuse_foreign(folder, &items)?;
    }
    if install.plugins.is_empty() {
        items.extend(folder.list_for_tests()?);
    }
    let foreign = names_of(items.iter().filter(|item| item.standing == Standing::Foreign));
    let earlier = names_of(items.iter().filter(|item| folder.has_kept(item)));
    swap(install, folder, source, &items).await?;
    let kept = folder.path(REPLACED);
    if !foreign.is_empty() {
        tracing::warn!("{} has what was replaced: {}", kept.display(), foreign.join(", "));
    }
    if !earlier.is_empty() {
        tracing::warn!("{} had another {}: overwritten", kept.display(), earlier.join(", another "));
    }
    Ok(items)
}

fn examine(folder: &Folder, source: &Source, names: &[String]) -> anyhow::Result<Vec<Item>> {
    names.iter().map(|name| folder.examine(name.clone(), Action::Install, Some(source.of(name)))).collect()
}

async fn swap(install: &Install, folder: &Folder, source: &Source, items: &[Item]) -> anyhow::Result<()> {
    let stage = Stage::fill(folder, source, items, install.link).remedy(|| "Nothing was changed.".to_owned())?;
    stage.check(items).await?;
    folder.refuse_changed(items)?;
    stage.swap(items)?;
    if folder.is_new() {
        tracing::warn!("{} did not exist and was made", folder.dir().display());
    }
    Ok(())
}

/// Refuses files that another program is just writing: what they will be is not known yet.
fn refuse_written(folder: &Folder, items: &[Item]) -> anyhow::Result<()> {
    let written = items.iter().find(|item| item.standing == Standing::Written);
    written.map_or(Ok(()), |item| Err(Busy::writer(&folder.path(&item.name))))
}

fn names_of<'a>(items: impl Iterator<Item = &'a Item>) -> Vec<&'a str> {
    items.map(|item| item.name.as_str()).collect()
}

fn refuse_foreign(folder: &Folder, items: &[Item]) -> anyhow::Result<()> {
    let foreign = names_of(items.iter().filter(|item| item.standing == Standing::Foreign));
    if foreign.is_empty() {
        return Ok(());
    }
    let (dir, kept) = (folder.dir().display(), folder.path(REPLACED));
    let msg =
        format!("cannot install into {dir}: files that are not of this suite are in the way: {}", foreign.join(", "));
    let help = format!(
        "Nothing was changed. --plugin chooses others; --replace-foreign replaces them and keeps them in {}.",
        kept.display()
    );
    Err(refused(Code::EXISTS, msg, help))
}

/// The new files, ready to be renamed; removed with all that is still in it when dropped.
struct Stage<'a> {
    folder: &'a Folder,
    dir: PathBuf,
}

impl<'a> Stage<'a> {
    /// Copies each executable, under each of its names, and flushes it to the disk.
    fn fill(folder: &'a Folder, source: &Source, items: &[Item], link: SharedFile) -> anyhow::Result<Self> {
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
    async fn check(&self, items: &[Item]) -> anyhow::Result<()> {
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
    fn swap(&self, items: &[Item]) -> anyhow::Result<()> {
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
