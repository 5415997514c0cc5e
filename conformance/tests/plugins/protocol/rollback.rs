//! An ADD that is asked to end, or whose reply cannot be written: it is rolled back.

use super::{start, wait_for};
use crate::prelude::*;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ASKING_TO_END: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

fn send(signal: Signal, to: &Child) {
    kill(Pid::from_raw(to.id().cast_signed()), signal).unwrap();
}

fn code_of(child: Child) -> (Option<i32>, Value) {
    let output = child.wait_with_output().unwrap();
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code(), object["code"].clone())
}

fn waiting(node: &Node) -> (Value, PathBuf) {
    let file = node.work_dir().join("probe.log");
    (json!({"cniVersion": "1.1.0", "name": "n", "type": "probe", "do": "wait", "file": file}), file)
}

/// A signal that asks a process to end during ADD makes it roll back and still print an error object.
#[test]
fn an_add_that_is_asked_to_end_rolls_back() {
    let node = probe_node();
    let (config, file) = waiting(&node);
    for signal in ASKING_TO_END {
        let mut child = start(&node, &config, &node.container().attachment(), |_| ());
        wait_for(&mut child, "waiting");
        assert!(file.exists());
        send(signal, &child);
        assert_eq!(code_of(child), (Some(1), json!(109)), "{signal}");
        assert!(!file.exists(), "{signal}");
    }
}

/// A runtime that went away, or one whose disk of logs is full, reads no stderr: what the plugin answers stays the same.
#[test]
fn replies_reach_stdout_though_stderr_cannot_be_written() {
    let node = node();
    let config = crate::configs::bridge(json!({"isGateway": true}));
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let closed = || Stdio::from(std::io::pipe().unwrap().1);
    for stderr in [full, closed] {
        let pod = node.container();
        let call = |verb: &str| {
            let child = start(&node, &config, &pod.attachment(), |command| {
                command.env("CNI_COMMAND", verb).env("CNI_LOG", "debug").stderr(stderr());
            });
            let output = child.wait_with_output().unwrap();
            (output.status.code(), String::from_utf8(output.stdout).unwrap())
        };
        let (exit, result) = call("ADD");
        assert_eq!(exit, Some(0), "{result}");
        assert_eq!(serde_json::from_str::<Value>(&result).unwrap()["interfaces"][2]["name"], "eth0");
        let (exit, error) = call("ADD");
        assert_eq!(exit, Some(1));
        assert_eq!(serde_json::from_str::<Value>(&error).unwrap()["code"], 103);
        assert_eq!(call("DEL"), (Some(0), String::new()));
    }
}

/// State that appears by itself after an ADD, or stays after any: link-local addresses of links that have just come up,
/// the last address that was given, the record of a helper that has ended.
fn settles(line: &str) -> bool {
    ["fe80::", "ff00::", "ff02::", "last_reserved_ip", ".index ", " /run/cni/"].iter().any(|words| line.contains(words))
}

