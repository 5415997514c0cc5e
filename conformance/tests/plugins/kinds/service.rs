//! GC and STATUS.

use super::{Kind, LinkPlace, each_kind, held};
use crate::configs::{Attached, unshared, with};
use serde_json::{Value, json};
use std::fs::File;
use testns::{Attachment, Node, Remains, Reply, Verb};

fn gc(node: &Node, kind: Kind, valid: &Value) {
    node.call(Verb::Gc, kind.config(0, json!({"cni.dev/valid-attachments": valid})), Attachment::none()).ok();
}

/// SPEC 2, GC: what is marked with an attachment that is not in the list goes from the node, its addresses are free; what is in
/// the list stays, and so does another network's. GC may be repeated.
fn gc_keeps_the_valid_only(kind: Kind) {
    let (node, _outside) = kind.node(3);
    let [kept, lost, others] = ["kept", "lost", "others"].map(|id| node.container_named(id));
    let add = |number, own, pod| Attached::add(&node, &kind.config(number, own), pod);
    let own = json!({"ipam": unshared().dual()});
    let (kept, _lost) = (add(0, own.clone(), &kept), add(1, own, &lost));
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd09::/64"}]]});
    let others = add(2, json!({"name": "other", "ipam": ipam}), &others);
    // Something holds the namespace, so that the kernel does not end a link on the node with it.
    let _held = File::open(lost.namespace().path()).unwrap();
    lost.leave(if kind.place == LinkPlace::Device { Remains::Alive } else { Remains::Gone });
    for _ in 0..2 {
        gc(&node, kind, &json!([{"containerID": "kept", "ifname": "eth0"}]));
        assert_eq!(held().len(), 2);
        kept.check().ok();
        others.check().ok();
    }
    match kind.place {
        LinkPlace::Pair => assert_eq!(node.host().links().iter().filter(|link| link.kind == "veth").count(), 2),
        LinkPlace::Device => assert!(node.host().find_link("dev1").is_some()),
        LinkPlace::Upon | LinkPlace::Inside => {}
    }
    // The name of the interface counts, too.
    gc(&node, kind, &json!([{"containerID": "kept", "ifname": "eth1"}]));
    // A link that is in the container alone stays, and so does its address.
    let stays = matches!(kind.place, LinkPlace::Upon | LinkPlace::Inside);
    assert_eq!(held().len(), if stays { 2 } else { 0 });
    others.check().ok();
}

#[track_caller]
fn status(node: &Node, config: Value) -> Reply {
    node.call(Verb::Status, config, Attachment::none())
}

/// SPEC 2, STATUS: 50 with the address plugin's reason, whether that is full or not there.
fn status_passes_on_why_ipam_cannot_serve(kind: Kind) {
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
each_kind! {
    ipvlan: IPVLAN, vlan: VLAN, dummy: DUMMY;
    (gc_keeps_the_valid_only status_passes_on_why_ipam_cannot_serve)
}

each_kind! {
    ptp: PTP, macvlan: MACVLAN, host_device: HOST_DEVICE, tap: TAP;
    (gc_keeps_the_valid_only)
}
