//! ADD of an attachment that was added before, or is being added.

use crate::test_folder::{Folder, GOOD, eth0, failing, hasty, network, stopped_in, wait};
use expect_test::expect;
use libcni::cni_spec::{CniError, Code};
use libcni::inventory::{Inventory, Life, OnNode};
use libcni::{AttachmentId, Error, NetworkConf, Runtime, RuntimeConf};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

const FILE: &str = "cache/results/net-c1-eth0";

/// A namespace that is mounted at a path, as runtimes keep those of containers.
struct Mounted(String);

impl Mounted {
    fn at(folder: &Folder, name: &str) -> Self {
        let path = folder.write(name, "").to_str().unwrap().to_owned();
        run("unshare", &[&format!("--net={path}"), "true"]);
        Self(path)
    }

    fn attachment(&self) -> RuntimeConf {
        eth0().netns(&self.0)
    }

    /// A process in the namespace, which keeps it alive when its path is gone.
    fn enter(&self) -> InIt {
        let mut cat = Command::new("nsenter");
        cat.args([&format!("--net={}", self.0), "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = cat.spawn().unwrap();
        // The answer shows that `cat` is in the namespace.
        child.stdin.as_mut().unwrap().write_all(b"!").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        InIt(child)
    }

    fn end(&self) {
        run("umount", &[&self.0]);
    }

    fn number(&self) -> u64 {
        std::fs::metadata(&self.0).unwrap().ino()
    }

    /// Another namespace at the same path, with the number of the one that has ended, unless others always get that.
    fn replace(&self) {
        let number = self.number();
        for _ in 0..100 {
            self.end();
            run("unshare", &[&format!("--net={}", self.0), "true"]);
            if self.number() == number {
                return;
            }
        }
    }
}

/// A process that ends with this value.
struct InIt(Child);

impl Drop for InIt {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).unwrap();
    }
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
}

#[track_caller]
fn assert_refused(folder: &Folder, runtime: &Runtime, attachment: &RuntimeConf) {
    let (entry, net) = (folder.read(FILE), network("1.0.0", &["a", "b"]));
    folder.clear_log();
    let error = wait(runtime.add(&net, attachment)).unwrap_err();
    assert!(matches!(error, Error::Attached { .. }) && error.code() == Some(Code::EXISTS), "{error}");
    expect![""].assert_eq(&folder.log());
    assert_eq!(folder.read(FILE), entry);
}

/// Whatever the second one asks for: the namespace of the first, or another. What the container has done to its link is no
/// concern of the runtime.
#[test]
fn an_add_of_an_attachment_that_lives_is_refused_and_changes_nothing() {
    let folder = Folder::with(&[("a", GOOD), ("b", GOOD)]);
    let (runtime, net) = (folder.runtime(), network("1.0.0", &["a", "b"]));
    let (first, second) = (Mounted::at(&folder, "first"), Mounted::at(&folder, "second"));
    wait(runtime.add(&net, &first.attachment())).unwrap();
    folder.plugin("b", &failing("ADD"));
    for again in [&first, &second] {
        assert_refused(&folder, &runtime, &again.attachment());
    }
    let error = wait(runtime.add(&net, &second.attachment())).unwrap_err();
    expect![
        "cannot add c1/eth0 to network net: it is attached already, in $DIR/first; nothing was changed: call DEL first"
    ]
    .assert_eq(&folder.stable(&error.to_string()));
    wait(runtime.del(&net, &first.attachment())).unwrap();
    folder.plugin("b", GOOD);
    wait(runtime.add(&net, &second.attachment())).unwrap();
}

/// A container that is started anew under its ID.
#[test]
fn an_attachment_whose_namespace_is_gone_is_added_again() {
    let folder = Folder::with(&[("a", GOOD), ("b", GOOD)]);
    let (runtime, net) = (folder.runtime(), network("1.0.0", &["a", "b"]));
    let (first, second) = (Mounted::at(&folder, "first"), Mounted::at(&folder, "second"));
    wait(runtime.add(&net, &first.attachment())).unwrap();
    first.end();
    folder.plugin("b", &failing("ADD"));
    folder.clear_log();
    wait(runtime.add(&net, &second.attachment())).unwrap_err();
    expect!["DEL b, DEL a, ADD a, ADD b, DEL b, DEL a"].assert_eq(&folder.log());
    assert_eq!(folder.cache_files(), Vec::<String>::new());
    folder.plugin("b", GOOD);
    wait(runtime.add(&net, &second.attachment())).unwrap();
    assert_refused(&folder, &runtime, &second.attachment());
    // The path of the old namespace, and the same number as a rule.
    second.replace();
    wait(runtime.add(&net, &second.attachment())).unwrap();
}

