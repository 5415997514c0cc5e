//! Chained plugins, behind bridge: what holds for each of them, and a module for each.

mod bandwidth;
mod other_attachments;
mod reused_namespace;
mod sbr;
mod tuning;
mod vrf;

pub(crate) use conformance::chained_plugins::*;

use crate::configs::{Attached, drop_empty_dns, with};
use crate::subjects::{node, node_with_pod, ours, reference_or_skip};
use serde_json::{Value, json};
use testns::{Attachment, Call, Container, Node, Remains, Verb};

#[track_caller]
fn assert_as(before: &testns::Snapshot, pod: &Container, stays: fn(&str) -> bool, point: &str) {
    let changes = testns::changes(before, &pod.namespace().snapshot());
    let left: Vec<_> = changes.lines().filter(|line| !stays(line)).collect();
    assert!(left.is_empty(), "{point}: {left:#?}");
}

#[test]
fn add_and_check_without_prev_result_say_that_another_plugin_comes_first() {
    for chained in chained_plugins() {
        let (node, pod) = node_with_pod();
        for verb in [Verb::Add, Verb::Check] {
            let failure = node.call(verb, (chained.config)(), &pod).fails_with(7);
            assert!(failure.msg.contains(&format!("plugin {} needs key prevResult", chained.name)), "{failure:?}");
            assert!(failure.details.contains("it comes after an interface plugin"), "{failure:?}");
        }
        node.assert_as_before();
    }
}

#[test]
fn del_and_gc_need_neither_prev_result_nor_namespace_and_can_be_repeated() {
    for chained in chained_plugins() {
        for remains in Remains::ALL {
            let (node, pod) = node_with_pod();
            let before = bridged(&node, &pod);
            node.remember();
            let inside = pod.namespace().snapshot();
            Attached::add(&node, &behind(&before, (chained.config)()), &pod).check().ok();
            let held = std::fs::File::open(pod.namespace().path()).unwrap();
            let attachment = pod.leave(remains);
            for _ in 0..2 {
                node.call(Verb::Del, (chained.config)(), &attachment).ok();
            }
            let gc = with((chained.config)(), json!({"cniVersion": "1.1.0", "cni.dev/valid-attachments": []}));
            node.call(Verb::Gc, gc, Attachment::none()).ok();
            if remains == Remains::Alive {
                assert_as(&inside, &pod, chained.stays_inside, chained.name);
            }
            node.assert_as_before_except(|line| stays_on_node(line) || line.contains("/run/netns/"));
            drop(held);
        }
    }
}

