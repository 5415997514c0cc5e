//! What calls leave to PID 1.

use crate::bridge::stays;
use crate::chained::{SCENES, behind, bridged, scenes};
use crate::configs::{Attached, bridge, with};
use crate::subjects::node;
use serde_json::json;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testns::trace::{Program, Seen};
use testns::{Attachment, Call, Node, Output, Verb};

/// How many helpers there are at most.
const HELPERS: usize = 4;

/// A process that never waits for its children, as PID 1 of a PID namespace.
struct Careless(Child);

impl Careless {
    fn new() -> Self {
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", "echo; exec sleep 1000"]);
        let mut child = unshare.stdout(Stdio::piped()).spawn().unwrap();
        // This line reports that it has started.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self(child)
    }

    fn pid(&self) -> u32 {
        let [pid] = children(self.0.id())[..] else { panic!("unshare has one child") };
        pid
    }

    /// Makes the call in the process's PID namespace.
    fn run(&self, call: &Call, node: &Node) -> Output {
        let (executable, variables, stdin) = call.invocation(node);
        let mut nsenter = Command::new("nsenter");
        nsenter.args(["--pid", "--mount", "--target", &self.pid().to_string()]).arg(executable).envs(variables);
        testns::run(nsenter, stdin.as_bytes(), Duration::from_secs(20))
    }
}

impl Drop for Careless {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The children of this process, zombies included.
fn children(parent: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let parent_of = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    all.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

/// A container whose PID 1 does not wait for orphans: it must not run out of pids.
#[test]
fn where_pid_1_waits_for_no_child_four_are_left_at_most() {
    let node = node();
    let careless = Careless::new();
    for own in [json!({}), json!({"ipMasq": true, "ipMasqBackend": "nftables"})] {
        for _ in 0..HELPERS {
            let attached = Attached::add(&node, &bridge(own.clone()), &node.container());
            let output = careless.run(&attached.call(Verb::Del), &node);
            assert_eq!(output.code(), 0, "{output:?}");
            assert!(node.host().find_link(attached.host_veth()).is_none());
            let left = children(careless.pid());
            assert!(left.len() <= HELPERS, "{left:?}");
        }
    }
    assert_eq!(children(careless.pid()).len(), HELPERS);
    node.assert_as_before_except(stays);
}

/// Plugins that have rules on the node and no link there.
#[test]
fn del_of_rules_leaves_the_wait_for_the_kernel_to_a_helper() {
    for scene in SCENES.into_iter().filter(|scene| ["firewall", "portmap"].contains(&scene.plugin)) {
        let node = node();
        let pod = node.container();
        let before = bridged(&node, &pod);
        let attached = Attached::add(&node, &behind(&before, (scene.config)()), &pod);
        let careless = Careless::new();
        assert_eq!(careless.run(&attached.call(Verb::Del), &node).code(), 0);
        assert_eq!(children(careless.pid()).len(), 1, "{}", scene.plugin);
    }
}

/// The kernel has one queue of deleted objects: closing any socket waits for what others have deleted.
#[test]
fn del_without_rules_leaves_the_wait_for_others_rules_to_a_helper() {
    for scene in SCENES.into_iter().filter(|scene| ["firewall", "portmap"].contains(&scene.plugin)) {
        let node = node();
        let pod = node.container();
        let before = bridged(&node, &pod);
        let attached = Attached::add(&node, &behind(&before, (scene.config)()), &pod);
        let careless = Careless::new();
        for helpers in [1, 2] {
            assert_eq!(careless.run(&attached.call(Verb::Del), &node).code(), 0);
            assert_eq!(children(careless.pid()).len(), helpers, "{}", scene.plugin);
        }
    }
}

/// Nor a process, but for the one that DEL and GC leave the wait for the kernel to.
#[test]
fn no_verb_of_a_chained_plugin_starts_a_program() {
    for scene in scenes() {
        let node = node();
        let pod = node.container();
        let before = bridged(&node, &pod);
        let config = with(behind(&before, (scene.config)()), json!({"cniVersion": "1.1.0"}));
        let gc = with(config.clone(), json!({"cni.dev/valid-attachments": []}));
        for verb in [Verb::Status, Verb::Add, Verb::Check, Verb::Del, Verb::Del, Verb::Add, Verb::Gc] {
            let call = match verb {
                Verb::Status => Call::new(verb, &config, Attachment::none()),
                Verb::Gc => Call::new(verb, &gc, Attachment::none()),
                _ => Call::new(verb, &config, &pod),
            };
            let (executable, environment, stdin) = call.invocation(&node);
            let deadline = Duration::from_secs(60);
            let (arguments, environment, stdin) = (&[], &environment[..], &stdin[..]);
            let program = Program { executable: &executable, arguments, environment, stdin, deadline };
            let Seen { output, processes, .. } = program.trace(&node).unwrap();
            assert_eq!(output.code(), 0, "{output:?}");
            let helpers = if [Verb::Del, Verb::Gc].contains(&verb) { 1 } else { 0 };
            let runs_itself = processes.len() <= 1 + helpers && processes.iter().all(|process| process.execs == 0);
            assert!(runs_itself, "{} {verb:?}: {processes:?}", scene.plugin);
        }
    }
}