/// `ip netns del` and a restarted runtime take a namespace's path away while its container runs on.
#[test]
fn an_attachment_without_a_path_lives_as_long_as_a_process_does() {
    let folder = Folder::with(&[("a", GOOD), ("b", GOOD)]);
    let (runtime, net) = (folder.runtime(), network("1.0.0", &["a", "b"]));
    for has_new_one in [false, true] {
        let namespace = Mounted::at(&folder, &format!("netns-{has_new_one}"));
        wait(runtime.add(&net, &namespace.attachment())).unwrap();
        let container = namespace.enter();
        namespace.end();
        if has_new_one {
            run("unshare", &[&format!("--net={}", namespace.0), "true"]);
        }
        let other = Mounted::at(&folder, &format!("other-{has_new_one}"));
        for attachment in [namespace.attachment(), other.attachment()] {
            assert_refused(&folder, &runtime, &attachment);
        }
        let pid = container.0.id();
        let error = wait(runtime.add(&net, &namespace.attachment())).unwrap_err().to_string();
        assert!(error.contains(&format!("attached already, in /proc/{pid}/ns/net")), "{error}");
        drop(container);
        folder.clear_log();
        wait(runtime.add(&net, &other.attachment())).unwrap();
        expect!["DEL b, DEL a, ADD a, ADD b"].assert_eq(&folder.log());
        wait(runtime.del(&net, &other.attachment())).unwrap();
    }
}

