//! Manifests that are wrong, change, or come and go with their folder.

use crate::program::pid_in;
use crate::scene::{Scene, Traces, host_port, pod};
use std::path::Path;

#[test]
fn broken_yaml_is_that_files_alone() {
    let scene = Scene::new();
    scene.write_pod("one", "");
    scene.write_manifest("bad.yaml", "apiVersion: v1\nkind: [Pod\n");
    let mut program = scene.start();
    program.wait_for_all(["bad.yaml: no YAML: ", "pod default/one: Running"]);
    scene.write_manifest("bad.yaml", "apiVersion: apps/v1\nkind: Deployment\n");
    program.wait_for("bad.yaml: kind: \"Deployment\"");
    scene.write_pod("bad", "");
    program.wait_for_all(["bad.yaml: no more errors", "pod default/bad: Running"]);
    assert_eq!(scene.traces(), Traces::of(2));
    assert!(!program.text().contains("default/one: Stopping"), "{}", program.text());
}

/// A typing error removes no running pod, not even over a restart.
#[test]
fn a_pod_stays_while_its_file_cannot_be_read() {
    let scene = Scene::new();
    scene.write_pod("one", "");
    let mut program = scene.start();
    let before = pid_in(&program.wait_for("pod default/one: Running"));
    scene.write_manifest("one.yaml", "{");
    program.wait_for("one.yaml: no YAML");
    program.kill();
    let mut program = scene.start();
    assert_eq!(pid_in(&program.wait_for("pod default/one: Running")), before);
    scene.write_pod("one", "");
    program.wait_for("one.yaml: no more errors");
    scene.remove_manifest("one.yaml");
    program.wait_for("pod default/one: Gone");
    assert_eq!(program.seen.iter().filter(|line| line.contains("Stopping")).count(), 1, "{}", program.text());
    scene.assert_nothing_is_left();
}

#[test]
fn of_a_pod_that_is_there_twice_the_first_file_counts() {
    let scene = Scene::new();
    scene.write_manifest("a.yaml", &pod("one", "hostname: a"));
    scene.write_manifest("b.yaml", &pod("one", "hostname: b"));
    let mut program = scene.start();
    program.wait_for_all(["b.yaml: pod default/one is in a.yaml already, which counts", "pod default/one: Running"]);
    assert_eq!(scene.traces(), Traces::of(1));
    scene.remove_manifest("a.yaml");
    program.wait_for_all(["b.yaml: no more errors", "pod default/one: Stopping", "pod default/one: Running"]);
    assert_eq!(scene.traces(), Traces::of(1));
}

#[test]
fn a_changed_manifest_replaces_the_pod_and_a_touched_one_does_not() {
    let scene = Scene::new();
    scene.write_pod("one", &host_port(8080));
    let mut program = scene.start();
    let first = pid_in(&program.wait_for("pod default/one: Running"));
    // What the network does not depend on is no change.
    scene.write_manifest("one.yaml", &format!("# again\n{}", pod("one", &host_port(8080))));
    scene.write_pod("two", "");
    program.wait_for("pod default/two: Running");
    assert!(!program.text().contains("default/one: Stopping"), "{}", program.text());
    scene.write_pod("one", &host_port(8081));
    assert_ne!(pid_in(&program.wait_for("pod default/one: Running")), first);
    assert_eq!(scene.traces(), Traces::of(2));
}

#[test]
fn the_folder_comes_goes_and_comes_again() {
    let scene = Scene::new();
    scene.remove_manifests();
    let mut program = scene.start();
    program.wait_for("network ready: pods");
    for _ in 0..2 {
        scene.write_pod("one", "");
        program.wait_for("pod default/one: Running");
        scene.remove_manifests();
        program.wait_for("pod default/one: Gone");
    }
    scene.assert_nothing_is_left();
}

#[test]
fn json_is_read_and_json_is_printed() {
    let scene = Scene::new();
    scene.write_manifest("one.json", r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "extra": 1}"#);
    let output = testns::run(scene.command(&["--once", "--output", "json"]), b"", crate::program::DEADLINE);
    assert_eq!(output.code(), 0, "{output:?}");
    let lines: Vec<serde_json::Value> = output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.iter().rev().find(|line| line["pod"] == "default/one").unwrap();
    assert_eq!(last["status"]["phase"], "Running");
    assert_eq!(last["status"]["networks"][0], "pods:eth0");
    // The pods stay.
    assert_eq!(scene.traces(), Traces::of(1));
    scene.remove_manifest("one.json");
    let output = testns::run(scene.command(&["--once"]), b"", crate::program::DEADLINE);
    assert_eq!(output.code(), 0, "{output:?}");
    scene.assert_nothing_is_left();
}

/// As Kubernetes itself brings files into a folder: links through one link, which is swapped.
#[test]
fn files_are_swapped_by_a_link() {
    use std::os::unix::fs::symlink;
    let (scene, folder) = (Scene::new(), Path::new("/run/manifests"));
    for (version, text) in [("..1", pod("one", "")), ("..2", pod("one", "hostname: two"))] {
        std::fs::create_dir(folder.join(version)).unwrap();
        std::fs::write(folder.join(version).join("one.yaml"), text).unwrap();
    }
    symlink("..1", folder.join("..data")).unwrap();
    symlink("..data/one.yaml", folder.join("one.yaml")).unwrap();
    let mut program = scene.start();
    let before = pid_in(&program.wait_for("pod default/one: Running"));
    symlink("..2", folder.join("..new")).unwrap();
    std::fs::rename(folder.join("..new"), folder.join("..data")).unwrap();
    assert_ne!(pid_in(&program.wait_for("pod default/one: Running")), before);
}
