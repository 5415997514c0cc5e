//! ADD with each step failing in turn.

use super::{ALL, FILTERED, GATEWAY, PLAIN, Scenario, assert_clean, assert_new, changes, each_point};
use crate::configs::with;
use crate::interface_plugins::LinkPlace;
use crate::subjects::node;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use testns::trace::{Fate, Syscall, Traced};
use testns::{Call, Container, Node, Remains, Reply, Verb};

#[derive(Clone, Copy)]
pub(super) struct Failing {
    pub(super) name: &'static str,
    pub(super) at: fn(&Call, &Node, usize) -> Traced,
}

pub(super) const REFUSED: Failing = Failing { name: "refused by the kernel", at: |call, node, n| call.refuse(node, n) };
pub(super) const FAILED: Failing =
    Failing { name: "failed system call", at: |call, node, n| call.fail_step(node, n, suitable) };

/// SIGTERM, which is another way for a step to fail.
pub(super) const INTERRUPTED: Failing =
    Failing { name: "asked to end", at: |call, node, n| call.signal_before(node, n, Signal::SIGTERM) };

/// An errno that the kernel may return to that call.
fn suitable(call: &Syscall) -> Errno {
    match call.name().as_str() {
        "open" | "openat" | "mkdir" | "mkdirat" | "write" | "pwrite64" | "ftruncate" | "fallocate" | "link"
        | "linkat" | "rename" | "renameat" | "renameat2" | "symlinkat" => Errno::ENOSPC,
        "fsync" | "fdatasync" | "unlink" | "unlinkat" => Errno::EIO,
        "setns" | "unshare" | "ioctl" | "fchmod" | "fchown" => Errno::EPERM,
        "clone" | "clone3" | "fork" | "vfork" => Errno::EAGAIN,
        "recvfrom" | "recvmsg" => Errno::ENOBUFS,
        "sendto" | "sendmsg" => Errno::ENOMEM,
        _ => Errno::EBUSY,
    }
}

/// On a node that has had containers before, nothing at all may differ.
pub(super) fn on_a_used_node(scenario: Scenario, failing: Failing) {
    let node = scenario.node();
    scenario.warm_up(&node);
    let mut tolerated = Tolerated::default();
    each_point(&format!("ADD {}, {}, used node", scenario.name, failing.name), |n| {
        let pod = node.container();
        let there = fail(scenario, failing, &node, &pod, n, &mut tolerated);
        pod.leave(Remains::Gone);
        scenario.assert_addresses_are_free(&node, &format!("point {n}"));
        assert_clean(&node, &format!("{}, {} at {n}, then another's ADD and DEL", scenario.name, failing.name));
        there
    });
    tolerated.print();
}

/// On a node that never had a container the tables go, too. The bridge stays, as after DEL; so may the store's folder.
pub(super) fn on_a_new_node(scenario: Scenario, failing: Failing) {
    let mut tolerated = Tolerated::default();
    each_point(&format!("ADD {}, {}, new node", scenario.name, failing.name), |n| {
        let node = scenario.node();
        let pod = node.container();
        let there = fail(scenario, failing, &node, &pod, n, &mut tolerated);
        scenario.assert_addresses_are_free(&node, &format!("point {n}"));
        there
    });
    tolerated.print();
}

/// Makes an ADD with its `n`th step failing; false if it has no such step.
fn fail(s: Scenario, failing: Failing, node: &Node, pod: &Container, n: usize, tolerated: &mut Tolerated) -> bool {
    let call = s.add(pod);
    let Traced { reply, hit, .. } = (failing.at)(&call, node, n);
    let Some(hit) = hit else {
        let result = reply.ok();
        s.del(pod).prev_result(&result).run(node).ok();
        return false;
    };
    let point = format!("{}, {} at {n}: {hit}\n{reply}", s.name, failing.name);
    if reply.output.code() == 0 {
        assert_as_if_nothing_had_failed(s, node, pod, &reply, &point);
        tolerated.note(&hit);
        return true;
    }
    if is_reply(&hit) {
        // No error can be reported: the runtime calls DEL.
        s.del(pod).run(node).ok();
        return true;
    }
    // A plugin that has not begun yet ends as any other process does.
    if reply.output.code() != 128 + Signal::SIGTERM as i32 {
        assert_error_object(&reply, &point);
    }
    assert_clean_but_for(node, &hit, &point);
    assert_new(node, pod, &point);
    true
}

