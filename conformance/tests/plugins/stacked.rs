//! macvlan, ipvlan and vlan: what the three have in common, as tests that each of them passes, then what is one's alone.

mod macvlan_only;

use crate::bridge::stays;
use crate::interface_plugins::{IPVLAN, InterfacePlugin, MACVLAN, VLAN, each_interface_plugin};
use crate::prelude::*;

/// Network `net` of 1.0.0 on `uplink`, with one address of each family; `own` adds keys or replaces them.
fn config(kind: InterfacePlugin, own: Value) -> Value {
    kind.config(0, with(json!({"cniVersion": "1.0.0"}), own))
}

/// A node with `uplink`, whose other end is `outside` in a namespace of its own.
fn node() -> (Node, Namespace) {
    MACVLAN.node(0)
}

fn without(mut config: Value, key: &str) -> Value {
    config.as_object_mut().unwrap().remove(key);
    config
}

fn status(node: &Node, config: Value) -> testns::Reply {
    node.call(Verb::Status, with(config, json!({"cniVersion": "1.1.0"})), Attachment::none())
}

/// The result has the one interface, and IPAM's addresses and routes; `dns` is the config's.
fn makes_a_link_and_takes_it_away(kind: InterfacePlugin) {
    let (node, _outside) = node();
    let pod = node.container();
    let ipam = with(dual(), json!({"routes": [{"dst": "0.0.0.0/0"}, {"dst": "fd09::/64", "gw": "fd07::9"}]}));
    let own = json!({"cniVersion": "1.1.0", "mtu": 1400, "dns": {"nameservers": ["10.7.0.1"]}, "ipam": ipam});
    let attached = Attached::add(&node, &config(kind, own), &pod);
    let link = pod.namespace().link("eth0");
    assert_eq!((link.kind.as_str(), link.up, link.mtu_bytes), (kind.name, true, 1400));
    assert_eq!(link.alias.as_deref(), Some(&*format!("cni:net/{}/eth0", pod.id())));
    assert_eq!(link.peer, Some(node.host().link("uplink").index));
    let sandbox = pod.attachment().netns;
    assert_eq!(
        attached.result["interfaces"],
        json!([{"name": "eth0", "mac": link.mac, "mtu": 1400, "sandbox": sandbox}])
    );
    assert_eq!(addresses(&attached.result), ["10.7.0.2/24", "fd07::2/64"]);
    assert_eq!(pod.namespace().global_addresses("eth0"), ["10.7.0.2/24", "fd07::2/64"]);
    assert_eq!(attached.result["dns"], json!({"nameservers": ["10.7.0.1"]}));
    let routes = pod.namespace().routes();
    assert!(routes.iter().any(|route| route.to == "fd09::/64"), "{routes:#?}");
    if kind.name != "vlan" {
        assert_eq!(pod.namespace().sysctl("net/ipv4/conf/eth0/arp_notify"), "1");
        assert_eq!(pod.namespace().sysctl("net/ipv6/conf/eth0/ndisc_notify"), "1");
    }
    attached.check_and_del();
    attached.del().ok();
    assert!(pod.namespace().find_link("eth0").is_none());
    node.assert_as_before_except(stays);
}

fn master_is_found_by_any_name(kind: InterfacePlugin) {
    let (node, _outside) = node();
    for name in ["alt0p0", "enp81s0f0np0s0longname"] {
        node.host().add_alt_name("uplink", name);
        let config = config(kind, json!({"master": name}));
        status(&node, config.clone()).ok();
        let attached = Attached::add(&node, &config, &node.container());
        attached.check_and_del();
        attached.del().ok();
    }
}

fn missing_master_is_named_with_those_that_are_there(kind: InterfacePlugin) {
    let (node, _outside) = node();
    let pod = node.container();
    let error = node.call(Verb::Add, config(kind, json!({"master": "eth9"})), &pod).fails();
    assert_eq!(error.msg, "cannot use master eth9 on the host: there is no interface of that name");
    assert!(error.details.contains("Interfaces there: lo, uplink."), "{error:?}");
    let inside = config(kind, json!({"linkInContainer": true}));
    let error = node.call(Verb::Add, inside, &pod).fails();
    let place = pod.attachment().netns;
    assert_eq!(error.msg, format!("cannot use master uplink in {place}: there is no interface of that name"));
    node.assert_as_before();
}

