//! ipMasq: packets that pods send outside have the node's address as source, and no other packets do.

use crate::bridge::nft_for_containers;
use crate::prelude::*;
use conformance::iptables::{has_iptables, saved};
use conformance::subjects::machine_outside;
use std::fs::File;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testns::{Transport, exchange};

const LONG: Duration = Duration::from_secs(10);

fn config(own: Value) -> Value {
    bridge(with(json!({"isDefaultGateway": true, "ipMasq": true, "ipam": dual()}), own))
}

/// The source address that a machine sees when a namespace connects to it.
#[track_caller]
fn seen_by(to: &Namespace, at: &str, from: &Namespace) -> IpAddr {
    // Over TCP, whose first packets are repeated: IPv6 neighbours may not be resolved yet.
    let seen = exchange(Transport::Tcp, from, (to, ip(at)), LONG);
    seen.expect("an answer from outside").ip()
}

/// Within the pods' network nothing is translated; packets to another network of the node are.
#[test]
fn inside_its_network_a_pod_shows_its_own_address() {
    each(|_, node| {
        let (one, two, elsewhere) = (node.container(), node.container(), node.container());
        Attached::add(node, &config(json!({})), &one);
        Attached::add(node, &config(json!({})), &two);
        assert_eq!(seen_by(two.namespace(), "10.7.0.3", one.namespace()), ip("10.7.0.2"));
        assert_eq!(seen_by(two.namespace(), "fd07::3", one.namespace()), ip("fd07::2"));
        assert_eq!(seen_by(node.host(), "10.7.0.1", one.namespace()), ip("10.7.0.2"));
        let ipam = json!({"type": "host-local", "subnet": "10.8.0.0/24"});
        let other = config(json!({"name": "other", "bridge": "br1", "ipam": ipam}));
        Attached::add(node, &other, &elsewhere);
        assert_eq!(seen_by(elsewhere.namespace(), "10.8.0.2", one.namespace()), ip("10.8.0.1"));
    });
}

/// A part of the network that is routed over the node is not translated either: the rule is about the prefix.
#[test]
fn the_prefix_is_left_alone_where_the_node_routes_it() {
    each(|_, node| {
        let (remote, pod) = (machine_outside(node), node.container());
        Attached::add(node, &config(json!({})), &pod);
        remote.add_address("eth0", "10.7.0.200/32");
        remote.add_route("10.7.0.0/24", "192.0.2.1", "eth0");
        node.host().add_route("10.7.0.200/32", "192.0.2.2", "uplink");
        pod.namespace().add_route("10.7.0.200/32", "10.7.0.1", "eth0");
        assert_eq!(seen_by(&remote, "10.7.0.200", pod.namespace()), ip("10.7.0.2"));
    });
}

/// Multicast packets keep their source address, to which receivers answer.
#[test]
fn multicast_is_not_translated() {
    each(|_, node| {
        let remote = machine_outside(node);
        let attached = Attached::add(node, &config(json!({})), &node.container());
        let source = first_ip(&attached.result);
        // The node itself sends with the pod's address: this passes the same hook as forwarded packets of the pod.
        node.host().add_address("uplink", "10.7.0.2/32");
        node.host().add_route("239.0.0.0/8", "192.0.2.2", "uplink");
        let sender = node.host().enter(|| UdpSocket::bind((source, 0))).unwrap();
        let receiver = remote.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        receiver.join_multicast_v4(&[239, 1, 1, 1].into(), &[192, 0, 2, 2].into()).unwrap();
        receiver.set_read_timeout(Some(LONG)).unwrap();
        let port = receiver.local_addr().unwrap().port();
        let source_of = |to: IpAddr| {
            sender.send_to(b"x", SocketAddr::new(to, port)).unwrap();
            testns::uninterrupted(|| receiver.recv_from(&mut [0; 1])).unwrap().1.ip()
        };
        remote.add_route("10.7.0.0/24", "192.0.2.1", "eth0"); // so that the source address is valid
        assert_eq!(source_of(ip("239.1.1.1")), source);
        assert_eq!(source_of(ip("192.0.2.2")), ip("192.0.2.1"), "the hook is not passed at all");
    });
}

fn rules(node: &Node) -> usize {
    nft_for_containers(node).iter().filter(|line| line.starts_with("nft rule ")).count()
}

/// The reference in this case: rules of a container whose namespace is gone stay.
#[test]
fn the_references_masquerade_outlives_the_namespace() {
    each(|who, node| {
        let pod = node.container();
        let mut attached = Attached::add(node, &config(json!({})), &pod);
        attached.attachment = pod.leave(Remains::Gone);
        attached.del().ok();
        assert_eq!(rules(node) == 0, who.is_ours());
    });
}

