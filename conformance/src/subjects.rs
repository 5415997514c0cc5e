//! Nodes with the executables under test.

use nix::sched::{CloneFlags, unshare};
use std::fmt::Debug;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use testns::{Container, Namespace, Node, Subject};

/// The plugins that a test runs. Intended differences are asserted for both, and listed in the plugins' pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Ours,
    /// The Go reference plugins, version 1.9.1 as Debian's unstable has them.
    Reference,
}

impl Who {
    /// True for the suite's own executables.
    pub fn is_ours(self) -> bool {
        self == Self::Ours
    }

    pub fn other(self) -> Self {
        match self {
            Self::Ours => Self::Reference,
            Self::Reference => Self::Ours,
        }
    }
}

pub fn ours() -> Subject {
    testns::note_panics();
    has_neighbour();
    Subject::ours()
}

/// A process in a namespace that has the first addresses of the subnets of most tests, as the tests beside may have.
/// A test that is about an address in no namespace takes [`crate::configs::unshared`], or fails in every run, not in some.
#[expect(clippy::disallowed_methods, reason = "the namespace is that of a thread which ends here")]
fn has_neighbour() {
    static NEIGHBOUR: OnceLock<Child> = OnceLock::new();
    NEIGHBOUR.get_or_init(|| {
        let inside = || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a namespace");
            // The pipe is closed when this process ends, and `cat` ends with it.
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a process")
        };
        let process = std::thread::spawn(inside).join().expect("a neighbour");
        let namespace = Namespace::at(format!("/proc/{}/ns/net", process.id()));
        namespace.add_link("neighbour", "bridge");
        for last in 2..10 {
            for subnet in ["10.7.0.", "10.8.0.", "10.9.0.", "fd07::", "fd08::", "fd09::"] {
                let prefix = if subnet.ends_with(':') { 64 } else { 24 };
                namespace.add_address("neighbour", &format!("{subnet}{last}/{prefix}"));
            }
        }
        process
    });
}

pub fn node() -> Node {
    Node::with(&ours())
}

pub fn node_with_pod() -> (Node, Container) {
    let node = node();
    let pod = node.container();
    (node, pod)
}

/// The reference plugins; where there are none, prints that the test (or its half) is skipped.
pub fn reference_or_skip() -> Option<Subject> {
    Subject::reference_or_skip(&running())
}

pub fn skip(why: &str) {
    testns::skip(&running(), why);
}

fn running() -> String {
    std::thread::current().name().unwrap_or("test").to_owned()
}

/// The subjects, ours first. `CONFORMANCE_SUBJECT=ours` or `=reference` selects one.
#[expect(clippy::disallowed_methods, reason = "a subject is asked for by a variable")]
fn subjects() -> Vec<(Who, Subject)> {
    let only = std::env::var("CONFORMANCE_SUBJECT").unwrap_or_default();
    let reference = (only != "ours").then(reference_or_skip).flatten();
    let ours = (only != "reference").then(ours);
    let named = [ours.map(|subject| (Who::Ours, subject)), reference.map(|subject| (Who::Reference, subject))];
    named.into_iter().flatten().collect()
}

pub fn each(test: impl Fn(Who, &Node)) {
    for (who, subject) in subjects() {
        let _named = NamedOnPanic(who);
        test(who, &Node::with(&subject));
    }
}

/// Checks that the same calls have the same outcome with both subjects; returns that outcome.
pub fn same<T: PartialEq + Debug>(calls: impl Fn(&Node) -> T) -> T {
    let mut all = subjects().into_iter().map(|(who, subject)| {
        let _named = NamedOnPanic(who);
        calls(&Node::with(&subject))
    });
    let first = all.next().expect("a subject");
    for second in all {
        assert_eq!(first, second, "left: ours, right: the reference");
    }
    first
}

/// Names the subject of a test that fails.
struct NamedOnPanic(Who);

impl Drop for NamedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the subject was {:?}", self.0);
        }
    }
}

/// A machine behind the node's link `uplink`, with 192.0.2.2 and 2001:db8::2; the node has the addresses that end with 1.
pub fn machine_outside(node: &Node) -> Namespace {
    let machine = node.remote("remote");
    node.host().add_veth("uplink", &machine, "eth0");
    for (there, here) in [("192.0.2.2/24", "192.0.2.1/24"), ("2001:db8::2/64", "2001:db8::1/64")] {
        machine.add_address("eth0", there);
        node.host().add_address("uplink", here);
    }
    machine.wait_for_addresses();
    node.host().wait_for_addresses();
    machine
}