/// Where a cleanup failed, its object may be left for the next call to clean up.
#[track_caller]
fn assert_clean_but_for(node: &Node, hit: &Syscall, point: &str) {
    let cleanup = hit.name().starts_with("unlink");
    let is_gateway = |line: &str| line.contains("10.7.0.") || line.contains("fd07:");
    let stays = |line: &str| crate::shared_objects::stays(line) && !is_gateway(line);
    let may_stay = |line: &&str| stays(line) || cleanup && line.contains("/.reservation ");
    let left: Vec<_> = changes(node).lines().filter(|line| !may_stay(line)).map(str::to_owned).collect();
    assert!(left.is_empty(), "{point}: left on the node:\n{}", left.join("\n"));
}

/// The write of the reply itself, to stdout.
pub(super) fn is_reply(hit: &Syscall) -> bool {
    matches!(hit.name().as_str(), "write" | "writev") && hit.arguments[0] == 1
}

#[track_caller]
pub(super) fn assert_error_object(reply: &Reply, point: &str) {
    let failure = reply.fails();
    assert!(!failure.msg.is_empty() && !failure.msg.contains('\n'), "{point}");
    assert!(failure.code > 0, "{point}");
    let object: Value = serde_json::from_str(&reply.output.stdout).expect("an object");
    assert_eq!(object["cniVersion"], "1.1.0", "{point}");
}

/// A failure that ADD tolerates: everything is as without it.
#[track_caller]
fn assert_as_if_nothing_had_failed(s: Scenario, node: &Node, pod: &Container, reply: &Reply, point: &str) {
    let result = reply.ok();
    let check = Call::new(Verb::Check, (s.config)(), pod).prev_result(&result).run(node);
    assert_eq!(check.output.code(), 0, "{point}\n{check}");
    let is_routed = result["interfaces"][0]["name"] != "br0";
    if s.place == LinkPlace::Pair {
        let host_veth = result["interfaces"][usize::from(!is_routed)]["name"].as_str().expect("a host veth");
        assert_eq!(node.host().sysctl(&format!("net/ipv6/conf/{host_veth}/accept_ra")), "0", "{point}");
    }
    let has_gateway = s.name != PLAIN.name && !is_routed;
    let accept_ra = if has_gateway { "0" } else { "1" };
    assert_eq!(pod.namespace().sysctl("net/ipv6/conf/eth0/accept_ra"), accept_ra, "{point}");
    s.del(pod).prev_result(&result).run(node).ok();
}

/// System calls whose failure ADD tolerates.
#[derive(Default)]
struct Tolerated(BTreeMap<String, usize>);

impl Tolerated {
    fn note(&mut self, hit: &Syscall) {
        *self.0.entry(hit.name()).or_default() += 1;
    }

    fn print(&self) {
        testns::note(&format!("TOLERATED {:?}", self.0));
    }
}

/// Style guide 8: for every n, ADD with step n failing leaves the node as before.
#[test]
fn add_with_any_message_refused_leaves_nothing() {
    ALL.into_iter().for_each(|scenario| on_a_used_node(scenario, REFUSED));
}

#[test]
fn the_first_add_with_any_message_refused_leaves_nothing() {
    ALL.into_iter().for_each(|scenario| on_a_new_node(scenario, REFUSED));
}

#[test]
fn add_with_any_system_call_failing_leaves_nothing() {
    on_a_used_node(PLAIN, FAILED);
}

#[test]
fn add_with_a_gateway_and_any_system_call_failing_leaves_nothing() {
    on_a_used_node(GATEWAY, FAILED);
}

#[test]
fn add_with_filters_and_any_system_call_failing_leaves_nothing() {
    on_a_used_node(FILTERED, FAILED);
}

#[test]
fn the_first_add_with_any_system_call_failing_leaves_nothing() {
    on_a_new_node(GATEWAY, FAILED);
}

