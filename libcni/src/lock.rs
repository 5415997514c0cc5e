//! The locks of one cache, for all processes that use this library on it: one for each network, which keeps GC apart from
//! ADD and DEL, and one for each attachment.
//!
//! GC removes what is not in its list. An ADD that began after the list was made is not in it, so none may: ADD and DEL
//! hold the network's lock shared, GC holds it alone from before it makes the list until the plugins have obeyed it.
//!
//! Plugins find an attachment's objects by its name. So of two ADDs of one attachment the second one would find what the
//! first has made, and its rollback would remove that: ADD and DEL hold the attachment's lock from before they read the
//! cache until their rollback has ended.
//!
//! All are locks on the file `locks/<network>` in the cache's folder: `flock(2)` for the network, `F_OFD_SETLK` of one byte
//! for an attachment. Only root can open that file, so no other user can hold a lock. Plugins do not inherit them, and they
//! end with the process. A waiting GC locks the file's first byte and thereby stops newcomers, so that a stream of ADDs
//! cannot delay it without end.

use crate::attachment::AttachmentId;
use crate::deadlines::Limits;
use crate::error::Error;
use cni_spec::{CniError, Code, Command, NetworkName};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use processes::byte_range as range;
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long GC waits for operations in progress: new ones wait behind it.
const GC_PATIENCE: Duration = Duration::from_secs(30);
/// How long DEL waits for a lock that a dead runtime has left to a child.
const LEGACY_PATIENCE: Duration = Duration::from_secs(1);
/// The permission bits of all users but the owner.
const OTHERS: u32 = 0o077;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// The lock of ADD and DEL, which share it.
    Shared,
    /// The lock of GC, which has it alone.
    Alone,
}

/// Held locks, released when it is dropped.
#[derive(Debug)]
pub(crate) struct LockGuard {
    file: File,
}

impl Drop for LockGuard {
    /// Closing the file is not enough: a child that was forked just now has it open until it executes its program.
    fn drop(&mut self) {
        let opened = set(&self.file, &range(libc::F_UNLCK, 0, 0));
        let unlocked = flock(&self.file, FlockOperation::Unlock);
        if let Some(error) = opened.err().map(io::Error::from).or(unlocked.err().map(io::Error::from)) {
            tracing::debug!(%error, "cannot release a network's lock");
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Locks {
    folder: PathBuf,
}

impl Locks {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { folder: dir.join("locks") }
    }

    pub(crate) async fn for_add(
        &self,
        network: &NetworkName,
        id: &AttachmentId,
        limits: &Limits,
    ) -> Result<LockGuard, Error> {
        let file = self.open(network, true).map_err(|error| self.failed(network, &error))?;
        // The attachment's comes first: a second ADD of it that waits must not keep GC waiting.
        let held = LockGuard { file };
        self.take_attachment(network, id, &held.file, limits.time_left(Command::Add), limits, Command::Add).await?;
        self.take(network, &held.file, Share::Shared, limits, Command::Add).await?;
        Ok(held)
    }

    /// Takes the locks of an attachment and its network for DEL, which has to work on a full or read-only file system, too.
    /// Without a lock file there has been neither ADD nor GC; a lock that cannot be opened is reported, and DEL continues
    /// without it.
    ///
    /// A runtime that was killed while it started a plugin leaves its lock to the child, until that executes the plugin. If
    /// the runtime of the attachment's ADD `is_dead`, DEL waits for the lock no longer than for that.
    pub(crate) async fn for_del(
        &self,
        network: &NetworkName,
        id: &AttachmentId,
        limits: &Limits,
        is_dead: impl Fn() -> bool,
    ) -> Result<Option<LockGuard>, Error> {
        let file = match self.open(network, false) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let error = self.failed(network, &error);
                tracing::warn!(error = error.with_causes(), "DEL continues without the locks");
                return Ok(None);
            }
        };
        let (held, left) = (LockGuard { file }, limits.time_left(Command::Del));
        let is_busy = |outcome: &Result<(), Error>| matches!(outcome, Err(Error::Locked { error }) if error.code == Code::TRY_AGAIN);
        let first = left.clone().map(|left| left.min(LEGACY_PATIENCE));
        let mut taken = self.take_attachment(network, id, &held.file, first, limits, Command::Del).await;
        if is_busy(&taken) && !is_dead() && left.as_ref().is_ok_and(|left| *left > LEGACY_PATIENCE) {
            let rest = left.map(|left| left.saturating_sub(LEGACY_PATIENCE));
            taken = self.take_attachment(network, id, &held.file, rest, limits, Command::Del).await;
        }
        if is_busy(&taken) && is_dead() {
            tracing::warn!("DEL continues without the attachment's lock: the runtime of its ADD is dead");
        } else {
            taken?;
        }
        self.take(network, &held.file, Share::Shared, limits, Command::Del).await?;
        Ok(Some(held))
    }

