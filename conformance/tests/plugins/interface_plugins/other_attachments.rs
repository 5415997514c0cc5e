//! Calls that do not address an attachment leave it alone, and a refused call changes nothing.

use super::{InterfacePlugin, LinkPlace, each_interface_plugin, held, is_kernels};
use crate::configs::{Attached, addresses, unshared, v4, with};
use serde_json::{Value, json};
use std::sync::Barrier;
use testns::{Attachment, Container, Namespace, Node, Verb};

/// The attachment of a container ID in another container's namespace.
fn in_namespace_of(pod: &Container, container_id: &str) -> Attachment {
    Attachment { container_id: container_id.to_owned(), ..pod.attachment() }
}

/// Renames a link, as a container with CAP_NET_ADMIN can.
fn rename(inside: &Namespace, from: &str, to: &str) {
    inside.set_down(from);
    inside.rename(from, to);
    inside.set_up(to);
}

/// The runtime calls ADD again; the container has renamed its link meanwhile, so the name is free.
fn a_duplicate_that_is_refused_leaves_link_and_reservation(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(2);
    let pod = node.container();
    let config = kind.config(0, json!({}));
    let attached = Attached::add(&node, &config, &pod);
    rename(pod.namespace(), "eth0", "eth9");
    node.remember();
    node.call(Verb::Add, &config, &pod).fails_with(103);
    node.assert_as_before_except(|line| kind.stays(line) || is_kernels(line));
    assert_eq!(held().len(), 2);
    assert!(pod.namespace().find_link("eth9").is_some());
    let other = Attached::add(&node, &kind.config(1, json!({})), &node.container());
    assert_ne!(addresses(&other.result), addresses(&attached.result));
    other.del().ok();
    rename(pod.namespace(), "eth9", "eth0");
    attached.del().ok();
    assert_eq!(held(), Vec::<String>::new());
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

/// How often two ADDs meet: `cargo test` without `--workspace` tries it a few times.
const ROUNDS: usize = if cfg!(feature = "every-test") { 40 } else { 5 };

/// Forbidden to runtimes, but kubelets do it after a time-out: the ADD that succeeds has its link and its reservation.
fn of_two_adds_at_once_the_one_that_succeeds_keeps_all(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(1);
    let config = kind.config(0, json!({"ipam": v4()}));
    for round in 0..ROUNDS {
        let pod = node.container();
        let start = Barrier::new(2);
        let add = || {
            start.wait();
            node.call(Verb::Add, &config, &pod)
        };
        let replies = std::thread::scope(|scope| [scope.spawn(add), scope.spawn(add)].map(|add| add.join().unwrap()));
        let winners: Vec<Value> =
            replies.iter().filter(|reply| reply.output.code() == 0).map(testns::Reply::ok).collect();
        let [winner] = winners.as_slice() else { panic!("round {round}: {} {}", replies[0], replies[1]) };
        assert_eq!(held().len(), 1, "round {round}: {} {}", replies[0], replies[1]);
        assert_eq!(pod.namespace().global_addresses("eth0"), addresses(winner), "round {round}");
        let attached = testns::Call::new(Verb::Check, &config, &pod).prev_result(winner);
        attached.run(&node).ok();
        testns::Call::new(Verb::Del, &config, &pod).prev_result(winner).run(&node).ok();
        assert_eq!(held(), Vec::<String>::new(), "round {round}");
    }
}

/// `eth0` of the namespace belongs to an attachment that lives: DEL after an ADD that was refused for that, or for a container
/// that the runtime does not know.
fn del_of_another_attachment_in_the_namespace_leaves_the_living_one(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(2);
    let (pod, other) = (node.container(), node.container());
    let config = kind.config(0, json!({}));
    let attached = Attached::add(&node, &config, &pod);
    let there = Attached::add(&node, &kind.config(1, json!({})), &other);
    node.remember();
    let inside = pod.namespace().snapshot();
    let network = kind.config(0, json!({"name": "other"}));
    for (config, attachment) in [(&config, in_namespace_of(&pod, "c9")), (&network, pod.attachment())] {
        node.call(Verb::Add, config, &attachment).fails();
        node.call(Verb::Del, config, &attachment).ok();
        // With the result of an attachment in another namespace.
        let moved = Attachment { netns: pod.attachment().netns, ..attachment };
        testns::Call::new(Verb::Del, config, &moved).prev_result(&there.result).run(&node).ok();
    }
    node.assert_as_before_except(|line| kind.stays(line) || is_kernels(line));
    let changes = testns::changes(&inside, &pod.namespace().snapshot());
    assert!(changes.lines().all(is_kernels), "{changes}");
    attached.check_and_del();
    assert!(pod.namespace().find_link("eth0").is_none());
}

/// The link has no mark, as the reference makes it. The address that host-local reserved says for which container.
fn del_of_a_container_without_address_leaves_a_link_without_mark(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(1);
    let pod = node.container();
    let config = kind.config(0, json!({}));
    let attached = Attached::add(&node, &config, &pod);
    match kind.place {
        LinkPlace::Pair => node.host().set_alias(attached.host_veth(), ""),
        LinkPlace::Upon | LinkPlace::Inside | LinkPlace::Device => pod.namespace().set_alias("eth0", ""),
    }
    node.remember();
    node.call(Verb::Del, &config, in_namespace_of(&pod, "c9")).ok();
    node.assert_as_before_except(|line| kind.stays(line) || is_kernels(line));
    assert!(pod.namespace().find_link("eth0").is_some());
    node.call(Verb::Del, &config, &pod).ok();
    assert!(pod.namespace().find_link("eth0").is_none());
    assert_eq!(held(), Vec::<String>::new());
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

/// GC finds no link that is in the container alone: its address is not given to the next container.
fn gc_keeps_the_address_of_a_link_that_it_leaves(kind: InterfacePlugin) {
    if kind.place == LinkPlace::Pair {
        return;
    }
    let (node, _outside) = kind.node(2);
    let unshared = unshared();
    let only = unshared.address(2);
    let ipam = with(unshared.v4(), json!({"rangeStart": only, "rangeEnd": only}));
    let (first, second) = (node.container(), node.container());
    Attached::add(&node, &kind.config(0, json!({"ipam": ipam})), &first);
    let config = kind.config(1, json!({"ipam": ipam}));
    for _ in 0..2 {
        collect(&node, &config, &[], None);
        assert_eq!(first.namespace().global_addresses("eth0"), [format!("{only}/24")]);
        node.call(Verb::Add, &config, &second).fails_with(105);
    }
    drop(first.leave(testns::Remains::Gone));
    // The kernel ends the namespace in its own time.
    let is_free = |_: &Namespace| {
        collect(&node, &config, &[], None);
        held().is_empty()
    };
    node.host().wait_for("the address to be free", is_free);
    // An ipvlan link keeps its address from the others until the kernel has ended the namespace.
    let is_given = |_: &Namespace| node.call(Verb::Add, &config, &second).output.code() == 0;
    node.host().wait_for("the address to be given", is_given);
}

/// A veth of the reference's has no mark. Entries of attachments that are not on the node do not stand for it.
fn gc_with_any_list_keeps_the_addresses_of_links_without_mark(kind: InterfacePlugin) {
    if kind.place != LinkPlace::Pair {
        return;
    }
    let (node, _outside) = kind.node(0);
    let config = kind.config(0, json!({"ipam": unshared().v4()}));
    let [living, machine, dead] = ["living", "machine", "dead"].map(|id| node.container_named(id));
    let attached = [&living, &machine, &dead].map(|pod| Attached::add(&node, &config, pod));
    for one in &attached {
        node.host().set_alias(one.host_veth(), "");
    }
    let of = |one: &Attached<'_>| addresses(&one.result)[0].split('/').next().unwrap().to_owned();
    let mut all = held();
    all.sort();
    // A virtual machine has the address, and the namespace none.
    machine.namespace().delete_address("eth0", &addresses(&attached[1].result)[0]);
    node.host().delete_link(attached[2].host_veth());
    for valid in [vec![], vec!["bogus"], vec!["bogus", "bogus2", "bogus3", "machine"]] {
        collect(&node, &config, &valid, None);
        let mut now = held();
        now.sort();
        assert_eq!(now, all, "{valid:?}");
    }
    node.host().delete_link(attached[1].host_veth());
    collect(&node, &config, &["bogus", "bogus2"], None);
    assert_eq!(held(), [of(&attached[0])]);
    assert_eq!(living.namespace().global_addresses("eth0"), addresses(&attached[0].result));
}

/// The runtime examined the node before this ADD, which is of another runtime.
fn gc_leaves_what_came_after_the_look(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(2);
    let (old, new) = (node.container(), node.container());
    let ipam = unshared().dual();
    let config = kind.config(0, json!({"ipam": ipam}));
    Attached::add(&node, &config, &old);
    let attached = Attached::add(&node, &kind.config(1, json!({"ipam": ipam})), &new);
    drop(old.leave(testns::Remains::Gone));
    node.remember();
    collect(&node, &config, &[], Some(&[]));
    collect(&node, &config, &["other"], Some(&["other", "gone"]));
    let mine = format!("/{}/eth0", new.id());
    let lost: Vec<String> = node
        .changes()
        .lines()
        .filter(|line| line.contains(&mine) || line.contains("/networks/net/"))
        .map(str::to_owned)
        .collect();
    assert!(lost.is_empty(), "{lost:#?}");
    attached.check().ok();
    let is_collected = |_: &Namespace| {
        collect(&node, &config, &[], Some(&[old.id()]));
        held().len() == 2
    };
    node.host().wait_for("what was seen and is not valid to go", is_collected);
    attached.check_and_del();
    assert_eq!(held(), Vec::<String>::new());
}

each_interface_plugin! {
    bridge: BRIDGE, ptp: PTP, macvlan: MACVLAN, ipvlan: IPVLAN, vlan: VLAN, tap: TAP, dummy: DUMMY;
    (
        a_duplicate_that_is_refused_leaves_link_and_reservation
        a_second_namespace_is_refused_as_long_as_the_first_exists
        of_two_adds_at_once_the_one_that_succeeds_keeps_all
        del_of_another_attachment_in_the_namespace_leaves_the_living_one
        del_of_a_container_without_address_leaves_a_link_without_mark
        del_after_gc_removes_the_link_of_a_killed_add
        a_late_del_leaves_the_link_of_the_paths_next_container
        gc_keeps_the_address_of_a_link_that_it_leaves
        gc_with_any_list_keeps_the_addresses_of_links_without_mark
        gc_leaves_what_came_after_the_look
    )
}
