//! A network namespace: opened by its path or made, compared, entered.
//!
//! A thread enters for one closure at a time and then returns to its own namespace. Before it enters, it tests whether
//! it may return. If it may not (it is privileged over the other namespace only), a new thread enters instead and ends
//! there. A new thread each time would be simpler, but costs 0.1 ms, a tenth of the kernel's time for a whole ADD.
//! Links, addresses and routes need no entering: open a [`crate::netlink_connection::Kernel`] in the namespace and use it from
//! anywhere; so does [`crate::nft::Nft::in_netns`]. Only `/proc/sys/net` and starting programs need it.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns};
use nix::sys::statfs::{NSFS_MAGIC, PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::{getpid, gettid};

use crate::error::{OpError, errno_of};
use crate::{file, unsafe_calls};

/// The place named in errors unless another namespace is meant.
pub const HOST: &str = "the host";

/// An open network namespace.
#[derive(Debug)]
pub struct Netns {
    file: File,
    path: PathBuf,
    identity: Identity,
}

/// Identifies a namespace, whatever path it was opened by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Device and inode. The kernel gives both to another namespace when this one has ended.
    #[must_use]
    pub fn numbers(self) -> [u64; 2] {
        [self.device, self.inode]
    }
}

/// Why a path is no network namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetnsError {
    /// The path does not exist. DEL counts that as success. Runtimes search for this text.
    #[error("cannot open network namespace {}: no such file or directory", path.display())]
    Absent {
        /// The path as given.
        path: PathBuf,
    },
    /// A file that is no network namespace. DEL counts that as success.
    #[error("cannot open network namespace {}: it is a {what}, the namespace is gone or never was there", path.display())]
    NotANamespace {
        /// The path as given.
        path: PathBuf,
        /// `plain file`, `directory`, `file of another kind` or `namespace of another kind`.
        what: &'static str,
    },
    /// An empty file: namespaces are mounted on such a file, and none is as far as this process sees. DEL counts that as success.
    #[error(
        "cannot open network namespace {}: it is an empty file, the namespace is gone, or is mounted in another mount namespace",
        path.display()
    )]
    NotMounted {
        /// The path as given.
        path: PathBuf,
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
    /// The error of a path that could not be opened. `ENOENT` and `ENOTDIR`: the path does not exist.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, errno: Errno) -> Self {
        let path = path.into();
        match errno {
            Errno::ENOENT | Errno::ENOTDIR => Self::Absent { path },
            errno => Self::Unusable { path, errno },
        }
    }

    /// Whether no namespace is left to clean up in, so that DEL can continue without one.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self {
            NetnsError::Absent { .. } | NetnsError::NotANamespace { .. } | NetnsError::NotMounted { .. } => true,
            // A socket, a device without a driver, a loop of links, a name that no file can have.
            NetnsError::Unusable { errno, .. } => {
                matches!(errno, Errno::ENXIO | Errno::ENODEV | Errno::ELOOP | Errno::ENAMETOOLONG)
            }
        }
    }
}