/// Two attachments to one network, which either may leave first: by DEL without prevResult, by GC, by DEL.
#[test]
fn two_attachments_of_a_container_never_touch_each_others() {
    for chained in chained_plugins() {
        let (node, pod) = node_with_pod();
        let befores = ["eth0", "net1"].map(|ifname| bridged(&node, pod.attachment_as(ifname)));
        let config = with((chained.config)(), json!({"sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}}));
        let add = |at: usize| Attached::add(&node, &behind(&befores[at], config.clone()), &befores[at].attachment);
        let untouched = pod.namespace().snapshot();
        let one = add(0);
        // A link that was down has its IPv6 addresses checked again.
        pod.namespace().wait_for_addresses();
        node.remember();
        let inside = pod.namespace().snapshot();
        let valid = json!([{"containerID": pod.id(), "ifname": "eth0"}]);
        let gc = with(config.clone(), json!({"cniVersion": "1.1.0", "cni.dev/valid-attachments": valid}));
        let leaves = |call: Call| {
            add(1).check().ok();
            one.check().ok();
            call.run(&node).ok();
            one.check().ok();
            node.assert_as_before_except(stays_on_node);
        };
        leaves(Call::new(Verb::Del, &config, &befores[1].attachment));
        pod.namespace().wait_for_addresses();
        assert_as(&inside, &pod, chained.stays_inside, chained.name);
        // GC knows no namespace, so the container stays as it is; a VRF takes no link twice.
        leaves(Call::new(Verb::Gc, &gc, Attachment::none()));
        node.call(Verb::Del, &config, &befores[1].attachment).ok();
        let two = add(1);
        one.del().ok();
        two.check_and_del();
        // A VRF lives until its last interface leaves.
        let changes = testns::changes(&untouched, &pod.namespace().snapshot());
        assert!(!changes.contains("vrf"), "{changes}");
    }
}

/// Attachments that are valid stay; so do other networks'.
#[test]
fn gc_removes_what_is_not_valid_and_keeps_what_is() {
    for chained in chained_plugins() {
        let node = node();
        let pods = [node.container_named("kept"), node.container_named("lost")];
        let [kept, lost] = pods.each_ref().map(|pod| {
            let before = bridged(&node, pod);
            Attached::add(&node, &behind(&before, (chained.config)()), pod)
        });
        let collect = |network: &str, valid: Value| {
            let own = json!({"cniVersion": "1.1.0", "name": network, "cni.dev/valid-attachments": valid});
            node.call(Verb::Gc, with((chained.config)(), own), Attachment::none()).ok();
        };
        node.remember();
        collect("other", json!([]));
        node.assert_as_before_except(comes_and_goes);
        collect("net", json!([{"containerID": "kept", "ifname": "eth0"}]));
        kept.check().ok();
        lost.del().ok();
        kept.del().ok();
    }
}

/// An upgrade in either direction: the first makes, the second checks and removes.
#[test]
fn what_one_added_the_other_checks_and_deletes() {
    let Some(theirs) = reference_or_skip() else { return };
    for chained in chained_plugins().filter(|chained| chained.peer != Peer::None) {
        for (first, second) in [(ours(), theirs.clone()), (theirs.clone(), ours())] {
            let node = Node::with(&theirs);
            node.install_one(&ours(), "bridge");
            let pod = node.container();
            let before = bridged(&node, &pod);
            node.remember();
            let inside = pod.namespace().snapshot();
            node.install_one(&first, chained.name);
            let attached = Attached::add(&node, &behind(&before, (chained.config)()), &pod);
            node.install_one(&second, chained.name);
            // The reference's portmap looks for the rules of IPv4 in IPv6, too.
            if chained.name != "portmap" || second == ours() {
                attached.check().ok();
            }
            attached.del().ok();
            attached.del().ok();
            assert_as(&inside, &pod, chained.stays_inside, &format!("{}, {second:?}", chained.name));
            node.assert_as_before_except(|line| stays_on_node(line) || packet_filter::are_of_a_policy(line));
        }
    }
}

/// Our plugins and the reference's make the same objects, but for values that change from one ADD to the next.
#[test]
fn what_both_make_is_the_same() {
    let Some(theirs) = reference_or_skip() else { return };
    for chained in chained_plugins().filter(|chained| chained.peer == Peer::Same) {
        let [left, right] = [ours(), theirs.clone()].map(|subject| {
            let node = Node::with(&theirs);
            node.install_one(&ours(), "bridge");
            node.install_one(&subject, chained.name);
            let pod = node.container_named("pod");
            let before = bridged(&node, &pod);
            node.remember();
            let inside = pod.namespace().snapshot();
            let mut attached = Attached::add(&node, &behind(&before, (chained.config)()), &pod);
            drop_empty_dns(&mut attached.result);
            let result = crate::configs::normalised(&attached.result);
            let changes = testns::changes(&inside, &pod.namespace().snapshot());
            let of_node = node.changes();
            let all = changes.lines().chain(of_node.lines()).filter(|line| !comes_and_goes(line));
            // Alias and queue of an ifb are intended differences; so is a family's table without the other's routes.
            let shown = |line: &&str| chained.name != "sbr" || !line.contains(" fe80::") && !line.contains("::/");
            let all = all.filter(shown).map(|line| match line.split_once(" txqlen") {
                Some((link, _)) if line.contains("\"ifb\"") => link,
                _ => line,
            });
            let words = |line: &str| line.split(' ').map(crate::configs::normalised_text).collect::<Vec<_>>().join(" ");
            let mut lines: Vec<String> = all.map(words).collect();
            lines.sort();
            (result, lines)
        });
        assert_eq!(left, right, "{}: left: ours, right: the reference", chained.name);
    }
}
