//! `install --watch`: what other installers remove or cut short is put back.
//!
//! The kernel reports changes of the folder, so nothing is polled. An executable of another release stays, so that no two
//! releases fight for a name; so does a foreign one, unless it is to be replaced.

use super::executables::Source;
use super::target_folder::{self, Busy, Folder, Identity, find, identity};
use super::{Install, Standing, examine, swap};
use crate::folder_changes::Folders;
use crate::output::Output;
use crate::validate::plugin_executables::has_mark;
use anyhow::Context;
use libcni::Cancellation;
use netops::lock::read_unless_written;
use nix::errno::Errno;
use nix::sys::inotify::AddWatchFlags;
use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

/// The time from the first change to the look: another installer has some dozen files.
const PAUSE: Duration = Duration::from_millis(100);

/// Changes after which a name may have no working executable. Writing into a file counts when the writer has closed it.
const CHANGES: AddWatchFlags = AddWatchFlags::IN_CLOSE_WRITE
    .union(AddWatchFlags::IN_ATTRIB)
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVE)
    .union(AddWatchFlags::IN_DELETE_SELF)
    .union(AddWatchFlags::IN_MOVE_SELF);

/// The file at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    AsInstalled,
    /// Nothing, only the beginning of what was installed, or a file that cannot be executed.
    Lost,
    Written,
    OtherRelease,
    Foreign,
}

struct Watch<'a> {
    install: &'a Install,
    dir: &'a Path,
    source: &'a Source,
    names: &'a [String],
    /// Files that stay as they are.
    known: HashMap<String, Identity>,
}

/// Watches until a signal.
/// Errors: the folder cannot be watched, or a file cannot be put back: the caller is started again by what supervises it.
pub(super) async fn run(
    install: &Install,
    dir: &Path,
    source: &Source,
    names: &[String],
    output: Output,
    cancellation: &Cancellation,
) -> anyhow::Result<()> {
    let mut changes = Folders::new()?;
    let mut watch = Watch { install, dir, source, names, known: HashMap::new() };
    loop {
        // Before the look, so that no change after it is missed. A folder that is gone is made by the installation.
        match changes.add(dir, CHANGES) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno).with_context(|| format!("cannot watch {}", dir.display())),
        }
        let seen = watch.look()?;
        if !seen.lost.is_empty() {
            let before = number(dir);
            match watch.put_back().await {
                Ok(back) if back.is_empty() => {}
                Ok(back) => output.note(&format!("put back in {}: {}", dir.display(), back.join(", "))),
                Err(error) if Busy::is(&error) => {
                    if target_folder::wait(&error, dir, cancellation).await.is_none() {
                        return Ok(());
                    }
                }
                // The folder was removed meanwhile.
                Err(_) if number(dir) != before => {}
                Err(error) => return Err(error),
            }
            continue;
        }
        // A writer counts as one until just after the kernel has reported its end.
        let again = if seen.is_written { target_folder::AGAIN } else { Duration::MAX };
        tokio::select! {
            () = cancellation.cancelled() => return Ok(()),
            changed = timeout(again, changes.changed()) => changed.unwrap_or(Ok(()))?,
        }
        if timeout(PAUSE, cancellation.cancelled()).await.is_ok() {
            return Ok(());
        }
        changes.pass_over();
    }
}

/// The folder's file system and inode number; `None`: there is none now.
fn number(dir: &Path) -> Option<(u64, u64)> {
    let meta = fs::metadata(dir).ok()?;
    Some((meta.dev(), meta.ino()))
}

#[derive(Default)]
struct Seen {
    /// The names that have to be put back.
    lost: Vec<String>,
    /// Whether another program is writing a file.
    is_written: bool,
}

impl Watch<'_> {
    /// Looks at each name. A file that is left as it is is reported once.
    fn look(&mut self) -> anyhow::Result<Seen> {
        let mut seen = Seen::default();
        for name in self.names {
            let path = self.dir.join(name);
            let failed = || format!("cannot look at {}", path.display());
            let found = find(&path).with_context(failed)?;
            let now = found.as_ref().map(identity);
            if now.is_some() && now.as_ref() == self.known.get(name) {
                continue;
            }
            let state = found.map_or(Ok(State::Lost), |meta| state(&path, &meta, self.source.of(name)));
            let state = state.or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(State::Lost), // removed since
                _ => Err(error),
            });
            match state.with_context(failed)? {
                State::Lost => seen.lost.push(name.clone()),
                State::Foreign if self.install.replace_foreign => seen.lost.push(name.clone()),
                State::Written => seen.is_written = true,
                stays => {
                    report(&path, stays);
                    self.known.extend(now.map(|now| (name.clone(), now)));
                }
            }
        }
        Ok(seen)
    }

    /// Puts back what is lost, by a look under the folder's lock: another installation may just have ended.
    async fn put_back(&mut self) -> anyhow::Result<Vec<String>> {
        let folder = Folder::lock(self.dir)?;
        let mut items = examine(&folder, self.source, &self.look()?.lost)?;
        // What another installer has begun since the look.
        items.retain(|item| match item.standing {
            Standing::Absent | Standing::Ours => true,
            Standing::Foreign => self.install.replace_foreign,
            Standing::Written => false,
        });
        if !items.is_empty() {
            swap(self.install, &folder, self.source, &items).await?;
        }
        Ok(items.into_iter().map(|item| item.name).collect())
    }
}

fn report(path: &Path, state: State) {
    match state {
        State::Foreign => tracing::warn!("{} was replaced, and is not ours: it stays", path.display()),
        State::OtherRelease => tracing::warn!("{} is of another release: it stays", path.display()),
        State::AsInstalled | State::Lost | State::Written => {}
    }
}

fn state(path: &Path, meta: &Metadata, installed: &Path) -> io::Result<State> {
    if !meta.is_file() {
        return Ok(State::Foreign);
    }
    let (now, installed) = (fs::read(path)?, fs::read(installed)?);
    if installed.starts_with(&now) && now.len() == installed.len() {
        return Ok(if meta.mode() & 0o111 == 0o111 { State::AsInstalled } else { State::Lost });
    }
    if has_mark(&now) && !installed.starts_with(&now) {
        return Ok(State::OtherRelease);
    }
    Ok(match read_unless_written(path)? {
        None => State::Written,
        Some(now) if installed.starts_with(&now) => State::Lost,
        Some(_) => State::Foreign,
    })
}
