//! DEL in every state that a runtime may leave; CHECK, GC and STATUS.

use super::stays;
use crate::prelude::*;
use crate::veth_plugins::{Tamper, check_fails_after};
use conformance::shell::sh;
use std::fs::File;
use std::path::Path;

fn full(own: Value) -> Value {
    let base = json!({"isGateway": true, "ipMasq": true, "macspoofchk": true, "ipam": dual()});
    bridge(with(base, own))
}

/// ADD takes another name where a foreign link has the name of the host veth, and DEL still finds the veth by its alias, whether
/// that link is there or gone by then.
#[test]
fn a_host_veth_gives_way_to_a_link_of_that_name() {
    for is_gone in [false, true] {
        let (node, pod) = node_with_pod();
        let first = Attached::add(&node, &bridge(json!({})), &pod);
        let name = first.host_veth().to_owned();
        first.del().ok();
        let other = node.container();
        node.host().add_veth(&name, other.namespace(), "eth0");
        let second = Attached::add(&node, &bridge(json!({})), &pod);
        assert_ne!(second.host_veth(), name);
        second.check().ok();
        if is_gone {
            node.host().delete_link(&name);
        }
        let _held = File::open(pod.namespace().path()).unwrap();
        let left = pod.leave(Remains::EmptyPath);
        Call::new(Verb::Del, &second.config, left).run(&node).ok();
        assert!(node.host().find_link(second.host_veth()).is_none());
        assert_eq!(node.host().find_link(&name).is_none(), is_gone);
    }
}

/// The name of the host's interface in prevResult need not be a link's name.
#[test]
fn a_link_with_the_alias_is_deleted_whatever_prev_result_says() {
    let node = node();
    let long = "v".repeat(70_000);
    for name in ["sixteen-letters-", "", "a/b", "a b", ".", "lo", "br0", &long] {
        let pod = node.container();
        let mut attached = Attached::add(&node, &full(json!({})), &pod);
        let host_veth = attached.host_veth().to_owned();
        attached.result["interfaces"][1]["name"] = json!(name);
        let _held = File::open(pod.namespace().path()).unwrap();
        attached.attachment = pod.leave(Remains::EmptyPath);
        attached.del().ok();
        assert!(node.host().find_link(&host_veth).is_none(), "{name:.20}");
        node.assert_as_before_except(stays);
    }
}

/// Whatever fails of DEL's questions to the packet filter, a node without rules stays without the filter's lock.
#[test]
fn a_del_whose_look_at_the_packet_filter_fails_changes_nothing_there() {
    let node = node();
    let config = bridge(json!({"ipam": {}}));
    for n in 1.. {
        let pod = node.container();
        let made = node.call(Verb::Add, &config, &pod).ok();
        let del = Call::new(Verb::Del, &config, &pod).prev_result(&made);
        let failed = del.fail_step(&node, n, |_| nix::errno::Errno::ENOMEM);
        let Some(hit) = failed.hit else { break };
        del.run(&node).ok();
        assert!(!Path::new("/run/cni/packet-filter.lock").exists(), "{n}: {hit}");
    }
}

/// An earlier result that ADD has passed on may have an interface of the same name in another namespace.
#[test]
fn check_looks_for_the_interface_in_its_own_namespace() {
    each(|_, node| {
        let (pod, other) = (node.container(), node.container());
        let earlier =
            json!({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": other.namespace().path()}]});
        let attached = Attached::add(node, &bridge(json!({"prevResult": earlier})), &pod);
        attached.check_and_del();
    });
}

fn checked() -> Value {
    let own = json!({"isDefaultGateway": true, "ipMasq": true, "macspoofchk": true, "ipam": dual()});
    bridge(own)
}

const SEEN_BY_OURS: [(&str, Tamper); 6] = [
    ("the masquerade is gone", |node, _, _| drop(sh(node.host(), "nft delete table ip nat"))),
    ("the spoof rules are gone", |node, _, _| drop(sh(node.host(), "nft delete table bridge nat"))),
    ("the gateway address is gone", |node, _, _| node.host().delete_address("br0", "10.7.0.1/24")),
    ("the container's link is down", |_, pod, _| pod.set_down("eth0")),
    ("the host veth is down", |node, _, veth| node.host().set_down(veth)),
    ("the bridge is down", |node, _, _| node.host().set_down("br0")),
];

/// SPEC 2, CHECK: firewall rules and other conditions of reachability, which the reference does not check.
#[test]
fn check_fails_when_what_the_result_does_not_show_is_missing() {
    if !std::path::Path::new("/usr/sbin/nft").exists() {
        crate::subjects::skip("no nft to tamper with");
        return;
    }
    check_fails_after(&checked(), &SEEN_BY_OURS);
}

#[test]
fn check_wants_the_containers_own_host_veth_on_the_bridge() {
    each(|_, node| {
        let (one, two) = (node.container(), node.container());
        let mut first = Attached::add(node, &checked(), &one);
        let second = Attached::add(node, &checked(), &two);
        first.result["interfaces"][1] = second.result["interfaces"][1].clone();
        let code = first.check().output.code();
        assert!(code != 0);
        two.namespace().ping(ip("10.7.0.1"));
    });
}

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

fn status(node: &Node, own: Value) -> testns::Reply {
    node.call(Verb::Status, config(own), Attachment::none())
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