impl Netns {
    /// Opens the namespace at `path`.
    ///
    /// # Errors
    /// [`NetnsError`] distinguishes a missing path, a file that is no network namespace, and other failures.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, NetnsError> {
        let path = path.into();
        match open_plain(&path) {
            Ok(file) => Self::from_file(file, path),
            Err(errno) => Err(NetnsError::new(path, errno)),
        }
    }

    /// The namespace that was opened as `file`. `path` is for messages only and is not opened again.
    ///
    /// # Errors
    /// As [`Netns::open`].
    pub fn from_file(file: File, path: impl Into<PathBuf>) -> Result<Self, NetnsError> {
        let path = path.into();
        let unusable = |errno| NetnsError::Unusable { path: path.clone(), errno };
        let unknown = |error: std::io::Error| unusable(Errno::from_raw(error.raw_os_error().unwrap_or_default()));
        let found = file.metadata().map_err(unknown)?;
        let not_one = |what| Err(NetnsError::NotANamespace { what, path: path.clone() });
        // A device would take the request for one of its own.
        if !found.is_file() {
            return not_one(kind_of_file(found.mode()));
        }
        match unsafe_calls::namespace_kind(&file) {
            Ok(nix::libc::CLONE_NEWNET) => {}
            Ok(_) => return not_one("namespace of another kind"),
            // Before Linux 4.11 a namespace does not say.
            Err(_) if fstatfs(&file).map_err(unusable)?.filesystem_type() == NSFS_MAGIC => {}
            // Files of /proc are without a length.
            Err(_) if found.len() == 0 && fstatfs(&file).map_err(unusable)?.filesystem_type() != PROC_SUPER_MAGIC => {
                return Err(NetnsError::NotMounted { path: path.clone() });
            }
            Err(_) => return not_one(kind_of_file(found.mode())),
        }
        Ok(Self { identity: Identity { device: found.dev(), inode: found.ino() }, file, path })
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// [`NetnsError::Unusable`] without `/proc`.
    pub fn current() -> Result<Self, NetnsError> {
        Self::open(own_file())
    }

    /// The path it was opened by, which errors name. A namespace of [`Netns::create`] has none: it is called `a new namespace`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Device and inode, equal for every name of this namespace.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether the namespace was opened by way of a process in it (`/proc/PID/ns/net`) rather than by a mount point. When
    /// the process has ended, another one may get its pid, and the path then leads to another namespace.
    ///
    /// # Errors
    /// [`NetnsError::Unusable`] without `/proc`.
    pub fn is_by_process(&self) -> Result<bool, NetnsError> {
        // For a mounted namespace the kernel shows the mount point, for others `net:[4026532180]`.
        let link = Path::new("/proc/self/fd").join(self.file.as_raw_fd().to_string());
        let target = nix::fcntl::readlink(&link).map_err(|errno| NetnsError::new(link, errno))?;
        Ok(target.as_encoded_bytes().starts_with(b"net:["))
    }

    /// Whether the calling thread is in this namespace.
    ///
    /// # Errors
    /// As [`Netns::current`].
    pub fn is_current(&self) -> Result<bool, NetnsError> {
        Ok(Self::current()?.identity == self.identity)
    }

    /// Runs `work` inside the namespace. Afterwards the calling thread is in its own namespace again, also if `work`
    /// panics.
    ///
    /// Child processes and threads that `work` starts are in the namespace too. `work` may run on another thread.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN` over the namespace; `EINVAL` if the path is another kind of namespace.
    #[expect(clippy::disallowed_methods, reason = "the one place that enters a namespace")]
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, OpError> {
        run_after(|| setns(&self.file, CloneFlags::CLONE_NEWNET), work).map_err(|errno| {
            OpError::errno("enter", format!("network namespace {}", self.path.display()), errno)
                .request("setns CLONE_NEWNET")
        })
    }

    /// Runs `work` in a new namespace, as [`Netns::run`] does. `work` may keep it alive by [`Netns::current`].
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`; `ENOSPC` at the limit of namespaces.
    #[expect(clippy::disallowed_methods, reason = "the one place that makes a namespace")]
    pub fn run_in_new<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, OpError> {
        run_after(|| nix::sched::unshare(CloneFlags::CLONE_NEWNET), work)
            .map_err(|errno| OpError::errno("create", "network namespace", errno).request("unshare CLONE_NEWNET"))
    }

    /// A new namespace that is mounted on `path`, a file that this creates: it lives until [`Netns::remove_at`] and the end of all
    /// processes in it.
    ///
    /// # Errors
    /// As [`Netns::run_in_new`]; `EEXIST`: there is a file. After an error the file may be there, which [`Netns::remove_at`] removes.
    pub fn create_at(path: &Path) -> Result<Self, OpError> {
        let failed = |errno| OpError::errno("mount", format!("network namespace at {}", path.display()), errno);
        file::open(path, OFlag::O_CREAT | OFlag::O_EXCL, 0o444).map_err(|error| failed(errno_of(error)))?;
        let none = None::<&str>;
        let mounted = Self::run_in_new(|| mount(Some(own_file()), path, none, MsFlags::MS_BIND, none))?;
        mounted.map_err(|errno| failed(errno).request("mount MS_BIND"))?;
        Self::open(path).map_err(|error| OpError::state("create", "network namespace", error.to_string()))
    }

    /// Removes a file and the namespace that [`Netns::create_at`] has mounted on it. Neither has to be there.
    ///
    /// # Errors
    /// `EPERM`, `EROFS`: the file is there.
    pub fn remove_at(path: &Path) -> Result<(), OpError> {
        // EINVAL: nothing is mounted on it. The file shows whether another error matters.
        umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW).ok();
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(OpError::io("remove", path.display().to_string(), &error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// A new namespace. It lives as long as the returned handle or a process in it.
    ///
    /// # Errors
    /// As [`Netns::run_in_new`].
    pub fn create() -> Result<Self, OpError> {
        let own = Self::run_in_new(Self::current)?;
        let own = own.map_err(|error| OpError::state("create", "network namespace", error.to_string()))?;
        Ok(Self { path: "a new namespace".into(), ..own })
    }
}

/// The file of the calling thread's namespace.
#[must_use]
pub fn own_file() -> &'static str {
    by_thread("/proc/self/ns/net", "/proc/thread-self/ns/net")
}

/// The path below `/proc/self` for the main thread, and the other one for others, which may be in another namespace than the
/// process. The main thread's is shorter: the kernel creates two directory entries fewer, which it would also have to remove
/// when the process ends.
#[must_use]
pub fn by_thread<T>(main: T, other: T) -> T {
    if is_main_thread() { main } else { other }
}

/// Whether the calling thread is the process's first. The kernel is asked once a thread.
pub(crate) fn is_main_thread() -> bool {
    thread_local! {
        static IS_MAIN: bool = gettid() == getpid();
    }
    IS_MAIN.with(|is_main| *is_main)
}

/// The calling thread's own namespace. Dropping this enters it again.
struct WayBack(File);

impl WayBack {
    /// Tests the way back: entering the current namespace needs the same privileges as returning to it later.
    #[expect(clippy::disallowed_methods, reason = "the one place that enters a namespace")]
    fn find() -> Option<Self> {
        let own = file::open(own_file(), OFlag::O_RDONLY, 0).ok()?;
        setns(&own, CloneFlags::CLONE_NEWNET).ok()?;
        Some(Self(own))
    }
}

impl Drop for WayBack {
    /// Tries twice, because the kernel allocates some memory for it. A thread that stayed would apply the host's
    /// changes to the container. No other reason for a failure is known; if it fails twice, the process ends, and DEL
    /// cleans up.
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
    let opened = file::open(path, OFlag::O_NONBLOCK | OFlag::O_NOCTTY, 0);
    opened.map_err(errno_of)
}

fn kind_of_file(mode: u32) -> &'static str {
    match mode & nix::libc::S_IFMT {
        nix::libc::S_IFREG => "plain file",
        nix::libc::S_IFDIR => "directory",
        _ => "file of another kind",
    }
}

/// Runs `work` behind `enter`, and then returns to the calling thread's own namespace; on a new thread if the way back is closed.
fn run_after<T: Send>(
    enter: impl FnOnce() -> Result<(), Errno> + Send,
    work: impl FnOnce() -> T + Send,
) -> Result<T, Errno> {
    match WayBack::find() {
        Some(way_back) => enter().map(|()| {
            let _returns = way_back;
            work()
        }),
        None => on_thread(|| enter().map(|()| work())),
    }
}

/// Runs `work` on a new thread that ends afterwards. A panic in it continues in the caller.
fn on_thread<T: Send>(work: impl FnOnce() -> Result<T, Errno> + Send) -> Result<T, Errno> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("netns".into())
            .stack_size(256 * 1024)
            .spawn_scoped(scope, work)
            .map_err(errno_of)?;
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
    fn absent_paths_plain_files_and_other_namespaces_are_different_errors() {
        let absent = Netns::open("/run/netns/no-such").unwrap_err();
        assert!(matches!(absent, NetnsError::Absent { .. }) && absent.is_gone());
        assert!(absent.to_string().ends_with("no such file or directory"));
        for (path, kind) in [
            ("/etc/passwd", "plain file"),
            ("/proc/self/status", "plain file"),
            ("/proc/self/ns/mnt", "namespace of another kind"),
            ("/", "directory"),
        ] {
            let refused = Netns::open(path).unwrap_err();
            assert!(refused.is_gone() && matches!(&refused, NetnsError::NotANamespace { what, .. } if *what == kind));
        }
        let node = testns::Node::new();
        let empty = Netns::open(node.container().leave(testns::Remains::PlainFile).netns).unwrap_err();
        assert!(matches!(&empty, NetnsError::NotMounted { .. }) && empty.is_gone());
        assert!(empty.to_string().ends_with("or is mounted in another mount namespace"));
    }

    #[test]
    fn a_namespace_opened_by_its_process_differs_from_a_mounted_one() {
        assert!(Netns::open("/proc/self/ns/net").unwrap().is_by_process().unwrap());
        let node = testns::Node::new();
        let mounted = node.container();
        assert!(!Netns::open(mounted.namespace().path()).unwrap().is_by_process().unwrap());
    }

    #[test]
    fn an_open_namespace_stays_the_same_when_its_path_changes() {
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
    fn a_thread_returns_to_its_namespace_after_a_panic() {
        let (before, made) = (Netns::current().unwrap().identity(), Netns::create().unwrap());
        let work = || made.run(|| panic!("inside {:?}", Netns::current().unwrap().identity()));
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().unwrap(), &format!("inside {:?}", made.identity()));
        assert_eq!(Netns::current().unwrap().identity(), before);
    }

    /// A process in a user namespace of its own has no privilege over the network namespace that it came from.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test starts itself once more and has to recognise itself")]
    fn a_thread_that_may_not_return_enters_by_a_new_thread() {
        const INSIDE: &str = "NETOPS_IN_A_USER_NAMESPACE";
        if std::env::var_os(INSIDE).is_none() {
            let test = std::env::current_exe().unwrap();
            let name = "netns::tests::a_thread_that_may_not_return_enters_by_a_new_thread";
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
}
