//! GC, and the lock of a network, which keeps GC apart from ADD and DEL.

use crate::test_folder::{Folder, GOOD, eth0, hasty, network, stopped_in, wait};
use expect_test::expect;
use libcni::cni_spec::{CniError, Code};
use libcni::inventory::{Inventory, Life, OnNode};
use libcni::{AttachmentId, Error, NetworkConf, Runtime, RuntimeConf};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::fs::{File, OpenOptions, Permissions};
use std::future::{Future, poll_fn};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::task::Poll;

/// An operation in another thread that has called its plugin and goes on when the file is closed.
fn begin(folder: &Folder, work: impl FnOnce(Runtime) + Send + 'static) -> (std::thread::JoinHandle<()>, File) {
    let runtime = folder.runtime();
    let thread = std::thread::spawn(move || work(runtime));
    std::fs::read(folder.path().join("begun")).unwrap();
    (thread, OpenOptions::new().write(true).open(folder.path().join("end")).unwrap())
}

fn c2() -> RuntimeConf {
    RuntimeConf::new("c2", "eth0").unwrap().netns("/proc/self/ns/net")
}

async fn waits<T>(mut operation: Pin<&mut impl Future<Output = T>>) -> bool {
    poll_fn(|context| Poll::Ready(operation.as_mut().poll(context).is_pending())).await
}

fn lock_file(folder: &Folder) -> PathBuf {
    folder.path().join("cache/locks/net")
}

#[track_caller]
fn assert_busy(error: &Error, verb: &str) {
    let holder = format!("process {} (", std::process::id());
    let expected = format!("cannot start {verb} in network net: {holder}");
    assert!(matches!(error, Error::Locked { .. }) && error.to_string().starts_with(&expected), "{error}");
    assert_eq!(error.code(), Some(Code::TRY_AGAIN));
}