fn mtu_above_the_masters_is_refused_with_both(kind: InterfacePlugin) {
    let (node, _outside) = node();
    let pod = node.container();
    let reply = node.call(Verb::Add, config(kind, json!({"mtu": 1501})), &pod);
    if kind.name == "ipvlan" {
        reply.ok();
        assert_eq!(pod.namespace().link("eth0").mtu_bytes, 1501);
        return;
    }
    let error = reply.fails_with(7);
    assert_eq!(error.msg, "cannot use network config: key mtu = 1501: master uplink has MTU 1500");
    node.assert_as_before();
}

/// The link of prevResult on the side that `linkInContainer` says, which CHECK compares with, too.
fn master_is_the_one_of_the_earlier_result(kind: InterfacePlugin) {
    let (node, outside) = node();
    let pod = node.container();
    node.host().add_veth("second", &outside, "second");
    pod.namespace().add_veth("inner", &outside, "other");
    let (there, sandbox) = (pod.attachment_as("net1"), pod.attachment().netns);
    let earlier = |host: &str, more: Value| {
        let mut interfaces = vec![json!({"name": host}), json!({"name": "inner", "sandbox": sandbox})];
        interfaces.extend(more.as_array().unwrap().clone());
        json!({"cniVersion": "1.0.0", "interfaces": interfaces})
    };
    for (side, is_inside) in [(node.host(), false), (pod.namespace(), true)] {
        let own = json!({"masterFrom": "prevResult", "linkInContainer": is_inside});
        let config = without(config(kind, own), "master");
        let result = Call::new(Verb::Add, &config, &there).prev_result(&earlier("uplink", json!([]))).run(&node).ok();
        let master = if is_inside { "inner" } else { "uplink" };
        assert_eq!(pod.namespace().link("net1").peer, Some(side.link(master).index));
        let check = |result: &Value| Call::new(Verb::Check, &config, &there).prev_result(result).run(&node);
        check(&result).ok();
        let mut other = result.clone();
        other["interfaces"][usize::from(is_inside)]["name"] = json!("second");
        check(&other).fails_with(107);
        Call::new(Verb::Del, &config, &there).run(&node).ok();
        let more = json!([{"name": "second", "sandbox": if is_inside { sandbox.as_str() } else { "" }}]);
        let ambiguous = Call::new(Verb::Add, &config, &there).prev_result(&earlier("uplink", more)).run(&node);
        let error = ambiguous.fails_with(7);
        assert!(error.msg.contains("2 interfaces") && error.msg.ends_with(&format!("{master}, second")), "{error:?}");
        node.call(Verb::Add, &config, &there).fails_with(7);
    }
    node.assert_as_before_except(|line| stays(line) || line.contains("second"));
}

/// The link by which the container's default route leaves, whatever its name.
fn master_is_the_default_routes_in_the_container(kind: InterfacePlugin) {
    let (node, outside) = node();
    let pod = node.container();
    pod.namespace().add_veth("first", &outside, "first");
    pod.namespace().add_veth("inner", &outside, "inner");
    pod.namespace().add_address("inner", "192.0.2.2/24");
    pod.namespace().add_route("0.0.0.0/0", "192.0.2.1", "inner");
    let own = json!({"masterFrom": "defaultRoute", "linkInContainer": true});
    let config = without(config(kind, own), "master");
    status(&node, config.clone()).ok();
    let attached = Attached::add(&node, &config, pod.attachment_as("net1"));
    assert_eq!(pod.namespace().link("net1").peer, Some(pod.namespace().link("inner").index));
    attached.check_and_del();
}

/// The link is on one that is in the container, as Multus has it for links on top of a pod's own.
fn master_may_be_in_the_container(kind: InterfacePlugin) {
    let (node, outside) = node();
    let pod = node.container();
    pod.namespace().add_veth("uplink", &outside, "other");
    let config = config(kind, json!({"linkInContainer": true}));
    let attached = Attached::add(&node, &config, pod.attachment_as("net1"));
    assert_eq!(pod.namespace().link("net1").peer, Some(pod.namespace().link("uplink").index));
    attached.check_and_del();
    assert!(pod.namespace().find_link("net1").is_none() && pod.namespace().find_link("uplink").is_some());
    node.assert_as_before_except(stays);
}

