//! A start after an earlier run, which ended in order or by `kill -9` at any moment: every pod exactly once, nothing leaked.

use crate::scene::{DEADLINE, Scene, host_port};
use nix::sys::signal::Signal;
use std::time::Duration;
use testns::Namespace;

#[test]
fn a_pod_is_taken_over_as_it_is() {
    let scene = Scene::new();
    scene.write_pod("one", &host_port(8080));
    let mut program = scene.start();
    let before = program.wait_for("pod default/one: Running");
    program.kill();
    // A second claimant of its port, before it by name, appears while the program is not running.
    scene.write_pod("a", &host_port(8080));
    let mut program = scene.start();
    let waits = "pod default/a: Waiting: hostPort 8080/tcp is taken by pod default/one";
    program.wait_for_all([before.as_str(), waits]);
    assert!(!program.text().contains("Starting") && !program.text().contains("Stopping"), "{}", program.text());
}

#[test]
fn pods_that_changed_or_went_meanwhile_or_have_no_namespace_are_made_as_they_are_to_be() {
    let scene = Scene::new();
    let names = ["changed", "gone", "lost", "kept"];
    names.iter().for_each(|name| scene.write_pod(name, ""));
    let mut before = scene.start();
    before.wait_for_all(names.map(|name| format!("pod default/{name}: Running")));
    before.kill();
    scene.write_pod("changed", &host_port(1));
    scene.remove("gone");
    // As after a restart of the machine.
    let lost = before.value("lost", "netns");
    nix::mount::umount(lost.as_str()).unwrap();
    std::fs::remove_file(lost).unwrap();
    let mut after = scene.start();
    after.wait_for_all([
        "pod default/changed: Running",
        "pod default/gone: Gone",
        "pod default/lost: Running",
        "pod default/kept: Running",
    ]);
    let is_same = |name| after.value(name, "netns") == before.value(name, "netns");
    assert!(is_same("kept") && !is_same("changed") && !is_same("lost"));
    scene.assert_pods(3);
    assert!(after.terminate().success());
    scene.assert_pods(0);
}

#[test]
fn two_instances_exclude_each_other() {
    let scene = Scene::new();
    let mut program = scene.start();
    program.wait_for("network ready");
    let second = testns::run(scene.command(), b"", DEADLINE);
    assert_eq!(second.code(), 1);
    assert!(second.stderr.starts_with("static-pods: /run/static-pods is in use: stop the other static-pods first"));
}

/// Another runtime has pods on the same network, and its cache is its own.
#[test]
fn living_pods_of_another_runtime_on_the_network_are_kept() {
    let scene = Scene::new();
    scene.write_pod("theirs", "");
    let mut program = scene.start();
    program.wait_for("pod default/theirs: Running");
    let before = program.value("theirs", "netns").replace("/static-pods/", "/theirs/");
    program.kill();
    scene.remove("theirs");
    std::fs::rename("/run/static-pods", "/run/theirs").unwrap();
    std::fs::rename("/var/lib/cni/cache", "/var/lib/cni/theirs").unwrap();
    scene.start().wait_for("network ready: pods");
    assert!(Namespace::at(before).find_link("eth0").is_some());
}

/// Kills while pods come up, while they go, and in between; the time it takes to come up is covered from end to end.
#[test]
fn every_pod_is_there_once_whenever_the_program_was_killed() {
    let scene = Scene::new();
    let names = ["a", "b", "c"];
    for moment in 0..24 {
        // With each start a pod comes, another goes and the third changes.
        for (index, name) in names.iter().enumerate() {
            match (moment + index) % 3 {
                0 => std::fs::remove_file(format!("/run/manifests/{name}.yaml")).unwrap_or_default(),
                1 => scene.write_pod(name, &host_port(u16::try_from(1 + moment * 3 + index).unwrap())),
                _ => scene.write_pod(name, ""),
            }
        }
        let mut program = scene.start();
        program.goes_on_for(Duration::from_millis(moment as u64 * 12));
        program.kill();
    }
    names.iter().for_each(|name| scene.write_pod(name, ""));
    let mut program = scene.start();
    program.wait_for_all(names.map(|name| format!("pod default/{name}: Running addresses")));
    assert!(program.seen.iter().all(|line| !line.contains("warning")), "a changed pod has no port: {}", program.text());
    scene.assert_pods(names.len());
    assert!(program.terminate().success(), "{}", program.text());
    scene.assert_pods(0);
}

#[test]
fn a_tear_down_that_was_killed_is_finished() {
    let scene = Scene::new();
    let names = ["a", "b", "c"];
    for moment in 0..8 {
        names.iter().for_each(|name| scene.write_pod(name, ""));
        let mut program = scene.start();
        program.wait_for_all(names.map(|name| format!("pod default/{name}: Running")));
        program.signal(Signal::SIGTERM);
        program.goes_on_for(Duration::from_millis(moment * 15));
        program.kill();
        names.iter().for_each(|name| scene.remove(name));
        let mut program = scene.start();
        program.wait_for("network ready");
        assert!(program.terminate().success(), "{}", program.text());
        scene.assert_pods(0);
    }
}
