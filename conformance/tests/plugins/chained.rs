//! Chained plugins, behind bridge: what holds for each of them, and a module for each.

mod bandwidth;
mod redirecting_tap;
mod reused_namespace;
mod sbr;
mod tuning;
mod vrf;

use crate::interface_plugins::is_kernels;
use crate::prelude::*;
pub(crate) use conformance::chained_plugins::*;

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

/// A veth without mark, as the reference makes it, may be any container's: the name of the ifb shows whose limits it has.
#[test]
fn del_without_a_result_leaves_the_limits_that_lead_to_anothers_ifb() {
    testns::needs!(Feature::Ifb.or_skip());
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let limited = Attached::add(&node, &behind(&before, bandwidth()), &pod);
    for link in node.host().links().iter().filter(|link| link.kind == "ifb") {
        node.host().set_alias(&link.name, "");
    }
    node.host().set_alias(before.host_veth(), "");
    node.remember();
    let unknown = Attachment { container_id: "c9".to_owned(), ..pod.attachment() };
    Call::new(Verb::Del, bandwidth(), &unknown).run(&node).ok();
    node.assert_as_before_except(is_kernels);
    limited.check().ok();
    // Without a result too, this container's limits go.
    Call::new(Verb::Del, bandwidth(), &pod).run(&node).ok();
    let changes = node.changes();
    for limit in ["- qdisc tbf 10000 on veth", "- qdisc ingress ", "- link bwp"] {
        assert!(changes.contains(limit), "{changes}");
    }
}
