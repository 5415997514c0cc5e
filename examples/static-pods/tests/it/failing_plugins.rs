//! Plugins that fail, hang, or are missing: other pods are undisturbed, and nothing is lost.

use crate::test_node::{TestNode, assert_never, host_port, terminate, value};
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
    fn new(test_node: &TestNode) -> Self {
        let path = test_node.node.work_dir().join("gate");
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
    let test_node = TestNode::new();
    let count = test_node.node.work_dir().join("count");
    let add = format!("echo >>{0}; test $(wc -l <{0}) -gt 3 && echo '{RESULT}' || exit 1", count.display());
    test_node.write_plugin("trouble", &add, "exit 0");
    test_node.write_pod_on("one", "trouble");
    test_node.write_pod("good", "");
    let mut program = test_node.start();
    program.wait_for_all(["pod default/one: Running", "pod default/good: Running"]);
    assert_eq!(value(&program, "one", "networks"), "pods:eth0,trouble:eth1");
    assert_eq!(program.seen().iter().filter(|line| line.starts_with("pod default/one: Failed")).count(), 3);
    assert_never(&program, "default/good: Stopping");
}

#[test]
fn a_manifest_may_change_or_go_while_its_pod_comes_up() {
    let test_node = TestNode::new();
    let mut gate = Gate::new(&test_node);
    test_node.write_plugin("slow", &gate.script(), "exit 0");
    test_node.write_pod_on("one", "slow");
    let mut program = test_node.start();
    gate.wait();
    // The bridge is there, and the second network is being set up.
    test_node.write_pod("one", &host_port(8080));
    program.wait_for("pod default/one: Running");
    assert_eq!(value(&program, "one", "networks"), "pods:eth0");
    test_node.assert_pods(1);
    test_node.write_pod_on("one", "slow");
    gate.wait();
    test_node.remove("one");
    program.wait_for("pod default/one: Gone");
    assert_never(&program, "Failed");
    test_node.assert_pods(0);
}

/// The second signal does not wait for a plugin; the next start takes down the rest.
#[test]
fn a_second_signal_leaves_the_rest_to_the_next_start() {
    let test_node = TestNode::new();
    let mut gate = Gate::new(&test_node);
    let add = format!("echo '{RESULT}'");
    test_node.write_plugin("slow", &add, &gate.script());
    test_node.write_pod_on("one", "slow");
    test_node.write_pod("two", "");
    let mut program = test_node.start();
    program.wait_for_all(["pod default/one: Running", "pod default/two: Running"]);
    program.signal(Signal::SIGTERM);
    gate.wait();
    program.wait_for("pod default/two: Gone");
    program.signal(Signal::SIGTERM);
    assert_eq!(program.exit_code(), Some(1));
    test_node.write_plugin("slow", &add, "exit 0");
    test_node.remove("one");
    test_node.remove("two");
    test_node.start().wait_for("pod default/one: Gone");
    test_node.assert_pods(0);
}

/// A pod that cannot be taken down is reported, and the next start finishes it.
#[test]
fn a_pod_whose_plugin_is_missing_is_left_and_finished_later() {
    let test_node = TestNode::new();
    test_node.write_pod("one", "");
    let mut program = test_node.start();
    program.wait_for("pod default/one: Running");
    let (plugin, away) = (test_node.node.bin_dir().join("bridge"), test_node.node.work_dir().join("bridge"));
    std::fs::rename(&plugin, &away).unwrap();
    assert_eq!(terminate(&mut program), Some(1));
    let last = program.seen().last().unwrap();
    assert!(last.starts_with("pod default/one: Left: ") && last.contains("bridge"), "{last}");
    std::fs::rename(&away, &plugin).unwrap();
    test_node.remove("one");
    test_node.start().wait_for("pod default/one: Gone");
    test_node.assert_pods(0);
}
