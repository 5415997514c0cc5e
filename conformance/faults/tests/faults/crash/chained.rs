//! Chained plugins with each step failing in turn, or interrupted: what the plugin before them made stays as it was.

use super::each_point;
use super::rollback::{FAILED, Failing, INTERRUPTED, assert_error_object, is_reply};
use crate::chained_plugins::{
    ChainedPlugin, behind, bridged, chained_plugins, comes_and_goes, is_vrf_rule, stays_on_node,
};
use crate::configs::with;
use crate::subjects::node;
use serde_json::json;
use testns::trace::Traced;
use testns::{Call, Remains, Verb};

/// Makes an ADD for each point; after one that failed nothing is changed.
fn each(chained: ChainedPlugin, failing: Failing) {
    let what = failing.name;
    let node = node();
    each_point(&format!("ADD {}, {what}", chained.name), |n| {
        let pod = node.container();
        let before = bridged(&node, &pod);
        let conf = behind(&before, with((chained.config)(), json!({"cniVersion": "1.1.0"})));
        let call = |verb| Call::new(verb, &conf, &pod);
        node.remember();
        let inside = pod.namespace().snapshot();
        let Traced { reply, hit, .. } = (failing.at)(&call(Verb::Add), &node, n);
        let point = format!("{}, {what} at {n}: {hit:?}\n{reply}", chained.name);
        let is_there = hit.is_some();
        let is_del = reply.output.code() == 0 || hit.as_ref().is_some_and(is_reply);
        if is_del {
            if reply.output.code() == 0 {
                let check = call(Verb::Check).prev_result(&reply.ok()).run(&node);
                assert_eq!(check.output.code(), 0, "{point}\n{check}");
            }
            let del = call(Verb::Del).run(&node);
            assert_eq!(del.output.code(), 0, "{point}: {del}");
        } else {
            assert_error_object(&reply, &point);
        }
        let changes = testns::changes(&inside, &pod.namespace().snapshot());
        let left: Vec<_> =
            changes.lines().filter(|line| !is_vrf_rule(line) && (!is_del || !(chained.stays_inside)(line))).collect();
        assert!(left.is_empty(), "{point}: left in the container: {left:#?}");
        let changes = node.changes();
        let stays = |line: &str| if is_del { stays_on_node(line) } else { comes_and_goes(line) };
        let stays = |line: &str| stays(line) && !line.contains(".json");
        let left: Vec<_> = changes.lines().filter(|line| !stays(line)).collect();
        assert!(left.is_empty(), "{point}: left on the node: {left:#?}");
        before.del().ok();
        pod.leave(Remains::Gone);
        is_there
    });
}

#[test]
fn add_of_a_chained_plugin_with_any_system_call_failing_changes_nothing() {
    chained_plugins().for_each(|chained| each(chained, FAILED));
}

#[test]
fn an_interrupted_add_of_a_chained_plugin_changes_nothing_or_completes() {
    chained_plugins().for_each(|chained| each(chained, INTERRUPTED));
}
