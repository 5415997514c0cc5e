//! Nodes with the executables under test.

use std::fmt::Debug;
use std::path::Path;
use testns::{Node, Subject};

/// The plugins that a test runs. Intended differences are asserted for both, and listed in `DIFFERENCES.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The suite's.
    Ours,
    /// The Go reference plugins, version 1.9.1 as Debian's unstable has them.
    Reference,
}

impl Who {
    pub(crate) fn is_ours(self) -> bool {
        self == Self::Ours
    }
}

/// The suite's plugins.
pub(crate) fn ours() -> Subject {
    testns::note_panics();
    Subject::ours()
}

/// A node with the suite's plugins.
pub(crate) fn node() -> Node {
    Node::with(&ours())
}

/// The reference plugins; where there are none, prints that the test (or its half) is skipped.
pub(crate) fn reference_or_skip() -> Option<Subject> {
    Subject::reference_or_skip(&running())
}

/// Prints that the running test, or a part of it, is skipped.
pub(crate) fn skip(why: &str) {
    testns::skip(&running(), why);
}

fn running() -> String {
    std::thread::current().name().unwrap_or("test").to_owned()
}

/// The subjects, ours first. `CONFORMANCE_SUBJECT=ours` or `=reference` selects one.
fn subjects() -> Vec<(Who, Subject)> {
    let only = std::env::var("CONFORMANCE_SUBJECT").unwrap_or_default();
    let reference = (only != "ours").then(reference_or_skip).flatten();
    let ours = (only != "reference").then(ours);
    let named = [ours.map(|subject| (Who::Ours, subject)), reference.map(|subject| (Who::Reference, subject))];
    named.into_iter().flatten().collect()
}

/// Runs a test with each subject on a node of its own.
pub(crate) fn each(test: impl Fn(Who, &Node)) {
    for (who, subject) in subjects() {
        let _named = NamedOnPanic(who);
        test(who, &Node::with(&subject));
    }
}

/// Checks that the same calls have the same outcome with both subjects; returns that outcome.
pub(crate) fn same<T: PartialEq + Debug>(calls: impl Fn(&Node) -> T) -> T {
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

/// A node with the probe: plugins that do what their config says.
pub(crate) fn probe_node() -> Node {
    let node = node();
    install_probe(&node);
    node
}

/// Puts the probe beside a node's plugins.
pub(crate) fn install_probe(node: &Node) {
    for name in ["probe", "probe-ipam"] {
        let link = node.bin_dir().join(name);
        std::os::unix::fs::symlink(Path::new(env!("CARGO_BIN_EXE_probe")), link).expect("link the probe");
    }
}
