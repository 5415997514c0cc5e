//! firewall: rules that let a container's packets pass, and policies that keep others' away.

mod egress;
mod firewalld;
mod packets;
mod rules;
mod shared;

use crate::prelude::*;
use conformance::firewall::{accepting, config, isolating, made_up, saved};
use conformance::iptables::{has_iptables, on};
use packets::{attach, is_kept_from, network, other_network, reaches};

#[track_caller]
fn add<'a>(node: &'a Node, config: Value, attachment: impl Into<Attachment>, previous: Value) -> Attached<'a> {
    Attached::add(node, &with(config, json!({"prevResult": previous})), attachment)
}

fn listed(node: &Node) -> Vec<String> {
    let mut lines = node.host().nft();
    lines.retain(|line| line.contains("\"cni_firewall\"") && line.starts_with("nft rule ") && line.contains("id: "));
    lines
}

#[test]
fn same_bridge_by_nftables_needs_no_iptables_and_leaves_no_rule() {
    let node = node();
    let (one, two, other) = (node.container(), node.container(), node.container());
    let own = |name: &str| json!({"name": name, "backend": "nftables", "ingressPolicy": "same-bridge"});
    let all = [
        attach(&node, &network(), own("net"), &one),
        attach(&node, &network(), own("net"), &two),
        attach(&node, &other_network(), own("other"), &other),
    ];
    all.iter().for_each(|attached| drop(attached.check().ok()));
    assert!(!saved(&node).contains("CNI-"), "{}", saved(&node));
    assert!(reaches(one.namespace(), two.namespace(), "10.7.0.3"));
    assert!(is_kept_from(other.namespace(), one.namespace(), "10.7.0.2"));
    assert!(is_kept_from(one.namespace(), other.namespace(), "10.8.0.2"));
    // A second ADD changes nothing; DEL and GC find the rules by their notes.
    let before = listed(&node);
    add(&node, config(own("net")), &all[0].attachment, all[0].result.clone());
    assert_eq!(listed(&node), before);
    let bare = |config: &Value| {
        let mut config = config.clone();
        config.as_object_mut().unwrap().remove("prevResult");
        config
    };
    for _ in 0..2 {
        node.call(Verb::Del, bare(&all[0].config), &all[0].attachment).ok();
    }
    all[0].check().fails_with(107);
    all[1].check().ok();
    let gc = json!({"cniVersion": "1.1.0", "prevResult": null, "cni.dev/valid-attachments": []});
    for attached in [&all[1], &all[2]] {
        node.call(Verb::Gc, with(attached.config.clone(), gc.clone()), Attachment::none()).ok();
    }
    assert_eq!(listed(&node), [""; 0]);
    let left = node.host().nft();
    assert!(!left.iter().any(|line| line.contains("\"cni_firewall\"") && line.contains("br0")), "{left:#?}");
}

/// A table's rules know the bridges of its own policies only.
#[test]
fn a_policy_beside_one_of_the_other_backend_is_refused() {
    testns::needs!(has_iptables());
    for [first, second] in [["iptables", "nftables"], ["nftables", "iptables"]] {
        let node = node();
        let own = |name: &str, backend: &str, policy: &str| {
            config(json!({"name": name, "backend": backend, "ingressPolicy": policy}))
        };
        let result = |bridge: &str, last: u8| made_up(bridge, &[&format!("10.1.0.{last}/24")]);
        let there = add(&node, own("net", first, "same-bridge"), &node.container(), result("cni0", 2));
        let pod = node.container();
        node.remember();
        let refused = own("other", second, "isolated");
        let call = with(refused.clone(), json!({"prevResult": result("cni1", 3)}));
        let error = node.call(Verb::Add, call.clone(), &pod).fails_with(7);
        assert!(
            error.msg.contains("ingressPolicy of bridge cni0") && error.details.contains("one backend"),
            "{error:?}"
        );
        let status = with(refused, json!({"cniVersion": "1.1.0"}));
        let error = node.call(Verb::Status, status, Attachment::none()).fails_with(50);
        assert!(error.msg.contains("cni0"), "{error:?}");
        node.assert_as_before();
        // Without a policy the backends do not meet, and the policy's end is the end of the refusal.
        add(&node, own("other", second, "open"), &pod, result("cni1", 3)).check().ok();
        there.check_and_del();
        node.call(Verb::Add, call, &pod).ok();
    }
}
