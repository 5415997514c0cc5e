//! A network namespace that somebody else made: opened by its path, compared, entered.
//!
//! Entering is for one closure at a time, after which the thread is back in its own namespace: whether it may come
//! back is tried before it leaves, and where it may not (a privilege over the other namespace only), a thread that
//! ends there goes in its place. A thread each time would be simpler; it costs 0.1 ms, a tenth of what the kernel needs
//! for a whole ADD. Links, addresses and routes need no entering: open a [`crate::kernel::Kernel`] in the
//! namespace and use it from anywhere. What is left are `/proc/sys/net` and starting programs.

mod process;

pub use process::{Bind, Namespaces};

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::fstat;
use nix::sys::statfs::{NSFS_MAGIC, PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::{getpid, gettid};

use crate::error::OpError;

/// The place named in errors when no other namespace is meant.
pub const HOST: &str = "the host";

/// An open network namespace.
#[derive(Debug)]
pub struct Netns {
    file: File,
    path: PathBuf,
    identity: Identity,
}

/// What two names of one namespace have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    device: u64,
    inode: u64,
}

/// Why a path is no network namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetnsError {
    /// Nothing is there. DEL counts that as done. Runtimes match on the words.
    #[error("cannot open network namespace {}: no such file or directory", path.display())]
    Absent {
        /// The path as given.
        path: PathBuf,
    },
    /// A file, but not on nsfs or procfs: a mount point whose namespace is gone. DEL counts that as done.
    #[error("cannot open network namespace {}: it is a {what}, the namespace is gone or never was there", path.display())]
    NotANamespace {
        /// The path as given.
        path: PathBuf,
        /// `plain file`, `directory` or `file of another kind`.
        what: &'static str,
    },
    /// The path could not be opened or examined.
    #[error("cannot open network namespace {}: {}", path.display(), errno.desc().to_lowercase())]
    Unusable {
        /// The path as given.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
}

impl NetnsError {
    /// That the path could not be opened, for a reason that tells whether anything is there.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, errno: Errno) -> Self {
        let path = path.into();
        match errno {
            Errno::ENOENT | Errno::ENOTDIR => Self::Absent { path },
            errno => Self::Unusable { path, errno },
        }
    }

    /// Whether there is no namespace to clean up in, so that DEL may go on without one.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self {
            NetnsError::Absent { .. } | NetnsError::NotANamespace { .. } => true,
            NetnsError::Unusable { .. } => false,
        }
    }
}

