//! The two sets of plugins that are compared.

use testns::{Call, Node, Subject};

/// A set of plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Ours,
    Reference,
}

impl Who {
    pub(crate) fn other(self) -> Self {
        match self {
            Who::Ours => Who::Reference,
            Who::Reference => Who::Ours,
        }
    }
}

/// Whether the reference's plugins are here; if not, prints that the test is skipped.
pub(crate) fn has_reference() -> bool {
    testns::reference_or_skip(std::thread::current().name().unwrap_or("test")).is_some()
}

/// A fresh node.
pub(crate) fn node() -> Node {
    Node::with(&Subject::ours())
}

/// A number from an environment variable.
pub(crate) fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().map_or(otherwise, |text| text.parse().unwrap())
}

/// The call, made with one of the two sets.
pub(crate) fn by(who: Who, node: &Node, plugin: &str, call: Call) -> Call {
    let folder = match who {
        Who::Ours => node.bin_dir().display().to_string(),
        Who::Reference => testns::find_reference().expect("the reference's plugins").display().to_string(),
    };
    let call = call.plugin(&format!("{folder}/{plugin}")).variable("CNI_PATH", &folder);
    call.variable("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
}

/// State that the kernel changes by itself while a link has a carrier.
pub(crate) fn is_the_kernels(line: &str) -> bool {
    let is_local_route = line.contains("route ") && line.contains("::") && line.contains(" table 255 ");
    is_local_route || ["fe80::", " ff00::/8 ", "neighbour "].iter().any(|word| line.contains(word))
}
