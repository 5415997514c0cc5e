//! Keys `shapedSubnets` and `unshapedSubnets`: a limit that only some packets have.

use super::traffic::time_of;
use super::{behind, bridged, config, ifbs, tc};
use crate::prelude::*;
use std::time::Duration;

fn limited(own: Value) -> Value {
    let limits = json!({"ingressRate": 400_000, "ingressBurst": 80_000, "egressRate": 400_000, "egressBurst": 80_000});
    config(with(limits, own))
}

/// The other end decides in both directions: the container's own addresses are in none of the subnets.
#[test]
fn only_packets_of_the_shaped_subnets_are_limited() {
    testns::needs!(Feature::Ifb.or_skip());
    // 60 packets have 80 kB. 50 kB pass in a second, after a burst of 10 kB.
    let (fast, slow) = (Duration::from_millis(500), Duration::from_millis(900));
    for own in [json!({"unshapedSubnets": ["10.7.0.1/31", "192.0.2.0/24"]}), json!({"shapedSubnets": ["fd07::1/127"]})]
    {
        let (node, pod) = node_with_pod();
        let before = bridged(&node, &pod);
        let attached = Attached::add(&node, &behind(&before, limited(own.clone())), &pod);
        attached.check().ok();
        let (host, inside) = (node.host(), pod.namespace());
        for (from, to, address) in [(host, inside, "10.7.0.2"), (inside, host, "10.7.0.1")] {
            let time = time_of(60, from, to, ip(address));
            assert!(time < fast, "{own}: {time:?} to {address}");
        }
        for (from, to, address) in [(host, inside, "fd07::2"), (inside, host, "fd07::1")] {
            let time = time_of(60, from, to, ip(address));
            assert!(time > slow, "{own}: {time:?} to {address}");
        }
        attached.check_and_del();
        assert!(!tc(&["qdisc", "show", "dev", before.host_veth()]).contains("htb") && ifbs(&node).is_empty());
    }
}

#[test]
fn check_names_a_difference_of_class_filters_and_queue() {
    testns::needs!(Feature::Ifb.or_skip());
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let own = limited(json!({"unshapedSubnets": ["10.0.0.0/9", "::/0"]}));
    let attached = Attached::add(&node, &behind(&before, own.clone()), &pod);
    let veth = before.host_veth();
    let differs = |config: Value, word: &str| {
        let config = with(config, json!({"prevResult": attached.result}));
        let failure = Call::new(Verb::Check, config, &pod).run(&node).fails_with(107);
        assert!(failure.msg.contains(word), "{word}: {failure:?}");
    };
    attached.check().ok();
    differs(limited(json!({"unshapedSubnets": ["10.0.0.0/8", "::/0"]})), "its filters are not those of the subnets");
    differs(limited(json!({"shapedSubnets": ["10.0.0.0/9", "::/0"]})), "its filters are not those of the subnets");
    differs(limited(json!({})), "it has no token bucket");
    tc(&["class", "change", "dev", veth, "parent", "1:", "classid", "1:1", "htb", "rate", "1mbit"]);
    differs(own.clone(), "its class has rate 125000");
    // ADD mends it, also by another kind.
    for config in [own.clone(), limited(json!({})), own.clone()] {
        Attached::add(&node, &behind(&before, config), &pod).check().ok();
    }
    tc(&["qdisc", "del", "dev", veth, "parent", "1:1"]);
    differs(own, "its bucket has no bfifo below");
}
