//! GC and STATUS, which the reference of Debian 12 does not have.

use super::stays;
use crate::configs::{Attached, bridge, dual, first_ip, ip, unshared, with};
use crate::subjects::node;
use serde_json::{Value, json};
use std::fs::File;
use testns::{Attachment, Call, Container, Feature, Node, Remains, Verb};

fn config(own: Value) -> Value {
    let base = json!({"cniVersion": "1.1.0", "isGateway": true, "ipMasq": true, "macspoofchk": true, "ipam": dual()});
    bridge(with(base, own))
}

fn gc(node: &Node, valid: &[&Attachment]) {
    let valid = valid.iter().map(|one| json!({"containerID": one.container_id, "ifname": one.ifname}));
    let list = json!({"cni.dev/valid-attachments": valid.collect::<Vec<_>>()});
    node.call(Verb::Gc, with(config(json!({})), list), Attachment::none()).ok();
}

fn lines_about(node: &Node, what: &str) -> Vec<String> {
    let all = node.snapshot();
    all.lines().iter().filter(|line| line.contains(what)).cloned().collect()
}

/// SPEC 2, GC: everything of attachments that are not in the list is removed, and the rest stays; IPAM's GC is called
/// too.
#[test]
fn gc_removes_what_is_not_valid_and_keeps_what_is() {
    let node = node();
    let all: [Container; 3] = ["keeper", "killed", "vanished"].map(|id| node.container_named(id));
    let [keeper, killed, vanished] = &all;
    let unshared = unshared();
    let config = || config(json!({"ipam": unshared.dual()}));
    let kept = Attached::add(&node, &config(), keeper);
    let kept_net1 = Attached::add(&node, &config(), keeper.attachment_as("net1"));
    for link in ["br0", kept.host_veth(), kept_net1.host_veth()] {
        node.host().wait_until_settled(link);
    }
    node.remember();
    let lost = [
        Attached::add(&node, &config(), killed),
        Attached::add(&node, &config(), vanished),
        Attached::add(&node, &config(), keeper.attachment_as("net2")),
    ];
    let _held = File::open(vanished.namespace().path()).unwrap();
    vanished.leave(Remains::Gone);
    for _ in 0..2 {
        gc(&node, &[&kept.attachment, &kept_net1.attachment]);
        for one in &lost {
            assert!(node.host().find_link(one.host_veth()).is_none(), "{}", one.result);
        }
        node.assert_as_before_except(|line| line.contains("/last_reserved_ip.") || line.contains("/run/cni"));
        kept.check().ok();
        kept_net1.check().ok();
        keeper.namespace().ping(ip(&unshared.address(1)));
    }
    gc(&node, &[]);
    assert_eq!(lines_about(&node, "keeper"), [""; 0]);
    node.call(Verb::Del, config(), keeper).ok(); // nothing is left
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

fn status(node: &Node, own: Value) -> testns::Reply {
    node.call(Verb::Status, config(own), Attachment::none())
}

/// Returns whether a line belongs to the mark of the test, once a boot, that the kernel has what ADD needs.
fn is_mark(line: &str) -> bool {
    line.contains(" /run/cni")
}

/// SPEC 2, STATUS: succeeds when ADD would, and changes nothing.
#[test]
fn status_succeeds_when_add_would_and_changes_nothing() {
    let node = node();
    status(&node, json!({})).ok();
    node.assert_as_before_except(is_mark);
    // Nor does the next one make its trial again.
    node.remember();
    status(&node, json!({})).ok();
    node.assert_as_before();
    Attached::add(&node, &config(json!({})), &node.container());
    status(&node, json!({})).ok();
}

/// SPEC 2, STATUS: it fails where ADD would, as the node may have no IPv6 address. A link's own sysctl decides, and that of `all` is
/// only the last value written to all.
#[test]
fn status_is_50_where_ipv6_is_disabled_on_the_bridge() {
    let node = node();
    let key = |link: &str| format!("net/ipv6/conf/{link}/disable_ipv6");
    let ranges = json!([[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd00:7::/64"}]]);
    let dual = json!({"isGateway": true, "ipam": {"type": "host-local", "ranges": ranges}});
    let switch = with(dual.clone(), json!({"isGateway": false}));
    node.host().set_sysctl(&key("default"), "1");
    let refused = status(&node, dual.clone()).fails_with(50);
    assert!(refused.msg.contains("net/ipv6/conf/default/disable_ipv6 is 1"), "{}", refused.msg);
    node.call(Verb::Add, config(dual.clone()), &node.container()).fails();
    // The failed ADD has made the bridge.
    status(&node, switch).ok();
    node.host().set_sysctl(&key("all"), "1");
    node.host().set_sysctl(&key("br0"), "0");
    status(&node, dual.clone()).ok();
    Attached::add(&node, &config(dual), &node.container());
}

/// SPEC 2, STATUS: it calls IPAM's STATUS and passes the error on.
#[test]
fn status_is_50_when_ipam_has_no_address() {
    let node = node();
    let ipam = json!({"type": "host-local", "subnet": "10.7.0.0/30", "reportExhausted": true});
    Attached::add(&node, &config(json!({"ipam": ipam})), &node.container());
    let failure = status(&node, json!({"ipam": ipam})).fails_with(50);
    assert!(failure.msg.contains("10.7.0."), "{failure:?}");
}

/// SPEC 2, STATUS: it fails if a link that is no bridge has the bridge's name.
#[test]
fn status_is_50_when_the_bridges_name_is_taken() {
    let node = node();
    node.host().add_veth("br0", node.container().namespace(), "x");
    let failure = status(&node, json!({})).fails_with(50);
    assert!(failure.msg.contains("br0"), "{failure:?}");
}

/// SPEC 2, STATUS: it fails if the kernel lacks a feature that the config needs.
#[test]
fn status_is_50_when_the_kernel_lacks_vlan_filtering() {
    let node = node();
    let reply = status(&node, json!({"vlan": 100}));
    if Feature::BridgeVlanFiltering.is_here() {
        reply.ok();
    } else {
        reply.fails_with(50);
    }
    node.assert_as_before_except(is_mark);
}
