//! Many containers at once, as after a reboot of the node.

use crate::chained_plugins::{behind, bridged, chained_plugins};
use crate::configs::{Attached, bridge, dual, ip};
use crate::shared_objects::stays;
use crate::subjects::node;
use serde_json::json;
use std::sync::Barrier;
use testns::{Call, Container, Verb};

/// The first of several ADDs at once makes the bridge, its addresses and the tables; each result has the address that the
/// bridge keeps.
#[test]
fn simultaneous_first_adds_report_one_bridge() {
    for _ in 0..4 {
        let node = node();
        let config = bridge(json!({"isDefaultGateway": true, "ipMasq": true, "ipam": dual()}));
        let pods: Vec<_> = (0..24).map(|_| node.container()).collect();
        let (config, start) = (&config, &Barrier::new(pods.len()));
        let add = |pod| {
            start.wait();
            Attached::add(&node, config, pod)
        };
        let made: Vec<_> = std::thread::scope(|scope| {
            let adds: Vec<_> = pods.iter().map(|pod| scope.spawn(move || add(pod))).collect();
            adds.into_iter().map(|add| add.join().unwrap()).collect()
        });
        made.iter().for_each(|one| drop(one.check().ok()));
        assert_eq!(node.host().global_addresses("br0"), ["10.7.0.1/24", "fd07::1/64"]);
        pods.iter().for_each(|pod| pod.namespace().ping(ip("10.7.0.1")));
    }
}

/// ADDs and DELs of different containers mixed, over a range that is nearly full: an address is free again as soon as
/// its DEL has returned.
#[test]
fn adds_and_dels_at_once_never_run_out_of_what_is_free() {
    let node = node();
    let ipam = json!({"type": "host-local", "subnet": "10.7.0.0/27"}); // 29 addresses
    let config = bridge(json!({"isGateway": true, "ipam": ipam}));
    std::thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                for _ in 0..3 {
                    let pod = node.container();
                    Attached::add(&node, &config, &pod).del().ok();
                }
            });
        }
    });
    node.assert_as_before_except(stays);
}

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

/// 64 containers at once. On a machine whose processor is emulated, 16 of the plugin that only its kernel can serve.
#[test]
fn chained_plugins_serve_many_containers_at_once() {
    let command_line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let is_emulated = command_line.contains(testns::THROWAWAY_MACHINE);
    let count = if is_emulated { 16 } else { 64 };
    for chained in chained_plugins().filter(|chained| !is_emulated || chained.name == "vrf") {
        let node = node();
        let pods: Vec<Container> = (0..count).map(|_| node.container()).collect();
        let befores: Vec<Attached<'_>> = pods.iter().map(|pod| bridged(&node, pod)).collect();
        std::thread::scope(|scope| {
            for (pod, before) in pods.iter().zip(&befores) {
                let node = &node;
                scope.spawn(move || {
                    let attached = Attached::add(node, &behind(before, (chained.config)()), pod);
                    attached.check().ok();
                    let call = Call::new(Verb::Del, &attached.config, &attached.attachment);
                    call.run(node).ok();
                });
            }
        });
    }
}
