//! A network namespace that code can be run in.

use std::fs::File;
use std::path::{Path, PathBuf};

use nix::mount::MsFlags;
use nix::sched::CloneFlags;

use crate::must::Must;
use crate::shell_steps::step_of_path;

/// A network namespace, identified by a path below `/run/netns` or `/proc`.
///
/// The value keeps no file open: the namespace ends when its path and its links' owners are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    path: PathBuf,
}

/// A machine with Docker, a kubelet and a VPN: a sysctl and its value a line.
const USED_NODE: &str = include_str!("../used-node");

/// With `TESTNS_USED_NODE` the thread's new namespace begins as on such a machine: the kernel copies the first namespace's settings of IPv4
/// (`net.core.devconf_inherit_init_net`). A test may have made them read-only.
pub(crate) fn inherit() {
    if std::env::var_os("TESTNS_USED_NODE").is_none() {
        return;
    }
    let of_ipv4 = USED_NODE.lines().filter(|line| line.starts_with("net/ipv4/"));
    for (key, value) in of_ipv4.filter_map(|line| line.split_once('=')) {
        std::fs::write(format!("/proc/sys/{key}"), value).ok();
    }
}

impl Namespace {
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The namespace of the calling thread, for as long as that thread lives.
    pub fn of_this_thread() -> Self {
        let task = std::fs::read_link("/proc/thread-self").must("read /proc/thread-self");
        Self::at(Path::new("/proc").join(task).join("ns/net"))
    }

    /// Makes a new namespace with these sysctls and binds it at `path`.
    pub(crate) fn create(path: &Path, sysctls: &[(&str, &str)]) -> Self {
        File::create_new(path).must(format_args!("create {}", path.display()));
        step_of_path(path, "ip netns add ");
        let bound = std::thread::scope(|scope| {
            let maker = scope.spawn(|| {
                nix::sched::unshare(CloneFlags::CLONE_NEWNET)?;
                inherit();
                for (key, value) in sysctls {
                    let path = format!("/proc/sys/{key}");
                    std::fs::write(&path, value).must(format_args!("write {value} to {path}"));
                }
                let source = Some("/proc/thread-self/ns/net");
                nix::mount::mount(source, path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            });
            maker.join()
        });
        match bound {
            Ok(bound) => bound.must(format_args!("bind a namespace at {}", path.display())),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        Self::at(path)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` on a new thread inside the namespace and returns what it returns.
    ///
    /// A socket opened there stays in the namespace wherever it is used later, and a process
    /// spawned there runs in it.
    #[track_caller]
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let what = format!("enter the namespace {}", self.path.display());
        let file = File::open(&self.path).must(&what);
        let done = std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                nix::sched::setns(file, CloneFlags::CLONE_NEWNET).must(&what);
                work()
            });
            inside.join()
        });
        match done {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// A sysctl of the namespace, by its path below `/proc/sys`, without the final newline.
    #[track_caller]
    pub fn sysctl(&self, key: &str) -> String {
        let path = format!("/proc/sys/{key}");
        let text = self.enter(|| std::fs::read_to_string(&path));
        text.must(format_args!("read {path}")).trim_end().to_owned()
    }

    #[track_caller]
    pub fn set_sysctl(&self, key: &str, value: &str) {
        let path = format!("/proc/sys/{key}");
        self.step_inside(format_args!("sh -c 'echo {value} >{path}'"));
        let written = self.enter(|| std::fs::write(&path, value));
        written.must(format_args!("write {value} to {path}"));
    }
}