impl Netns {
    /// Opens the namespace at `path`, which must lie on nsfs or procfs.
    ///
    /// # Errors
    /// [`NetnsError`] tells an absent path, a plain file and other failures apart.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, NetnsError> {
        let path = path.into();
        match open_plain(&path) {
            Ok(file) => Self::from_file(file, path),
            Err(errno) => Err(NetnsError::new(path, errno)),
        }
    }

    /// The namespace that was opened as `file`; `path` is for texts, and is not looked at again.
    ///
    /// # Errors
    /// As [`Netns::open`].
    pub fn from_file(file: File, path: impl Into<PathBuf>) -> Result<Self, NetnsError> {
        let path = path.into();
        let unusable = |errno| NetnsError::Unusable { path: path.clone(), errno };
        let magic = fstatfs(&file).map_err(unusable)?.filesystem_type();
        let stat = fstat(&file).map_err(unusable)?;
        if magic != NSFS_MAGIC && magic != PROC_SUPER_MAGIC {
            return Err(NetnsError::NotANamespace { what: kind_of_file(stat.st_mode), path });
        }
        Ok(Self { identity: Identity { device: stat.st_dev, inode: stat.st_ino }, file, path })
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// [`NetnsError::Unusable`] without `/proc`.
    pub fn current() -> Result<Self, NetnsError> {
        Self::open(own_file())
    }

    /// The path it was opened by: the place to name in errors.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Device and inode, equal for every name of this namespace.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether it was found by a process that is in it (`/proc/PID/ns/net`), and not where it is mounted. The number of a
    /// process that has ended passes to another, and then the path leads to that one's namespace.
    ///
    /// # Errors
    /// [`NetnsError::Unusable`] without `/proc`.
    pub fn is_by_process(&self) -> Result<bool, NetnsError> {
        // The kernel names a mounted one by its mount point, the others `net:[4026532180]`.
        let link = Path::new("/proc/self/fd").join(self.file.as_raw_fd().to_string());
        let target = nix::fcntl::readlink(&link).map_err(|errno| NetnsError::new(link, errno))?;
        Ok(target.as_encoded_bytes().starts_with(b"net:["))
    }

    /// Whether this is the namespace the calling thread is in.
    ///
    /// # Errors
    /// As [`Netns::current`].
    pub fn is_current(&self) -> Result<bool, NetnsError> {
        Ok(Self::current()?.identity == self.identity)
    }

    /// Runs `work` inside the namespace; the calling thread is in its own again afterwards, also when `work` panics.
    ///
    /// Child processes and threads that `work` starts are in the namespace too. `work` may run on another thread.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN` over the namespace; `EINVAL` if the path is another kind of namespace.
    #[expect(clippy::disallowed_methods, reason = "the one place that enters a namespace")]
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, OpError> {
        let enter = || setns(&self.file, CloneFlags::CLONE_NEWNET);
        let entered = match WayBack::find() {
            Some(way_back) => enter().map(|()| {
                let _returns = way_back;
                work()
            }),
            None => on_thread(|| {
                enter()?;
                Ok(work())
            }),
        };
        entered.map_err(|errno| {
            OpError::errno("enter", format!("network namespace {}", self.path.display()), errno)
                .request("setns CLONE_NEWNET")
        })
    }

    /// Runs `work` in a fresh namespace that nobody else has, which it may keep alive by [`Netns::current`].
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`; `ENOSPC` at the limit of namespaces.
    pub fn run_in_new<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, OpError> {
        Self::in_new(CloneFlags::CLONE_NEWNET, work)
    }

    /// As [`Netns::run_in_new`], in a fresh UTS namespace as well: host and domain name can be set without the
    /// node's changing.
    ///
    /// # Errors
    /// As [`Netns::run_in_new`].
    pub fn run_in_new_with_uts<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, OpError> {
        Self::in_new(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS, work)
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that makes a namespace")]
    fn in_new<T: Send>(flags: CloneFlags, work: impl FnOnce() -> T + Send) -> Result<T, OpError> {
        let made = on_thread(|| {
            nix::sched::unshare(flags)?;
            Ok(work())
        });
        // CLONE_NEWNET or CLONE_NEWNET|CLONE_NEWUTS, as in the headers.
        let request = flags.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join("|");
        made.map_err(|errno| OpError::errno("create", "network namespace", errno).request(format!("unshare {request}")))
    }

    /// A fresh namespace, alive as long as the returned handle (or whoever enters it).
    ///
    /// # Errors
    /// As [`Netns::run_in_new`].
    pub fn create() -> Result<Self, OpError> {
        Self::run_in_new(|| {
            Self::current().map_err(|error| OpError::state("create", "network namespace", error.to_string()))
        })?
    }
}

/// The file of the calling thread's namespace. The main thread's has a shorter path: two entries fewer that the kernel
/// makes for this process alone, and takes away with it.
#[must_use]
pub fn own_file() -> &'static str {
    if gettid() == getpid() { "/proc/self/ns/net" } else { "/proc/thread-self/ns/net" }
}

/// The calling thread's own namespace, which dropping this enters.
struct WayBack(File);

impl WayBack {
    /// Tries the way: entering the namespace that one is in asks for the same privileges as coming back to it.
    #[expect(clippy::disallowed_methods, reason = "the one place that enters a namespace")]
    fn find() -> Option<Self> {
        let own = File::open(own_file()).ok()?;
        setns(&own, CloneFlags::CLONE_NEWNET).ok()?;
        Some(Self(own))
    }
}

impl Drop for WayBack {
    /// Once more if it fails: the kernel allocates some bytes for it. A thread that stayed would do to the container what
    /// is meant for the host; nothing is known that could keep it there, and if anything does, the process ends, and DEL
    /// finds what is left.
    #[expect(clippy::disallowed_methods, reason = "the one place that enters a namespace")]
    fn drop(&mut self) {
        let return_home = || setns(&self.0, CloneFlags::CLONE_NEWNET);
        if let Err(errno) = return_home().or_else(|_| return_home()) {
            tracing::error!(%errno, "cannot return from a network namespace");
            std::process::abort();
        }
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for Netns {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

fn open_plain(path: &Path) -> Result<File, Errno> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY)
        .open(path)
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO)))
}

fn kind_of_file(mode: u32) -> &'static str {
    match mode & nix::libc::S_IFMT {
        nix::libc::S_IFREG => "plain file",
        nix::libc::S_IFDIR => "directory",
        _ => "file of another kind",
    }
}

/// Runs `work` on a thread that ends with it. A panic in it goes on in the caller.
fn on_thread<T: Send>(work: impl FnOnce() -> Result<T, Errno> + Send) -> Result<T, Errno> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("netns".into())
            .stack_size(256 * 1024)
            .spawn_scoped(scope, work)
            .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EAGAIN)))?;
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_plain_and_foreign_paths_are_told_apart() {
        let absent = Netns::open("/run/netns/no-such").unwrap_err();
        assert!(matches!(absent, NetnsError::Absent { .. }) && absent.is_gone());
        assert!(absent.to_string().ends_with("no such file or directory"));
        let plain = Netns::open("/etc/passwd").unwrap_err();
        assert!(matches!(&plain, NetnsError::NotANamespace { what: "plain file", .. }));
        let folder = Netns::open("/").unwrap_err();
        assert!(matches!(&folder, NetnsError::NotANamespace { what: "directory", .. }));
    }

    #[test]
    fn a_namespace_found_by_its_process_is_told_from_a_mounted_one() {
        assert!(Netns::open("/proc/self/ns/net").unwrap().is_by_process().unwrap());
        let node = testns::Node::new();
        let mounted = node.container();
        assert!(!Netns::open(mounted.namespace().path()).unwrap().is_by_process().unwrap());
    }

    #[test]
    fn what_was_opened_stays_the_same_when_the_path_leads_elsewhere() {
        let opened = File::open("/proc/self/ns/net").unwrap();
        let netns = Netns::from_file(opened, "/etc/passwd").unwrap();
        assert!(netns.is_current().unwrap());
    }

    #[test]
    fn a_new_namespace_is_another_one_and_the_caller_stays() {
        let before = Netns::current().unwrap();
        let made = Netns::create().unwrap();
        assert!(!made.is_current().unwrap());
        assert!(before.is_current().unwrap());
        let inside = made.run(|| Netns::current().unwrap().identity()).unwrap();
        assert_eq!(inside, made.identity());
    }

    #[test]
    fn a_thread_comes_back_also_from_a_panic() {
        let (before, made) = (Netns::current().unwrap().identity(), Netns::create().unwrap());
        let work = || made.run(|| panic!("inside {:?}", Netns::current().unwrap().identity()));
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().unwrap(), &format!("inside {:?}", made.identity()));
        assert_eq!(Netns::current().unwrap().identity(), before);
    }

    /// In a user namespace of its own a process has no privilege over the network namespace it came from.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test starts itself once more and has to tell itself")]
    fn who_could_not_come_back_sends_a_thread() {
        const INSIDE: &str = "NETOPS_IN_A_USER_NAMESPACE";
        if std::env::var_os(INSIDE).is_none() {
            let test = std::env::current_exe().unwrap();
            let name = "netns::tests::who_could_not_come_back_sends_a_thread";
            let mut inside = std::process::Command::new("unshare");
            let status = inside.args(["--user", "--map-root-user"]).arg(test).args(["--exact", name]).env(INSIDE, "");
            assert!(status.status().unwrap().success());
            return;
        }
        assert!(WayBack::find().is_none());
        let made = Netns::create().unwrap();
        assert_eq!(made.run(|| Netns::current().unwrap().identity()).unwrap(), made.identity());
        assert_ne!(Netns::current().unwrap().identity(), made.identity());
    }

    #[test]
    fn a_hostname_set_in_a_new_namespace_is_not_the_nodes() {
        const HOSTNAME: &str = "/proc/sys/kernel/hostname";
        let read = || std::fs::read_to_string(HOSTNAME).unwrap();
        let before = read();
        let inside = Netns::run_in_new_with_uts(|| std::fs::write(HOSTNAME, "somebody").map(|()| read()));
        assert_eq!(inside.unwrap().unwrap(), "somebody\n");
        assert_eq!(read(), before);
    }

    #[test]
    fn another_kind_of_namespace_is_refused_on_entering() {
        let mount = Netns::open("/proc/self/ns/mnt").unwrap();
        let error = mount.run(|| ()).unwrap_err();
        assert_eq!(error.os_errno(), Some(Errno::EINVAL));
    }
}