/// Two attachments of one container: the reference's share a chain, so the first DEL fails and removes both.
#[test]
fn attachments_of_one_container_have_their_own_masquerade() {
    each(|who, node| {
        let (remote, pod) = (machine_outside(node), node.container());
        let ipam = |subnet: &str| json!({"ipam": {"type": "host-local", "subnet": subnet}});
        let eth0 = Attached::add(node, &config(ipam("10.7.0.0/24")), &pod);
        let net1 = Attached::add(
            node,
            &with(config(ipam("10.7.0.0/24")), json!({"isDefaultGateway": false})),
            pod.attachment_as("net1"),
        );
        let reply = net1.del();
        if !who.is_ours() {
            assert!(reply.fails().msg.contains("busy"));
            return;
        }
        reply.ok();
        eth0.check().ok();
        assert_eq!(seen_by(&remote, "192.0.2.2", pod.namespace()), ip("192.0.2.1"));
        eth0.del().ok();
        assert_eq!(rules(node), 0);
    });
}

/// The next ADD restores an element that another process flushed; existing containers still work.
#[test]
fn add_mends_a_table_that_lost_its_rules() {
    if !Path::new("/usr/sbin/nft").exists() {
        skip("no nft to tamper with");
        return;
    }
    let node = node();
    let (remote, pod) = (machine_outside(&node), node.container());
    Attached::add(&node, &config(json!({})), &node.container());
    let flushed = Command::new("/usr/sbin/nft").args(["flush", "ruleset"]).status().unwrap();
    assert!(flushed.success());
    Attached::add(&node, &config(json!({})), &pod);
    assert_eq!(seen_by(&remote, "192.0.2.2", pod.namespace()), ip("192.0.2.1"));
}

/// The rules of table `nat` of both families, and the chains of ours.
pub(crate) fn iptables_rules(node: &Node) -> Vec<String> {
    let is_rule = |line: &&str| line.starts_with("-A ") || line.starts_with(":CNI-");
    saved(node, "nat").lines().filter(is_rule).map(str::to_owned).collect()
}

/// An administrator's rules come first: what they accept before ours is not translated.
#[test]
fn an_administrators_exemption_is_respected() {
    testns::needs!(has_iptables());
    each(|_, node| {
        let (remote, pod) = (machine_outside(node), node.container());
        remote.add_route("10.7.0.0/24", "192.0.2.1", "eth0");
        remote.add_address("eth0", "198.51.100.1/24");
        node.host().add_route("198.51.100.0/24", "192.0.2.2", "uplink");
        Attached::add(node, &config(json!({})), &pod);
        assert_eq!(seen_by(&remote, "198.51.100.1", pod.namespace()), ip("192.0.2.1"));
        let exempt = "-t nat -I POSTROUTING -s 10.7.0.0/24 -d 198.51.100.0/24 -j ACCEPT";
        let added = node.host().enter(|| Command::new("/usr/sbin/iptables").args(exempt.split(' ')).status());
        assert!(added.unwrap().success());
        assert_eq!(seen_by(&remote, "198.51.100.1", pod.namespace()), ip("10.7.0.2"));
        assert_eq!(seen_by(&remote, "192.0.2.2", pod.namespace()), ip("192.0.2.1"));
        // Later containers' rules come after it.
        let late = node.container();
        Attached::add(node, &config(json!({})), &late);
        assert_eq!(seen_by(&remote, "198.51.100.1", late.namespace()), ip("10.7.0.3"));
    });
}

