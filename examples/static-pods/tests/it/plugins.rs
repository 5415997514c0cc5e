//! Plugins that misbehave, each on one pod: others are undisturbed, and nothing is lost.

use crate::program::Program;
use crate::scene::{Scene, Traces, host_port, pod, pod_on};
use std::fs::OpenOptions;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

/// A pipe on which a script says that it has come so far: opening it for writing waits for the reader.
struct Gate(PathBuf);

impl Gate {
    fn new(scene: &Scene, name: &str) -> Self {
        let path = scene.node.work_dir().join(name);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    /// Waits until a process writes to it.
    #[track_caller]
    fn wait(&self) {
        let path = self.0.clone();
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            OpenOptions::new().read(true).open(path).unwrap().read_to_string(&mut text).unwrap();
            sender.send(()).ok();
        });
        receiver.recv_timeout(crate::program::DEADLINE).expect("no process came to the gate");
    }
}

/// The bad pod fails with this text, others come up and stay, and all are removed on request.
#[track_caller]
fn check(add: &str, words: &[&str]) {
    let scene = Scene::new();
    scene.write_plugin("trouble", add, "exit 0");
    scene.write_pod("good", "");
    scene.write_pod_on("bad", "trouble");
    let mut program = Program::start(scene.command(&["--deadline", "5"]));
    program.wait_for("pod default/good: Running");
    let failed = program.wait_for("pod default/bad: Failed");
    for word in words {
        assert!(failed.contains(word), "no {word:?} in {failed}");
    }
    scene.write_pod("later", "");
    program.wait_for("pod default/later: Running");
    assert!(!program.text().contains("default/good: Stopping"), "{}", program.text());
    scene.remove_manifest("bad.yaml");
    program.wait_for("pod default/bad: Gone");
    assert_eq!(scene.traces(), Traces::of(2));
    assert!(program.terminate().success(), "{}", program.text());
    scene.assert_nothing_is_left();
}

#[test]
fn a_plugin_that_never_ends() {
    check("while :; do read -r line || exec sleep infinity; done", &["network trouble, interface eth1", "trouble"]);
}

#[test]
fn a_plugin_that_prints_garbage() {
    check("echo '<html>'", &["network trouble, interface eth1", "trouble"]);
}

#[test]
fn a_plugin_that_prints_100_megabytes() {
    check("head -c 100000000 /dev/zero", &["network trouble, interface eth1", "trouble"]);
}

#[test]
fn a_plugin_that_prints_nothing() {
    check("exit 0", &["network trouble, interface eth1", "trouble"]);
}

#[test]
fn a_plugin_that_dies_by_a_signal() {
    check("kill -SEGV $$", &["network trouble, interface eth1", "SIGSEGV"]);
}

#[test]
fn a_plugin_that_leaves_a_child_with_its_stdout() {
    check("sleep infinity & exit 0", &["network trouble, interface eth1", "trouble"]);
}

#[test]
fn a_failed_pod_is_tried_again_until_it_comes_up() {
    let scene = Scene::new();
    let count = scene.node.work_dir().join("count");
    let result = r#"{"cniVersion":"1.1.0","interfaces":[],"ips":[]}"#;
    let add = format!("echo >>{0}; test $(wc -l <{0}) -gt 3 && echo '{result}' || exit 1", count.display());
    scene.write_plugin("trouble", &add, "exit 0");
    scene.write_pod_on("one", "trouble");
    let mut program = scene.start();
    let line = program.wait_for("pod default/one: Running");
    assert!(line.contains("networks=pods:eth0,trouble:eth1"), "{line}");
    assert_eq!(program.seen.iter().filter(|line| line.starts_with("pod default/one: Failed")).count(), 3);
}

#[test]
fn a_manifest_that_changes_while_its_pod_comes_up() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "gate");
    scene.write_plugin("slow", &format!("echo >{}; exec sleep infinity", gate.path().display()), "exit 0");
    scene.write_pod("other", "");
    scene.write_pod_on("one", "slow");
    let mut program = scene.start();
    program.wait_for("pod default/other: Running");
    gate.wait();
    // The pod's bridge exists, and the second network is being set up.
    scene.write_manifest("one.yaml", &pod("one", &host_port(8080)));
    let line = program.wait_for("pod default/one: Running");
    assert!(line.contains("networks=pods:eth0 "), "{line}");
    assert_eq!(scene.traces(), Traces::of(2));
    assert!(!program.text().contains("Failed"), "{}", program.text());
}

#[test]
fn a_manifest_that_goes_while_its_pod_comes_up() {
    let scene = Scene::new();
    let gate = Gate::new(&scene, "gate");
    scene.write_plugin("slow", &format!("echo >{}; exec sleep infinity", gate.path().display()), "exit 0");
    scene.write_manifest("one.yaml", &pod_on("one", "slow"));
    let mut program = scene.start();
    gate.wait();
    scene.remove_manifest("one.yaml");
    program.wait_for("pod default/one: Gone");
    scene.assert_nothing_is_left();
}

/// The second signal does not wait for a plugin; the next start does what was left.
#[test]
fn a_second_signal_leaves_the_rest_to_the_next_start() {
    let scene = Scene::new();
    let (gate, result) = (Gate::new(&scene, "gate"), r#"{"cniVersion":"1.1.0","interfaces":[],"ips":[]}"#);
    let add = format!("echo '{result}'");
    scene.write_plugin("slow", &add, &format!("echo >{}; exec sleep infinity", gate.path().display()));
    scene.write_pod_on("one", "slow");
    scene.write_pod("two", "");
    let mut program = scene.start();
    program.wait_for_all(["pod default/one: Running", "pod default/two: Running"]);
    program.signal(nix::sys::signal::SIGTERM);
    gate.wait();
    program.wait_for("pod default/two: Gone");
    program.signal(nix::sys::signal::SIGTERM);
    assert_eq!(program.end().code(), Some(1), "{}", program.text());
    assert_eq!(program.seen.last().map(String::as_str), Some("pod default/one: Left"));
    assert!(crate::scene::pauses().is_empty());
    scene.write_plugin("slow", &add, "exit 0");
    scene.remove_manifest("one.yaml");
    scene.remove_manifest("two.yaml");
    let mut program = scene.start();
    program.wait_for("pod default/one: Gone");
    scene.assert_nothing_is_left();
}
