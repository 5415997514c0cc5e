//! A start after an earlier run.

use crate::program::{kill_and_wait, pid_in};
use crate::scene::{Scene, Traces, host_port};

#[test]
fn a_pod_is_taken_over_as_it_is() {
    let scene = Scene::new();
    scene.write_pod("one", &host_port(8080));
    scene.write_pod("agent", "hostNetwork: true");
    let mut program = scene.start();
    program.wait_for_all(["pod default/one: Running", "pod default/agent: Running"]);
    let find =
        |lines: &[String]| lines.iter().find(|line| line.starts_with("pod default/one: Running")).unwrap().clone();
    let before = find(&program.seen);
    program.kill();
    // A second claimant of its port, before it by name, appears while the program is not running.
    scene.write_pod("a", &host_port(8080));
    let mut program = scene.start();
    program.wait_for_all([
        "pod default/one: Running",
        "pod default/agent: Running",
        "pod default/a: Waiting: hostPort 8080/tcp is taken by pod default/one",
    ]);
    assert_eq!(find(&program.seen), before);
    let text = program.text();
    assert!(!text.contains("Starting") && !text.contains("Stopping"), "{text}");
    scene.remove_manifest("one.yaml");
    program.wait_for("pod default/a: Running");
}

#[test]
fn what_changed_went_or_died_meanwhile_is_made_as_it_is_to_be() {
    let scene = Scene::new();
    for name in ["changed", "gone", "dead", "kept"] {
        scene.write_pod(name, "");
    }
    let running = ["changed", "gone", "dead", "kept"].map(|name| format!("pod default/{name}: Running"));
    let mut program = scene.start();
    program.wait_for_all(&running);
    let pid = |lines: &[String], name: &str| {
        let start = format!("pod default/{name}: Running");
        pid_in(lines.iter().rev().find(|line| line.starts_with(&start)).unwrap())
    };
    let before = program.seen.clone();
    program.kill();
    scene.write_pod("changed", "hostname: other");
    scene.remove_manifest("gone.yaml");
    kill_and_wait(pid(&before, "dead"));
    let mut program = scene.start();
    program.wait_for_all([
        "pod default/changed: Running",
        "pod default/gone: Gone",
        "pod default/dead: Running",
        "pod default/kept: Running",
    ]);
    assert_eq!(pid(&program.seen, "kept"), pid(&before, "kept"));
    assert_ne!(pid(&program.seen, "changed"), pid(&before, "changed"));
    assert_ne!(pid(&program.seen, "dead"), pid(&before, "dead"));
    assert_eq!(scene.traces(), Traces::of(3));
    assert!(program.terminate().success());
    scene.assert_nothing_is_left();
}

#[test]
fn two_instances_exclude_each_other() {
    let scene = Scene::new();
    scene.write_pod("one", "");
    let mut program = scene.start();
    program.wait_for("pod default/one: Running");
    let second = testns::run(scene.command(&[]), b"", crate::program::DEADLINE);
    assert_eq!(second.code(), 1);
    let start = "static-pods: /run/static-pods is in use: stop the other static-pods first";
    let holder = format!("process {} (static-pods) held it", program.pid());
    assert!(second.stderr.starts_with(start) && second.stderr.contains(&holder), "{}", second.stderr);
    assert_eq!(scene.traces(), Traces::of(1));
}

/// An unreadable record's network belongs to no pod, and is collected.
#[test]
fn a_broken_record_is_put_aside_and_its_network_collected() {
    let scene = Scene::new();
    scene.write_pod("one", "");
    let mut program = scene.start();
    let pid = pid_in(&program.wait_for("pod default/one: Running"));
    program.kill();
    std::fs::write(&scene.records()[0], "{").unwrap();
    kill_and_wait(pid);
    let mut program = scene.start();
    program.wait_for("pod default/one: Running");
    assert!(program.terminate().success());
    let left = scene.records();
    assert!(left.len() == 1 && left[0].extension().unwrap() == "broken", "{left:?}");
    std::fs::remove_file(&left[0]).unwrap();
    scene.assert_nothing_is_left();
}

/// Another runtime has pods on the same network, and its cache is its own.
#[test]
fn what_another_runtime_has_on_the_network_and_lives_is_kept() {
    let scene = Scene::new();
    scene.write_pod("theirs", "");
    let mut program = scene.start();
    let theirs = scene.namespace(pid_in(&program.wait_for("pod default/theirs: Running")));
    program.kill();
    scene.remove_manifest("theirs.yaml");
    for folder in ["/run/static-pods", "/var/lib/cni/cache"] {
        std::fs::rename(folder, format!("{folder}.theirs")).unwrap();
    }
    let mut program = scene.start();
    program.wait_for("network ready: pods");
    assert!(theirs.find_link("eth0").is_some());
}
