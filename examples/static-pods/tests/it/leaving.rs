//! The end, in order.

use crate::program::Program;
use crate::scene::Scene;
use nix::sys::signal::Signal;

/// All of the node is as a first pod left it, but for what the network remembers on purpose.
#[test]
fn a_node_is_as_before_when_all_pods_are_gone() {
    let scene = Scene::new();
    scene.write_pod("first", "");
    let mut program = scene.start();
    program.wait_for("pod default/first: Running");
    scene.node.host().wait_until_settled("cni0");
    assert!(program.terminate().success());
    scene.remove_manifest("first.yaml");
    scene.node.remember();
    for name in ["one", "two", "three"] {
        scene.write_pod(name, "");
    }
    let mut program = scene.start();
    program.wait_for_all(["one", "two", "three"].map(|name| format!("pod default/{name}: Running")));
    program.signal(Signal::SIGINT);
    assert!(program.end().success(), "{}", program.text());
    let own = ["last_reserved_ip", "/run/cni", "/run/manifests"];
    scene.node.assert_as_before_except(|line| own.iter().any(|word| line.contains(word)));
}

#[test]
fn a_table_is_drawn_where_it_is_asked_for() {
    let scene = Scene::new();
    scene.write_pod("one", "");
    let mut program = Program::start(scene.command(&["--output", "table"]));
    program.wait_for("default/one  Running");
    assert!(program.terminate().success());
}

/// A pod that cannot be taken down is reported, recorded, and finished by the next start.
#[test]
fn a_pod_whose_plugin_is_missing_is_left_and_finished_later() {
    let scene = Scene::new();
    scene.write_pod("one", "");
    let mut program = scene.start();
    program.wait_for("pod default/one: Running");
    let (plugin, away) = (scene.node.bin_dir().join("bridge"), scene.node.work_dir().join("bridge"));
    std::fs::rename(&plugin, &away).unwrap();
    assert_eq!(program.terminate().code(), Some(1));
    let last = program.seen.last().unwrap();
    assert!(last.starts_with("pod default/one: Left: ") && last.contains("bridge"), "{last}");
    std::fs::rename(&away, &plugin).unwrap();
    scene.remove_manifest("one.yaml");
    let mut program = scene.start();
    program.wait_for("pod default/one: Gone");
    scene.assert_nothing_is_left();
}