/// CHECK compares what ADD set, but not with a default route that may have changed since.
fn check_finds_what_differs(kind: InterfacePlugin) {
    let (node, outside) = node();
    let pod = node.container();
    let attached = Attached::add(&node, &config(kind, json!({"mtu": 1400})), &pod);
    let check = |config: &Value| Call::new(Verb::Check, config, &pod).prev_result(&attached.result).run(&node);
    attached.check().ok();
    node.host().add_veth("second", &outside, "second");
    let other_key = match kind.name {
        "macvlan" => json!({"mode": "private"}),
        "ipvlan" => json!({"mode": "l3"}),
        _ => json!({"vlanId": 101}),
    };
    for own in [other_key, json!({"master": "second"}), json!({"master": "eth9"})] {
        check(&with(attached.config.clone(), own)).fails_with(107);
    }
    if kind.name != "vlan" {
        check(&without(attached.config.clone(), "master")).ok();
    }
    // Only a result of 1.1.0 says what MTU a plugin behind this one has set. The reference compares a vlan's in each version.
    pod.namespace().set_mtu("eth0", 1300);
    match kind.name {
        "vlan" => drop(attached.check().fails_with(107)),
        _ => drop(attached.check().ok()),
    }
    let mut newer = attached.result.clone();
    newer["cniVersion"] = json!("1.1.0");
    newer["interfaces"][0]["mtu"] = json!(1400);
    let config = with(attached.config.clone(), json!({"cniVersion": "1.1.0"}));
    let check_newer = || Call::new(Verb::Check, &config, &pod).prev_result(&newer).run(&node);
    check_newer().fails_with(107);
    pod.namespace().set_mtu("eth0", 1400);
    check_newer().ok();
    attached.check().ok();
}

fn status_says_why_not(kind: InterfacePlugin) {
    let (node, _outside) = node();
    let config = config(kind, json!({}));
    status(&node, config.clone()).ok();
    let missing = status(&node, with(config.clone(), json!({"master": "eth9"}))).fails_with(50);
    assert!(missing.msg.contains("cannot use master eth9 on the host"), "{missing:?}");
    node.host().set_down("uplink");
    let down = status(&node, config.clone()).fails_with(50);
    assert_eq!(down.msg, "network net is not available: cannot use master uplink on the host: it is down");
    node.host().set_up("uplink");
    if kind.name != "ipvlan" {
        let above = status(&node, with(config.clone(), json!({"mtu": 1501}))).fails_with(50);
        assert!(above.msg.ends_with("key mtu = 1501: master uplink has MTU 1500"), "{above:?}");
    }
}

each_interface_plugin! {
    macvlan: MACVLAN, ipvlan: IPVLAN, vlan: VLAN;
    (
        makes_a_link_and_takes_it_away
        missing_master_is_named_with_those_that_are_there
        mtu_above_the_masters_is_refused_with_both
        master_is_found_by_any_name
        master_may_be_in_the_container
        master_is_the_one_of_the_earlier_result
        master_is_the_default_routes_in_the_container
        check_finds_what_differs
        status_says_why_not
    )
}

/// The default route's interface: IPv4's, else IPv6's. STATUS of ipvlan does not ask for one, as a chain may have another
/// master.
fn without_a_master_it_is_on_the_default_routes_interface(kind: InterfacePlugin) {
    let config = without(self::config(kind, json!({})), "master");
    let (node, outside) = node();
    let refused = node.call(Verb::Add, &config, &node.container()).fails();
    assert_eq!(refused.msg, "cannot find a master on the host: key master is not set, and there is no default route");
    if kind.name == "macvlan" {
        status(&node, config.clone()).fails_with(50);
    }
    node.host().add_veth("second", &outside, "second");
    node.host().add_address("second", "fd0a::2/64");
    node.host().add_route("::/0", "fd0a::1", "second");
    let add = || {
        let pod = node.container();
        let attached = Attached::add(&node, &config, &pod);
        attached.check().ok();
        pod.namespace().link("eth0").peer
    };
    status(&node, config.clone()).ok();
    assert_eq!(add(), Some(node.host().link("second").index));
    node.host().add_address("uplink", "192.0.2.2/24");
    node.host().add_route("0.0.0.0/0", "192.0.2.1", "uplink");
    assert_eq!(add(), Some(node.host().link("uplink").index));
}

#[test]
fn macvlan_without_a_master_is_on_the_default_routes_interface() {
    MACVLAN.run(without_a_master_it_is_on_the_default_routes_interface);
}

#[test]
fn ipvlan_without_a_master_is_on_the_default_routes_interface() {
    IPVLAN.run(without_a_master_it_is_on_the_default_routes_interface);
}

