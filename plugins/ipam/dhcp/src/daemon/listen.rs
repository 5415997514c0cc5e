//! The daemon's socket: one of systemd's, or its own, which one daemon at a time has.

use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use listenfd::ListenFd;
use netops::file;
use netops::lock::Lock;
use nix::sys::socket::UnixAddr;
use nix::sys::stat::{Mode, umask};

use super::flags::Flags;
use crate::lease_files;

/// The file that a running daemon has locked. Only root can reach it.
const LOCK: &str = "lock";

/// An open socket, and the right to it.
pub(super) struct Listening {
    socket: UnixListener,
    /// The daemon's own, which it removes at its end.
    own: Option<PathBuf>,
    path: PathBuf,
    _lock: Lock,
}

impl Listening {
    /// Takes systemd's socket, if it has passed one, or makes one. A socket that no process listens on any more is replaced.
    pub(super) fn open(flags: &Flags) -> Result<Self, String> {
        // Only root may speak to the daemon, or read its leases.
        umask(Mode::from_bits_truncate(0o077));
        let path = flags.on_host(&flags.socket.to_string_lossy());
        UnixAddr::new(&path).map_err(|_errno| {
            format!("cannot listen on {}: its path is longer than the kernel takes for sockets", path.display())
        })?;
        let folder = lease_files::folder(&path);
        if let Some(parent) = path.parent() {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
            made.map_err(|error| format!("cannot create {}: {error}", parent.display()))?;
        }
        lease_files::create(&folder)?;
        let lock = Lock::try_take(&folder.join(LOCK), 0o600).map_err(|error| error.to_string())?;
        let lock = lock.ok_or_else(|| another(&path))?;
        let (socket, own) = match of_systemd()? {
            Some(socket) => (socket, None),
            None => (bind(&path)?, Some(path.clone())),
        };
        if let Some(pid_file) = &flags.pid_file {
            let pid = std::process::id().to_string();
            file::replace(pid_file, pid.as_bytes(), 0o644).map_err(|error| error.to_string())?;
        }
        Ok(Self { socket, own, path, _lock: lock })
    }

    pub(super) fn listener(&self) -> Result<tokio::net::UnixListener, String> {
        let listener = || {
            let socket = self.socket.try_clone()?;
            socket.set_nonblocking(true)?;
            tokio::net::UnixListener::from_std(socket)
        };
        listener().map_err(|error: io::Error| format!("cannot listen: {error}"))
    }

    /// Removes the daemon's own socket, so that callers see at once that no daemon runs.
    pub(super) fn close(&self) {
        if let Some(own) = &self.own
            && let Err(error) = fs::remove_file(own)
        {
            tracing::warn!(%error, socket = %own.display(), "the socket stays");
        }
    }
}

impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

fn of_systemd() -> Result<Option<UnixListener>, String> {
    let mut passed = ListenFd::from_env();
    match passed.len() {
        0 => Ok(None),
        1 => passed.take_unix_listener(0).map_err(|error| format!("cannot use the socket of systemd: {error}")),
        count => Err(format!("systemd passed {count} sockets; the daemon listens on one")),
    }
}

/// With the lock held, a socket file can only be a daemon's that has ended, or another make's.
fn bind(path: &Path) -> Result<UnixListener, String> {
    let failed = |what: &str, error: &io::Error| format!("cannot {what} {}: {error}", path.display());
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => (),
        Err(error) => return Err(failed("look at", &error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(format!("cannot listen on {}: it is no socket; move it away", path.display()));
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => return Err(another(path)),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                tracing::info!(socket = %path.display(), "a daemon that was killed has left its socket, which is replaced");
                fs::remove_file(path).map_err(|error| failed("remove", &error))?;
            }
            Err(error) => return Err(failed("ask who listens on", &error)),
        },
    }
    UnixListener::bind(path).map_err(|error| failed("listen on", &error))
}

fn another(path: &Path) -> String {
    format!("another daemon listens on {}; stop it, or use -socketpath", path.display())
}
