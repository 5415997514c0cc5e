//! The bandwidth plugin.

mod subnets;
mod traffic;

use super::{behind, bridged};
use crate::prelude::*;
use conformance::chained_plugins::bandwidth as full;
use std::process::Command;
use traffic::{assert_limited, delay_under_load};

pub(super) fn config(own: Value) -> Value {
    with(json!({"cniVersion": "1.0.0", "name": "net", "type": "bandwidth"}), own)
}

fn tc(arguments: &[&str]) -> String {
    let output = Command::new("tc").args(arguments).output().expect("run tc");
    String::from_utf8(output.stdout).expect("text")
}

fn ifbs(node: &Node) -> Vec<String> {
    node.host().links().into_iter().filter(|link| link.kind == "ifb").map(|link| link.name).collect()
}

#[test]
fn packets_of_both_families_and_directions_keep_to_the_limits() {
    testns::needs!(Feature::Ifb.or_skip());
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let attached = Attached::add(&node, &behind(&before, full()), &pod);
    assert_limited(&node, pod.namespace(), ip("10.7.0.2"), ip("10.7.0.1"));
    assert_limited(&node, pod.namespace(), ip("fd07::2"), ip("fd07::1"));
    attached.check().ok();
}

#[test]
fn limits_hold_behind_ptp() {
    testns::needs!(Feature::Ifb.or_skip());
    let (node, pod) = node_with_pod();
    let ptp = json!({"cniVersion": "1.0.0", "name": "net", "type": "ptp", "ipam": dual()});
    let before = Attached::add(&node, &ptp, &pod);
    let attached = Attached::add(&node, &behind(&before, full()), &pod);
    assert_limited(&node, pod.namespace(), first_ip(&attached.result), ip("10.7.0.1"));
    attached.check_and_del();
    assert!(ifbs(&node).is_empty());
}

#[test]
fn a_direction_without_limit_has_no_shaper() {
    testns::needs!(Feature::Ifb.or_skip());
    let node = node();
    for (own, root, ingress) in [
        (json!({}), false, false),
        (json!({"ingressRate": 8000, "ingressBurst": 80_000}), true, false),
        (json!({"egressRate": 8000, "egressBurst": 80_000}), false, true),
    ] {
        let pod = node.container();
        let before = bridged(&node, &pod);
        let attached = Attached::add(&node, &behind(&before, config(own.clone())), &pod);
        attached.check().ok();
        let shown = tc(&["qdisc", "show", "dev", before.host_veth()]);
        assert_eq!((shown.contains("tbf"), shown.contains("ingress")), (root, ingress), "{own}: {shown}");
        assert_eq!(ifbs(&node).len(), usize::from(ingress));
        if !ingress {
            assert_eq!(attached.result, before.result);
        }
        attached.del().ok();
    }
}

/// The runtime's limits, and those of the network, which win.
#[test]
fn a_repeated_add_changes_the_limits() {
    testns::needs!(Feature::Ifb.or_skip());
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let limits =
        |rate: u32| json!({"ingressRate": rate, "ingressBurst": 80_000, "egressRate": rate, "egressBurst": 80_000});
    for rate in [8000, 16_000, 24_000] {
        let config = config(json!({"runtimeConfig": {"bandwidth": limits(rate)}}));
        Attached::add(&node, &behind(&before, config), &pod).check().ok();
        let shown = tc(&["qdisc", "show"]);
        assert_eq!(shown.matches(&format!("rate {}Kbit", rate / 1000)).count(), 2, "{shown}");
        assert_eq!(ifbs(&node).len(), 1);
    }
    let own = config(with(limits(32_000), json!({"runtimeConfig": {"bandwidth": limits(8000)}})));
    let attached = Attached::add(&node, &behind(&before, own), &pod);
    attached.check().ok();
    // DEL leaves what ends with the veth; an ADD after it works all the same.
    attached.del().ok();
    let once = Attached::add(&node, &behind(&before, full()), &pod);
    once.check().ok();
    // Behind its own result it adds no second entry of the ifb.
    let again = Attached::add(&node, &behind(&once, full()), &pod);
    let names = |attached: &Attached<'_>| -> Vec<String> {
        attached.result["interfaces"].as_array().unwrap().iter().map(|entry| entry["name"].to_string()).collect()
    };
    assert_eq!(names(&again), names(&once));
    let filters = tc(&["filter", "show", "dev", before.host_veth(), "ingress"]);
    assert_eq!(filters.matches("mirred").count(), 1, "{filters}");
}