/// The packets of each backend are masqueraded, CHECK sees its rules, and none outlives DEL, whatever is left of the
/// container, with prevResult or without.
#[test]
fn each_backend_masquerades_and_is_removed() {
    testns::needs!(has_iptables());
    let cases = Remains::ALL.into_iter().flat_map(|remains| [(remains, true), (remains, false)]);
    let forms = |case| {
        [("ipMasqBackend", "iptables"), ("ipMasqBackend", "nftables"), ("rules", "shared")].map(|form| (form, case))
    };
    for ((key, form), (remains, with_result)) in cases.flat_map(forms) {
        let node = node();
        let (remote, pod, other) = (machine_outside(&node), node.container(), node.container());
        let own = config(json!({key: form}));
        // Alternately by ptp, which has the same keys.
        let routed = with(dual(), json!({"routes": [{"dst": "0.0.0.0/0"}]}));
        let network = if with_result { own } else { with(own, json!({"type": "ptp", "ipam": routed})) };
        let mut attached = Attached::add(&node, &network, &pod);
        let before = rules(&node);
        let second = Attached::add(&node, &network, &other);
        assert!(form == "shared" || rules(&node) > before && before > 0);
        assert!(form != "shared" || rules(&node) == before, "a rule was made for a container");
        assert_eq!(seen_by(&remote, "192.0.2.2", pod.namespace()), ip("192.0.2.1"), "{form}");
        assert_eq!(seen_by(other.namespace(), "10.7.0.3", pod.namespace()), ip("10.7.0.2"), "{form}");
        attached.check().ok();
        let _held = File::open(pod.namespace().path()).unwrap();
        attached.attachment = pod.leave(remains);
        let bare = Call::new(Verb::Del, &attached.config, &attached.attachment);
        let call = if with_result { attached.call(Verb::Del) } else { bare };
        call.run(&node).ok();
        second.check_and_del();
        let what = format!("{form}, {remains:?}, prevResult {with_result}");
        assert_eq!((nft_for_containers(&node), iptables_rules(&node)), (vec![], vec![]), "{what}");
    }
}

/// To the prefixes of `ipMasqExcept` packets keep their source; IPv6 is left out as a whole. The container's other attachment goes first.
#[test]
fn exceptions_keep_the_source() {
    testns::needs!(has_iptables());
    for backend in ["iptables", "nftables"] {
        let node = node();
        let (remote, pod) = (machine_outside(&node), node.container());
        for net in ["10.7.0.0/24", "fd07::/64"] {
            let via = if net.contains(':') { "2001:db8::1" } else { "192.0.2.1" };
            remote.add_route(net, via, "eth0");
        }
        remote.add_address("eth0", "198.51.100.1/24");
        node.host().add_route("198.51.100.0/24", "192.0.2.2", "uplink");
        let own = json!({"ipMasqBackend": backend, "ipMasqExcept": ["198.51.100.7/24", "::/0"]});
        let mut attached = Attached::add(&node, &config(own.clone()), &pod);
        let second = Attached::add(&node, &config(own), pod.attachment_as("net1"));
        second.del().ok();
        assert_eq!(seen_by(&remote, "192.0.2.2", pod.namespace()), ip("192.0.2.1"), "{backend}");
        assert_eq!(seen_by(&remote, "198.51.100.1", pod.namespace()), ip("10.7.0.2"), "{backend}");
        assert_eq!(seen_by(&remote, "2001:db8::2", pod.namespace()), ip("fd07::2"), "{backend}");
        attached.check().ok();
        let fewer = std::mem::take(&mut attached.config);
        attached.config = with(fewer, json!({"ipMasqExcept": ["203.0.113.0/24", "::/0"]}));
        attached.check().fails_with(107);
        attached.del().ok();
        assert_eq!((nft_for_containers(&node), iptables_rules(&node)), (vec![], vec![]), "{backend}");
    }
}

/// The config may change between ADD and DEL: DEL removes the rules although ipMasq is off by then, or the backend
/// differs.
#[test]
fn del_does_not_go_by_the_config() {
    testns::needs!(has_iptables());
    for (at_add, at_del) in [
        (json!({}), json!({"ipMasq": false})),
        (json!({}), json!({"ipMasqBackend": "iptables"})),
        (json!({"ipMasqBackend": "iptables"}), json!({"ipMasq": false})),
        (json!({"ipMasqBackend": "iptables"}), json!({"ipMasqBackend": "nftables"})),
        (json!({"rules": "shared"}), json!({"ipMasqBackend": "nftables"})),
        (json!({}), json!({"rules": "shared"})),
        (json!({"ipMasqBackend": "nftables"}), json!({"rules": "shared"})),
    ] {
        let (node, pod) = node_with_pod();
        let mut attached = Attached::add(&node, &config(at_add.clone()), &pod);
        if at_del["ipMasq"].is_null() {
            attached.config = config(at_del.clone());
            attached.check().ok();
        }
        node.call(Verb::Del, config(at_del.clone()), &pod).ok();
        assert_eq!(iptables_rules(&node), [""; 0], "{at_add} {at_del}");
        let left: Vec<_> = nft_for_containers(&node).into_iter().filter(|line| line.contains("cni_")).collect();
        assert_eq!(left, [""; 0], "{at_add} {at_del}");
        assert_eq!(Who::Ours.is_ours(), node.host().find_link("eth0").is_none());
    }
}
