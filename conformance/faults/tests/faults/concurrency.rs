//! Many containers at once, as after a reboot of the node.

use crate::configs::{Attached, bridge, dual, ip};
use crate::shared_objects::stays;
use crate::subjects::node;
use serde_json::json;
use std::sync::Barrier;
use testns::{Attachment, Verb};

/// ADDs that fail leave the bridge and its gateway address, as other containers may use it by then.
#[test]
fn failing_adds_do_not_take_the_bridge_from_the_others() {
    for _ in 0..4 {
        let node = node();
        let config = bridge(json!({"isGateway": true, "ipMasq": true, "ipam": dual()}));
        let pods: Vec<_> = (0..12).map(|_| node.container()).collect();
        let (good, bad) = pods.split_at(6);
        for pod in bad {
            pod.namespace().add_link("eth0", "bridge"); // the name is taken
        }
        let start = Barrier::new(pods.len());
        let made = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let (start, node, config, made) = (&start, &node, &config, &made);
            for pod in good {
                scope.spawn(move || {
                    start.wait();
                    let attached = Attached::add(node, config, pod);
                    attached.check().ok();
                    made.lock().unwrap().push(attached);
                });
            }
            for pod in bad {
                scope.spawn(move || {
                    start.wait();
                    node.call(Verb::Add, config, pod).fails();
                });
            }
        });
        let made = made.into_inner().unwrap();
        made.iter().for_each(|attached| drop(attached.check().ok()));
        good.iter().for_each(|pod| pod.namespace().ping(ip("10.7.0.1")));
        made.iter().for_each(|attached| drop(attached.del().ok()));
        node.assert_as_before_except(stays);
    }
}

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
