//! The names under which the node sees the device. Programs such as udev and NetworkManager react to each.

use super::{config, device_and_pod, ip};
use crate::prelude::*;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// `ip monitor link` of a namespace.
struct Monitor {
    program: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Monitor {
    fn start(host: &Namespace) -> Self {
        let spawn = || Command::new("ip").args(["-oneline", "monitor", "link"]).stdout(Stdio::piped()).spawn();
        let mut program = host.enter(spawn).expect("run ip");
        let lines = BufReader::new(program.stdout.take().expect("its output"));
        let mut monitor = Self { program, lines };
        host.wait_for("the monitor", |_| has_socket(monitor.program.id()));
        monitor.names_until_marked(host, "begin");
        monitor
    }

    /// The names of links in all announcements before that of a new link `mark`.
    fn names_until_marked(&mut self, host: &Namespace, mark: &str) -> BTreeSet<String> {
        host.add_link(mark, "bridge");
        let mut names = BTreeSet::new();
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.lines.read_line(&mut line).expect("read") > 0);
            let mut words = line.trim_start_matches("Deleted ").split([':', '@']).map(str::trim);
            match words.nth(1) {
                Some(name) if name == mark => return names,
                // The other mark may still be changing.
                Some("begin") | None => {}
                Some(name) => drop(names.insert(name.to_owned())),
            }
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        drop(self.program.kill().and_then(|()| self.program.wait()));
    }
}

/// Whether a process has joined a group of routing netlink.
fn has_socket(pid: u32) -> bool {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/netlink")).unwrap_or_default();
    let is_its = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1) == Some(&"0") && words.get(2) == Some(&&*pid.to_string()) && words.get(3) != Some(&"00000000")
    };
    table.lines().any(is_its)
}

/// The container may have a link of the device's name, too: that one stays as it is.
#[test]
fn the_node_sees_the_device_under_its_own_name_alone() {
    for taken_inside in [false, true] {
        let (node, pod) = device_and_pod();
        if taken_inside {
            ip(pod.namespace(), "link add dev1 type veth peer name other");
        }
        let mut monitor = Monitor::start(node.host());
        let attached = Attached::add(&node, &config(json!({})), &pod);
        attached.del().ok();
        let names = monitor.names_until_marked(node.host(), "end");
        assert_eq!(names, BTreeSet::from(["dev1".to_owned()]), "a link of that name in the container: {taken_inside}");
        assert!(node.host().find_link("dev1").is_some());
        assert_eq!(pod.namespace().find_link("dev1").is_some(), taken_inside);
        assert!(pod.namespace().find_link("eth0").is_none());
    }
}
