//! Plugins that fail, hang, or are missing: other pods are undisturbed, and nothing is lost.

use crate::scene::{Scene, assert_never, host_port, terminate, value};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::PathBuf;

const RESULT: &str = r#"{"cniVersion":"1.1.0","interfaces":[],"ips":[]}"#;

/// A pipe to which a script reports that it has come so far.
struct Gate {
    path: PathBuf,
    pipe: File,
}

impl Gate {
    fn new(scene: &Scene) -> Self {
        let path = scene.node.work_dir().join("gate");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let pipe = File::options().read(true).write(true).open(&path).unwrap();
        Self { path, pipe }
    }

    /// A script that comes to the gate, then never ends.
    fn script(&self) -> String {
        format!("echo >{}; exec sleep infinity", self.path.display())
    }

    /// Waits until a process writes to it.
    #[track_caller]
    fn wait(&mut self) {
        let mut pipe = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut pipe, 60_000_u16), Ok(1), "no process came to the gate");
        self.pipe.read_exact(&mut [0]).unwrap();
    }
}

#[test]
fn a_failed_pod_is_tried_again_until_it_comes_up() {
    let scene = Scene::new();
    let count = scene.node.work_dir().join("count");
    let add = format!("echo >>{0}; test $(wc -l <{0}) -gt 3 && echo '{RESULT}' || exit 1", count.display());
    scene.write_plugin("trouble", &add, "exit 0");
    scene.write_pod_on("one", "trouble");
    scene.write_pod("good", "");
    let mut program = scene.start();
    program.wait_for_all(["pod default/one: Running", "pod default/good: Running"]);
    assert_eq!(value(&program, "one", "networks"), "pods:eth0,trouble:eth1");
    assert_eq!(program.seen().iter().filter(|line| line.starts_with("pod default/one: Failed")).count(), 3);
    assert_never(&program, "default/good: Stopping");
}

#[test]
fn a_manifest_may_change_or_go_while_its_pod_comes_up() {
    let scene = Scene::new();
    let mut gate = Gate::new(&scene);
    scene.write_plugin("slow", &gate.script(), "exit 0");
    scene.write_pod_on("one", "slow");
    let mut program = scene.start();
    gate.wait();
    // The bridge is there, and the second network is being set up.
    scene.write_pod("one", &host_port(8080));
    program.wait_for("pod default/one: Running");
    assert_eq!(value(&program, "one", "networks"), "pods:eth0");
    scene.assert_pods(1);
    scene.write_pod_on("one", "slow");
    gate.wait();
    scene.remove("one");
    program.wait_for("pod default/one: Gone");
    assert_never(&program, "Failed");
    scene.assert_pods(0);
}

/// The second signal does not wait for a plugin; the next start takes down the rest.
#[test]
fn a_second_signal_leaves_the_rest_to_the_next_start() {
    let scene = Scene::new();
    let mut gate = Gate::new(&scene);
    let add = format!("echo '{RESULT}'");
    scene.write_plugin("slow", &add, &gate.script());
    scene.write_pod_on("one", "slow");
    scene.write_pod("two", "");
    let mut program = scene.start();
    program.wait_for_all(["pod default/one: Running", "pod default/two: Running"]);
    program.signal(Signal::SIGTERM);
    gate.wait();
    program.wait_for("pod default/two: Gone");
    program.signal(Signal::SIGTERM);
    assert_eq!(program.exit_code(), Some(1));
    scene.write_plugin("slow", &add, "exit 0");
    scene.remove("one");
    scene.remove("two");
    scene.start().wait_for("pod default/one: Gone");
    scene.assert_pods(0);
}

/// A pod that cannot be taken down is reported, and the next start finishes it.
#[test]
fn a_pod_whose_plugin_is_missing_is_left_and_finished_later() {
    let scene = Scene::new();
    scene.write_pod("one", "");
    let mut program = scene.start();
    program.wait_for("pod default/one: Running");
    let (plugin, away) = (scene.node.bin_dir().join("bridge"), scene.node.work_dir().join("bridge"));
    std::fs::rename(&plugin, &away).unwrap();
    assert_eq!(terminate(&mut program), Some(1));
    let last = program.seen().last().unwrap();
    assert!(last.starts_with("pod default/one: Left: ") && last.contains("bridge"), "{last}");
    std::fs::rename(&away, &plugin).unwrap();
    scene.remove("one");
    scene.start().wait_for("pod default/one: Gone");
    scene.assert_pods(0);
}
