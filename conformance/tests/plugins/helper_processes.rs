//! Processes that calls leave to PID 1.

use crate::bridge::stays;
use crate::chained::{CHAINED_PLUGINS, behind, bridged, chained_plugins};
use crate::prelude::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use testns::Output;
use testns::trace::{Program, ProgramTrace};

/// PID 1 of a PID namespace.
struct Init {
    unshare: Child,
    answers: BufReader<ChildStdout>,
}

impl Init {
    /// A process that never waits for its children.
    fn careless() -> Self {
        Self::new("echo; exec sleep 1000")
    }

    /// A shell that waits for its children when [`Init::reap`] asks it to: it waits for a program of its own, and then takes
    /// all that have ended.
    fn on_demand() -> Self {
        Self::new("echo; while read -r _; do sh -c :; echo; done")
    }

    /// A PID 1 that has reaped a helper.
    fn proven(node: &Node) -> Self {
        let init = Self::on_demand();
        let attached = Attached::add(node, &bridge(json!({})), &node.container());
        init.del(&attached, node);
        init.until_alone()
    }

    fn new(script: &str) -> Self {
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script]);
        let mut unshare = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut answers = BufReader::new(unshare.stdout.take().unwrap());
        // This line reports that it has started.
        assert_eq!(answers.read_line(&mut String::new()).unwrap(), 1);
        Self { unshare, answers }
    }

    fn pid(&self) -> u32 {
        let [pid] = children(self.unshare.id())[..] else { panic!("unshare has one child") };
        pid
    }

    fn helpers(&self) -> usize {
        children(self.pid()).len()
    }

    fn reap(&mut self) {
        self.unshare.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        assert_eq!(self.answers.read_line(&mut String::new()).unwrap(), 1);
    }

    /// Waits for helpers until none is left.
    fn until_alone(mut self) -> Self {
        let start = Instant::now();
        while self.helpers() > 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?} are left", children(self.pid()));
            self.reap();
        }
        self
    }

    /// Makes the call in the process's PID namespace.
    fn run(&self, call: &Call, node: &Node) -> Output {
        let (executable, variables, stdin) = call.invocation(node);
        let mut nsenter = Command::new("nsenter");
        nsenter.args(["--pid", "--mount", "--target", &self.pid().to_string()]).arg(executable).envs(variables);
        testns::run(nsenter, stdin.as_bytes(), Duration::from_secs(20))
    }

    fn del(&self, attached: &Attached<'_>, node: &Node) {
        let output = self.run(&attached.call(Verb::Del), node);
        assert_eq!(output.code(), 0, "{output:?}");
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        self.unshare.kill().ok();
        self.unshare.wait().ok();
    }
}

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
fn where_pid_1_waits_for_no_child_one_is_left_ever() {
    let node = node();
    let careless = Init::careless();
    for own in [json!({}), json!({"ipMasq": true, "ipMasqBackend": "nftables"})] {
        for _ in 0..3 {
            let attached = Attached::add(&node, &bridge(own.clone()), &node.container());
            careless.del(&attached, &node);
            assert!(node.host().find_link(attached.host_veth()).is_none());
            assert_eq!(careless.helpers(), 1);
        }
    }
    node.assert_as_before_except(stays);
}

/// A node that is drained: no DEL waits for the kernel because the one before it does.
#[test]
fn where_pid_1_has_waited_for_a_helper_each_del_leaves_its_wait_to_one() {
    let node = node();
    let config = bridge(json!({"ipMasq": true, "ipMasqBackend": "nftables"}));
    let all: Vec<_> = (0..6).map(|_| Attached::add(&node, &config, &node.container())).collect();
    let init = Init::proven(&node);
    for (before, attached) in all.iter().enumerate() {
        init.del(attached, &node);
        assert!(node.host().find_link(attached.host_veth()).is_none());
        assert_eq!(init.helpers(), before + 1);
    }
    assert_eq!(init.until_alone().helpers(), 0);
    node.assert_as_before_except(stays);
}

/// Plugins that have rules on the node and no link there. The kernel has one queue of deleted objects: closing any socket waits for
/// what others have deleted, so a DEL that finds no rule leaves the wait to a helper, too.
#[test]
fn del_of_rules_leaves_the_wait_for_the_kernel_to_a_helper() {
    for chained in CHAINED_PLUGINS.into_iter().filter(|chained| ["firewall", "portmap"].contains(&chained.name)) {
        for (is_careless, helpers) in [(true, &[1][..]), (false, &[1, 2])] {
            let (node, pod) = node_with_pod();
            let before = bridged(&node, &pod);
            let attached = Attached::add(&node, &behind(&before, (chained.config)()), &pod);
            let init = if is_careless { Init::careless() } else { Init::proven(&node) };
            for helpers in helpers {
                init.del(&attached, &node);
                assert_eq!(init.helpers(), *helpers, "{}, careless {is_careless}", chained.name);
            }
        }
    }
}

/// No call leaves a process, but for the one that DEL and GC leave the wait for the kernel to.
#[test]
fn no_verb_of_a_chained_plugin_starts_a_program() {
    for chained in chained_plugins() {
        let (node, pod) = node_with_pod();
        let before = bridged(&node, &pod);
        let config = with(behind(&before, (chained.config)()), json!({"cniVersion": "1.1.0"}));
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
            let ProgramTrace { output, processes, .. } = program.trace(&node).unwrap();
            assert_eq!(output.code(), 0, "{output:?}");
            let helpers = if [Verb::Del, Verb::Gc].contains(&verb) { 1 } else { 0 };
            let runs_itself = processes.len() <= 1 + helpers && processes.iter().all(|process| process.execs == 0);
            assert!(runs_itself, "{} {verb:?}: {processes:?}", chained.name);
        }
    }
}
