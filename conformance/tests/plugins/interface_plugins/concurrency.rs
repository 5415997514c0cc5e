//! Many containers at once, as after a reboot of the node.

use super::{InterfacePlugin, each_interface_plugin, held};
use crate::configs::{Attached, addresses};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Barrier, OnceLock};

const MANY: usize = 64;

/// 64 ADDs at once: distinct addresses of both families, and CHECK finds all that they made; 64 DELs at once: the node is as
/// before.
fn sixty_four_at_once(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(MANY);
    let pods: Vec<_> = (0..MANY).map(|_| node.container()).collect();
    let start = Barrier::new(MANY);
    let at_once = |work: &(dyn Fn(usize) + Sync)| {
        std::thread::scope(|scope| {
            for number in 0..MANY {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    work(number);
                });
            }
        });
    };
    let made = [(); MANY].map(|()| OnceLock::new());
    at_once(&|number| {
        let config = kind.config(number, json!({}));
        made[number].set(Attached::add(&node, &config, &pods[number])).ok().unwrap();
    });
    let made: Vec<_> = made.iter().map(|one| one.get().unwrap()).collect();
    let distinct: BTreeSet<_> = made.iter().flat_map(|one| addresses(&one.result)).collect();
    assert_eq!(distinct.len(), 2 * MANY);
    for (pod, one) in pods.iter().zip(&made).step_by(9) {
        assert_eq!(pod.namespace().global_addresses("eth0"), addresses(&one.result));
        one.check().ok();
    }
    at_once(&|number| drop(made[number].del().ok()));
    assert_eq!(held(), Vec::<String>::new());
    node.assert_as_before_except(|line| kind.stays(line));
}

// The kit has rules for this, and `.ci/run` tries them on the plugins whose links most kernels have.
each_interface_plugin! {
    ipvlan: IPVLAN, vlan: VLAN;
    (sixty_four_at_once)
}
