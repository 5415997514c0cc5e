//! A large number of attachments.

use crate::configs::bridge;
use crate::subjects::node;
use serde_json::json;
use testns::{Attachment, Verb};

/// SPEC 2, GC: a large number of stale attachments is removed without one deadline for all.
#[test]
fn gc_of_several_hundred_ends() {
    let node = node();
    let ipam = json!({"type": "host-local", "subnet": "10.64.0.0/16"});
    let all = bridge(json!({"cniVersion": "1.1.0", "ipam": ipam, "cni.dev/valid-attachments": []}));
    let pod = node.container();
    for n in 0..400 {
        node.call(Verb::Add, &all, pod.attachment_as(&format!("eth{n}"))).ok();
    }
    let links = || node.host().links().iter().filter(|link| link.name.starts_with("veth")).count();
    assert_eq!(links(), 400);
    node.call(Verb::Gc, &all, Attachment::none()).ok();
    assert_eq!(links(), 0);
    let store = node.snapshot();
    let reserved: Vec<_> = store.lines().iter().filter(|line| line.contains("/networks/net/10.64")).collect();
    assert!(reserved.is_empty(), "{reserved:?}");
}
