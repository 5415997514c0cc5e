//! The files, which both implementations read and write.

use super::{FOLDER, add, del, pod, reservations};
use crate::prelude::*;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, umask};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use testns::trace::Syscall;

/// Each file of the store: name, mode and content.
fn files() -> Vec<(String, u32, String)> {
    let entries = fs::read_dir(FOLDER).unwrap().map(Result::unwrap);
    let mut all: Vec<_> = entries
        .map(|entry| {
            let mode = entry.metadata().unwrap().permissions().mode() & 0o7777;
            let content = fs::read_to_string(entry.path()).unwrap();
            (entry.file_name().to_string_lossy().into_owned(), mode, content)
        })
        .collect();
    all.sort();
    all
}

/// A reservation is a file of its own; the last address of each set is recorded; one file is the lock. There is nothing
/// else, as audits take any other file for an address.
#[test]
fn add_writes_the_references_files() {
    each(|_, node| {
        add(node, &dual(), "c1").unwrap();
        let mode = 0o600;
        let expected = [
            ("10.7.0.2", mode, "c1\r\neth0"),
            ("fd07::2", mode, "c1\r\neth0"),
            ("last_reserved_ip.0", mode, "10.7.0.2"),
            ("last_reserved_ip.1", mode, "fd07::2"),
            ("lock", 0o750, ""),
        ];
        assert_eq!(files(), expected.map(|(name, mode, content)| (name.to_owned(), mode, content.to_owned())));
        assert_eq!(fs::metadata(FOLDER).unwrap().permissions().mode() & 0o7777, 0o755);
    });
}

/// A runtime may have any umask. Whoever can write the folder can give away the address of a living container.
#[test]
fn no_folder_can_be_written_by_other_users_whatever_the_umask_is() {
    let node = node();
    // Of this thread alone: a thread in a mount namespace of its own shares no umask.
    umask(Mode::empty());
    add(&node, &dual(), "c1").unwrap();
    for folder in ["/run/cni", "/var/lib/cni", "/var/lib/cni/networks", FOLDER] {
        let mode = fs::metadata(folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o022, 0, "{folder}: {mode:o}");
    }
}

/// A symbolic link in the place of the last address is not followed: the user that put it there must not choose which
/// file root writes. A file replaces it.
#[test]
fn a_link_in_the_place_of_the_last_address_is_replaced() {
    each(|who, node| {
        let target = node.work_dir().join("target");
        fs::write(&target, "of another").unwrap();
        fs::create_dir_all(FOLDER).unwrap();
        let last = format!("{FOLDER}/last_reserved_ip.0");
        std::os::unix::fs::symlink(&target, &last).unwrap();
        add(node, &v4(), "c1").unwrap();
        let (written, kept) =
            if who.is_ours() { (last, "of another") } else { (target.display().to_string(), "10.7.0.2") };
        assert_eq!(fs::read_to_string(&written).unwrap(), "10.7.0.2");
        assert_eq!(fs::read_to_string(&target).unwrap(), kept);
        add(node, &v4(), "c2").unwrap();
        assert_eq!(fs::read_to_string(&written).unwrap(), "10.7.0.3");
    });
}

/// Each implementation holds an exclusive flock on the file `lock` while it writes.
#[test]
fn the_lock_is_waited_for() {
    each(|who, node| {
        add(node, &v4(), "c1").unwrap();
        let lock = File::open(format!("{FOLDER}/lock")).unwrap();
        lock.lock().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| add(node, &v4(), "c2"));
            wait_for_a_waiter(&lock);
            assert_eq!(reservations().len(), 1, "{who:?} wrote without the lock");
            lock.unlock().unwrap();
            assert_eq!(waiting.join().unwrap().unwrap(), ["10.7.0.3/24"]);
        });
    });
}

/// A process that is stopped while it holds the lock keeps each call waiting; the log names it long before they give up.
#[test]
fn a_call_that_waits_long_for_the_lock_names_its_holder() {
    let node = node();
    add(&node, &v4(), "c1").unwrap();
    let lock = File::open(format!("{FOLDER}/lock")).unwrap();
    lock.lock().unwrap();
    let reply = node.call(Verb::Add, host_local(with(v4(), json!({"lockTimeoutSeconds": 11}))), pod("c2"));
    let failure = reply.fails_with(11);
    assert!(failure.msg.contains("for 11000 ms"), "{failure:?}");
    let holder = format!("{FOLDER}/lock: process {} (", std::process::id());
    let warning = reply.output.stderr.lines().find(|line| line.contains("still waiting"));
    assert!(warning.is_some_and(|line| line.contains(&holder)), "{reply}");
}

/// Returns once a process waits for the lock, as /proc/locks shows; a polled lock shows by its process holding the file
/// open.
fn wait_for_a_waiter(lock: &File) {
    use std::os::unix::fs::MetadataExt;
    let inode = lock.metadata().unwrap().ino();
    let start = std::time::Instant::now();
    while !is_waited_for(inode) {
        assert!(start.elapsed().as_secs() < 20, "no process waits for the lock");
        std::thread::yield_now();
    }
}

fn is_waited_for(inode: u64) -> bool {
    let locks = fs::read_to_string("/proc/locks").unwrap();
    locks.lines().any(|line| line.contains("->") && line.contains(&format!(":{inode} ")))
}

fn text((name, content): (&str, &str)) -> (String, String) {
    (name.to_owned(), content.to_owned())
}

/// vfat, exfat, and some 9p, virtiofs and FUSE mounts have one name for a file.
#[test]
fn a_store_without_hard_links_is_used() {
    fn refused(call: &Syscall, errno: Errno) -> Option<Errno> {
        matches!(call.name().as_str(), "link" | "linkat").then_some(errno)
    }
    let refusals: [fn(&Syscall) -> Option<Errno>; 3] = [
        |call| refused(call, Errno::EPERM),
        |call| refused(call, Errno::EOPNOTSUPP),
        |call| refused(call, Errno::ENOSYS),
    ];
    for refusal in refusals {
        let node = node();
        for id in ["c1", "c2"] {
            Call::new(Verb::Add, host_local(v4()), pod(id)).fail_each(&node, refusal).reply.ok();
        }
        assert_eq!(reservations(), [("10.7.0.2", "c1\r\neth0"), ("10.7.0.3", "c2\r\neth0")].map(text));
        let twice = Call::new(Verb::Add, host_local(v4()), pod("c1")).fail_each(&node, refusal).reply.fails();
        assert!(twice.msg.contains("duplicate allocation"), "{twice:?}");
        for id in ["c1", "c2"] {
            Call::new(Verb::Del, host_local(v4()), pod(id)).fail_each(&node, refusal).reply.ok();
        }
        assert_eq!(reservations(), []);
    }
}

/// Immutable nodes: notes save time, and are not needed.
#[test]
fn where_run_cni_cannot_be_written_the_folder_is_read_each_time() {
    let node = node();
    fs::create_dir_all("/run/cni").unwrap();
    let none = None::<&str>;
    mount(Some("none"), "/run/cni", Some("tmpfs"), MsFlags::MS_RDONLY, none).unwrap();
    for id in ["c1", "c2"] {
        add(&node, &dual(), id).unwrap();
    }
    node.call(Verb::Status, with(host_local(dual()), json!({"cniVersion": "1.1.0"})), Attachment::none()).ok();
    for id in ["c1", "c2"] {
        del(&node, &dual(), id);
    }
    assert_eq!(reservations(), []);
}
