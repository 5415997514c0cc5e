//! A repeated ADD that fails leaves the rules of the first one; for a first ADD see `crash::chained`.

use crate::configs::with;
use crate::subjects::node;
use conformance::iptables::{has_iptables, on};
use conformance::portmap::{config, forwarding, made_up, mapping, saved};
use serde_json::json;
use testns::trace::Traced;
use testns::{Call, Container, Node, Verb};

fn call(verb: Verb, pod: &Container, backend: &str) -> Call {
    let own = json!({"backend": backend, "prevResult": made_up("eth0", &["10.1.0.2/24", "fd01::2/64"])});
    Call::new(verb, with(config(&[mapping(8080, 80, "tcp"), mapping(53, 53, "udp")], json!({})), own), pod)
}

fn left(node: &Node) -> Vec<String> {
    let mut left = forwarding(node);
    left.extend(node.host().nft().into_iter().filter(|line| line.contains("10.1.0.2") || line.contains("fd01::2")));
    left
}

/// DEL without result, and without namespace every second time.
fn del(node: &Node, pod: &Container, backend: &str, n: usize) {
    let bare = call(Verb::Del, pod, backend).with_config(|config| {
        config.as_object_mut().unwrap().retain(|key, _| !["prevResult", "runtimeConfig"].contains(&key.as_str()));
    });
    if n.is_multiple_of(2) { bare } else { bare.without("CNI_NETNS") }.run(node).ok();
}

/// A repeated ADD with other addresses and ports, of which any message is refused, leaves the ports of the first one.
#[test]
fn a_repeated_add_of_portmap_that_fails_leaves_the_ports_as_they_were() {
    testns::needs!(has_iptables());
    for backend in ["iptables", "nftables"] {
        let node = node();
        let of = |verb, pod: &Container, host: u16, addresses: &[&str]| {
            let own = json!({"backend": backend, "acceptForwarded": true, "prevResult": made_up("eth0", addresses)});
            Call::new(verb, with(config(&[mapping(host, 80, "tcp")], json!({})), own), pod)
        };
        let addresses = ["10.1.0.2/24", "fd01::2/64"];
        for n in 1.. {
            let pod = node.container();
            of(Verb::Add, &pod, 8080, &addresses).run(&node).ok();
            let again = of(Verb::Add, &pod, 8081, &["10.1.0.3/24", "fd01::3/64"]);
            let Traced { reply, hit, .. } = again.refuse(&node, n);
            let check = of(Verb::Check, &pod, 8080, &addresses);
            if hit.is_none() {
                reply.ok();
                assert!(n > 5, "{backend}: only {n} messages");
                check.run(&node).fails_with(107);
                break;
            }
            reply.fails();
            check.run(&node).ok();
            let left = left(&node).concat();
            assert!(!left.contains("8081") && !left.contains("10.1.0.3"), "{backend}, {n}: {left}");
            del(&node, &pod, backend, n);
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
            let base = json!({"backend": backend, "acceptForwarded": true, "prevResult": made_up("eth0", addresses)});
            Call::new(Verb::Add, with(config(&[mapping(host, 80, "tcp")], with(base, own.clone())), json!({})), pod)
        };
        let all = |node: &Node| {
            let filter = ["-t", "filter"];
            let text = on(node, "iptables-save", &filter) + &on(node, "ip6tables-save", &filter) + &saved(node);
            let lines: Vec<_> = text.lines().filter(|line| line.starts_with('-')).map(str::to_owned).collect();
            [lines, node.host().nft().into_iter().filter(|line| line.contains("cni_hostport")).collect()].concat()
        };
        let scene = || {
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
                let (before, node, pods) = as_it_was.take().unwrap_or_else(scene);
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
