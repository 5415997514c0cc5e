//! Failures of the address plugin: addresses, its folder, its lock, the plugin itself.

use super::Trouble;
use crate::prelude::*;
use expect_test::expect;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MsFlags, mount};
use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

const STORE: &str = "/var/lib/cni/networks";

fn ipam(own: Value) -> Value {
    bridge(json!({"ipam": with(v4(), own)}))
}

/// Mounts a small file system where the store is.
fn mount_store(options: &str, flags: MsFlags) {
    fs::create_dir_all(STORE).expect("make a folder for the store");
    mount(Some("tmpfs"), STORE, Some("tmpfs"), flags, Some(options)).expect("mount a tmpfs");
}

/// All addresses are reserved.
#[test]
fn a_full_range() {
    let trouble = Trouble::new();
    let config = ipam(json!({"subnet": "10.7.0.0/30"}));
    let other = trouble.node.container();
    trouble.node.call(Verb::Add, &config, &other).ok();
    trouble.adding(&config, &expect![[r#"
            105 failed to allocate for range 0: no IP addresses available in range set: 10.7.0.1-10.7.0.2
            All of set 0 are reserved in /var/lib/cni/networks/net. Widen the range, run GC, or set reclaimEarlierBoot. Reported by plugin host-local.
        "#]]);
}

/// The store cannot be written to.
#[test]
fn a_read_only_store() {
    let trouble = Trouble::new();
    mount_store("size=1m", MsFlags::MS_RDONLY);
    trouble.adding(&bridge(json!({})), &expect![[r#"
            106 cannot create store /var/lib/cni/networks/net: read-only file system
            EROFS (30). The file system of dataDir cannot be written to: mount it writable, or move dataDir. Reported by plugin host-local.
        "#]]);
}

/// The file system has no room for a reservation.
#[test]
fn a_full_disk() {
    let trouble = Trouble::new();
    // The root, the network's folder, the lock.
    mount_store("nr_inodes=3", MsFlags::empty());
    trouble.adding(&bridge(json!({})), &expect![[r#"
            106 failed to allocate for range 0: cannot create reservation 10.7.0.2: no space left on device
            link /var/lib/cni/networks/net/10.7.0.2: ENOSPC (28). The file system of dataDir is full: make room, or move dataDir. Reported by plugin host-local.
        "#]]);
}

/// The plugin runs where /proc is not mounted.
#[test]
fn no_proc() {
    let trouble = Trouble::new();
    let mut call = Command::new("unshare")
        .args(["--mount", "sh", "-c", r#"mount -t tmpfs none /proc && exec "$0""#])
        .arg(trouble.node.bin_dir().join("bridge"))
        .env("CNI_PATH", trouble.node.bin_dir())
        .env("CNI_NETNS", trouble.pod.namespace().path())
        .envs([("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", trouble.pod.id()), ("CNI_IFNAME", "eth0")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the plugin");
    write!(call.stdin.take().expect("its stdin"), "{}", bridge(json!({}))).expect("write its config");
    let output = call.wait_with_output().expect("wait for the plugin");
    expect![[r#"
        {
            "cniVersion": "1.0.0",
            "code": 100,
            "msg": "cannot write sysctl net/ipv6/conf/br0/accept_ra = 0: no such file or directory",
            "details": "ENOENT (2). /proc is not mounted where the plugin runs: mount it (mount -t proc proc /proc)."
        }"#]]
    .assert_eq(&String::from_utf8_lossy(&output.stdout));
}

/// Another process holds the lock and does not release it.
#[test]
fn a_held_lock() {
    let trouble = Trouble::new();
    fs::create_dir_all(format!("{STORE}/net")).expect("make the network's folder");
    let lock = File::create(format!("{STORE}/net/lock")).expect("make the lock");
    let _held = Flock::lock(lock, FlockArg::LockExclusiveNonblock).expect("take the lock");
    trouble.adding(
        &ipam(json!({"lockTimeoutSeconds": 1})),
        &expect![[r#"
        11 cannot take lock /var/lib/cni/networks/net/lock: process PID (NAME) held it for 1000 ms
        flock LOCK_EX. Nothing was changed. Try again; if the holder hangs, end it. Reported by plugin host-local.
    "#]],
    );
}

/// The address plugin returns an error, crashes (its last words are in the error, and cannot act on a terminal), or prints something
/// that is not a result.
#[test]
fn a_failure_of_the_ipam_plugin_is_passed_on() {
    for (commands, expected) in [
        (
            "echo '{\"code\": 11, \"msg\": \"no lease yet\", \"details\": \"The server did not answer.\"}'; exit 1",
            expect![[r#"
                11 no lease yet
                The server did not answer. Reported by plugin script. Undone: link veth063f9704 deleted.
            "#]],
        ),
        (
            r"printf 'out of \033[2Jmemory\n' >&2; kill -ABRT $$",
            expect![[r#"
                108 netplugin failed: "out of \u{1b}[2Jmemory"
                How it ended: killed by SIGABRT. Reported by plugin script. Undone: link veth063f9704 deleted.
            "#]],
        ),
        (
            "echo 'hello'",
            expect![[r#"
                108 cannot use the result of plugin script: cannot parse JSON: expected value at line 1 column 1
                It printed "hello\n". Undone: link veth063f9704 deleted.
            "#]],
        ),
    ] {
        let trouble = Trouble::new();
        script(&trouble, commands);
        trouble.adding(&bridge(json!({"ipam": {"type": "script"}})), &expected);
    }
}

/// SPEC 4: a delegate whose ADD failed, even by a crash or with an invalid result, is called with DEL; one that never
/// started is not.
#[test]
fn del_after_a_failed_ipam_plugin() {
    for (ending, expected) in [
        ("kill -ABRT $$", "ADD\nDEL\n"),
        ("echo nonsense", "ADD\nDEL\n"),
        (r#"echo '{"code": 105, "msg": "no address is free"}'; exit 1"#, "ADD\nDEL\n"),
        (r#"echo '{"code": 7, "msg": "cannot use key ipam.x"}'; exit 1"#, "ADD\n"),
    ] {
        let trouble = Trouble::new();
        let log = trouble.node.work_dir().join("script.log");
        script(&trouble, &format!("echo $CNI_COMMAND >>{}; [ $CNI_COMMAND = DEL ] || {{ {ending}; }}", log.display()));
        trouble.add(&bridge(json!({"ipam": {"type": "script"}}))).run(&trouble.node).fails();
        assert_eq!(fs::read_to_string(log).expect("read the log"), expected, "{ending}");
    }
}

/// The address plugin does not end.
#[test]
#[ignore = "takes the three minutes that a delegate may take"]
fn an_ipam_plugin_that_never_ends() {
    let trouble = Trouble::new();
    script(&trouble, "exec sleep 1000");
    let call = trouble.add(&bridge(json!({"ipam": {"type": "script"}}))).deadline(Duration::from_secs(300));
    trouble.calling(&call, &expect![[r#"
            104 cannot finish ADD of plugin /run/testns/bin/script: it did not end within 180000 ms
            It was sent SIGTERM, and SIGKILL where that did not end it. Left behind: not done within 30s: addresses released.
        "#]]);
}

/// Makes an address plugin `script` from shell commands.
fn script(trouble: &Trouble, commands: &str) {
    let path = trouble.node.bin_dir().join("script");
    testns::write_executable(path, format!("#!/bin/sh\n{commands}\n")).expect("write the script");
}
