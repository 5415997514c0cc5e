//! GC: what it keeps, and what it leaves to others.

use super::stays;
use crate::configs::{Attached, bridge, dual, first_ip, unshared, with};
use crate::subjects::node;
use serde_json::{Value, json};
use testns::{Attachment, Call, Node, Verb};

fn config(own: Value) -> Value {
    let base = json!({"cniVersion": "1.1.0", "isGateway": true, "ipMasq": true, "macspoofchk": true, "ipam": dual()});
    bridge(with(base, own))
}

fn gc(node: &Node, valid: &[&Attachment]) {
    let valid = valid.iter().map(|one| json!({"containerID": one.container_id, "ifname": one.ifname}));
    let list = json!({"cni.dev/valid-attachments": valid.collect::<Vec<_>>()});
    node.call(Verb::Gc, with(config(json!({})), list), Attachment::none()).ok();
}

/// SPEC 2, GC: what is left of one attachment keeps only its own address reserved; the next GC frees it.
#[test]
fn gc_keeps_the_address_of_an_attachment_whose_link_is_left() {
    let node = node();
    let plain = bridge(json!({"cniVersion": "1.1.0", "ipam": unshared().v4(), "cni.dev/valid-attachments": []}));
    let lost: Vec<_> = (0..3).map(|_| Attached::add(&node, &plain, &node.container())).collect();
    let held =
        |one: &Attached<'_>| std::fs::exists(format!("/var/lib/cni/networks/net/{}", first_ip(&one.result))).unwrap();
    Call::new(Verb::Gc, &plain, Attachment::none()).refuse(&node, 1).reply.fails();
    let left: Vec<_> = lost.iter().filter(|one| node.host().find_link(one.host_veth()).is_some()).collect();
    assert_eq!(left.len(), 1);
    for one in &lost {
        assert_eq!(held(one), node.host().find_link(one.host_veth()).is_some());
    }
    node.call(Verb::Gc, &plain, Attachment::none()).ok();
    assert!(!lost.iter().any(held));
    node.assert_as_before_except(stays);
}

/// SPEC 2, GC: while rules may be left, it is unknown which addresses are free.
#[test]
fn gc_keeps_all_addresses_while_rules_are_left() {
    let node = node();
    let none = json!({"ipam": unshared().dual(), "cni.dev/valid-attachments": []});
    let masqueraded = config(with(json!({"ipMasqBackend": "nftables", "macspoofchk": false}), none));
    let lost = Attached::add(&node, &masqueraded, &node.container());
    let reservation = format!("/var/lib/cni/networks/net/{}", first_ip(&lost.result));
    Call::new(Verb::Gc, &masqueraded, Attachment::none()).refuse(&node, 1).reply.fails();
    assert!(std::fs::exists(&reservation).unwrap());
    node.call(Verb::Gc, &masqueraded, Attachment::none()).ok();
    assert!(!std::fs::exists(&reservation).unwrap());
    node.assert_as_before_except(stays);
}

/// SPEC 2, GC: links that belong to no attachment stay.
#[test]
fn gc_leaves_foreign_links_alone() {
    let node = node();
    Attached::add(&node, &config(json!({})), &node.container());
    let other = node.container();
    node.host().add_veth("veth0badcafe", other.namespace(), "eth0");
    node.host().set_master("veth0badcafe", "br0");
    node.host().add_veth("theirs", other.namespace(), "eth1");
    node.host().set_alias("theirs", "cni:elsewhere/x/eth0");
    gc(&node, &[]);
    assert!(node.host().find_link("veth0badcafe").is_some() && node.host().find_link("theirs").is_some());
}