    pub(crate) async fn for_gc(&self, network: &NetworkName, limits: &Limits) -> Result<LockGuard, Error> {
        let file = self.open(network, true).map_err(|error| self.failed(network, &error))?;
        let held = LockGuard { file };
        self.take(network, &held.file, Share::Alone, limits, Command::Gc).await?;
        Ok(held)
    }

    /// The attachments among these whose lock a process holds: their ADD or DEL is in progress. Takes no lock and changes nothing.
    pub(crate) fn held<'a>(
        &self,
        network: &NetworkName,
        ids: impl Iterator<Item = &'a AttachmentId>,
    ) -> Vec<&'a AttachmentId> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        // Without the file there is no lock.
        let Ok(file) = options.open(self.path(network)) else { return Vec::new() };
        let is_held = |id: &&AttachmentId| {
            let mut found = range(libc::F_WRLCK, place(id), 1);
            fcntl(&file, FcntlArg::F_OFD_GETLK(&mut found)).is_ok() && i32::from(found.l_type) != libc::F_UNLCK
        };
        ids.filter(is_held).collect()
    }

    fn path(&self, network: &NetworkName) -> PathBuf {
        self.folder.join(network.as_str())
    }

    /// The lock file, which only this user and root can open. It is never removed: a process may wait for it.
    fn open(&self, network: &NetworkName, create: bool) -> io::Result<File> {
        let path = self.path(network);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create).truncate(false).mode(0o600);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = match options.open(&path) {
            Err(error) if create && error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
                options.open(&path)?
            }
            file => file?,
        };
        let found = file.metadata()?;
        if !found.is_file() || ![0, nix::unistd::geteuid().as_raw()].contains(&found.uid()) {
            return Err(io::Error::other("it is no regular file of this user: remove it"));
        }
        if found.mode() & OTHERS != 0 {
            file.set_permissions(Permissions::from_mode(found.mode() & !OTHERS & 0o777))?;
        }
        Ok(file)
    }

    async fn take(
        &self,
        network: &NetworkName,
        file: &File,
        share: Share,
        limits: &Limits,
        command: Command,
    ) -> Result<(), Error> {
        let failed = |error: io::Error| self.failed(network, &error);
        if attempt(file, share).map_err(failed)? {
            return Ok(());
        }
        let left = limits.time_left(command).map_err(|error| Error::Locked { error })?;
        let patience = if share == Share::Alone { left.min(GC_PATIENCE) } else { left };
        let turn = Turn(file);
        let waiting = wait(file, move |file, is_given_up| take_in_turn(file, share, is_given_up)).map_err(failed)?;
        tokio::select! {
            error = limits.cancelled(command) => Err(Error::Locked { error }),
            outcome = timeout(patience, waiting) => match outcome {
                Ok(Ok(taken)) => taken.map_err(failed),
                // The thread has ended without a word, which it does not do.
                Ok(Err(_)) => Err(failed(io::Error::other("the waiting thread has ended"))),
                Err(_deadline) => Err(Error::Locked { error: self.busy(network, file, share, command, patience) }),
            },
        }?;
        std::mem::forget(turn);
        Ok(())
    }

    /// Takes the attachment's lock, for as long as the file is open or until it is unlocked.
    async fn take_attachment(
        &self,
        network: &NetworkName,
        id: &AttachmentId,
        file: &File,
        patience: Result<Duration, CniError>,
        limits: &Limits,
        command: Command,
    ) -> Result<(), Error> {
        let failed = |error: io::Error| self.failed(network, &error);
        let place = range(libc::F_WRLCK, place(id), 1);
        match fcntl(file, FcntlArg::F_OFD_SETLK(&place)) {
            Err(Errno::EAGAIN | Errno::EACCES) => {}
            outcome => return outcome.map(drop).map_err(|errno| failed(errno.into())),
        }
        let patience = patience.map_err(|error| Error::Locked { error })?;
        let waiting = wait(file, move |file, _| Ok(set(file, &place)?)).map_err(failed)?;
        tokio::select! {
            error = limits.cancelled(command) => Err(Error::Locked { error }),
            outcome = timeout(patience, waiting) => match outcome {
                Ok(Ok(taken)) => taken.map_err(failed),
                Ok(Err(_)) => Err(failed(io::Error::other("the waiting thread has ended"))),
                Err(_deadline) => Err(Error::Locked { error: in_progress(network, id, command, patience) }),
            },
        }
    }

    fn busy(&self, network: &NetworkName, file: &File, share: Share, command: Command, patience: Duration) -> CniError {
        let (holder, seconds) = (holder(file), patience.as_secs_f32());
        let work = if share == Share::Alone { "an ADD or DEL" } else { "a GC" };
        let msg = format!(
            "cannot start {command} in network {network}: {holder} has held the network's lock for {seconds:.1} s"
        );
        let path = self.path(network);
        CniError::new(Code::TRY_AGAIN, msg).detail(format!(
            "Lock {}. It is held while {work} of the network runs, and ends with that process: try again, or end it.",
            path.display()
        ))
    }

    fn failed(&self, network: &NetworkName, error: &io::Error) -> Error {
        let path = self.path(network);
        Error::Cache {
            verb: "lock",
            path,
            source: io::Error::new(error.kind(), error.to_string()),
            details: String::new(),
        }
    }
}

