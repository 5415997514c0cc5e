//! Manifests that are wrong, change, or come and go with their folder.

use crate::test_node::{TestNode, assert_never, host_port, pod, value};
use nix::sys::signal::Signal;

/// A typing error removes no running pod, not even over a restart.
#[test]
fn a_pod_stays_while_its_file_cannot_be_read() {
    let test_node = TestNode::new();
    test_node.write_pod("one", "");
    let mut program = test_node.start();
    program.wait_for("pod default/one: Running");
    test_node.write_manifest("one.yaml", "{");
    test_node.write_pod("two", "");
    program.wait_for_all(["one.yaml: ", "pod default/two: Running"]);
    program.end(Signal::SIGKILL);
    let mut again = test_node.start();
    again.wait_for_all(["one.yaml: ", "pod default/two: Running"]);
    test_node.write_pod("one", "");
    again.wait_for("pod default/one: Running");
    assert_eq!(value(&again, "one", "netns"), value(&program, "one", "netns"));
    test_node.write_manifest("one.yaml", "{");
    test_node.remove("two");
    again.wait_for("one.yaml: ");
    test_node.remove("one");
    again.wait_for_all(["pod default/one: Gone", "pod default/two: Gone"]);
    test_node.assert_pods(0);
}

#[test]
fn a_pod_that_is_defined_twice_is_the_first_files() {
    let test_node = TestNode::new();
    // An editor's file is no manifest.
    test_node.write_manifest(".0.yaml", &pod("one", "", "hostNetwork: true"));
    test_node.write_manifest("a.yaml", &pod("one", "", ""));
    test_node.write_manifest("b.yaml", &pod("one", "", "hostNetwork: true"));
    let mut program = test_node.start();
    program.wait_for_all(["b.yaml: pod default/one is defined twice", "pod default/one: Running addresses="]);
    test_node.remove("a");
    program.wait_for("pod default/one: Running in the node's network");
    test_node.assert_pods(0);
}

#[test]
fn a_changed_manifest_replaces_the_pod_and_a_touched_one_does_not() {
    let test_node = TestNode::new();
    test_node.write_pod("one", &host_port(8080));
    let mut program = test_node.start();
    program.wait_for("pod default/one: Running");
    let first = value(&program, "one", "netns");
    // A comment is no change.
    test_node.write_manifest("one.yaml", &format!("# again\n{}", pod("one", "", &host_port(8080))));
    test_node.write_pod("two", "");
    program.wait_for("pod default/two: Running");
    assert_never(&program, "default/one: Stopping");
    test_node.write_pod("one", &host_port(8081));
    program.wait_for("pod default/one: Running");
    assert_ne!(value(&program, "one", "netns"), first);
    test_node.assert_pods(2);
}

#[test]
fn the_folder_comes_goes_and_comes_again() {
    let test_node = TestNode::new();
    let mut program = test_node.start();
    program.wait_for("network ready: pods");
    for _ in 0..2 {
        test_node.write_pod("one", "");
        program.wait_for("pod default/one: Running");
        std::fs::remove_dir_all("/run/manifests").unwrap();
        program.wait_for("pod default/one: Gone");
    }
    test_node.assert_pods(0);
}
