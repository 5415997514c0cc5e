//! Rules of portmap.

use crate::configs::with;
use crate::subjects::node;
use conformance::iptables::{has_iptables, on};
use conformance::portmap::{config, made_up, mapping, saved};
use serde_json::json;
use testns::trace::Traced;
use testns::{Call, Container, Node, Verb};

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
