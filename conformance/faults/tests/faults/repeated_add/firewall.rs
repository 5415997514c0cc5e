//! Rules of firewall.

use crate::configs::with;
use crate::subjects::node;
use conformance::firewall::{config, made_up, saved};
use conformance::iptables::has_iptables;
use serde_json::json;
use testns::trace::Traced;
use testns::{Call, Container, Node, Verb};

/// A repeated ADD of which any message is refused leaves every rule in its place: with the same addresses and policy or with
/// others, or an address more.
#[test]
fn a_repeated_add_of_firewall_that_fails_leaves_all_rules_in_their_places() {
    testns::needs!(has_iptables());
    for backend in ["iptables", "nftables"] {
        let of = |pod: &Container, policy: &str, bridge: &str, all: &[u8]| {
            let both = |n: &u8| [format!("10.1.0.{n}/24"), format!("fd01::{n}/64")];
            let addresses: Vec<String> = all.iter().flat_map(both).collect();
            let previous = made_up(bridge, &addresses.iter().map(String::as_str).collect::<Vec<_>>());
            let own = json!({"ingressPolicy": policy, "backend": backend});
            Call::new(Verb::Add, with(config(own), json!({"prevResult": previous})), pod)
        };
        let all = |node: &Node| {
            let native = node.host().nft().into_iter().filter(|line| line.contains("cni_firewall"));
            saved(node).lines().map(str::to_owned).chain(native).collect::<Vec<_>>()
        };
        let changed: [(&str, &[u8]); 6] = [
            ("isolated", &[2]),
            ("isolated", &[4]),
            ("same-bridge", &[5]),
            ("open", &[2]),
            ("open", &[2, 7]),
            ("isolated", &[2, 6]),
        ];
        for (policy, addresses) in changed {
            let node = node();
            let [one, two, three] = [(); 3].map(|()| node.container());
            of(&one, "same-bridge", "cni1", &[1]).run(&node).ok();
            of(&two, "isolated", "cni0", &[2]).run(&node).ok();
            of(&three, "same-bridge", "cni2", &[3]).run(&node).ok();
            let before = all(&node);
            for n in 1.. {
                let Traced { reply, hit, .. } = of(&two, policy, "cni0", addresses).refuse(&node, n);
                if hit.is_none() {
                    reply.ok();
                    // With the same addresses no message is needed: the stricter policy is in force already.
                    assert!(n > 1 || *addresses == [2], "{policy}, {addresses:?}: no message");
                    break;
                }
                assert_eq!(all(&node), before, "{backend}, {policy}, {addresses:?}, {n}: {reply}");
            }
        }
    }
}
