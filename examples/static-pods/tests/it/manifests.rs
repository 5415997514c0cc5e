//! Manifests that are wrong, change, or come and go with their folder.

use crate::scene::{Scene, assert_never, host_port, pod, value};
use nix::sys::signal::Signal;

/// A typing error removes no running pod, not even over a restart.
#[test]
fn a_pod_stays_while_its_file_cannot_be_read() {
    let scene = Scene::new();
    scene.write_pod("one", "");
    let mut program = scene.start();
    program.wait_for("pod default/one: Running");
    scene.write_manifest("one.yaml", "{");
    scene.write_pod("two", "");
    program.wait_for_all(["one.yaml: ", "pod default/two: Running"]);
    program.end(Signal::SIGKILL);
    let mut again = scene.start();
    again.wait_for_all(["one.yaml: ", "pod default/two: Running"]);
    scene.write_pod("one", "");
    again.wait_for("pod default/one: Running");
    assert_eq!(value(&again, "one", "netns"), value(&program, "one", "netns"));
    scene.write_manifest("one.yaml", "{");
    scene.remove("two");
    again.wait_for("one.yaml: ");
    scene.remove("one");
    again.wait_for_all(["pod default/one: Gone", "pod default/two: Gone"]);
    scene.assert_pods(0);
}

#[test]
fn a_pod_that_is_defined_twice_is_the_first_files() {
    let scene = Scene::new();
    // An editor's file is no manifest.
    scene.write_manifest(".0.yaml", &pod("one", "", "hostNetwork: true"));
    scene.write_manifest("a.yaml", &pod("one", "", ""));
    scene.write_manifest("b.yaml", &pod("one", "", "hostNetwork: true"));
    let mut program = scene.start();
    program.wait_for_all(["b.yaml: pod default/one is defined twice", "pod default/one: Running addresses="]);
    scene.remove("a");
    program.wait_for("pod default/one: Running in the node's network");
    scene.assert_pods(0);
}

#[test]
fn a_changed_manifest_replaces_the_pod_and_a_touched_one_does_not() {
    let scene = Scene::new();
    scene.write_pod("one", &host_port(8080));
    let mut program = scene.start();
    program.wait_for("pod default/one: Running");
    let first = value(&program, "one", "netns");
    // A comment is no change.
    scene.write_manifest("one.yaml", &format!("# again\n{}", pod("one", "", &host_port(8080))));
    scene.write_pod("two", "");
    program.wait_for("pod default/two: Running");
    assert_never(&program, "default/one: Stopping");
    scene.write_pod("one", &host_port(8081));
    program.wait_for("pod default/one: Running");
    assert_ne!(value(&program, "one", "netns"), first);
    scene.assert_pods(2);
}

#[test]
fn the_folder_comes_goes_and_comes_again() {
    let scene = Scene::new();
    let mut program = scene.start();
    program.wait_for("network ready: pods");
    for _ in 0..2 {
        scene.write_pod("one", "");
        program.wait_for("pod default/one: Running");
        std::fs::remove_dir_all("/run/manifests").unwrap();
        program.wait_for("pod default/one: Gone");
    }
    scene.assert_pods(0);
}
