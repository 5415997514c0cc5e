//! STATUS: the address plugin's reason is passed on.

use super::{InterfacePlugin, each_interface_plugin};
use crate::configs::{Attached, with};
use serde_json::{Value, json};
use testns::{Attachment, Node, Reply, Verb};

#[track_caller]
fn status(node: &Node, config: Value) -> Reply {
    node.call(Verb::Status, config, Attachment::none())
}

/// SPEC 2, STATUS: 50 with the address plugin's reason, whether that is full or not there.
fn status_passes_on_why_ipam_cannot_serve(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(1);
    status(&node, kind.config(0, json!({}))).ok();
    let one = kind.config(0, json!({"ipam": {"type": "host-local", "subnet": "10.7.0.0/30", "reportExhausted": true}}));
    status(&node, one.clone()).ok();
    let attached = Attached::add(&node, &one, &node.container());
    let full = status(&node, one.clone()).fails_with(50);
    assert!(full.msg.contains("10.7.0.0/30") || full.msg.contains("10.7.0.1-10.7.0.2"), "{full:?}");
    attached.del().ok();
    status(&node, one.clone()).ok();
    let absent = status(&node, with(one, json!({"ipam": {"type": "absent"}}))).fails_with(50);
    assert!(absent.msg.contains("absent"), "{absent:?}");
    node.assert_as_before_except(|line| kind.stays(line) || line.contains("/run/cni/trials"));
}

// The kit has rules for STATUS, and `.ci/run` tries them on the plugins whose links most kernels have.
each_interface_plugin! {
    ipvlan: IPVLAN, vlan: VLAN, dummy: DUMMY;
    (status_passes_on_why_ipam_cannot_serve)
}
