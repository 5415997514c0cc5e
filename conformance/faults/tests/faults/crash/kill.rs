//! `kill -9` at every point, then the DEL (or GC) that a runtime makes.

use super::{FILTERED, GATEWAY, PLAIN, Scenario, assert_clean, each_point, inside_links};
use crate::configs::{self, with};
use crate::interface_plugins::LinkPlace;
use crate::subjects::node;
use serde_json::{Value, json};
use testns::{Call, Container, Node, Remains, Verb};

/// ADD is killed; the runtime has no result, and perhaps no namespace any more.
pub(super) fn add_killed(scenario: Scenario) {
    let node = scenario.node();
    scenario.warm_up(&node);
    each_point(&format!("ADD {} killed, DEL", scenario.name), |n| {
        let pod = node.container();
        let traced = scenario.add(&pod).kill_before(&node, n);
        let all = remains(scenario.place);
        let remains = all[n % all.len()];
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

/// Returns what may be left of the container when DEL comes. A link that is in it alone is out of reach where the path of a
/// living namespace is not known; a device that is no hardware ends with its namespace.
fn remains(place: LinkPlace) -> &'static [Remains] {
    match place {
        LinkPlace::Pair => &[Remains::Alive, Remains::Gone, Remains::EmptyPath],
        LinkPlace::Upon | LinkPlace::Inside => &[Remains::Alive, Remains::Gone],
        LinkPlace::Device => &[Remains::Alive, Remains::EmptyPath],
    }
}

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
pub(super) fn del_killed(scenario: Scenario) {
    let node = scenario.node();
    scenario.warm_up(&node);
    each_point(&format!("DEL {} killed, DEL", scenario.name), |n| {
        let pod = node.container_without_probes();
        let result = scenario.add(&pod).run(&node).ok();
        let traced = scenario.del(&pod).prev_result(&result).kill_before(&node, n);
        let all = remains(scenario.place);
        let remains = all[n % all.len()];
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

fn gc_killed_of_bridge(name: &str, own: Value) {
    let ipam = configs::unshared().dual();
    let config = with(configs::bridge(json!({"cniVersion": "1.1.0", "isGateway": true, "ipam": ipam})), own);
    gc_killed(name, &node(), LinkPlace::Pair, &|_| config.clone());
}

/// GC is killed while it removes two of three attachments, and repeated. `config` is that of the container of a number.
pub(super) fn gc_killed(name: &str, node: &Node, place: LinkPlace, config: &dyn Fn(usize) -> Value) {
    let add = |number: usize, pod: &Container| Call::new(Verb::Add, config(number), pod).run(node).ok();
    let keep = node.container();
    let kept = add(0, &keep);
    node.remember();
    let valid = json!([{"containerID": keep.id(), "ifname": "eth0"}]);
    let gc = with(config(0), json!({"cni.dev/valid-attachments": valid}));
    let gc = || Call::new(Verb::Gc, &gc, testns::Attachment::none());
    // A device that is no hardware ends with its namespace.
    let lost = if place == LinkPlace::Device { Remains::Alive } else { Remains::Gone };
    each_point(&format!("GC {name} killed, GC"), |n| {
        let pods = [(); 2].map(|()| node.container_without_probes());
        for (number, pod) in pods.iter().enumerate() {
            add(1 + number, pod);
        }
        // The first pod is left without its namespace, as after a crash of the runtime.
        pods[0].leave(lost);
        let traced = gc().kill_before(node, n);
        let point = format!("{name}, {n}: {:?}", traced.hit.map(|hit| hit.to_string()));
        let reply = gc().run(node);
        assert_eq!(reply.output.code(), 0, "{point}: {reply}");
        let point = format!("{point}: {}", reply.output.stderr);
        let is_inside = matches!(place, LinkPlace::Upon | LinkPlace::Inside);
        if is_inside {
            // A link that is in the container alone is the runtime's to end, with the namespace.
            pods[1].leave(Remains::Gone);
        }
        // The kernel may still be removing what the killed GC had begun to remove. The next GC frees the address then.
        if is_inside || reply.output.stderr.contains("the next GC") {
            node.host().wait_for("the links to end", |_| {
                gc().run(node).ok();
                super::changes(node).is_empty()
            });
        }
        assert_clean(node, &point);
        for pod in pods.iter().skip(usize::from(place != LinkPlace::Device)).filter(|_| !is_inside) {
            pod.leave(Remains::Gone);
        }
        let check = Call::new(Verb::Check, config(0), &keep).prev_result(&kept).run(node);
        assert_eq!(check.output.code(), 0, "{point}: {check}");
        traced.hit.is_some()
    });
}

/// No link, rule, address or file of the container is left, on the node or in the container.
#[track_caller]
fn assert_gone(scenario: Scenario, node: &Node, pod: &Container, remains: Remains, point: &str) {
    if scenario.place == LinkPlace::Upon {
        // The uplink is promiscuous until the link is gone, which the kernel removes some time after the namespace.
        node.host().wait_for("the link to end", |host| host.link("uplink").promiscuity == 0);
    }
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
fn del_after_a_killed_add_leaves_nothing() {
    add_killed(PLAIN);
    add_killed(GATEWAY);
}

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
fn del_after_a_killed_del_leaves_nothing() {
    del_killed(PLAIN);
    del_killed(GATEWAY);
}

#[test]
fn del_after_a_killed_del_with_filters_leaves_nothing() {
    del_killed(FILTERED);
}

/// SPEC 2, GC: so does a repeated GC, and valid attachments stay.
#[test]
fn gc_after_a_killed_gc_leaves_the_valid_only() {
    gc_killed_of_bridge("plain", json!({}));
    gc_killed_of_bridge("with filters", json!({"ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true}));
}
