//! The errors that an operator reads when ADD fails: induced failures, each with its whole error object.
//!
//! Each text names what failed, on which object, the kernel's message and the remedy (style guide, section 6). And each
//! failed ADD leaves the node as it was, except for the bridge, which stays as after DEL.

mod config;
mod ipam;
mod kernel;

use expect_test::Expect;
use serde_json::Value;
use testns::{Call, Container, Node, Reply, Verb};

/// A node with an obstacle to ADD, and the container that is to be attached.
struct Trouble {
    node: Node,
    pod: Container,
}

impl Trouble {
    fn new() -> Self {
        let node = crate::subjects::node();
        let pod = node.container();
        Self { node, pod }
    }

    fn add(&self, config: &Value) -> Call {
        Call::new(Verb::Add, config, &self.pod)
    }

    /// Checks the whole error object of ADD with this config, and that nothing of the attachment is left.
    #[track_caller]
    fn adding(&self, config: &Value, expected: &Expect) {
        self.calling(&self.add(config), expected);
    }

    /// Checks the whole error object of a call, and that nothing of the attachment is left.
    #[track_caller]
    fn calling(&self, call: &Call, expected: &Expect) {
        self.node.remember();
        let before = self.pod.namespace().snapshot();
        let reply = call.run(&self.node);
        assert_eq!(reply.output.code(), 1, "{reply}");
        expected.assert_eq(&text(&reply));
        self.node.assert_as_before_except(|line| crate::bridge::stays(line) || is_store(line) || is_settling(line));
        assert_eq!(testns::changes(&before, &self.pod.namespace().snapshot()), "");
    }
}

/// Code and message on a line, then the details, without values that change from run to run: this process's pid and name.
fn text(reply: &Reply) -> String {
    let error = reply.fails();
    let comm = std::fs::read_to_string("/proc/self/comm").expect("the process's name");
    let own = format!("process {} ({})", std::process::id(), comm.trim());
    let text = format!("{} {}\n{}", error.code, error.msg, error.details);
    format!("{}\n", text.trim_end().replace(&own, "process PID (NAME)"))
}

/// Link-local addresses of the test's own links appear with their carrier; the links have lines of their own.
fn is_settling(line: &str) -> bool {
    [" address fe80::", " route fe80::", " route ff00::/8 "].iter().any(|start| line.contains(start))
}

/// The store's folder and lock, which stay; reservations are not included.
fn is_store(line: &str) -> bool {
    const KEPT: [&str; 4] = ["networks", "net", "lock", "last_reserved_ip.0"];
    let path = line.split(' ').nth(2).unwrap_or_default();
    path.starts_with("/run/cni")
        || path.starts_with("/var/lib/cni/networks") && KEPT.contains(&path.rsplit('/').next().unwrap_or_default())
}
