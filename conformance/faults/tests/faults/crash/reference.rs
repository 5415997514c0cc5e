//! The reference plugins leak, and these tests detect it. So they would detect the same leaks of ours.

use super::{Scenario, changes, one_v4};
use crate::configs;
use crate::subjects::reference_or_skip;
use serde_json::json;
use testns::{Node, Remains, Subject};

const SCENARIO: Scenario = Scenario {
    name: "the reference",
    place: crate::interface_plugins::LinkPlace::Pair,
    config: || configs::bridge(json!({"cniVersion": "1.0.0", "isGateway": true, "ipam": one_v4()})),
};

fn node(reference: &Subject) -> Node {
    let node = Node::with(reference);
    SCENARIO.warm_up(&node);
    node
}

#[test]
fn a_leak_after_a_failed_add_is_seen() {
    let Some(reference) = reference_or_skip() else { return };
    let mut leaks = Vec::new();
    for n in 1.. {
        let node = node(&reference);
        let traced = SCENARIO.add(&node.container()).refuse(&node, n);
        if traced.hit.is_none() {
            break;
        }
        if traced.reply.output.code() != 0 {
            leaks.push(changes(&node));
        }
    }
    let veths = leaks.iter().filter(|leak| leak.contains("+ link veth")).count();
    assert!(veths > 0, "{leaks:#?}");
    testns::note(&format!("POINTS of the reference's ADD that leave a veth: {veths} of {}", leaks.len()));
}

/// The reference's address stays reserved when ADD is killed and the namespace is gone before DEL; its veth stays when
/// the namespace still exists.
#[test]
fn a_leak_after_a_killed_add_is_seen() {
    let Some(reference) = reference_or_skip() else { return };
    let node = node(&reference);
    let (mut leaks, mut points) = (0, 0);
    for n in (1..).step_by(5) {
        let pod = node.container();
        let traced = SCENARIO.add(&pod).kill_before(&node, n);
        if traced.hit.is_none() {
            break;
        }
        points += 1;
        let attachment = pod.leave(Remains::PlainFile);
        let reply = SCENARIO.del(&attachment).run(&node);
        let left = changes(&node);
        if !left.is_empty() || reply.output.code() != 0 {
            leaks += 1;
            break;
        }
    }
    assert!(leaks > 0, "no leak at {points} points");
}