fn in_progress(network: &NetworkName, id: &AttachmentId, command: Command, patience: Duration) -> CniError {
    let (AttachmentId { container_id, ifname }, seconds) = (id, patience.as_secs_f32());
    CniError::new(
        Code::TRY_AGAIN,
        format!(
            "cannot start {command} of {container_id}/{ifname} in network {network}: another ADD or DEL of it has been in \
             progress for {seconds:.1} s"
        ),
    )
    .detail("Nothing was run. Try again when that has ended, or end the runtime that does it.")
}

/// A wait. When it is given up its thread goes on waiting, and newcomers must not wait behind that.
struct Turn<'a>(&'a File);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Err(error) = gate(self.0, Gate::Open) {
            tracing::debug!(%error, "cannot open the gate of a network's lock");
        }
    }
}

/// A lock on the first byte: closed by a GC that waits or works, passed by a newcomer that has to wait for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Close,
    Pass,
    Open,
}

fn gate(file: &File, action: Gate) -> nix::Result<()> {
    let kind = match action {
        Gate::Close => libc::F_WRLCK,
        Gate::Pass => libc::F_RDLCK,
        Gate::Open => libc::F_UNLCK,
    };
    set(file, &range(kind, GATE, 1))
}

fn set(file: &File, range: &libc::flock) -> nix::Result<()> {
    loop {
        match fcntl(file, FcntlArg::F_OFD_SETLKW(range)) {
            Err(Errno::EINTR) => {}
            outcome => return outcome.map(drop),
        }
    }
}

const GATE: i64 = 0;

/// The place of an attachment's lock: a hash (FNV-1a) of its names, behind the gate. Two attachments with one place only wait
/// for each other.
fn place(id: &AttachmentId) -> i64 {
    let names = id.container_id.as_str().bytes().chain([b'/']).chain(id.ifname.as_str().bytes());
    let hash =
        names.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    i64::try_from(hash >> 2).unwrap_or_default() + GATE + 1
}

/// Whether the lock could be taken at once.
fn attempt(file: &File, share: Share) -> io::Result<bool> {
    if share == Share::Alone {
        match fcntl(file, FcntlArg::F_OFD_SETLK(&range(libc::F_WRLCK, GATE, 1))) {
            Err(Errno::EAGAIN | Errno::EACCES) => return Ok(false),
            outcome => drop(outcome?),
        }
    }
    let operation = match share {
        Share::Shared => FlockOperation::NonBlockingLockShared,
        Share::Alone => FlockOperation::NonBlockingLockExclusive,
    };
    match flock(file, operation) {
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
        outcome => outcome?,
    }
    if share == Share::Alone {
        return Ok(true);
    }
    let mut found = range(libc::F_RDLCK, GATE, 1);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut found))?;
    let is_open = libc::c_int::from(found.l_type) == libc::F_UNLCK;
    if !is_open {
        flock(file, FlockOperation::Unlock)?;
    }
    Ok(is_open)
}

/// Waits on a thread, as these locks have no time limit. The thread shares the open file, so the lock that it gets is
/// the caller's; when the caller has given up, it is released with the thread's copy of the file.
fn wait(
    file: &File,
    take: impl FnOnce(&File, &dyn Fn() -> bool) -> io::Result<()> + Send + 'static,
) -> io::Result<oneshot::Receiver<io::Result<()>>> {
    let waiter = file.try_clone()?;
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new().name("cni-lock".into()).stack_size(128 << 10).spawn(move || {
        let taken = take(&waiter, &|| sender.is_closed());
        drop(sender.send(taken));
    })?;
    Ok(receiver)
}

fn take_in_turn(file: &File, share: Share, is_given_up: &dyn Fn() -> bool) -> io::Result<()> {
    gate(file, if share == Share::Alone { Gate::Close } else { Gate::Pass })?;
    let operation = match share {
        Share::Shared => FlockOperation::LockShared,
        Share::Alone => FlockOperation::LockExclusive,
    };
    let taken = if is_given_up() { Ok(()) } else { rustix::io::retry_on_intr(|| flock(file, operation)) };
    if share == Share::Shared || is_given_up() {
        gate(file, Gate::Open)?;
    }
    Ok(taken?)
}

/// A process that holds the lock, for messages.
fn holder(file: &File) -> String {
    let holder = file.metadata().ok().and_then(|found| processes::find_holder(&found));
    holder.unwrap_or_else(|| "another process".to_owned())
}
