//! `kill -9` at every point, then the DEL (or GC) that a runtime makes: of a bridge with masquerade in nftables and the spoof
//! guard, and of the first ADD on a node. The kit's rules `crash` ask it of each plugin.

use super::{FILTERED, GATEWAY, Scenario, assert_clean, each_point, inside_links};
use crate::configs::{self, with};
use crate::subjects::node;
use serde_json::json;
use testns::{Call, Container, Node, Remains, Verb};

/// ADD is killed; the runtime has no result, and perhaps no namespace any more.
fn add_killed(scenario: Scenario) {
    let node = scenario.node();
    scenario.warm_up(&node);
    each_point(&format!("ADD {} killed, DEL", scenario.name), |n| {
        let pod = node.container();
        let traced = scenario.add(&pod).kill_before(&node, n);
        let remains = REMAINS[n % REMAINS.len()];
        let point = match &traced.hit {
            Some(hit) => format!("{}, {n}: {hit}, then DEL with {remains:?}", scenario.name),
            None => format!("{}, not killed", scenario.name),
        };
        assert_guarded(scenario, &node, &point);
        let attachment = pod.leave(remains);
        let reply = scenario.del(&attachment).run(&node);
        assert_eq!(reply.output.code(), 0, "{point}: {reply}");
        assert_gone(scenario, &node, &pod, remains, &point);
        traced.hit.is_some()
    });
}

/// The state of the container when DEL comes.
const REMAINS: [Remains; 3] = [Remains::Alive, Remains::Gone, Remains::EmptyPath];

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
        let point = format!("{}, {n}: {:?}", scenario.name, traced.hit.map(|hit| hit.to_string()));
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

/// DEL is killed, and repeated with fewer and fewer parameters.
fn del_killed(scenario: Scenario) {
    let node = scenario.node();
    scenario.warm_up(&node);
    each_point(&format!("DEL {} killed, DEL", scenario.name), |n| {
        let pod = node.container_without_probes();
        let result = scenario.add(&pod).run(&node).ok();
        let traced = scenario.del(&pod).prev_result(&result).kill_before(&node, n);
        let remains = REMAINS[n % REMAINS.len()];
        let knows_result = n % 4 < 2;
        let point = match &traced.hit {
            Some(hit) => format!("{}, {n}: {hit}, then DEL with {remains:?}, prevResult {knows_result}", scenario.name),
            None => format!("{}, not killed", scenario.name),
        };
        assert_guarded(scenario, &node, &point);
        let again = scenario.del(pod.leave(remains));
        let again = if knows_result { again.prev_result(&result) } else { again };
        let reply = again.run(&node);
        assert_eq!(reply.output.code(), 0, "{point}: {reply}");
        assert_gone(scenario, &node, &pod, remains, &point);
        traced.hit.is_some()
    });
}

/// No link, rule, address or file of the container is left, on the node or in the container.
#[track_caller]
fn assert_gone(scenario: Scenario, node: &Node, pod: &Container, remains: Remains, point: &str) {
    assert_clean(node, point);
    if remains == Remains::Alive {
        assert_eq!(inside_links(pod), ["lo"], "{point}: left in the container");
    }
    scenario.assert_addresses_are_free(node, point);
    if remains != Remains::Gone {
        pod.leave(Remains::Gone);
    }
}

/// SPEC 2, DEL: it removes what a killed ADD made, without prevResult, and also without the namespace.
#[test]
fn del_after_a_killed_add_with_filters_leaves_nothing() {
    add_killed(FILTERED);
}

#[test]
fn the_next_add_goes_on_from_what_the_first_had_half_made() {
    first_add_killed(GATEWAY);
}

#[test]
fn the_next_add_with_filters_goes_on_from_what_the_first_had_half_made() {
    first_add_killed(FILTERED);
}

/// SPEC 2, DEL: a repeated call continues where the killed one stopped.
#[test]
fn del_after_a_killed_del_with_filters_leaves_nothing() {
    del_killed(FILTERED);
}

/// SPEC 2, GC: so does a repeated GC, killed while it removed two of three attachments, and valid attachments stay.
#[test]
fn gc_after_a_killed_gc_leaves_the_valid_only() {
    let own = json!({"ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true, "isGateway": true});
    let ipam = configs::unshared().dual();
    let config = with(configs::bridge(json!({"cniVersion": "1.1.0", "ipam": ipam})), own);
    let node = node();
    let add = |pod: &Container| Call::new(Verb::Add, &config, pod).run(&node).ok();
    let keep = node.container();
    let kept = add(&keep);
    node.remember();
    let valid = json!([{"containerID": keep.id(), "ifname": "eth0"}]);
    let gc = with(config.clone(), json!({"cni.dev/valid-attachments": valid}));
    let gc = || Call::new(Verb::Gc, &gc, testns::Attachment::none());
    each_point("GC with filters killed, GC", |n| {
        let pods = [(); 2].map(|()| node.container_without_probes());
        pods.iter().for_each(|pod| drop(add(pod)));
        // The first pod is left without its namespace, as after a crash of the runtime.
        pods[0].leave(Remains::Gone);
        let traced = gc().kill_before(&node, n);
        let point = format!("{n}: {:?}", traced.hit.map(|hit| hit.to_string()));
        let reply = gc().run(&node);
        assert_eq!(reply.output.code(), 0, "{point}: {reply}");
        let point = format!("{point}: {}", reply.output.stderr);
        // The kernel may still be removing what the killed GC had begun to remove. The next GC frees the address then.
        if reply.output.stderr.contains("the next GC") {
            node.host().wait_for("the links to end", |_| {
                gc().run(&node).ok();
                super::changes(&node).is_empty()
            });
        }
        assert_clean(&node, &point);
        pods[1].leave(Remains::Gone);
        let check = Call::new(Verb::Check, &config, &keep).prev_result(&kept).run(&node);
        assert_eq!(check.output.code(), 0, "{point}: {check}");
        traced.hit.is_some()
    });
}