/// Another one that lives may be a container's whose runtime was killed before it could tell of it.
#[test]
fn an_unfinished_add_is_deleted_before_the_next_one_of_its_namespace() {
    let folder = Folder::with(&[("a", GOOD), ("b", GOOD)]);
    let (runtime, net) = (folder.runtime(), network("1.0.0", &["a", "b"]));
    let (first, second) = (Mounted::at(&folder, "first"), Mounted::at(&folder, "second"));
    wait(runtime.add(&net, &first.attachment())).unwrap();
    // As a killed runtime leaves it.
    let entry = folder.read(FILE);
    let (before, from_result) = entry.split_once(r#","result":"#).unwrap();
    let after = &from_result[from_result.find(r#","namespace":"#).unwrap()..];
    folder.write(FILE, format!("{before}{after}"));
    assert_refused(&folder, &runtime, &second.attachment());
    let error = wait(runtime.add(&net, &second.attachment())).unwrap_err();
    expect!["cannot add c1/eth0 to network net: an earlier ADD of it was not finished, in $DIR/first; nothing was changed: call DEL first"]
        .assert_eq(&folder.stable(&error.to_string()));
    folder.clear_log();
    wait(runtime.add(&net, &first.attachment())).unwrap();
    expect!["DEL b, DEL a, ADD a, ADD b"].assert_eq(&folder.log());
}

#[test]
fn del_does_not_enter_another_namespace_that_has_the_path_of_the_attachments() {
    let folder = Folder::with(&[("a", &format!("{GOOD}\necho \"[$CNI_NETNS]\" >> \"$dir/log\""))]);
    let (runtime, net) = (folder.runtime(), network("1.0.0", &["a"]));
    let namespace = Mounted::at(&folder, "netns");
    wait(runtime.add(&net, &namespace.attachment())).unwrap();
    namespace.replace();
    folder.clear_log();
    let [cached] = &runtime.cache().list(None).unwrap().cached[..] else { panic!("one attachment") };
    wait(runtime.del_cached(cached)).unwrap();
    expect!["DEL a, []"].assert_eq(&folder.log());
}

/// The kernel makes a new inode for a namespace that only processes hold.
#[test]
fn a_namespace_that_is_mounted_again_is_the_same() {
    let folder = Folder::with(&[("a", &format!("{GOOD}\necho \"[$CNI_NETNS]\" >> \"$dir/log\"")), ("b", GOOD)]);
    let (runtime, net) = (folder.runtime(), network("1.0.0", &["a", "b"]));
    let namespace = Mounted::at(&folder, "netns");
    wait(runtime.add(&net, &namespace.attachment())).unwrap();
    let container = namespace.enter();
    namespace.end();
    run("mount", &["--bind", &format!("/proc/{}/ns/net", container.0.id()), &namespace.0]);
    assert_refused(&folder, &runtime, &namespace.attachment());
    folder.clear_log();
    wait(runtime.del(&net, &namespace.attachment())).unwrap();
    expect!["DEL b, DEL a, [$DIR/netns]"].assert_eq(&folder.stable(&folder.log()));
}

/// The rest of what the plugin made would have no owner.
#[test]
fn del_is_for_the_plugins_that_the_network_had_at_add_too() {
    let folder = Folder::with(&[("a", GOOD), ("b", GOOD), ("c", GOOD)]);
    let runtime = folder.runtime();
    for (now, dels) in [
        (&["a"][..], "DEL c, DEL b, DEL a"),
        (&["b", "c"], "DEL a, DEL c, DEL b"),
        (&["a", "b", "c"], "DEL c, DEL b, DEL a"),
    ] {
        wait(runtime.add(&network("1.0.0", &["a", "b", "c"]), &eth0())).unwrap();
        folder.clear_log();
        wait(runtime.del(&network("1.0.0", now), &eth0())).unwrap();
        assert_eq!(folder.log(), dels);
    }
    // Another address plugin is another executable, whose addresses are freed when the interface is gone.
    let with_ipam = |ipam: &str| {
        let text =
            format!(r#"{{"cniVersion":"1.0.0","name":"net","plugins":[{{"type":"a","ipam":{ipam}}},{{"type":"b"}}]}}"#);
        NetworkConf::parse(text.as_bytes()).unwrap()
    };
    for (now, dels) in
        [("{}", "DEL b, DEL a, DEL a"), (r#"{"type":"d"}"#, "DEL b, DEL a, DEL a"), (r#"{"type":"c"}"#, "DEL b, DEL a")]
    {
        wait(runtime.add(&with_ipam(r#"{"type":"c"}"#), &eth0())).unwrap();
        folder.clear_log();
        wait(runtime.del(&with_ipam(now), &eth0())).unwrap();
        assert_eq!(folder.log(), dels);
    }
}

/// An entry of the oldest format names no namespace.
#[test]
fn a_failed_add_of_an_attachment_that_may_live_is_not_rolled_back() {
    let folder = Folder::with(&[("a", GOOD), ("b", &failing("ADD"))]);
    folder.write(FILE, r#"{"cniVersion":"1.0.0","ips":[{"address":"10.7.0.5/24"}]}"#);
    let error = wait(folder.runtime().add(&network("1.0.0", &["a", "b"]), &eth0())).unwrap_err();
    expect![[r#"plugin type="b" failed (add): b cannot; more words. Nothing was rolled back: the attachment is there from an earlier ADD. Call DEL first."#]]
    .assert_eq(&error.to_string());
    expect!["ADD a, ADD b"].assert_eq(&folder.log());
    assert_eq!(folder.cache_files(), ["net-c1-eth0"]);
}

/// Another runtime may have made it, in a cache of its own. Networks for nomad begin with loopback.
#[test]
fn what_a_plugin_finds_taken_is_not_deleted() {
    let taken = format!("code=103\n{}", failing("ADD"));
    let folder = Folder::with(&[("a", &taken), ("b", GOOD)]);
    let error = wait(folder.runtime().add(&network("1.0.0", &["a", "b"]), &eth0())).unwrap_err();
    expect![[r#"plugin type="a" failed (add): a cannot; more words. What was there before may be in use, so its DEL was not called."#]].assert_eq(&error.to_string());
    expect!["ADD a"].assert_eq(&folder.log());
    assert_eq!(folder.cache_files(), [""; 0]);
    folder.clear_log();
    let error = wait(folder.runtime().add(&network("1.0.0", &["b", "a"]), &eth0())).unwrap_err();
    expect![[r#"plugin type="a" failed (add): a cannot; more words. Rolled back: b. What was there before may be in use, so its DEL was not called."#]].assert_eq(&error.to_string());
    assert_eq!(folder.cache_files(), [""; 0]);
    expect!["ADD b, ADD a, DEL b"].assert_eq(&folder.log());
}

/// Host-local says this through the plugin that calls it; the reference's has no code for that.
#[test]
fn an_address_that_another_runtime_has_reserved_is_not_released() {
    let says = "10.7.0.2 has been allocated to c1, duplicate allocation is not allowed";
    let text = "code=999\n".to_owned() + &failing("ADD").replace("more words", says);
    let folder = Folder::with(&[("a", &text)]);
    wait(folder.runtime().add(&network("1.0.0", &["a"]), &eth0())).unwrap_err();
    expect!["ADD a"].assert_eq(&folder.log());
}

/// Plugin `a` stops in ADD, and plugin `b` does not.
fn stopping() -> Folder {
    let folder = stopped_in("ADD.c1");
    folder.plugin("b", GOOD);
    folder
}

#[test]
fn of_two_adds_at_once_the_second_waits_and_is_refused() {
    let folder = stopping();
    let net = network("1.0.0", &["a", "b"]);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| wait(folder.runtime().add(&net, &eth0())));
        std::fs::read(folder.path().join("begun")).unwrap();
        let second = scope.spawn(|| wait(folder.runtime().add(&net, &eth0())));
        for operation in ["ADD", "DEL"] {
            let error = match operation {
                "ADD" => wait(hasty(&folder).add(&net, &eth0())).unwrap_err(),
                _ => wait(hasty(&folder).del(&net, &eth0())).unwrap_err(),
            };
            assert!(matches!(error, Error::Locked { .. }) && error.code() == Some(Code::TRY_AGAIN), "{error}");
            let expected =
                format!("cannot start {operation} of c1/eth0 in network net: another ADD or DEL of it has been");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
        // GC waits for the ADD in progress only, and ADD of another container for nothing.
        let other = RuntimeConf::new("c2", "eth0").unwrap().netns("/gone");
        wait(folder.runtime().add(&network("1.0.0", &["b"]), &other)).unwrap();
        drop(OpenOptions::new().write(true).open(folder.path().join("end")).unwrap());
        first.join().unwrap().unwrap();
        assert!(matches!(second.join().unwrap(), Err(Error::Attached { .. })));
    });
    expect!["ADD a, ADD b, ADD b"].assert_eq(&folder.log());
    wait(folder.runtime().check(&net, &eth0())).unwrap();
}

/// A node that has a link of the attachment as soon as plugin `a` has run.
struct Linked<'a>(&'a Folder, AtomicUsize);

impl Inventory for Linked<'_> {
    fn list(&self, _: &NetworkConf, known: &[AttachmentId]) -> Result<Vec<OnNode>, CniError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let link = OnNode { id: known.first().cloned(), objects: vec!["link eth0".to_owned()], life: Life::Lives };
        Ok(if self.0.log().contains("ADD a") { vec![link] } else { Vec::new() })
    }
}

#[test]
fn an_attachment_whose_add_is_in_progress_is_not_forgotten() {
    let folder = stopping();
    let (net, id, node) = (network("1.0.0", &["a", "b"]), eth0().id, Linked(&folder, AtomicUsize::new(0)));
    std::thread::scope(|scope| {
        let add = scope.spawn(|| wait(folder.runtime().add(&net, &eth0())));
        std::fs::read(folder.path().join("begun")).unwrap();
        let forget = scope.spawn(|| wait(folder.runtime().forget(&net, &id).with_inventory(&node)));
        let error = wait(hasty(&folder).forget(&net, &id).with_inventory(&node)).unwrap_err();
        assert!(matches!(error, Error::Locked { .. }), "{error}");
        assert_eq!(node.1.load(Ordering::Relaxed), 0, "what the node has now is not what it has at the end of ADD");
        drop(OpenOptions::new().write(true).open(folder.path().join("end")).unwrap());
        add.join().unwrap().unwrap();
        let error = forget.join().unwrap().unwrap_err();
        expect!["cannot forget c1/eth0 in network net: the node still has link eth0; remove it with del or gc"]
            .assert_eq(&error.to_string());
    });
    wait(folder.runtime().check(&net, &eth0())).unwrap();
}

/// All of a network's locks of attachments.
fn hold(folder: &Folder) -> File {
    let file = OpenOptions::new().read(true).write(true).open(folder.path().join("cache/locks/net")).unwrap();
    let short = |number: libc::c_int| libc::c_short::try_from(number).unwrap();
    let all = libc::flock { l_type: short(libc::F_WRLCK), l_whence: 0, l_start: 1, l_len: 0, l_pid: 0 };
    fcntl(&file, FcntlArg::F_OFD_SETLK(&all)).unwrap();
    file
}

/// A child that a killed runtime has forked has its lock until it executes the plugin, and that may hang.
#[test]
fn del_waits_a_moment_for_a_lock_that_a_dead_runtime_has_left() {
    let folder = Folder::with(&[("a", GOOD)]);
    let net = network("1.0.0", &["a"]);
    wait(folder.runtime().add(&net, &eth0())).unwrap();
    let entry = folder.read(FILE);
    let held = hold(&folder);
    wait(hasty(&folder).del(&net, &eth0())).unwrap_err();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let dead = format!("999999999 1 {}", boot.trim());
    folder.write(FILE, entry.replace(r#""result""#, &format!(r#""runtime":"{dead}","result""#)));
    wait(hasty(&folder).del(&net, &eth0())).unwrap();
    expect!["ADD a, DEL a"].assert_eq(&folder.log());
    drop(held);
}
