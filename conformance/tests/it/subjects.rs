//! Nodes with the executables under test.

use std::path::Path;
use testns::{Node, Subject};

/// The suite's plugins.
pub(crate) fn ours() -> Subject {
    Subject::Multicall(env!("CARGO_BIN_EXE_plugins-under-test").into())
}

/// A node with the suite's plugins.
pub(crate) fn node() -> Node {
    Node::with(&ours())
}

/// A node with the probe: plugins that do what their config says.
pub(crate) fn probe_node() -> Node {
    let node = node();
    for name in ["probe", "probe-ipam"] {
        let link = node.bin_dir().join(name);
        std::os::unix::fs::symlink(Path::new(env!("CARGO_BIN_EXE_probe")), link).expect("link the probe");
    }
    node
}
