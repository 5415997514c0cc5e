//! The pods that the folder of manifests requests, and the notice that it may have changed.

use crate::manifest::{self, Manifest};
use anyhow::{Context, Result};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

#[derive(Debug)]
pub(crate) struct Folder {
    dir: PathBuf,
    read_again: Duration,
    inotify: AsyncFd<OwnedFd>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// In the order of the files' names, then of the documents.
    pub(crate) pods: Vec<Manifest>,
    /// Errors, each with the name of its file.
    pub(crate) problems: Vec<String>,
    /// Some file could not be read, so more pods than these may be wanted.
    pub(crate) is_partial: bool,
}

impl Folder {
    #[expect(deprecated, reason = "its successor is unsafe; an OwnedFd keeps its one descriptor open")]
    pub(crate) fn open(dir: PathBuf, read_again: Duration) -> Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let inotify =
            inotify.map_err(std::io::Error::from).and_then(|fd| AsyncFd::with_interest(fd, Interest::READABLE));
        Ok(Self { dir, read_again, inotify: inotify.context("cannot watch the folder of manifests")? })
    }

    /// Reads the folder. One that does not exist asks for nothing, as in a kubelet.
    pub(crate) fn read(&self) -> Wanted {
        // The watch is placed before the reading: a later change is an event. A folder that was replaced gets a new watch.
        let events = WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        // A folder that cannot be watched is read again by the clock.
        inotify::add_watch(&self.inotify, &self.dir, events).ok();
        let mut wanted = Wanted::default();
        let names = fs::read_dir(&self.dir)
            .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<Vec<_>>>());
        let names = match names {
            Err(error) if error.kind() == ErrorKind::NotFound => return wanted,
            Err(error) => {
                wanted.broken(&self.dir.display().to_string(), &format!("cannot list the folder: {error}"));
                return wanted;
            }
            Ok(names) => names,
        };
        // A name that is no text has none of our endings.
        let mut names: Vec<_> = names.into_iter().filter_map(|name| name.into_string().ok()).collect();
        // Files of editors and of Kubernetes (`.web.yaml.swp`, `..data`, `web.yaml~`) are no manifests.
        let has_ending = |name: &String| [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending));
        names.retain(|name| !name.starts_with('.') && has_ending(name));
        names.sort();
        for name in names {
            match fs::read_to_string(self.dir.join(&name)) {
                Ok(text) => wanted.add(&name, &text),
                // The file was deleted after the listing, and its pods are no longer wanted.
                Err(error) if error.kind() == ErrorKind::NotFound => (),
                Err(error) => wanted.broken(&name, &format!("cannot read it: {error}")),
            }
        }
        wanted
    }

    /// Waits until a reading may have another result.
    pub(crate) async fn changed(&self) -> Result<()> {
        let Ok(ready) = tokio::time::timeout(self.read_again, self.inotify.readable()).await else { return Ok(()) };
        let mut ready = ready?;
        // The events themselves do not matter: all of the folder is read again.
        let mut events = [0_u8; 4096];
        while rustix::io::read(ready.get_inner(), &mut events).is_ok() {}
        ready.clear_ready();
        Ok(())
    }
}

impl Wanted {
    fn add(&mut self, file: &str, text: &str) {
        let manifests = match manifest::parse(text) {
            Ok(manifests) => manifests,
            Err(error) => return self.broken(file, &format!("{error:#}")),
        };
        for manifest in manifests {
            if self.pods.iter().any(|other| other.key() == manifest.key()) {
                self.problems.push(format!("{file}: pod {} is defined twice: the first one counts", manifest.key()));
            } else {
                self.pods.push(manifest);
            }
        }
    }

    fn broken(&mut self, file: &str, text: &str) {
        self.is_partial = true;
        self.problems.push(format!("{file}: {text}"));
    }
}