#[test]
fn the_first_add_with_filters_and_any_system_call_failing_leaves_nothing() {
    on_a_new_node(FILTERED, FAILED);
}

#[test]
fn a_signalled_add_leaves_nothing() {
    [GATEWAY, FILTERED].into_iter().for_each(|scenario| on_a_used_node(scenario, INTERRUPTED));
}

/// Gateways that replace those of other containers by `forceAddress`.
const FORCED: Scenario = Scenario {
    name: "replaced gateways",
    place: LinkPlace::Pair,
    config: || with((GATEWAY.config)(), json!({"forceAddress": true})),
};

/// Other containers have the bridge's addresses as their gateways, and the node has routes by the bridge.
fn on_a_node_with_other_gateways(failing: Failing) {
    const OTHERS: [&str; 2] = ["10.98.0.1/16", "fd07::5/60"];
    let node = FORCED.node();
    PLAIN.warm_up(&node);
    let host = node.host();
    let lay = || {
        host.delete_addresses("br0");
        OTHERS.iter().for_each(|address| host.add_address("br0", address));
        let has = |to: &str| host.routes().iter().any(|route| route.to == to);
        for (to, via) in [("10.9.0.0/16", "10.98.0.9"), ("fd09::/64", "fd07::9")] {
            if !has(to) {
                host.add_route(to, via, "br0");
            }
        }
    };
    lay();
    node.remember();
    let mut tolerated = Tolerated::default();
    each_point(&format!("ADD {}, {}", FORCED.name, failing.name), |n| {
        let pod = node.container();
        let there = fail(FORCED, failing, &node, &pod, n, &mut tolerated);
        pod.leave(Remains::Gone);
        if host.global_addresses("br0") != OTHERS {
            // ADD succeeded, or could not report its failure.
            lay();
        }
        assert_clean(&node, &format!("{}, {} at {n}", FORCED.name, failing.name));
        there
    });
    tolerated.print();
}

#[test]
fn add_that_replaces_gateways_puts_them_back_when_any_message_is_refused() {
    on_a_node_with_other_gateways(REFUSED);
}

#[test]
fn add_that_replaces_gateways_puts_them_back_when_any_system_call_fails() {
    on_a_node_with_other_gateways(FAILED);
}

/// With duplicate address detection ADD has to wait, and the kernel refuses the descriptor that it would wait on.
#[test]
fn add_that_cannot_wait_leaves_nothing() {
    const ASKING: Scenario = Scenario {
        name: "enabledad",
        place: LinkPlace::Pair,
        config: || with((GATEWAY.config)(), json!({"enabledad": true})),
    };
    let node = node();
    ASKING.warm_up(&node);
    let pod = node.container();
    let no_event_loop = Fate::FailWhere(|call| (call.name() == "epoll_create1").then_some(Errno::EMFILE));
    let traced = ASKING.add(&pod).try_traced(&node, Some((1, no_event_loop))).expect("no call takes that long");
    let point = format!("{:?}\n{}", traced.hit, traced.reply);
    assert!(traced.hit.is_some(), "{point}");
    let failure = traced.reply.fails_with(5);
    assert!(failure.msg.contains("cannot wait") && failure.details.contains("Undone: link veth"), "{point}");
    assert_clean(&node, &point);
    assert_new(&node, &pod, &point);
    ASKING.assert_addresses_are_free(&node, &point);
}

/// An ADD that fails before its first wait is also rolled back without waiting: there may be no descriptor to wait on.
#[test]
fn rollback_needs_no_event_loop() {
    let node = node();
    PLAIN.warm_up(&node);
    // After the lease, as the bridge's name is looked up then.
    let pod = node.container();
    let config = with((PLAIN.config)(), json!({"bridge": "lo"}));
    let traced = Call::new(Verb::Add, config, &pod).trace(&node);
    let failure = traced.reply.fails_with(103);
    assert!(failure.details.contains("Undone: addresses released"), "{failure:?}");
    assert!(traced.calls.iter().all(|call| call.name() != "epoll_create1"), "{failure:?}");
    assert_clean(&node, &failure.msg);
}
