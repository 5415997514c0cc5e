//! The subjects, and nodes with the probe beside the suite's plugins.

pub(crate) use conformance::subjects::*;

use std::path::Path;
use testns::Node;

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