/// A signal that the runtime made its children ignore, as nohup does, stays ignored.
#[test]
fn an_ignored_signal_stays_ignored() {
    let node = probe_node();
    let (config, _) = waiting(&node);
    let shell = format!("trap '' HUP; exec {}", node.bin_dir().join("probe").display());
    let pod = node.container();
    let mut child = Command::new("/bin/sh")
        .args(["-c", &shell])
        .env_clear()
        .envs([("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", pod.id()), ("CNI_IFNAME", "eth0")])
        .env("CNI_NETNS", pod.namespace().path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
    wait_for(&mut child, "waiting");
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let mask = |name: &str| {
        let digits = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(digits.trim(), 16).unwrap()
    };
    let bit = |signal: Signal| 1_u64 << (signal as i32 - 1);
    assert_ne!(mask("SigIgn:") & bit(Signal::SIGHUP), 0);
    assert_eq!(mask("SigCgt:") & bit(Signal::SIGHUP), 0);
    assert_ne!(mask("SigCgt:") & bit(Signal::SIGTERM), 0);
    send(Signal::SIGTERM, &child);
    assert_eq!(code_of(child), (Some(1), json!(109)));
}

/// An ADD that is asked to end while another process holds host-local's lock ends at once, not when the lock is free.
#[test]
fn an_add_that_waits_for_a_lock_can_be_asked_to_end() {
    let node = node();
    let config = crate::configs::bridge(json!({"isGateway": true, "ipMasq": true}));
    let stays = Attached::add(&node, &config, &node.container());
    let held = Flock::lock(File::open("/var/lib/cni/networks/net/lock").unwrap(), FlockArg::LockExclusive).unwrap();
    node.remember();
    for signal in ASKING_TO_END {
        let pod = node.container();
        let mut child = start(&node, &config, &pod.attachment(), |_| ());
        wait_for(&mut child, "waiting for it");
        let asked = Instant::now();
        send(signal, &child);
        assert_eq!(code_of(child), (Some(1), json!(109)), "{signal}");
        assert!(asked.elapsed() < Duration::from_secs(15), "{signal}: {:?}", asked.elapsed());
    }
    drop(held);
    node.assert_as_before_except(settles);
    stays.check().ok();
}

/// No file of the node's gets what is written to a standard stream that is closed when the process starts.
#[test]
fn closed_streams_take_the_place_of_no_file() {
    let node = node();
    let config = crate::configs::bridge(json!({"isGateway": true}));
    for (closed, exit) in [("2>&-", 0), (">&-", 0), ("<&-", 1), ("<&- >&- 2>&-", 1)] {
        let pod = node.container();
        let mut child =
            add_by_shell(&node, &pod, &format!("exec {} {closed}", node.bin_dir().join("bridge").display()));
        // With stdin closed the pipe has no reader.
        drop(child.stdin.take().unwrap().write_all(config.to_string().as_bytes()));
        assert_eq!(child.wait().unwrap().code(), Some(exit), "{closed}");
        let held = std::fs::read_dir("/var/lib/cni/networks/net").into_iter().flatten().filter(|file| {
            let file = file.as_ref().unwrap();
            let is_address = file.file_name().to_string_lossy().starts_with("10.");
            let text = std::fs::read_to_string(file.path()).unwrap();
            assert!(text.len() < 100, "{closed}: {file:?} has {text:?}");
            is_address && text == format!("{}\r\neth0", pod.id())
        });
        assert_eq!(held.count(), usize::from(exit == 0), "{closed}");
    }
}

/// Runs ADD in a shell, whose stdin is a pipe for the config.
fn add_by_shell(node: &Node, pod: &Container, script: &str) -> Child {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).env_clear().env("CNI_LOG", "debug").env("CNI_PATH", node.bin_dir());
    command.env("CNI_COMMAND", "ADD").env("CNI_CONTAINERID", pod.id()).env("CNI_IFNAME", "eth0");
    command.env("CNI_NETNS", pod.namespace().path());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The reference's plugins have stacks of their own, whatever limit a runtime was started with.
#[test]
fn a_low_limit_of_the_stack_fails_no_add() {
    let node = node();
    let config = crate::configs::bridge(json!({"isGateway": true, "ipMasq": true}));
    for kilobytes in [40, 64] {
        let script = format!("ulimit -S -s {kilobytes}; exec {}", node.bin_dir().join("bridge").display());
        let mut child = add_by_shell(&node, &node.container(), &script);
        child.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{kilobytes} kB");
    }
}

/// An ADD whose result cannot be written has failed for the runtime, so it is rolled back.
#[test]
fn a_result_that_cannot_be_written_is_taken_back() {
    let node = node();
    let config = crate::configs::bridge(json!({"isGateway": true, "ipMasq": true, "macspoofchk": true}));
    let stays = Attached::add(&node, &config, &node.container());
    node.remember();
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let closed = || Stdio::from(std::io::pipe().unwrap().1);
    for stdout in [full(), closed()] {
        let pod = node.container();
        let child = start(&node, &config, &pod.attachment(), |command| {
            command.stdout(stdout);
        });
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot write the reply") && said.contains("removed again"), "{said}");
        assert!(pod.namespace().find_link("eth0").is_none());
    }
    node.assert_as_before_except(settles);
    stays.check().ok();
}
