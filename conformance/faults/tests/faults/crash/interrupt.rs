//! SIGTERM at every point of ADD: it is rolled back, unless it was complete.

use super::{FILTERED, GATEWAY, Scenario, assert_clean, assert_new, each_point};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use testns::Remains;

pub(super) fn interrupted(scenario: Scenario) {
    let node = scenario.node();
    scenario.warm_up(&node);
    let mut ends = BTreeMap::<String, usize>::new();
    each_point(&format!("ADD {} asked to end", scenario.name), |n| {
        let pod = node.container();
        let traced = scenario.add(&pod).signal_before(&node, n, Signal::SIGTERM);
        let reply = &traced.reply;
        let point = format!("{}, {n}: {:?}\n{reply}", scenario.name, traced.hit.map(|hit| hit.to_string()));
        let end = match reply.output.code() {
            0 => "finished".to_owned(),
            143 => "ended before it began".to_owned(),
            _ => format!("code {}", reply.fails().code),
        };
        if end == "finished" {
            scenario.del(&pod).prev_result(&reply.ok()).run(&node).ok();
        }
        assert_clean(&node, &point);
        assert_new(&node, &pod, &point);
        *ends.entry(end).or_default() += 1;
        pod.leave(Remains::Gone);
        traced.hit.is_some()
    });
    testns::note(&format!("ENDS {ends:?}"));
    assert!(ends.contains_key("code 109"), "{ends:?}");
    scenario.assert_addresses_are_free(&node, "after all points");
}

/// Style guide 8: a signal during ADD is another way for a step to fail.
#[test]
fn a_signalled_add_leaves_nothing() {
    interrupted(GATEWAY);
}

#[test]
fn a_signalled_add_with_filters_leaves_nothing() {
    interrupted(FILTERED);
}
