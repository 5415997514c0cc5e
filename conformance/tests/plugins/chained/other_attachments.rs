//! DEL of an attachment whose interface name another attachment has in the namespace.

use super::{bandwidth, behind, bridged, chained_plugins};
use crate::configs::{Attached, with};
use crate::interface_plugins::is_kernels;
use crate::subjects::{node, node_with_pod};
use serde_json::json;
use testns::{Attachment, Call, Feature, Verb};

/// The runtime calls DEL after an ADD that was refused for the taken name, or for a container that it does not know.
#[test]
fn del_of_another_attachment_in_the_namespace_changes_nothing() {
    for chained in chained_plugins() {
        let node = node();
        let (pod, other) = (node.container(), node.container());
        let before = bridged(&node, &pod);
        let there = bridged(&node, &other);
        let attached = Attached::add(&node, &behind(&before, (chained.config)()), &pod);
        let of_other = Attached::add(&node, &behind(&there, (chained.config)()), &other);
        node.remember();
        let inside = pod.namespace().snapshot();
        let unknown = Attachment { container_id: "c9".to_owned(), ..pod.attachment() };
        let mut network = (chained.config)();
        network["name"] = "other".into();
        for (config, attachment) in [((chained.config)(), &unknown), (network, &pod.attachment())] {
            Call::new(Verb::Del, &config, attachment).run(&node).ok();
        }
        let changes = [node.changes(), testns::changes(&inside, &pod.namespace().snapshot())].concat();
        let changes: Vec<&str> = changes.lines().filter(|line| !is_kernels(line)).collect();
        assert!(changes.is_empty(), "{}: {changes:#?}", chained.name);
        attached.check_and_del();
        of_other.del().ok();
    }
}

/// The runtime examined the node before the second ADD, which is of another runtime.
#[test]
fn gc_leaves_what_came_after_the_look() {
    for chained in chained_plugins() {
        let node = node();
        let (old, new) = (node.container(), node.container());
        let [before, after] = [&old, &new].map(|pod| bridged(&node, pod));
        let added = Attached::add(&node, &behind(&before, (chained.config)()), &old);
        let attached = Attached::add(&node, &behind(&after, (chained.config)()), &new);
        node.remember();
        let collect = |seen: serde_json::Value| {
            let own = json!({"cniVersion": "1.1.0", "cni.dev/valid-attachments": [], "cni-plugins/seen": seen});
            node.call(Verb::Gc, with((chained.config)(), own), Attachment::none()).ok();
        };
        collect(json!([]));
        let changes = node.changes();
        let changes: Vec<&str> = changes.lines().filter(|line| !is_kernels(line)).collect();
        assert!(changes.is_empty(), "{}: {changes:#?}", chained.name);
        collect(json!([{"containerID": old.id(), "ifname": "eth0"}]));
        attached.check().ok();
        added.del().ok();
        attached.del().ok();
    }
}

/// A veth without mark, as the reference makes it, may be any container's: the name of the ifb shows whose limits it has.
#[test]
fn del_without_a_result_leaves_the_limits_that_lead_to_anothers_ifb() {
    testns::needs!(Feature::Ifb.or_skip());
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let limited = Attached::add(&node, &behind(&before, bandwidth()), &pod);
    for link in node.host().links().iter().filter(|link| link.kind == "ifb") {
        node.host().set_alias(&link.name, "");
    }
    node.host().set_alias(before.host_veth(), "");
    node.remember();
    let unknown = Attachment { container_id: "c9".to_owned(), ..pod.attachment() };
    Call::new(Verb::Del, bandwidth(), &unknown).run(&node).ok();
    node.assert_as_before_except(is_kernels);
    limited.check().ok();
    // Without a result too, this container's limits go.
    Call::new(Verb::Del, bandwidth(), &pod).run(&node).ok();
    let changes = node.changes();
    for limit in ["- qdisc tbf 10000 on veth", "- qdisc ingress ", "- link bwp"] {
        assert!(changes.contains(limit), "{changes}");
    }
}
