//! A repeated ADD that fails leaves the rules of the first one; for a first ADD see `crash::chained`.

use crate::configs::with;
use crate::subjects::node;
use conformance::firewall::{accepting, config, isolating, made_up, saved};
use conformance::iptables::has_iptables;
use serde_json::json;
use testns::trace::Traced;
use testns::{Call, Container, Node, Verb};

fn call(verb: Verb, pod: &Container) -> Call {
    let previous = made_up("cni0", &["10.1.0.2/24", "fd01::2/64"]);
    Call::new(verb, with(config(json!({"ingressPolicy": "isolated"})), json!({"prevResult": previous})), pod)
}

fn left(node: &Node) -> Vec<String> {
    [accepting(node), isolating(node, "cni0")].concat()
}

/// A repeated ADD with other addresses, of which any message is refused, leaves the rules of the first one.
#[test]
fn a_repeated_add_of_firewall_that_fails_leaves_the_rules_as_they_were() {
    testns::needs!(has_iptables());
    let node = node();
    for n in 1.. {
        let pod = node.container();
        let of = |verb, policy: &str, addresses: &[&str]| {
            let own = json!({"ingressPolicy": policy});
            Call::new(verb, with(config(own), json!({"prevResult": made_up("cni0", addresses)})), &pod)
        };
        let first = ["10.1.0.2/24", "fd01::2/64"];
        of(Verb::Add, "isolated", &first).run(&node).ok();
        let again = of(Verb::Add, "same-bridge", &["10.1.0.3/24", "fd01::3/64"]);
        let Traced { reply, hit, .. } = again.refuse(&node, n);
        if hit.is_none() {
            reply.ok();
            assert!(n > 3, "only {n} messages");
            break;
        }
        reply.fails();
        of(Verb::Check, "isolated", &first).run(&node).ok();
        let left = accepting(&node).concat();
        assert!(!left.contains("10.1.0.3") && !left.contains("fd01::3"), "{n}: {left}");
        call(Verb::Del, &pod).run(&node).ok();
        assert_eq!(self::left(&node), [""; 0], "{n}");
    }
}

/// A repeated ADD of which any message is refused leaves every rule in its place: with the same addresses and policy or with
/// others.
#[test]
fn a_repeated_add_of_firewall_that_fails_leaves_all_rules_in_their_places() {
    testns::needs!(has_iptables());
    for backend in ["iptables", "nftables"] {
        let of = |pod: &Container, policy: &str, bridge: &str, n: u8| {
            let addresses = [format!("10.1.0.{n}/24"), format!("fd01::{n}/64")];
            let previous = made_up(bridge, &addresses.each_ref().map(String::as_str));
            let own = json!({"ingressPolicy": policy, "backend": backend});
            Call::new(Verb::Add, with(config(own), json!({"prevResult": previous})), pod)
        };
        let all = |node: &Node| {
            let native = node.host().nft().into_iter().filter(|line| line.contains("cni_firewall"));
            saved(node).lines().map(str::to_owned).chain(native).collect::<Vec<_>>()
        };
        let changed =
            [("isolated", "cni0", 2), ("isolated", "cni0", 4), ("same-bridge", "cni0", 5), ("open", "cni0", 2)];
        for (policy, bridge, address) in changed {
            let node = node();
            let [one, two, three] = [(); 3].map(|()| node.container());
            of(&one, "same-bridge", "cni1", 1).run(&node).ok();
            of(&two, "isolated", "cni0", 2).run(&node).ok();
            of(&three, "same-bridge", "cni2", 3).run(&node).ok();
            let before = all(&node);
            for n in 1.. {
                let Traced { reply, hit, .. } = of(&two, policy, bridge, address).refuse(&node, n);
                if hit.is_none() {
                    reply.ok();
                    break;
                }
                assert_eq!(all(&node), before, "{backend}, {policy}, {address}, {n}: {reply}");
            }
        }
    }
}

/// The same where the repeated ADD has an address more.
#[test]
fn a_repeated_add_of_firewall_with_an_address_more_that_fails_leaves_the_rules_of_the_first() {
    testns::needs!(has_iptables());
    let node = node();
    let pod = node.container();
    let of = |addresses: &[&str]| {
        let previous = made_up("cni0", addresses);
        Call::new(Verb::Add, with(config(json!({})), json!({"prevResult": previous})), &pod)
    };
    of(&["10.1.0.2/24", "fd01::2/64"]).run(&node).ok();
    let before = saved(&node);
    for n in 1.. {
        let more = of(&["10.1.0.2/24", "10.1.0.3/24", "fd01::2/64", "fd01::3/64"]);
        let Traced { reply, hit, .. } = more.refuse(&node, n);
        if hit.is_none() {
            reply.ok();
            assert!(n > 3, "only {n} messages");
            break;
        }
        assert_eq!(saved(&node), before, "{n}: {reply}");
    }
}