#[test]
fn gc_waits_for_an_add_in_progress_and_later_adds_wait_for_gc() {
    let folder = stopped_in("ADD.c1");
    let net = network("1.1.0", &["a"]);
    let (add, end) = begin(&folder, |runtime| drop(wait(runtime.add(&network("1.1.0", &["a"]), &eth0())).unwrap()));
    assert_busy(&wait(hasty(&folder).gc(&net, &[]).without_inventory()).unwrap_err(), "GC");
    expect!["ADD a"].assert_eq(&folder.log());
    // A stream of ADDs cannot delay a GC for ever, and one that has given up delays no ADD or DEL beside the one in progress.
    wait(async {
        let (runtime, hasty) = (folder.runtime(), hasty(&folder));
        {
            let mut gc = pin!(runtime.gc(&net, &[]).without_inventory());
            assert!(waits(gc.as_mut()).await);
            assert_busy(&hasty.add(&net, &c2()).await.unwrap_err(), "ADD");
        }
        hasty.add(&net, &c2()).await.unwrap();
        hasty.del(&net, &c2()).await.unwrap();
    });
    folder.clear_log();
    // An attachment that an ADD made while GC waited is valid, though GC's list cannot have it.
    wait(async {
        let runtime = folder.runtime();
        let mut gc = pin!(runtime.gc(&net, &[]).without_inventory());
        assert!(waits(gc.as_mut()).await);
        drop(end);
        gc.await.unwrap();
    });
    add.join().unwrap();
    expect!["GC a"].assert_eq(&folder.log());
    assert_eq!(folder.cache_files(), ["net-c1-eth0"]);
    assert!(
        folder.read("stdin.a.GC").contains(r#""cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]"#)
    );
}

/// Another runtime may write to the same cache, and takes no lock.
#[test]
fn an_entry_that_is_newer_than_the_collection_is_valid() {
    let folder = Folder::with(&[("a", GOOD)]);
    let (runtime, net) = (folder.runtime(), network("1.1.0", &["a"]));
    for attachment in [eth0(), c2()] {
        wait(runtime.add(&net, &attachment)).unwrap();
    }
    folder.clear_log();
    wait(async {
        let collection = runtime.collection(&net).await.unwrap();
        assert_eq!(collection.cached().len(), 2);
        let entry = folder.read("cache/results/net-c1-eth0");
        folder.write("cache/results/net-c9-eth0", entry.replace(r#""c1""#, r#""c9""#));
        // DEL and ADD of the same container.
        std::fs::remove_file(folder.path().join("cache/results/net-c1-eth0")).unwrap();
        folder.write("cache/results/net-c1-eth0", &entry);
        collection.without_inventory(&[]).await.unwrap();
    });
    expect!["DEL a, GC a"].assert_eq(&folder.log());
    assert_eq!(folder.cache_files(), ["net-c1-eth0", "net-c9-eth0"]);
    let list = folder.read("stdin.a.GC");
    assert!(list.contains(r#""c1""#) && list.contains(r#""c9""#) && !list.contains(r#""c2""#), "{list}");
}

#[test]
fn only_the_owner_can_open_a_lock_and_no_plugin_inherits_it() {
    let folder = Folder::with(&[("a", &format!("readlink /proc/self/fd/* >> \"$dir/fds\"\n{GOOD}"))]);
    let (runtime, net, path) = (folder.runtime(), network("1.1.0", &["a"]), lock_file(&folder));
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    wait(runtime.add(&net, &eth0())).unwrap();
    assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
    // A copy of the folder may have other permissions.
    std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    wait(runtime.del(&net, &eth0())).unwrap();
    assert_eq!(mode(&path), 0o600);
    wait(runtime.gc(&net, &[]).without_inventory()).unwrap();
    let fds = folder.read("fds");
    assert!(!fds.is_empty() && !fds.contains("/locks/"), "{fds}");
}

/// DEL has to work without: a lock file that cannot be used stops ADD and GC only.
#[test]
fn a_lock_that_is_no_file_of_root_is_refused() {
    let folder = Folder::with(&[("a", GOOD)]);
    let (runtime, net, path) = (folder.runtime(), network("1.1.0", &["a"]), lock_file(&folder));
    wait(runtime.add(&net, &eth0())).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(folder.write("elsewhere", ""), &path).unwrap();
    for error in
        [wait(runtime.add(&net, &c2())).unwrap_err(), wait(runtime.gc(&net, &[]).without_inventory()).unwrap_err()]
    {
        assert!(matches!(error, Error::Cache { verb: "lock", .. }), "{error}");
    }
    wait(runtime.del(&net, &eth0())).unwrap();
    // A FIFO is opened without waiting for its other end.
    std::fs::remove_file(&path).unwrap();
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    wait(runtime.add(&net, &eth0())).unwrap_err();
    expect!["ADD a, DEL a"].assert_eq(&folder.log());
}

/// DEL on a node without a cache leaves none.
#[test]
fn del_makes_no_lock_file() {
    let folder = Folder::with(&[("a", GOOD)]);
    wait(folder.runtime().del(&network("1.1.0", &["a"]), &eth0())).unwrap();
    assert!(!folder.path().join("cache").exists());
}

/// A folder where c1, c2 and c3 are attached to `net`, and c1 to `other`.
fn attached(script: &str) -> Folder {
    let folder = Folder::with(&[("a", GOOD), ("b", script)]);
    let (runtime, net) = (folder.runtime(), network("1.1.0", &["a"]));
    let mut other = net.clone();
    other.name = "other".into();
    for container in ["c1", "c2", "c3"] {
        let attachment = RuntimeConf::new(container, "eth0").unwrap().netns("/gone").arg("K", container).unwrap();
        wait(runtime.add(&net, &attachment)).unwrap();
    }
    wait(runtime.add(&other, &eth0())).unwrap();
    folder.clear_log();
    folder
}

#[test]
fn a_cache_folder_that_cannot_be_read_is_an_error_and_gc_goes_on() {
    let folder = Folder::with(&[("a", GOOD)]);
    folder.write("cache/results", "a file where the folder should be");
    let error = wait(folder.runtime().gc(&network("1.1.0", &["a"]), &[]).without_inventory()).unwrap_err();
    assert!(matches!(error, Error::Cache { verb: "list", .. }), "{error:?}");
    expect!["GC a"].assert_eq(&folder.log());
}

/// An inventory that lists what the test puts in it.
struct Found(Vec<OnNode>);

impl Inventory for Found {
    fn list(&self, _: &NetworkConf, _: &[AttachmentId]) -> Result<Vec<OnNode>, CniError> {
        Ok(self.0.clone())
    }
}

fn found(container: Option<&str>, life: Life) -> OnNode {
    let id = container.map(|id| RuntimeConf::new(id, "eth0").unwrap().id);
    OnNode { id, objects: vec!["address 10.7.0.9".into()], life }
}

/// `c2` is the caller's; another runtime has a living one and one that is gone. What comes to the node later is in neither list,
/// and is the plugins' to keep.
#[test]
fn gc_with_an_inventory_keeps_what_lives_and_says_what_it_has_seen() {
    let folder = attached(GOOD);
    let node =
        Found(vec![found(Some("c1"), Life::Lives), found(Some("lives"), Life::Lives), found(Some("x"), Life::Gone)]);
    let valid = [RuntimeConf::new("c2", "eth0").unwrap().id];
    let (runtime, net) = (folder.runtime(), network("1.1.0", &["b"]));
    let kept = wait(runtime.gc(&net, &valid).with_inventory(&node)).unwrap();
    assert_eq!(kept, [found(Some("lives"), Life::Lives)]);
    assert_eq!(folder.cache_files(), ["net-c2-eth0", "other-c1-eth0"]);
    expect!["DEL a, DEL b, DEL a, DEL b, GC b"].assert_eq(&folder.log());
    expect![[r#"{"cniVersion":"1.1.0","name":"net","type":"b","cni.dev/valid-attachments":[{"containerID":"c2","ifname":"eth0"},{"containerID":"lives","ifname":"eth0"}],"cni.dev/attachments":[{"containerID":"c2","ifname":"eth0"},{"containerID":"lives","ifname":"eth0"}],"cni-plugins/seen":[{"containerID":"c1","ifname":"eth0"},{"containerID":"c2","ifname":"eth0"},{"containerID":"c3","ifname":"eth0"},{"containerID":"lives","ifname":"eth0"},{"containerID":"x","ifname":"eth0"}]}"#]]
    .assert_eq(&folder.read("stdin.b.GC"));
}

#[test]
fn gc_runs_nothing_if_something_in_use_cannot_be_kept() {
    let folder = attached(GOOD);
    let node = Found(vec![found(None, Life::Lives)]);
    let error = wait(folder.runtime().gc(&network("1.1.0", &["b"]), &[]).with_inventory(&node)).unwrap_err();
    expect!["cannot keep address 10.7.0.9: a network namespace uses it, and no mark names its attachment"]
        .assert_eq(&error.to_string());
    expect![""].assert_eq(&folder.log());
}
