//! Pods come up, reach each other, wait, and go.

use crate::test_node::{PODS, TestNode, assert_never, host_port, pod, terminate, value};
use nix::sys::signal::Signal;
use testns::Namespace;

#[test]
fn pods_come_up_ping_each_other_go_with_their_manifests_and_leave_nothing() {
    let test_node = TestNode::new();
    let text = format!("{}---\n{}", pod("web", "", ""), pod("agent", "", "hostNetwork: true"));
    test_node.write_manifest("web.yaml", &text);
    let mut program = test_node.start();
    program.wait_for_all(["pod default/web: Running", "pod default/agent: Running in the node's network"]);
    test_node.write_pod("client", "");
    program.wait_for("pod default/client: Running");
    assert_eq!(value(&program, "web", "networks"), "pods:eth0");
    let netns = |pod| Namespace::at(value(&program, pod, "netns"));
    let address = |pod| value(&program, pod, "addresses").parse::<std::net::IpAddr>().unwrap();
    netns("client").ping(address("web"));
    netns("web").ping(address("client"));
    // lo is up, by the pod's own address as well.
    netns("web").ping(address("web"));
    test_node.assert_pods(2);
    test_node.remove("client");
    program.wait_for("pod default/client: Gone");
    test_node.assert_pods(1);
    assert_never(&program, "default/web: Stopping");
    assert_eq!(terminate(&mut program), Some(0));
    for pod in ["web", "agent"] {
        let last = program.seen().iter().rev().find(|line| line.starts_with(&format!("pod default/{pod}:")));
        assert_eq!(last, Some(&format!("pod default/{pod}: Gone")));
    }
    test_node.assert_pods(0);
}

#[test]
fn of_two_pods_with_one_host_port_the_second_waits() {
    let test_node = TestNode::new();
    test_node.write_pod("first", &host_port(8080));
    // The network has no portmap, so the port has no effect.
    let mut program = test_node.start();
    let line = program.wait_for("pod default/first: Running");
    assert!(line.contains(": warning: network pods has no plugin with capability portMappings"), "{line}");
    test_node.write_pod("second", &host_port(8080));
    test_node.write_pod("other", &host_port(8081));
    program.wait_for_all([
        "pod default/second: Waiting: hostPort 8080/tcp is taken by pod default/first",
        "pod default/other: Running",
    ]);
    test_node.remove("first");
    program.wait_for("pod default/second: Running");
    test_node.assert_pods(2);
}

#[test]
fn pods_wait_for_a_network_and_those_in_the_nodes_network_do_not() {
    let test_node = TestNode::new();
    std::fs::remove_dir_all("/etc/cni/net.d").unwrap();
    test_node.write_pod("one", "");
    let agent = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent", "namespace": "kube-system"},
        "spec": {"hostNetwork": true}}"#;
    test_node.write_manifest("agent.json", agent);
    let mut program = test_node.start();
    program.wait_for_all([
        "network not ready: ",
        "pod kube-system/agent: Running",
        "pod default/one: Waiting: network not ready: ",
    ]);
    test_node.write_network("10-pods.conflist", PODS);
    program.wait_for_all(["network ready: pods", "pod default/one: Running"]);
}

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
