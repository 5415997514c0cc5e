//! DEL of an attachment whose interface name another attachment has in the namespace.

use super::{behind, bridged, scenes};
use crate::configs::Attached;
use crate::subjects::node;
use testns::{Attachment, Call, Verb};

/// What the kernel does in its own time with a link that is up.
fn is_kernels(line: &str) -> bool {
    line.contains(" fe80::") || line.contains(" route ff00::/8 ")
}

/// The runtime calls DEL after an ADD that was refused for the taken name, or for a container that it does not know.
#[test]
fn del_of_another_attachment_in_the_namespace_changes_nothing() {
    for scene in scenes() {
        let node = node();
        let (pod, other) = (node.container(), node.container());
        let before = bridged(&node, &pod);
        let there = bridged(&node, &other);
        let attached = Attached::add(&node, &behind(&before, (scene.config)()), &pod);
        let of_other = Attached::add(&node, &behind(&there, (scene.config)()), &other);
        node.remember();
        let inside = pod.namespace().snapshot();
        let unknown = Attachment { container_id: "c9".to_owned(), ..pod.attachment() };
        let mut network = (scene.config)();
        network["name"] = "other".into();
        for (config, attachment) in [((scene.config)(), &unknown), (network, &pod.attachment())] {
            Call::new(Verb::Del, &config, attachment).run(&node).ok();
        }
        let changes = [node.changes(), testns::changes(&inside, &pod.namespace().snapshot())].concat();
        let changes: Vec<&str> = changes.lines().filter(|line| !is_kernels(line)).collect();
        assert!(changes.is_empty(), "{}: {changes:#?}", scene.plugin);
        attached.check().ok();
        attached.del().ok();
        of_other.del().ok();
    }
}
