//! A start after an earlier run, which ended in order or by `kill -9` at any moment: every pod exactly once, nothing leaked.

use crate::test_node::{TestNode, assert_never, host_port, terminate, value};
use nix::sys::signal::Signal;
use std::time::Duration;
use testns::{Background, Namespace};

#[test]
fn a_pod_is_kept_as_it_is_unless_its_manifest_or_namespace_changed_meanwhile() {
    let test_node = TestNode::new();
    for name in ["changed", "gone", "lost"] {
        test_node.write_pod(name, "");
    }
    test_node.write_pod("kept", &host_port(8080));
    let mut before = test_node.start();
    before.wait_for_all(["changed", "gone", "lost", "kept"].map(|name| format!("pod default/{name}: Running")));
    before.end(Signal::SIGKILL);
    test_node.write_pod("changed", &host_port(1));
    test_node.remove("gone");
    // As after a restart of the machine.
    let lost = value(&before, "lost", "netns");
    nix::mount::umount(lost.as_str()).unwrap();
    std::fs::remove_file(lost).unwrap();
    // A second claimant of a port, before its owner by name.
    test_node.write_pod("a", &host_port(8080));
    let mut after = test_node.start();
    after.wait_for_all([
        "pod default/changed: Running",
        "pod default/gone: Gone",
        "pod default/lost: Running",
        "pod default/kept: Running",
        "pod default/a: Waiting: hostPort 8080/tcp is taken by pod default/kept",
    ]);
    let is_same = |name| value(&after, name, "netns") == value(&before, name, "netns");
    assert!(is_same("kept") && !is_same("changed") && !is_same("lost"));
    assert_never(&after, "default/kept: St");
    test_node.assert_pods(3);
    assert_eq!(terminate(&mut after), Some(0));
    test_node.assert_pods(0);
}

#[test]
fn two_instances_exclude_each_other() {
    let test_node = TestNode::new();
    let mut program = test_node.start();
    program.wait_for("network ready");
    let mut second = Background::with_stderr(test_node.command());
    second.wait_for("static-pods: /run/static-pods is in use: stop the other static-pods first");
    assert_eq!(second.exit_code(), Some(1));
}

/// Another runtime has pods on the same network, and its cache is its own.
#[test]
fn living_pods_of_another_runtime_on_the_network_are_kept() {
    let test_node = TestNode::new();
    test_node.write_pod("theirs", "");
    let mut program = test_node.start();
    program.wait_for("pod default/theirs: Running");
    let before = value(&program, "theirs", "netns").replace("/static-pods/", "/theirs/");
    program.end(Signal::SIGKILL);
    test_node.remove("theirs");
    std::fs::rename("/run/static-pods", "/run/theirs").unwrap();
    std::fs::rename("/var/lib/cni/cache", "/var/lib/cni/theirs").unwrap();
    test_node.start().wait_for("network ready: pods");
    assert!(Namespace::at(before).find_link("eth0").is_some());
}

/// Kills while pods come up, while they go, and in between; the time it takes to come up is covered from end to end.
#[test]
fn every_pod_is_there_once_whenever_the_program_was_killed() {
    let test_node = TestNode::new();
    let names = ["a", "b", "c"];
    for moment in 0..24 {
        // With each start a pod comes, another goes and the third changes.
        for (index, name) in names.iter().enumerate() {
            match (moment + index) % 3 {
                0 => std::fs::remove_file(format!("/run/manifests/{name}.yaml")).unwrap_or_default(),
                1 => test_node.write_pod(name, &host_port(u16::try_from(1 + moment * 3 + index).unwrap())),
                _ => test_node.write_pod(name, ""),
            }
        }
        let mut program = test_node.start();
        program.run_for(Duration::from_millis(moment as u64 * 12));
        program.end(Signal::SIGKILL);
    }
    names.iter().for_each(|name| test_node.write_pod(name, ""));
    let mut program = test_node.start();
    program.wait_for_all(names.map(|name| format!("pod default/{name}: Running addresses")));
    // A changed pod has no port of the node.
    assert_never(&program, "warning");
    test_node.assert_pods(names.len());
    assert_eq!(terminate(&mut program), Some(0));
    test_node.assert_pods(0);
}
