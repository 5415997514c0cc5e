//! Notices when the folder of manifests may have changed, also when it does not exist yet.
//!
//! The kernel announces changes in a watched folder, so every folder on the way is watched: where the next one is
//! missing, its creation is announced by the one before. A file that is a link is followed by its name alone; when its
//! target outside of the folder is written in place, no event reports it.

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags as Event, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Component, Path, PathBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The events of each folder on the way.
const ON_THE_WAY: Event = Event::IN_CREATE
    .union(Event::IN_DELETE)
    .union(Event::IN_MOVE)
    .union(Event::IN_DELETE_SELF)
    .union(Event::IN_MOVE_SELF)
    .union(Event::IN_ATTRIB)
    .union(Event::IN_ONLYDIR);
/// The events of the folder itself: also that a file was closed after writing.
const OF_THE_FOLDER: Event = ON_THE_WAY.union(Event::IN_CLOSE_WRITE);

/// The watches on one folder and the way to it.
#[derive(Debug)]
pub(crate) struct Watcher {
    dir: PathBuf,
    inotify: AsyncFd<Queue>,
    /// The name that matters; `None` in the folder itself, where all do.
    watched: HashMap<WatchDescriptor, Option<OsString>>,
}

/// What the kernel announces, as a descriptor that can be waited for.
#[derive(Debug)]
struct Queue(Inotify);

impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

#[expect(deprecated, reason = "its successor has to be called with unsafe; a Queue keeps its one descriptor open")]
fn waited_for(queue: Queue) -> std::io::Result<AsyncFd<Queue>> {
    AsyncFd::with_interest(queue, Interest::READABLE)
}

impl Watcher {
    /// Watches a folder that need not exist.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let dir = std::path::absolute(dir).with_context(|| format!("cannot use {}", dir.display()))?;
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
            .context("cannot watch the folder of manifests")?;
        let mut watcher = Self { dir, inotify: waited_for(Queue(inotify))?, watched: HashMap::new() };
        watcher.place()?;
        Ok(watcher)
    }

    /// Waits until the folder's content may have changed.
    pub(crate) async fn changed(&mut self) -> Result<()> {
        loop {
            let mut ready = self.inotify.readable().await?;
            let events = match ready.get_inner().0.read_events() {
                Err(Errno::EAGAIN) => {
                    ready.clear_ready();
                    continue;
                }
                events => events.context("cannot read what happened in the folder of manifests")?,
            };
            if events.iter().any(|event| self.matters(event)) {
                // Changes since the old watches were placed are found by reading, and later ones cause events.
                return self.place();
            }
        }
    }

    fn matters(&self, event: &InotifyEvent) -> bool {
        match (self.watched.get(&event.wd), &event.name) {
            _ if event.mask.contains(Event::IN_Q_OVERFLOW) => true,
            // A watch that was given up.
            (None, _) => false,
            // The folder itself was moved or deleted, or every name matters.
            (Some(_), None) | (Some(None), _) => true,
            (Some(Some(name)), Some(other)) => name == other,
        }
    }

    /// Watches what is there now, from the root on: what is made behind the last one found is announced by that.
    fn place(&mut self) -> Result<()> {
        let before = std::mem::take(&mut self.watched);
        let mut at = PathBuf::new();
        let mut rest = self.dir.components().filter(|component| *component != Component::CurDir).peekable();
        while let Some(component) = rest.next() {
            at.push(component);
            let next = rest.peek().map(|next| next.as_os_str().to_owned());
            let events = if next.is_some() { ON_THE_WAY } else { OF_THE_FOLDER };
            match self.inotify.get_ref().0.add_watch(&at, events) {
                Ok(watch) => drop(self.watched.insert(watch, next)),
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => break,
                // A folder one may pass but not read: what is behind it can be watched all the same.
                Err(Errno::EACCES) => (),
                Err(errno) => return Err(errno).with_context(|| format!("cannot watch {}", at.display())),
            }
        }
        for watch in before.into_keys().filter(|watch| !self.watched.contains_key(watch)) {
            // EINVAL: it ended with its folder.
            self.inotify.get_ref().0.rm_watch(watch).ok();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::Duration;

    async fn notified(watcher: &mut Watcher) {
        tokio::time::timeout(Duration::from_secs(10), watcher.changed()).await.expect("no event came").unwrap();
    }

    async fn not_notified(watcher: &mut Watcher) {
        assert!(tokio::time::timeout(Duration::from_millis(50), watcher.changed()).await.is_err());
    }

    #[test]
    fn a_folder_comes_is_written_to_goes_and_comes_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let root = std::env::temp_dir().join(format!("static-pods-watcher-{}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            let dir = root.join("a/manifests");
            let mut watcher = Watcher::open(&dir).unwrap();
            for _ in 0..2 {
                fs::create_dir(root.join("elsewhere")).unwrap();
                not_notified(&mut watcher).await;
                fs::remove_dir(root.join("elsewhere")).unwrap();
                fs::create_dir_all(&dir).unwrap();
                notified(&mut watcher).await;
                fs::write(dir.join("web.yaml"), "x").unwrap();
                notified(&mut watcher).await;
                fs::write(root.join("new"), "y").unwrap();
                while tokio::time::timeout(Duration::from_millis(50), watcher.changed()).await.is_ok() {}
                fs::rename(root.join("new"), dir.join("web.yaml")).unwrap();
                notified(&mut watcher).await;
                fs::remove_dir_all(root.join("a")).unwrap();
                notified(&mut watcher).await;
                while tokio::time::timeout(Duration::from_millis(50), watcher.changed()).await.is_ok() {}
            }
            fs::remove_dir_all(root).unwrap();
        });
    }
}
