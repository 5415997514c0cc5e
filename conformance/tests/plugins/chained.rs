//! Chained plugins, behind bridge: what holds for each of them, and a module for each.

mod bandwidth;
mod other_attachments;
mod reused_namespace;
mod sbr;
mod tuning;
mod vrf;

pub(crate) use conformance::chained_plugins::*;

use crate::configs::{Attached, drop_empty_dns};
use crate::subjects::{node_with_pod, ours, reference_or_skip};
use testns::{Container, Node, Verb};

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
            node.assert_as_before_except(|line| {
                stays_on_node(line) || conformance::chained_plugins::are_of_a_policy(line)
            });
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