#[test]
fn ipvlan_has_each_mode_and_flag() {
    testns::needs!(Feature::Ipvlan.or_skip());
    for (mode, flag) in [("", ""), ("l2", "private"), ("l3", "vepa"), ("l3s", "bridge")] {
        let (node, _outside) = node();
        let attached = Attached::add(&node, &config(IPVLAN, json!({"mode": mode, "flag": flag})), &node.container());
        attached.check_and_del();
    }
}

/// In a chain the one interface of prevResult is the master, and without `ipam` its addresses are the container's.
#[test]
fn ipvlan_in_a_chain_takes_master_and_addresses() {
    testns::needs!(Feature::Ipvlan.or_skip());
    let (node, _outside) = node();
    let pod = node.container();
    let earlier = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "uplink"}],
        "ips": [{"interface": 0, "address": "10.7.0.77/24", "gateway": "10.7.0.1"}],
        "routes": [{"dst": "10.9.0.0/16"}]});
    let config = without(without(config(IPVLAN, json!({})), "master"), "ipam");
    let result = Call::new(Verb::Add, &config, &pod).prev_result(&earlier).run(&node).ok();
    assert_eq!(result["interfaces"].as_array().unwrap().len(), 1);
    assert_eq!(result["ips"], json!([{"interface": 0, "address": "10.7.0.77/24", "gateway": "10.7.0.1"}]));
    assert_eq!(pod.namespace().global_addresses("eth0"), ["10.7.0.77/24"]);
    Call::new(Verb::Check, &config, &pod).prev_result(&result).run(&node).ok();
    // Not the interface that it was on, and more than one.
    Call::new(Verb::Del, &config, &pod).run(&node).ok();
    assert!(pod.namespace().find_link("eth0").is_none());
    let two = with(earlier, json!({"interfaces": [{"name": "uplink"}, {"name": "lo"}]}));
    Call::new(Verb::Add, &config, &pod).prev_result(&two).run(&node).fails_with(7);
    node.call(Verb::Add, without(self::config(IPVLAN, json!({})), "ipam"), &pod).fails_with(7);
    node.assert_as_before_except(stays);
}

/// The same VLAN on both ends of a cable: one in a container, one in the namespace that the uplink leads to. When ADD returns, the
/// container's addresses answer the first request from there.
#[test]
fn vlan_packets_pass_between_the_ends_of_one_vlan() {
    testns::needs!(Feature::Vlan.or_skip());
    let (node, outside) = node();
    let pod = node.container();
    let beyond = Attachment { netns: outside.path().display().to_string(), ..node.container().attachment() };
    let far = json!({"name": "far", "master": "outside", "linkInContainer": true, "ipam": far_addresses()});
    let far = Attached::add(&node, &config(VLAN, far), beyond);
    let near = Attached::add(&node, &config(VLAN, json!({})), &pod);
    let plain = |attached: &Attached<'_>| {
        let all = addresses(&attached.result).into_iter();
        all.map(|address| ip(address.split('/').next().unwrap())).collect::<Vec<_>>()
    };
    for to in plain(&near) {
        assert!(outside.pings(to, std::time::Duration::ZERO), "{to} does not answer");
    }
    plain(&far).into_iter().for_each(|to| pod.namespace().ping(to));
}

fn far_addresses() -> Value {
    let (v4, v6) = (
        json!({"subnet": "10.7.0.0/24", "rangeStart": "10.7.0.100"}),
        json!({"subnet": "fd07::/64", "rangeStart": "fd07::100"}),
    );
    json!({"type": "host-local", "ranges": [[v4], [v6]]})
}

#[test]
fn vlan_that_is_taken_names_its_container() {
    testns::needs!(Feature::Vlan.or_skip());
    let (node, _outside) = node();
    let (one, other) = (node.container_named("c1"), node.container());
    Attached::add(&node, &config(VLAN, json!({})), &one);
    let error = node.call(Verb::Add, config(VLAN, json!({})), &other).fails_with(103);
    let place = one.attachment().netns;
    let expected =
        format!("cannot create VLAN 100 of uplink: it has an interface already: eth0 in {place} (cni:net/c1/eth0)");
    assert_eq!(error.msg, expected);
    assert!(other.namespace().find_link("eth0").is_none());
}

#[test]
fn vlan_of_a_master_that_is_down_is_refused() {
    let (node, _outside) = node();
    node.host().set_down("uplink");
    node.remember();
    let error = node.call(Verb::Add, config(VLAN, json!({})), &node.container()).fails();
    assert_eq!(error.msg, "cannot use master uplink on the host: it is down");
    node.assert_as_before();
}
