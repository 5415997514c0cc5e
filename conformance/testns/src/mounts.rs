//! The private folders of a node, and the checks that protect the host's.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::CloneFlags;

use crate::must::Must;

/// Word on the kernel's command line that means: this whole machine is thrown away after the tests.
pub const THROWAWAY_MACHINE: &str = "testns=throwaway";

/// Environment variable that means: this process has its own copy of everything that a node does not replace.
///
/// `conformance/clients/run` sets it, for container runtimes, which need the machine's own root: its tests have
/// PID, IPC, UTS and cgroup namespaces of their own, and a cgroup that is removed after them.
pub const THROWAWAY_PROCESS: (&str, &str) = ("TESTNS", "throwaway");

/// Returns the reason why the calling process may not make nodes, if it may not.
///
/// A process may inside a user namespace that its caller created, where root has no power over the machine, and on a
/// machine, or in a process, that was started to be thrown away.
pub(crate) fn refusal() -> Option<String> {
    let (name, value) = THROWAWAY_PROCESS;
    if std::env::var_os(name).is_some_and(|set| set == value) {
        return None;
    }
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    refusal_by(&read("/proc/self/uid_map"), &read("/proc/cmdline"))
}

fn refusal_by(uid_map: &str, command_line: &str) -> Option<String> {
    let words: Vec<_> = uid_map.split_whitespace().collect();
    let initial = words.is_empty() || words == ["0", "0", "4294967295"];
    if !initial || command_line.split_whitespace().any(|word| word == THROWAWAY_MACHINE) {
        return None;
    }
    Some(format!(
        "this process is in the machine's own user namespace, where a test could change the \
         machine: run it with `cargo test`, or under `unshare --map-root-user --mount --net`, \
         or start the machine with {THROWAWAY_MACHINE}"
    ))
}

thread_local! {
    /// Where the thread's first node began.
    static FIRST: RefCell<Option<File>> = const { RefCell::new(None) };
}

/// Moves the thread into new mount and network namespaces of its own. Those of its node before, with all files, end with the last process
/// in them: they are not copied.
pub(crate) fn leave() {
    let folder = std::env::current_dir().must("find the working folder");
    FIRST.with_borrow_mut(|first| match first {
        Some(first) => {
            // Threads that it has started have its root and working folder until then.
            nix::sched::unshare(CloneFlags::CLONE_FS).must("leave the working folder of other threads");
            nix::sched::setns(first, CloneFlags::CLONE_NEWNS)
                .must("return to the mount namespace of the thread's first node");
            std::env::set_current_dir(&folder).must("return to the working folder");
        }
        None => *first = Some(File::open("/proc/thread-self/ns/mnt").must("open the mount namespace")),
    });
    let namespaces = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET;
    nix::sched::unshare(namespaces).must("make a mount and a network namespace (needs root in a user namespace)");
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let none = None::<&str>;
    mount(none, "/", none, private, none).must("make the mounts private");
}

/// Mounts an empty folder at `path` in the thread's mount namespace, whether `path` exists or not.
pub(crate) fn empty_folder(path: &Path) {
    if !path.is_dir() {
        let parent = path.parent().must(format_args!("find a folder above {}", path.display()));
        copy_folder(parent);
        fs::create_dir(path).must(format_args!("create {}", path.display()));
    }
    tmpfs(path).must(format_args!("mount a tmpfs on {}", path.display()));
}

/// Makes sysfs show the thread's network namespace. Few programs use it; none of ours does.
pub(crate) fn fresh_sysfs() {
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID;
    // Refused where the machine hides parts of sysfs from its containers; then it stays as it is.
    mount(Some("sysfs"), "/sys", Some("sysfs"), flags, None::<&str>).ok();
}

/// Puts a writable copy of a folder over it: each entry bound, links copied.
///
/// Needed where an ordinary user has no `/var/lib/cni` and may not make one.
fn copy_folder(path: &Path) {
    let what = format!("put a copy over {}", path.display());
    let staging = Path::new("/run/testns-staging");
    fs::create_dir(staging).must(&what);
    bind(path, staging).must(&what);
    tmpfs(path).must(&what);
    for entry in fs::read_dir(staging).must(&what) {
        let entry = entry.must(&what);
        let copy = path.join(entry.file_name());
        copy_entry(&entry, &copy).must(format_args!("{what}: {}", copy.display()));
    }
    umount2(staging, MntFlags::MNT_DETACH).must(&what);
    fs::remove_dir(staging).must(&what);
}

fn copy_entry(entry: &fs::DirEntry, copy: &Path) -> io::Result<()> {
    let kind = entry.file_type()?;
    if kind.is_symlink() {
        return symlink(fs::read_link(entry.path())?, copy);
    }
    if kind.is_dir() {
        fs::create_dir(copy)?;
    } else {
        fs::File::create_new(copy)?;
    }
    bind(&entry.path(), copy)?;
    Ok(())
}

fn bind(from: &Path, to: &Path) -> nix::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(from), to, None::<&str>, flags, None::<&str>)
}

fn tmpfs(path: &Path) -> nix::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some("mode=0755"))
}

#[cfg(test)]
mod tests {
    use super::refusal_by;

    #[test]
    fn the_machines_own_user_namespace_is_refused_unless_it_is_thrown_away() {
        let own = "         0          0 4294967295\n";
        assert!(refusal_by(own, "quiet panic=-1").is_some());
        assert!(refusal_by(own, "quiet testns=throwaway-not").is_some());
        assert!(refusal_by("", "quiet").is_some());
        assert!(refusal_by(own, "quiet testns=throwaway panic=-1").is_none());
        assert!(refusal_by("         0       1000          1\n", "quiet").is_none());
        assert!(refusal_by("         0          0          1\n", "quiet").is_none());
    }
}
