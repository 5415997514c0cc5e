//! `CNI_NETNS`, opened once: the path may lead to another namespace during a call.

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use std::cell::OnceCell;
use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

/// The container's namespace: the runtime's path, never empty, and the namespace that it led to when the call began.
///
/// All work on the container uses that descriptor, delegates in this process included. The path is only for messages:
/// opening it again may lead to another namespace, which has not been compared with the node's.
#[derive(Debug, Clone)]
pub struct NetnsPath {
    path: String,
    opened: Rc<Result<File, Errno>>,
    is_own: Rc<OnceCell<bool>>,
}

impl NetnsPath {
    /// Opens the path; `None` for the empty text, which means "no namespace" at DEL. A failure to open it is no error
    /// yet: many plugins do not need it.
    #[must_use]
    pub fn open(path: &str) -> Option<Self> {
        if path.is_empty() {
            return None;
        }
        // A FIFO or a device must not block or do anything.
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let opened = loop {
            // musl's `open` sets close-on-exec by a system call more.
            match openat(AT_FDCWD, path, flags, Mode::empty()) {
                Err(Errno::EINTR) => (),
                opened => break opened.map(File::from),
            }
        };
        Some(Self { path: path.to_owned(), opened: Rc::new(opened), is_own: Rc::default() })
    }

    /// The path as the runtime sent it; results repeat it as `sandbox`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.path
    }

    /// The file that was opened, which may not be a namespace.
    ///
    /// # Errors
    /// The reason why the file could not be opened; `ENOENT` where it does not exist.
    pub fn opened(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.opened.as_ref().as_ref().map(AsFd::as_fd).map_err(|errno| *errno)
    }

    /// Whether the path leads to the namespace of this process, whose main thread does all the work. Neither changes during
    /// a call, so a delegate in this process is answered from the first result.
    #[must_use]
    pub fn is_own(&self) -> bool {
        *self.is_own.get_or_init(|| {
            let own = Path::new("/proc/self/ns/net").metadata().ok();
            let opened = self.opened.as_ref().as_ref().ok().and_then(|file| file.metadata().ok());
            own.zip(opened).is_some_and(|(own, opened)| (own.dev(), own.ino()) == (opened.dev(), opened.ino()))
        })
    }
}

impl fmt::Display for NetnsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}
