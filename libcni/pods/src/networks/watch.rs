//! The watches: on every folder and file that a reading depended on.

use super::WatchError;
use super::walk::{Names, Needs};
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags as Event, Inotify, InotifyEvent};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is told of a folder. That the folder itself is moved or deleted, its own parent tells too, but not above a mount.
const DIR: Event = Event::IN_CREATE
    .union(Event::IN_DELETE)
    .union(Event::IN_MOVE)
    .union(Event::IN_ATTRIB)
    .union(Event::IN_DELETE_SELF)
    .union(Event::IN_MOVE_SELF)
    .union(Event::IN_ONLYDIR);
/// What is told of a folder whose files are read: also that one was written, once it is closed.
const DIR_OF_FILES: Event = DIR.union(Event::IN_CLOSE_WRITE);
/// What is told of a file.
const FILE: Event = Event::IN_CLOSE_WRITE.union(Event::IN_ATTRIB);
/// What ends a watch, or may move what it watches.
const ENDS: Event = Event::IN_IGNORED.union(Event::IN_UNMOUNT).union(Event::IN_DELETE_SELF).union(Event::IN_MOVE_SELF);

/// What is watched.
#[derive(Debug, Default)]
pub(super) struct Watches {
    by_number: HashMap<i32, (nix::sys::inotify::WatchDescriptor, Watched)>,
    /// What stood at each path when its watch was placed: no watch tells that something is mounted over it.
    places: Vec<(PathBuf, Option<Place>)>,
}

/// Device and inode.
type Place = (u64, u64);

#[derive(Debug)]
enum Watched {
    Dir(PathBuf, Names),
    File,
}

impl Watches {
    /// Watches all that is needed, in its order, and nothing else.
    ///
    /// Each path is looked up anew, so a watch on what has stood there before is replaced. What is not there any more
    /// is left out: its folder tells.
    pub(super) fn place(&mut self, inotify: &Inotify, needs: &Needs) -> Result<(), WatchError> {
        let before = std::mem::take(self);
        let mut outcome = Ok(());
        for (path, names) in &needs.dirs {
            let watched = Watched::Dir(path.clone(), names.clone());
            outcome = outcome.and(self.add(inotify, path, if names.are_read { DIR_OF_FILES } else { DIR }, watched));
        }
        for path in &needs.files {
            outcome = outcome.and(self.add(inotify, path, FILE, Watched::File));
        }
        for (number, (watch, _)) in before.by_number {
            if !self.by_number.contains_key(&number) {
                // EINVAL: it has ended by itself.
                inotify.rm_watch(watch).ok();
            }
        }
        outcome
    }

    fn add(&mut self, inotify: &Inotify, path: &Path, events: Event, watched: Watched) -> Result<(), WatchError> {
        let watch = match inotify.add_watch(path, events) {
            Ok(watch) => watch,
            Err(errno @ (Errno::ENOSPC | Errno::ENOMEM)) => return Err(WatchError { path: path.to_owned(), errno }),
            // An executable need not be readable to be run; the folder it is in tells most of what becomes of it.
            Err(Errno::EACCES) if matches!(watched, Watched::File) => return Ok(()),
            Err(errno @ Errno::EACCES) => return Err(WatchError { path: path.to_owned(), errno }),
            Err(_) => return Ok(()),
        };
        self.places.push((path.to_owned(), place(path)));
        match (self.by_number.get_mut(&watch.as_raw()), watched) {
            // One folder by two paths, through a bind mount.
            (Some((_, Watched::Dir(_, have))), Watched::Dir(_, names)) => {
                have.join(&names);
                let events = if have.are_read { DIR_OF_FILES } else { DIR };
                inotify.add_watch(path, events).ok();
            }
            (_, watched) => drop(self.by_number.insert(watch.as_raw(), (watch, watched))),
        }
        Ok(())
    }

    /// Whether an event may change what a reading gives.
    pub(super) fn matter(&self, event: &InotifyEvent) -> bool {
        if event.mask.contains(Event::IN_Q_OVERFLOW) {
            return true; // events were lost, nobody knows which
        }
        // Watches that were taken back may still have events on the way.
        let Some((_, watched)) = self.by_number.get(&event.wd.as_raw()) else { return false };
        if event.mask.intersects(ENDS) {
            return true;
        }
        match (watched, &event.name) {
            (Watched::File, _) | (_, None) => true,
            (Watched::Dir(dir, names), Some(name)) => {
                names.contain(name) && !(event.mask.contains(Event::IN_CREATE) && is_being_made(&dir.join(name)))
            }
        }
    }

    /// Whether something else stands at a path now, as when something was mounted over it, or unmounted.
    pub(super) fn are_misplaced(&self) -> bool {
        self.places.iter().any(|(path, before)| place(path) != *before)
    }
}

fn place(path: &Path) -> Option<Place> {
    path.metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Whether a new file waits for its contents. Its writer closes it, and that is told too.
fn is_being_made(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_file() && meta.len() == 0 && meta.nlink() == 1)
}
