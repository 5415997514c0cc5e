//! ADD of an attachment that was added before, or is being added.

use crate::folder::{Folder, GOOD, eth0, failing, network, wait};
use expect_test::expect;
use libcni::cni_spec::Code;
use libcni::{Attachment, Error, Runtime};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

const FILE: &str = "cache/results/net-c1-eth0";

/// A namespace that is mounted at a path, as runtimes keep those of containers.
struct Mounted(String);

impl Mounted {
    fn at(folder: &Folder, name: &str) -> Self {
        let path = folder.write(name, "").to_str().unwrap().to_owned();
        run("unshare", &[&format!("--net={path}"), "true"]);
        Self(path)
    }

    fn attachment(&self) -> Attachment {
        eth0().netns(&self.0)
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

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
}

#[track_caller]
fn assert_refused(folder: &Folder, runtime: &Runtime, attachment: &Attachment) {
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
    expect!["ADD a, ADD b, DEL b, DEL a"].assert_eq(&folder.log());
    folder.plugin("b", GOOD);
    wait(runtime.add(&net, &second.attachment())).unwrap();
    assert_refused(&folder, &runtime, &second.attachment());
    // The path of the old namespace, and the same number as a rule.
    second.replace();
    wait(runtime.add(&net, &second.attachment())).unwrap();
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

/// Another runtime may have made it, in a cache of its own. A later plugin changes what this ADD has made.
#[test]
fn what_the_first_plugin_finds_taken_is_not_deleted() {
    let taken = format!("code=103\n{}", failing("ADD"));
    let folder = Folder::with(&[("a", &taken), ("b", GOOD)]);
    let error = wait(folder.runtime().add(&network("1.0.0", &["a", "b"]), &eth0())).unwrap_err();
    expect![[r#"plugin type="a" failed (add): a cannot; more words. Nothing was rolled back: what is there already may be in use."#]].assert_eq(&error.to_string());
    expect!["ADD a"].assert_eq(&folder.log());
    assert_eq!(folder.cache_files(), [""; 0]);
    folder.clear_log();
    wait(folder.runtime().add(&network("1.0.0", &["b", "a"]), &eth0())).unwrap_err();
    expect!["ADD b, ADD a, DEL a, DEL b"].assert_eq(&folder.log());
}

/// Plugin `a` opens FIFO `begun` in ADD, and ends when FIFO `end` does.
fn stopping() -> Folder {
    let stop = r#"[ $CNI_COMMAND != ADD ] || { echo > "$dir/begun"; cat "$dir/end"; } >&2"#;
    let folder = Folder::with(&[("a", &format!("{GOOD}\n{stop}")), ("b", GOOD)]);
    for fifo in ["begun", "end"] {
        mkfifo(&folder.path().join(fifo), Mode::S_IRWXU).unwrap();
    }
    folder
}

/// A runtime that does not wait long for a lock.
fn hasty(folder: &Folder) -> Runtime {
    folder.builder().plugin_deadline(Duration::from_millis(300)).build()
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
        let other = Attachment::new("c2", "eth0").unwrap().netns("/gone");
        wait(folder.runtime().add(&network("1.0.0", &["b"]), &other)).unwrap();
        drop(OpenOptions::new().write(true).open(folder.path().join("end")).unwrap());
        first.join().unwrap().unwrap();
        assert!(matches!(second.join().unwrap(), Err(Error::Attached { .. })));
    });
    expect!["ADD a, ADD b, ADD b"].assert_eq(&folder.log());
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
