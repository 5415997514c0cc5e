//! `kill -9` at every point of what the kit does not call: the first ADD of a node, and a bridge with a spoof guard. For all else
//! `cni-conformance stress --every-point` has the rules `crash`, as a step of `.ci/run`.

use super::{FILTERED, GATEWAY, Scenario, each_point};
use testns::{Call, Node, Remains, Verb};

/// With a spoof guard no frame may be sent unguarded, at whatever point a call was killed.
#[track_caller]
fn assert_guarded(scenario: Scenario, node: &Node, point: &str) {
    let is_guarded =
        || node.host().nft().iter().any(|line| line.starts_with("nft rule ") && line.contains("macspoofchk"));
    let may_send = node.host().links().iter().any(|link| link.kind == "veth" && link.up);
    assert!(scenario.name != FILTERED.name || !may_send || is_guarded(), "{point}: a container may send unguarded");
}

/// On a node that never had a container, shared objects may be half-made: they must still be usable.
fn first_add_killed(scenario: Scenario) {
    each_point(&format!("first ADD {} killed, DEL, next ADD", scenario.name), |n| {
        let node = scenario.node();
        let pod = node.container();
        let traced = scenario.add(&pod).kill_before(&node, n);
        let point = format!("{}, {n}: {:?}", scenario.name, traced.hit.as_ref().map(ToString::to_string));
        assert_guarded(scenario, &node, &point);
        let reply = scenario.del(&pod).run(&node);
        assert_eq!(reply.output.code(), 0, "{point}: {reply}");
        let veths = node.host().links().into_iter().filter(|link| link.kind == "veth").count();
        assert_eq!(veths, 0, "{point}");

        let next = node.container();
        let reply = scenario.add(&next).run(&node);
        assert_eq!(reply.output.code(), 0, "{point}: the next {reply}");
        let check = Call::new(Verb::Check, (scenario.config)(), &next).prev_result(&reply.ok());
        let checked = check.run(&node);
        assert_eq!(checked.output.code(), 0, "{point}: the next {checked}");
        // A port with a lower Ethernet address: a gateway's bridge must not take it over.
        node.host().add_veth("low", &node.remote("elsewhere"), "low");
        node.host().set_mac("low", "02:00:00:00:00:01");
        node.host().set_master("low", "br0");
        let checked = check.run(&node);
        assert_eq!(checked.output.code(), 0, "{point}: with another port the next {checked}");
        traced.hit.is_some()
    });
}

#[test]
fn the_next_add_goes_on_from_what_the_first_had_half_made() {
    first_add_killed(GATEWAY);
}

#[test]
fn the_next_add_with_filters_goes_on_from_what_the_first_had_half_made() {
    first_add_killed(FILTERED);
}

#[test]
fn a_killed_del_leaves_no_container_that_may_send_unguarded() {
    let node = FILTERED.node();
    FILTERED.warm_up(&node);
    each_point("DEL killed, with a spoof guard", |n| {
        let pod = node.container_without_probes();
        let result = FILTERED.add(&pod).run(&node).ok();
        let traced = FILTERED.del(&pod).prev_result(&result).kill_before(&node, n);
        let point = format!("{n}: {:?}", traced.hit.as_ref().map(ToString::to_string));
        assert_guarded(FILTERED, &node, &point);
        FILTERED.del(pod.leave(Remains::Gone)).run(&node).ok();
        super::assert_clean(&node, &point);
        traced.hit.is_some()
    });
}
