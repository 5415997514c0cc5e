//! The watches: on every folder and file that a reading depended on.

use super::WatchError;
use super::walk::{Names, Needs};
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags as Event, Inotify, InotifyEvent};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Events of a folder. Moving or deleting the folder itself is also reported by its parent, but not across a mount.
const DIR: Event = Event::IN_CREATE
    .union(Event::IN_DELETE)
    .union(Event::IN_MOVE)
    .union(Event::IN_ATTRIB)
    .union(Event::IN_DELETE_SELF)
    .union(Event::IN_MOVE_SELF)
    .union(Event::IN_ONLYDIR);
/// Events of a folder whose files are read: also that a file was closed after writing.
const DIR_OF_FILES: Event = DIR.union(Event::IN_CLOSE_WRITE);
/// Events of a file.
const FILE: Event = Event::IN_CLOSE_WRITE.union(Event::IN_ATTRIB);
/// Events that end a watch, or may move what it watches.
const ENDS: Event = Event::IN_IGNORED.union(Event::IN_UNMOUNT).union(Event::IN_DELETE_SELF).union(Event::IN_MOVE_SELF);

/// The watched objects.
#[derive(Debug, Default)]
pub(super) struct Watches {
    by_number: HashMap<i32, (nix::sys::inotify::WatchDescriptor, Watched)>,
    /// The object at each path when its watch was placed: no event reports that something is mounted over it.
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
    /// Watches exactly what is needed, in its order.
    ///
    /// Each path is looked up anew, so a watch on the object that was there before is replaced. A path that no longer
    /// exists is left out: an event of its folder reports when it appears.
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
                // EINVAL: the watch has ended by itself.
                inotify.rm_watch(watch).ok();
            }
        }
        outcome
    }

    fn add(&mut self, inotify: &Inotify, path: &Path, events: Event, watched: Watched) -> Result<(), WatchError> {
        let watch = match inotify.add_watch(path, events) {
            Ok(watch) => watch,
            Err(errno @ (Errno::ENOSPC | Errno::ENOMEM)) => return Err(WatchError { path: path.to_owned(), errno }),
            // An executable need not be readable to be run; most of its changes are events of its folder.
            Err(Errno::EACCES) if matches!(watched, Watched::File) => return Ok(()),
            Err(errno @ Errno::EACCES) => return Err(WatchError { path: path.to_owned(), errno }),
            Err(_) => return Ok(()),
        };
        self.places.push((path.to_owned(), place(path)));
        match (self.by_number.get_mut(&watch.as_raw()), watched) {
            // Two paths lead to the same folder, through a bind mount.
            (Some((_, Watched::Dir(_, have))), Watched::Dir(_, names)) => {
                have.join(&names);
                let events = if have.are_read { DIR_OF_FILES } else { DIR };
                inotify.add_watch(path, events).ok();
            }
            (_, watched) => drop(self.by_number.insert(watch.as_raw(), (watch, watched))),
        }
        Ok(())
    }

    /// Whether an event may change the result of a reading.
    pub(super) fn matter(&self, event: &InotifyEvent) -> bool {
        if event.mask.contains(Event::IN_Q_OVERFLOW) {
            return true; // events were lost, and it is unknown which
        }
        // Events of watches that were removed may still be queued.
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

    /// Returns whether another object is at a path now, as when something was mounted over it, or unmounted.
    pub(super) fn are_misplaced(&self) -> bool {
        self.places.iter().any(|(path, before)| place(path) != *before)
    }
}

fn place(path: &Path) -> Option<Place> {
    path.metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Whether a new file is still being written. Its writer closes it, which is an event too.
fn is_being_made(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_file() && meta.len() == 0 && meta.nlink() == 1)
}
