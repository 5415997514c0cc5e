//! With the reference on one node: an upgrade in either direction.

use super::ptp;
use crate::bridge::stays;
use crate::configs::{Attached, addresses, dual, ip, unshared, with};
use crate::subjects::{ours, reference_or_skip};
use serde_json::{Value, json};
use std::fs::File;
use std::path::Path;
use testns::{Attachment, Node, Remains, Verb};

fn full(own: Value) -> Value {
    let routes = json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]);
    let ipam = with(dual(), json!({"routes": routes}));
    ptp(with(json!({"ipMasq": true, "ipMasqBackend": "iptables", "ipam": ipam}), own))
}

/// ADD by one, CHECK and DEL by the other; pods of both reach each other meanwhile.
#[test]
fn what_one_added_the_other_checks_and_deletes() {
    let Some(theirs) = reference_or_skip() else { return };
    for (first, second) in [(ours(), theirs.clone()), (theirs.clone(), ours())] {
        let node = Node::with(&theirs); // so that programs are found when it is their turn
        node.install(&first);
        let (old, new) = (node.container(), node.container());
        let before = Attached::add(&node, &full(json!({})), &old);
        node.install(&second);
        let after = Attached::add(&node, &full(json!({})), &new);
        old.namespace().ping(ip("10.7.0.3"));
        new.namespace().ping(ip("fd07::2"));
        before.check().ok();
        before.del().ok();
        before.del().ok();
        node.install(&first);
        after.check().ok();
        after.del().ok();
        assert!(old.namespace().find_link("eth0").is_none());
        let changes = node.changes();
        let left: Vec<_> = changes.lines().filter(|line| !stays(line)).collect();
        assert!(left.is_empty(), "ADD by {first:?}, DEL by {second:?}: {left:#?}");
    }
}

/// With prevResult ours removes what theirs made, whatever is left of the container.
#[test]
fn all_that_they_added_is_deleted_by_ours() {
    let Some(theirs) = reference_or_skip() else { return };
    for remains in Remains::ALL {
        let node = Node::with(&theirs);
        let pod = node.container();
        let mut attached = Attached::add(&node, &full(json!({})), &pod);
        node.install(&ours());
        let _held = File::open(pod.namespace().path()).unwrap();
        attached.attachment = pod.leave(remains);
        attached.del().ok();
        assert!(node.host().find_link(attached.host_veth()).is_none(), "{remains:?}");
        let changes = node.changes();
        let left: Vec<_> = changes.lines().filter(|line| !stays(line)).collect();
        assert!(left.is_empty(), "{remains:?}: {left:#?}");
    }
}

/// GC does not know whose veth an unmarked one is: the address that it may have stays held.
#[test]
fn gc_keeps_addresses_while_their_veths_may_have_them() {
    let Some(theirs) = reference_or_skip() else { return };
    let node = Node::with(&theirs);
    let pods = [node.container_named("c1"), node.container_named("c2")];
    let network = ptp(json!({"ipam": unshared().v4()}));
    let [kept, lost] = pods.each_ref().map(|pod| Attached::add(&node, &network, pod));
    node.install(&ours());
    let held = |one: &Attached<'_>| {
        let address = addresses(&one.result)[0].split('/').next().unwrap().to_owned();
        Path::new("/var/lib/cni/networks/net").join(address).exists()
    };
    let collect = || {
        let valid = json!([{"containerID": kept.attachment.container_id, "ifname": kept.attachment.ifname}]);
        let config = ptp(json!({"cniVersion": "1.1.0", "cni.dev/valid-attachments": valid}));
        node.call(Verb::Gc, config, Attachment::none()).ok();
    };
    collect();
    assert!(held(&kept) && held(&lost));
    node.host().delete_link(lost.host_veth());
    collect();
    assert!(held(&kept) && !held(&lost));
}