#[test]
fn del_takes_the_limits_from_the_veth() {
    testns::needs!(Feature::Ifb.or_skip());
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    node.remember();
    Attached::add(&node, &behind(&before, full()), &pod).del().ok();
    node.assert_as_before_except(super::comes_and_goes);
    // Another process's filter, and its place, stay.
    let attached = Attached::add(&node, &behind(&before, full()), &pod);
    let veth = before.host_veth();
    let filter = ["protocol", "all", "pref", "7", "u32", "match", "u32", "0", "0", "at", "0", "flowid", "1:1"];
    tc(&[&["filter", "add", "dev", veth, "parent", "ffff:"], &filter[..]].concat());
    assert!(tc(&["filter", "show", "dev", veth, "ingress"]).contains("pref 7"));
    attached.del().ok();
    assert!(tc(&["filter", "show", "dev", veth, "ingress"]).contains("pref 7"));
}

/// The reference's link has no mark; it is not removed for an interface whose result does not have it.
#[test]
fn a_link_of_the_references_stays_for_its_own_interface() {
    testns::needs!(Feature::Ifb.or_skip());
    let Some(theirs) = reference_or_skip() else { return };
    let node = Node::with(&theirs);
    node.install_one(&ours(), "bridge");
    let pod = node.container();
    let before = bridged(&node, &pod);
    let one = Attached::add(&node, &behind(&before, full()), &pod);
    node.install_one(&ours(), "bandwidth");
    let before = bridged(&node, pod.attachment_as("net1"));
    let two = Attached::add(&node, &behind(&before, full()), pod.attachment_as("net1"));
    assert_eq!(ifbs(&node).len(), 2);
    for _ in 0..2 {
        two.del().ok();
        one.check().ok();
    }
    one.del().ok();
    assert!(ifbs(&node).is_empty());
}

/// Kubelets ask for a burst of 2^31 bits, which at low rates takes longer than 32 bits of the kernel's ticks can say.
#[test]
fn either_sides_check_takes_a_kubelets_burst() {
    testns::needs!(Feature::Ifb.or_skip());
    let Some(theirs) = reference_or_skip() else { return };
    let limits = json!({"ingressRate": 1_000_000, "ingressBurst": 2_147_483_648_u32,
        "egressRate": 1_000_000, "egressBurst": 2_147_483_648_u32});
    let mut shown = Vec::new();
    for (maker, other) in [(&ours(), &theirs), (&theirs, &ours())] {
        let node = Node::with(&ours());
        node.install_one(maker, "bandwidth");
        let pod = node.container();
        let before = bridged(&node, &pod);
        let limited = Attached::add(&node, &behind(&before, config(limits.clone())), &pod);
        shown.push(tc(&["qdisc", "show"]).matches("burst 27917287b").count());
        node.install_one(other, "bandwidth");
        limited.check().ok();
    }
    assert_eq!(shown, [2, 2]);
    // A bucket without room for a packet, with which the reference's ADD fails.
    let (node, pod) = node_with_pod();
    let tight = json!({"ingressRate": 1000, "ingressBurst": 2_147_483_648_u32});
    Attached::add(&node, &behind(&bridged(&node, &pod), config(tight)), &pod).check().ok();
}

#[test]
fn check_names_each_difference() {
    testns::needs!(Feature::Ifb.or_skip());
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let attached = Attached::add(&node, &behind(&before, full()), &pod);
    let (veth, ifb) = (before.host_veth(), ifbs(&node).remove(0));
    let differs = |word: &str| {
        let failure = attached.check().fails_with(107);
        assert!(failure.msg.contains(word), "{word}: {failure:?}");
    };
    let other = json!({"ingressRate": 16_000_000, "prevResult": attached.result});
    Call::new(Verb::Check, with(attached.config.clone(), other), &pod).run(&node).fails_with(107);
    tc(&["filter", "del", "dev", veth, "ingress"]);
    differs("its packets do not go to");
    node.host().set_down(&ifb);
    differs("it is down");
    node.host().clear_qdiscs(&ifb);
    differs("it has no token bucket");
    node.host().delete_link(&ifb);
    differs("it is not found");
    node.host().clear_qdiscs(veth);
    differs("it has no token bucket");
}

