//! The subjects, and nodes with the probe beside the suite's plugins.

pub(crate) use conformance::subjects::*;

use std::path::{Path, PathBuf};
use testns::Node;

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

/// The root of the sources; where they are not on this machine, prints that the test is skipped.
pub(crate) fn sources_or_skip() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    if !root.exists() {
        skip("the source is not on this machine");
    }
    Some(root.to_owned()).filter(|root| root.exists())
}

/// The files below a folder with this extension, but for what cargo has built.
pub(crate) fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") && !path.is_symlink() {
            found.extend(files_below(&path, extension));
        } else if path.extension().is_some_and(|own| own == extension) {
            found.push(path);
        }
    }
    found
}
