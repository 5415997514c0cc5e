//! Calls that do not address an attachment leave it alone, and a refused call changes nothing.

use super::{InterfacePlugin, LinkPlace, each_interface_plugin, held, is_kernels};
use crate::prelude::*;

/// The attachment of a container ID in another container's namespace.
fn in_namespace_of(pod: &Container, container_id: &str) -> Attachment {
    Attachment { container_id: container_id.to_owned(), ..pod.attachment() }
}

/// A runtime that restarts under one ID: another namespace, while the first one is there. No address plugin, one that keeps no
/// reservations, and one that gives the same address again refuse nothing themselves.
fn a_second_namespace_is_refused_as_long_as_the_first_exists(kind: InterfacePlugin) {
    if kind.place != LinkPlace::Pair {
        return;
    }
    let static_ipam = json!({"type": "static", "addresses": [{"address": "10.7.0.9/24", "gateway": "10.7.0.1"}]});
    let reused = json!({"type": "host-local", "subnet": "10.7.0.0/24", "reuseAddress": true});
    for ipam in [static_ipam, reused] {
        let (node, _outside) = kind.node(0);
        let (first, second) = (node.container(), node.container());
        let config = kind.config(0, json!({"ipam": ipam}));
        let attached = Attached::add(&node, &config, &first);
        node.remember();
        let error = node.call(Verb::Add, &config, in_namespace_of(&second, first.id())).fails_with(103);
        assert!(error.msg.contains("in a namespace that exists"), "{error:?}");
        node.assert_as_before_except(is_kernels);
        assert_eq!(first.namespace().global_addresses("eth0"), addresses(&attached.result));
        assert!(second.namespace().find_link("eth0").is_none());
        attached.del().ok();
        Attached::add(&node, &config, in_namespace_of(&second, first.id())).del().ok();
    }
}

/// ADD is killed after it made the link and before it sets the mark. GC frees the address, which nothing uses yet, and DEL
/// removes the link all the same; one that has carried packets is another's.
fn del_after_gc_removes_the_link_of_a_killed_add(kind: InterfacePlugin) {
    // The tap of a killed process ends with it.
    if !matches!(kind.place, LinkPlace::Upon | LinkPlace::Inside) || kind.name == "tap" {
        return;
    }
    let (node, _outside) = kind.node(0);
    let config = kind.config(0, json!({"ipam": unshared().dual()}));
    let is_made = |pod: &Container| pod.namespace().find_link("eth0").is_some_and(|link| link.alias.is_none());
    // An ADD that is quicker than the one before may make a call less, so that its point is passed: then it is looked for again.
    let (mut rounds, mut n) = (0, 0);
    loop {
        n += 1;
        let pod = node.container();
        let killed = testns::Call::new(Verb::Add, &config, &pod).kill_before(&node, n);
        if killed.hit.is_none() {
            // No call that the kill can precede leaves such a link of these kinds.
            if matches!(kind.name, "ipvlan" | "vlan") {
                return;
            }
            (rounds, n) = (rounds + 1, 0);
            assert!(rounds < 3, "no point between link and mark");
            node.call(Verb::Del, &config, &pod).ok();
            continue;
        }
        if !is_made(&pod) {
            node.call(Verb::Del, &config, &pod).ok();
            continue;
        }
        collect(&node, &config, &[], None);
        assert_eq!(held(), Vec::<String>::new());
        node.call(Verb::Del, &config, &pod).ok();
        assert!(pod.namespace().find_link("eth0").is_none());
        Attached::add(&node, &config, &pod);
        let inside = pod.namespace();
        inside.wait_for("a packet", |inside| inside.enter(|| has_carried("eth0")));
        inside.set_down("eth0");
        inside.set_alias("eth0", "");
        inside.delete_addresses("eth0");
        node.call(Verb::Del, &config, in_namespace_of(&pod, "c9")).ok();
        assert!(inside.find_link("eth0").is_some());
        return;
    }
}

/// Whether a link has carried packets. In `/proc/net/dev` packets received and sent are the second and the tenth column.
fn has_carried(link: &str) -> bool {
    let counters = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let of = counters.lines().find_map(|line| line.trim().strip_prefix(&format!("{link}:"))).unwrap();
    let columns: Vec<&str> = of.split_whitespace().collect();
    columns[1] != "0" || columns[9] != "0"
}

/// The path of a namespace is another container's now, whose link has no mark or, as far as a container cannot write it, its
/// own one. A result with the living one's Ethernet address is that of a config that sets one.
fn a_late_del_leaves_the_link_of_the_paths_next_container(kind: InterfacePlugin) {
    for has_mark in [true, false] {
        let (node, _outside) = kind.node(2);
        let [ended, pod] = [node.container(), node.container()];
        let gone = Attached::add(&node, &kind.config(0, json!({})), &ended);
        let attached = Attached::add(&node, &kind.config(1, json!({})), &pod);
        match kind.place {
            _ if has_mark => {}
            LinkPlace::Pair => node.host().set_alias(attached.host_veth(), ""),
            LinkPlace::Upon | LinkPlace::Inside | LinkPlace::Device => pod.namespace().set_alias("eth0", ""),
        }
        let mac_of = |result: &Value| {
            let entries = result["interfaces"].as_array().unwrap().iter();
            entries.rev().find(|entry| entry["name"] == "eth0").unwrap()["mac"].clone()
        };
        let mut same = gone.result.clone();
        for entry in same["interfaces"].as_array_mut().unwrap().iter_mut().filter(|entry| entry["name"] == "eth0") {
            entry["mac"] = mac_of(&attached.result);
        }
        let late = in_namespace_of(&pod, ended.id());
        let call = testns::Call::new(Verb::Del, &gone.config, &late);
        for call in [call.clone().prev_result(&same), call.clone().prev_result(&gone.result), call] {
            call.run(&node).ok();
            assert!(pod.namespace().find_link("eth0").is_some(), "mark {has_mark}: {call:?}");
        }
        attached.del().ok();
        assert!(pod.namespace().find_link("eth0").is_none());
    }
}

/// Calls GC with these lists, each of containers' IDs.
fn collect(node: &Node, config: &Value, valid: &[&str], seen: Option<&[&str]>) {
    let list = |ids: &[&str]| ids.iter().map(|id| json!({"containerID": id, "ifname": "eth0"})).collect::<Value>();
    let mut config = with(config.clone(), json!({"cni.dev/valid-attachments": list(valid)}));
    if let Some(seen) = seen {
        config["cni-plugins/seen"] = list(seen);
    }
    node.call(Verb::Gc, config, Attachment::none()).ok();
}

each_interface_plugin! {
    bridge: BRIDGE, ptp: PTP, macvlan: MACVLAN, ipvlan: IPVLAN, vlan: VLAN, tap: TAP, dummy: DUMMY;
    (
        a_second_namespace_is_refused_as_long_as_the_first_exists
        del_after_gc_removes_the_link_of_a_killed_add
        a_late_del_leaves_the_link_of_the_paths_next_container
    )
}