/// A container with `CAP_NET_ADMIN` makes a link with the index and peer that it likes.
#[test]
fn only_a_veth_of_the_node_is_shaped() {
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let mut result = before.result.clone();
    result["interfaces"][1]["name"] = json!("another");
    let call = |result: &Value| Call::new(Verb::Add, with(full(), json!({"prevResult": result})), &pod).run(&node);
    let failure = call(&result).fails_with(110);
    assert!(failure.msg.contains("prevResult does not have veth"), "{failure:?}");
    let inside = pod.namespace();
    inside.rename("eth0", "moved");
    inside.add_veth("eth0", inside, "peer");
    let failure = call(&before.result).fails_with(110);
    assert!(failure.msg.contains("its peer is not on the host"), "{failure:?}");
    assert!(ifbs(&node).is_empty());
}

/// The reference says `file exists`; so it is, whatever kind and handle the other shaper has.
#[test]
fn another_processs_shaper_stays() {
    testns::needs!(Feature::Ifb.or_skip());
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let veth = before.host_veth();
    // Without the packets that were counted.
    let shown = || tc(&["qdisc", "show", "dev", veth]).split(" direct_packets").next().unwrap_or_default().to_owned();
    for theirs in [
        &["handle", "1:", "htb"][..],
        &["handle", "1:", "tbf", "rate", "1mbit", "burst", "10kb", "latency", "50ms"],
        &["handle", "1:", "tbf", "rate", "8mbit", "burst", "100kb", "limit", "100kb"],
        &["handle", "7:", "tbf", "rate", "8mbit", "burst", "100000", "latency", "25ms"],
    ] {
        tc(&[&["qdisc", "add", "dev", veth, "root"], theirs].concat());
        let there = shown();
        let failure = Call::new(Verb::Add, behind(&before, full()), &pod).run(&node).fails_with(103);
        assert!(failure.details.contains("Another process shapes this link"), "{failure:?}");
        assert_eq!(shown(), there);
        assert!(ifbs(&node).is_empty());
        node.call(Verb::Del, full(), &pod).ok();
        assert_eq!(shown(), there);
        tc(&["qdisc", "del", "dev", veth, "root"]);
    }
    Attached::add(&node, &behind(&before, full()), &pod).check().ok();
}

/// The other process's filters would not be reached any more, or would keep packets from the limit.
#[test]
fn another_processs_filters_stay_in_effect() {
    testns::needs!(Feature::Ifb.or_skip());
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let veth = before.host_veth();
    for preference in ["1", "7"] {
        tc(&["qdisc", "add", "dev", veth, "ingress"]);
        let filter =
            ["protocol", "all", "pref", preference, "u32", "match", "u32", "0", "0", "at", "0", "flowid", "1:7"];
        tc(&[&["filter", "add", "dev", veth, "parent", "ffff:"], &filter[..]].concat());
        let there = tc(&["filter", "show", "dev", veth, "ingress"]);
        assert!(there.contains(&format!("pref {preference} ")), "{there}");
        let failure = Call::new(Verb::Add, behind(&before, full()), &pod).run(&node).fails_with(103);
        assert!(failure.details.contains("Another process filters what comes in"), "{failure:?}");
        assert!(!tc(&["qdisc", "show", "dev", veth]).contains("tbf") && ifbs(&node).is_empty());
        node.call(Verb::Del, full(), &pod).ok();
        assert_eq!(tc(&["filter", "show", "dev", veth, "ingress"]), there);
        tc(&["qdisc", "del", "dev", veth, "ingress"]);
    }
    // A place without filters is as good as none.
    tc(&["qdisc", "add", "dev", veth, "ingress"]);
    Attached::add(&node, &behind(&before, full()), &pod).check().ok();
}

