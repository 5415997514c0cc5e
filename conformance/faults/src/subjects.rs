//! The two sets of plugins that are compared.

pub use conformance::subjects::Who;
use testns::{Call, Node, Subject};

/// Whether the reference's plugins are here; if not, prints that the test is skipped.
pub fn has_reference() -> bool {
    testns::reference_or_skip(std::thread::current().name().unwrap_or("test")).is_some()
}

pub fn node() -> Node {
    Node::with(&Subject::ours())
}

pub fn by(who: Who, node: &Node, plugin: &str, call: Call) -> Call {
    let folder = match who {
        Who::Ours => node.bin_dir().display().to_string(),
        Who::Reference => testns::find_reference().expect("the reference's plugins").display().to_string(),
    };
    let call = call.plugin(&format!("{folder}/{plugin}")).variable("CNI_PATH", &folder);
    call.variable("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
}

/// State that the kernel changes by itself while a link has a carrier.
pub fn is_the_kernels(line: &str) -> bool {
    let is_local_route = line.contains("route ") && line.contains("::") && line.contains(" table 255 ");
    is_local_route || ["fe80::", " ff00::/8 ", "neighbour "].iter().any(|word| line.contains(word))
}
