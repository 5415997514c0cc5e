//! What does not address an attachment leaves it alone, and a refused call changes nothing.

use super::{Kind, Place, each_kind, held};
use crate::configs::{Attached, addresses, v4};
use serde_json::{Value, json};
use std::sync::Barrier;
use testns::{Attachment, Container, Namespace, Verb};

/// The attachment of a container ID in another container's namespace.
fn in_namespace_of(pod: &Container, container_id: &str) -> Attachment {
    Attachment { container_id: container_id.to_owned(), ..pod.attachment() }
}

/// What the kernel does in its own time with a link that is up.
fn is_kernels(line: &str) -> bool {
    line.contains(" fe80::") || line.contains(" route ff00::/8 ")
}

/// As a container with CAP_NET_ADMIN can.
fn rename(inside: &Namespace, from: &str, to: &str) {
    inside.set_down(from);
    inside.rename(from, to);
    inside.set_up(to);
}

/// The runtime calls ADD again; the container has renamed its link meanwhile, so the name is free.
fn a_duplicate_that_is_refused_leaves_link_and_reservation(kind: Kind) {
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
fn a_second_namespace_is_refused_as_long_as_the_first_exists(kind: Kind) {
    if kind.place != Place::Pair {
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

/// Forbidden to runtimes, but kubelets do it after a time-out: the ADD that succeeds has its link and its reservation.
fn of_two_adds_at_once_the_one_that_succeeds_keeps_all(kind: Kind) {
    let (node, _outside) = kind.node(1);
    let config = kind.config(0, json!({"ipam": v4()}));
    for round in 0..40 {
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
fn del_of_another_attachment_in_the_namespace_leaves_the_living_one(kind: Kind) {
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
    attached.check().ok();
    attached.del().ok();
    assert!(pod.namespace().find_link("eth0").is_none());
}

/// As the reference makes them. The address that host-local reserved says for which container.
fn del_of_a_container_without_address_leaves_a_link_without_mark(kind: Kind) {
    let (node, _outside) = kind.node(1);
    let pod = node.container();
    let config = kind.config(0, json!({}));
    let attached = Attached::add(&node, &config, &pod);
    match kind.place {
        Place::Pair => node.host().set_alias(attached.host_veth(), ""),
        Place::Upon | Place::Inside | Place::Device => pod.namespace().set_alias("eth0", ""),
    }
    node.remember();
    node.call(Verb::Del, &config, in_namespace_of(&pod, "c9")).ok();
    node.assert_as_before_except(|line| kind.stays(line) || is_kernels(line));
    assert!(pod.namespace().find_link("eth0").is_some());
    node.call(Verb::Del, &config, &pod).ok();
    assert!(pod.namespace().find_link("eth0").is_none());
    assert_eq!(held(), Vec::<String>::new());
}

each_kind! {
    bridge: BRIDGE, ptp: PTP, macvlan: MACVLAN, ipvlan: IPVLAN, vlan: VLAN, tap: TAP, dummy: DUMMY;
    (
        a_duplicate_that_is_refused_leaves_link_and_reservation
        a_second_namespace_is_refused_as_long_as_the_first_exists
        of_two_adds_at_once_the_one_that_succeeds_keeps_all
        del_of_another_attachment_in_the_namespace_leaves_the_living_one
        del_of_a_container_without_address_leaves_a_link_without_mark
    )
}
