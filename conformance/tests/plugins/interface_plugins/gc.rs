//! GC: what is in the list of valid attachments stays.

use super::{InterfacePlugin, LinkPlace, each_interface_plugin, held};
use crate::configs::{Attached, unshared};
use serde_json::{Value, json};
use std::fs::File;
use testns::{Attachment, Node, Remains, Verb};

fn gc(node: &Node, kind: InterfacePlugin, valid: &Value) {
    node.call(Verb::Gc, kind.config(0, json!({"cni.dev/valid-attachments": valid})), Attachment::none()).ok();
}

/// SPEC 2, GC: what is marked with an attachment that is not in the list goes from the node, its addresses are free; what is in
/// the list stays, and so does another network's. GC may be repeated.
fn gc_keeps_the_valid_only(kind: InterfacePlugin) {
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

each_interface_plugin! {
    ipvlan: IPVLAN, vlan: VLAN, dummy: DUMMY, ptp: PTP, macvlan: MACVLAN, host_device: HOST_DEVICE, tap: TAP;
    (gc_keeps_the_valid_only)
}
