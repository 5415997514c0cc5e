//! `CNI_NETNS`, opened once: what a path leads to may change while a call is under way.

use nix::errno::Errno;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;

/// The container's namespace: the path that the runtime sent, never empty, and what it led to when the call began.
///
/// All work on the container goes by that descriptor, delegates in this process included. The path is for texts alone: to
/// open it again may lead to another namespace, and so past the check that it is not the node's.
#[derive(Debug, Clone)]
pub struct NetnsPath {
    path: String,
    opened: Rc<Result<File, Errno>>,
}

impl NetnsPath {
    /// Opens the path; `None` for the empty text that stands for "no namespace" at DEL. That it cannot be opened is no
    /// error yet: many plugins have nothing to do there.
    #[must_use]
    pub fn open(path: &str) -> Option<Self> {
        if path.is_empty() {
            return None;
        }
        // A FIFO or a device must not block or do anything.
        let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let opened = opened.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EINVAL)));
        Some(Self { path: path.to_owned(), opened: Rc::new(opened) })
    }

    /// The text as the runtime sent it, which results repeat as `sandbox`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.path
    }

    /// What was opened: perhaps no namespace at all.
    ///
    /// # Errors
    /// Why it could not be opened; `ENOENT` where nothing is there.
    pub fn opened(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.opened.as_ref().as_ref().map(AsFd::as_fd).map_err(|errno| *errno)
    }

    /// Whether it is the namespace of this process, whose main thread does all the work.
    #[must_use]
    pub fn is_own(&self) -> bool {
        let own = Path::new("/proc/self/ns/net").metadata().ok();
        let opened = self.opened.as_ref().as_ref().ok().and_then(|file| file.metadata().ok());
        own.zip(opened).is_some_and(|(own, opened)| (own.dev(), own.ino()) == (opened.dev(), opened.ino()))
    }
}

impl fmt::Display for NetnsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}
