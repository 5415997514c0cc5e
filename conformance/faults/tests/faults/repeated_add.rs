//! A repeated ADD that fails leaves the rules of the first one; for a first ADD see `crash::chained`.

use crate::configs::with;
use crate::subjects::node;
use conformance::iptables::{has_iptables, on};
use conformance::{firewall, portmap};
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
            let previous = firewall::made_up(bridge, &addresses.iter().map(String::as_str).collect::<Vec<_>>());
            let own = json!({"ingressPolicy": policy, "backend": backend});
            Call::new(Verb::Add, with(firewall::config(own), json!({"prevResult": previous})), pod)
        };
        let all = |node: &Node| {
            let native = node.host().nft().into_iter().filter(|line| line.contains("cni_firewall"));
            firewall::saved(node).lines().map(str::to_owned).chain(native).collect::<Vec<_>>()
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

/// A repeated ADD of which any message is refused leaves every rule in its place: with the same ports or with others, and where
/// only the programs of iptables know the words of a rule.
#[test]
fn a_repeated_add_of_portmap_that_fails_leaves_all_rules_in_their_places() {
    testns::needs!(has_iptables());
    let conditions = json!({"conditionsV4": ["-m", "limit", "--limit", "9/s"]});
    for (backend, own) in [("iptables", json!({})), ("nftables", json!({})), ("iptables", conditions)] {
        let of = |pod: &Container, host: u16, addresses: &[&str]| {
            let base =
                json!({"backend": backend, "acceptForwarded": true, "prevResult": portmap::made_up("eth0", addresses)});
            Call::new(
                Verb::Add,
                with(portmap::config(&[portmap::mapping(host, 80, "tcp")], with(base, own.clone())), json!({})),
                pod,
            )
        };
        let all = |node: &Node| {
            let filter = ["-t", "filter"];
            let text =
                on(node, "iptables-save", &filter) + &on(node, "ip6tables-save", &filter) + &portmap::saved(node);
            let lines: Vec<_> = text.lines().filter(|line| line.starts_with('-')).map(str::to_owned).collect();
            [lines, node.host().nft().into_iter().filter(|line| line.contains("cni_hostport")).collect()].concat()
        };
        let prepared = || {
            let node = node();
            let [one, two, three] = [(); 3].map(|()| node.container());
            of(&one, 8001, &["10.1.0.1/24", "fd01::1/64"]).run(&node).ok();
            of(&two, 8002, &["10.1.0.2/24", "fd01::2/64"]).run(&node).ok();
            of(&three, 8003, &["10.1.0.3/24", "fd01::3/64"]).run(&node).ok();
            (all(&node), node, [one, two, three])
        };
        let changed: [(u16, &[&str]); 2] =
            [(8002, &["10.1.0.2/24", "fd01::2/64"]), (8004, &["10.1.0.4/24", "fd01::4/64"])];
        for (host, addresses) in changed {
            let mut as_it_was = None;
            for n in 1.. {
                let (before, node, pods) = as_it_was.take().unwrap_or_else(prepared);
                let Traced { reply, hit, .. } = of(&pods[1], host, addresses).refuse(&node, n);
                if hit.is_none() {
                    reply.ok();
                    break;
                }
                // A program of iptables that is refused may be called again.
                if reply.output.code() != 0 {
                    assert_eq!(all(&node), before, "{backend}, {own}, {host}, {n}: {reply}");
                    as_it_was = Some((before, node, pods));
                }
            }
        }
    }
}