/// Whatever step of the second ADD fails, in both directions, with another kind of shaper, too.
#[test]
fn a_repeated_add_with_any_message_refused_leaves_the_limits_as_they_were() {
    testns::needs!(Feature::Ifb.or_skip());
    let node = node();
    let other =
        config(json!({"ingressRate": 16_000, "ingressBurst": 80_000, "egressRate": 16_000, "egressBurst": 80_000}));
    let some = with(other.clone(), json!({"shapedSubnets": ["10.0.0.0/8", "fd00::/8"]}));
    for (first, other) in [(full(), other.clone()), (full(), some.clone()), (some, other)] {
        assert_refused_add_changes_nothing(&node, &first, &other);
    }
}

fn assert_refused_add_changes_nothing(node: &Node, first: &Value, other: &Value) {
    for n in 1.. {
        let pod = node.container();
        let before = bridged(node, &pod);
        let attached = Attached::add(node, &behind(&before, first.clone()), &pod);
        let traced = Call::new(Verb::Add, behind(&before, other.clone()), &pod).refuse(node, n);
        if traced.hit.is_none() {
            traced.reply.ok();
            assert!(n > 3, "only {n} messages");
            break;
        }
        traced.reply.fails();
        attached.check_and_del();
        before.del().ok();
    }
}

/// An agent that uses tc or eBPF may make the place for its filters before it has any.
#[test]
fn an_empty_place_for_filters_of_both_directions_is_used_and_stays() {
    testns::needs!(Feature::Ifb.or_skip());
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let veth = before.host_veth();
    tc(&["qdisc", "add", "dev", veth, "clsact"]);
    let attached = Attached::add(&node, &behind(&before, full()), &pod);
    attached.check().ok();
    assert_limited(&node, pod.namespace(), ip("10.7.0.2"), ip("10.7.0.1"));
    Attached::add(&node, &behind(&before, full()), &pod).check().ok();
    attached.del().ok();
    assert!(tc(&["qdisc", "show", "dev", veth]).contains("clsact") && ifbs(&node).is_empty());
    assert_eq!(tc(&["filter", "show", "dev", veth, "ingress"]), "");
}

/// Why the key is there: a burst of half a megabyte at a megabyte per second may fill a queue of half a second, and every
/// other flow waits behind it.
#[test]
fn key_queue_keeps_the_delay_of_other_flows_short() {
    testns::needs!(Feature::Ifb.or_skip(), Feature::FqCodel.or_skip());
    let delays = ["fifo", "fq_codel"].map(|queue| {
        let (node, pod) = node_with_pod();
        let before = bridged(&node, &pod);
        let limits = json!({"ingressRate": 8_000_000, "ingressBurst": 4_000_000, "egressRate": 8_000_000,
            "egressBurst": 4_000_000, "queue": queue});
        let attached = Attached::add(&node, &behind(&before, config(limits)), &pod);
        let to_pod = delay_under_load(node.host(), pod.namespace(), ip("10.7.0.2"));
        let from_pod = delay_under_load(pod.namespace(), node.host(), ip("10.7.0.1"));
        attached.check().ok();
        let other = with(attached.config.clone(), json!({"queue": "fq_codel", "prevResult": attached.result}));
        let check = Call::new(Verb::Check, other, &pod).run(&node);
        assert_eq!(check.output.code() == 0, queue == "fq_codel", "{check}");
        attached.del().ok();
        [to_pod, from_pod]
    });
    testns::note(&format!("DELAY [to, from] the pod in ms: {:?} with fifo, {:?} with fq_codel", delays[0], delays[1]));
    for (fifo, fq_codel) in delays[0].into_iter().zip(delays[1]) {
        assert!(fifo > 200 && fq_codel * 3 < fifo, "{delays:?}");
    }
}

/// A kernel without the kind: the error says which module it lacks, and nothing is changed.
#[test]
fn key_queue_on_a_kernel_without_it_names_the_module() {
    if !Feature::Ifb.or_skip() || Feature::FqCodel.is_here() {
        return;
    }
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    node.remember();
    let own = with(full(), json!({"queue": "fq_codel"}));
    let failure = Call::new(Verb::Add, behind(&before, own.clone()), &pod).run(&node).fails();
    assert!(failure.details.contains("sch_fq_codel"), "{failure:?}");
    node.assert_as_before_except(super::comes_and_goes);
    node.call(Verb::Status, with(own, json!({"cniVersion": "1.1.0"})), Attachment::none()).fails_with(50);
}
