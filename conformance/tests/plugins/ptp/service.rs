//! GC and STATUS, which the reference of Debian 12 does not have.

use super::ptp;
use crate::bridge::stays;
use crate::configs::{Attached, dual, ip, unshared, with};
use crate::subjects::node;
use serde_json::{Value, json};
use std::fs::File;
use testns::{Attachment, Node, Remains, Verb};

fn config(own: Value) -> Value {
    ptp(with(json!({"cniVersion": "1.1.0", "ipMasq": true, "ipam": dual()}), own))
}

fn gc(node: &Node, valid: &[&Attachment]) {
    let valid = valid.iter().map(|one| json!({"containerID": one.container_id, "ifname": one.ifname}));
    let list = json!({"cni.dev/valid-attachments": valid.collect::<Vec<_>>()});
    node.call(Verb::Gc, with(config(json!({})), list), Attachment::none()).ok();
}

/// SPEC 2, GC: links, rules and addresses of attachments that are not in the list go, what is in it stays.
#[test]
fn gc_removes_what_is_not_valid_and_keeps_what_is() {
    let node = node();
    let [keeper, killed, vanished] = ["keeper", "killed", "vanished"].map(|id| node.container_named(id));
    let unshared = unshared();
    let network = config(json!({"ipam": unshared.dual()}));
    let kept = Attached::add(&node, &network, &keeper);
    node.remember();
    let lost = [&killed, &vanished].map(|pod| Attached::add(&node, &network, pod));
    let _held = File::open(vanished.namespace().path()).unwrap();
    vanished.leave(Remains::Gone);
    for _ in 0..2 {
        gc(&node, &[&kept.attachment]);
        for one in &lost {
            assert!(node.host().find_link(one.host_veth()).is_none(), "{}", one.result);
        }
        let is_kernels =
            |line: &str| line.contains("fe80::") || line.contains(" ff00::/8 ") || line.contains("::/128 ");
        node.assert_as_before_except(|line| {
            is_kernels(line) || line.contains("/last_reserved_ip.") || line.contains("/run/cni")
        });
        kept.check().ok();
        keeper.namespace().ping(ip(&unshared.address(1)));
    }
    gc(&node, &[]);
    node.assert_as_before_except(|line| line.starts_with("- ") || stays(line));
    assert!(node.host().find_link(kept.host_veth()).is_none());
}

/// STATUS: the node could serve ADD; a network without its address plugin could not.
#[test]
fn status_is_that_of_the_node_and_of_the_address_plugin() {
    let node = node();
    node.call(Verb::Status, config(json!({})), Attachment::none()).ok();
    let absent = config(json!({"ipam": {"type": "absent"}}));
    let error = node.call(Verb::Status, absent, Attachment::none()).fails_with(50);
    assert!(error.msg.contains("absent"), "{error:?}");
    node.assert_as_before_except(|line| line.contains("/run/cni"));
}
