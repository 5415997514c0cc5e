//! `install --watch`: what other installers remove or cut short is put back.
//!
//! The kernel reports changes of the folder, so nothing is polled. An executable of another release stays, so that no two
//! releases fight for a name; so does a foreign one, unless it is to be replaced.

use super::source::Source;
use super::{Install, put};
use crate::changes::Folders;
use crate::output::Output;
use crate::validate::executables::has_mark;
use anyhow::Context;
use libcni::Cancellation;
use nix::errno::Errno;
use nix::sys::inotify::AddWatchFlags;
use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

/// From the first change to the look: another installer has some dozen files.
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
    /// An executable of another release of this suite.
    OtherRelease,
    Foreign,
}

/// Device, inode and time of change, by which a file is known to be as it was: nothing can set the last one.
type Identity = (u64, u64, i64, i64);

fn identity(meta: &Metadata) -> Identity {
    (meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec())
}

/// Watches until a signal.
///
/// # Errors
/// The folder cannot be watched, or a file cannot be put back: the caller is started again by what supervises it.
pub(super) async fn run(
    install: &Install,
    dir: &Path,
    source: &Source,
    names: &[String],
    output: Output,
    cancellation: &Cancellation,
) -> anyhow::Result<()> {
    let mut changes = Folders::new()?;
    let mut known = HashMap::new();
    loop {
        // Before the look, so that no change after it is missed. A folder that is gone is made by the installation.
        match changes.add(dir, CHANGES) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno).with_context(|| format!("cannot watch {}", dir.display())),
        }
        let lost = lost(install, dir, source, names, &mut known)?;
        if !lost.is_empty() {
            put(install, dir, source, &lost, false).await?;
            output.note(&format!("put back in {}: {}", dir.display(), lost.join(", ")));
            continue;
        }
        tokio::select! {
            () = cancellation.cancelled() => return Ok(()),
            changed = changes.changed() => changed?,
        }
        if timeout(PAUSE, cancellation.cancelled()).await.is_ok() {
            return Ok(());
        }
        changes.pass_over();
    }
}

/// The names that have to be put back. A file that is left as it is is reported once.
fn lost(
    install: &Install,
    dir: &Path,
    source: &Source,
    names: &[String],
    known: &mut HashMap<String, Identity>,
) -> anyhow::Result<Vec<String>> {
    let mut lost = Vec::new();
    for name in names {
        let path = dir.join(name);
        let failed = || format!("cannot look at {}", path.display());
        let found = match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            found => Some(found.with_context(failed)?),
        };
        let now = found.as_ref().map(identity);
        if now.is_some() && now.as_ref() == known.get(name) {
            continue;
        }
        let state = found.map_or(Ok(State::Lost), |meta| look(&path, &meta, source.of(name))).with_context(failed)?;
        match state {
            State::Lost => lost.push(name.clone()),
            State::Foreign if install.replace_foreign => lost.push(name.clone()),
            State::Foreign => tracing::warn!("{} was replaced, and is not ours: it stays", path.display()),
            State::OtherRelease => tracing::warn!("{} is of another release: it stays", path.display()),
            State::AsInstalled => {}
        }
        if let Some(now) = now {
            known.insert(name.clone(), now);
        }
    }
    Ok(lost)
}

fn look(path: &Path, meta: &Metadata, installed: &Path) -> io::Result<State> {
    if !meta.is_file() {
        return Ok(State::Foreign);
    }
    let (now, installed) = (fs::read(path)?, fs::read(installed)?);
    let is_whole = now.len() >= installed.len() && meta.mode() & 0o111 == 0o111;
    Ok(match () {
        () if installed.starts_with(&now) && is_whole => State::AsInstalled,
        () if installed.starts_with(&now) => State::Lost,
        () if has_mark(&now) => State::OtherRelease,
        () => State::Foreign,
    })
}
