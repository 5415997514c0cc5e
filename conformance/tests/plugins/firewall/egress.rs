//! Key `egressPolicy`: what a container may send, by packets.

use super::packets::{SHORT, attach, is_kept_from, network, reaches, remote};
use super::{add, config, on};
use crate::prelude::*;
use testns::{Transport, exchange};

const OUTSIDE: &str = "192.0.2.2";
const OUTSIDE6: &str = "2001:db8::2";

fn policy(policy: Value) -> Value {
    json!({"cniVersion": "1.1.0", "backend": "nftables", "egressPolicy": policy})
}

fn network_of(kind: &str) -> Value {
    match kind {
        "bridge" => network(),
        _ => json!({"cniVersion": "1.1.0", "name": "net", "type": "ptp", "ipam": with(dual(), json!({
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        }))}),
    }
}

fn attach_to<'a>(kind: &str, node: &'a Node, own: Value, pod: &Container) -> Attached<'a> {
    attach(node, &network_of(kind), own, pod)
}

/// What the kernel has of containers' policies.
fn left(node: &Node) -> Vec<String> {
    let mut lines = node.host().nft();
    lines.retain(|line| line.contains("cni_egress") && line.contains("id: "));
    lines
}

#[test]
fn what_is_denied_stays_denied_where_later_tables_accept_it() {
    for kind in ["bridge", "ptp"] {
        let node = node();
        let (remote, pod) = (remote(&node), node.container());
        let denied = json!({"deny": ["192.0.2.0/24", "metadata"]});
        let added = attach_to(kind, &node, policy(denied), &pod);
        assert!(is_kept_from(pod.namespace(), &remote, OUTSIDE), "{kind}");
        assert!(exchange(Transport::Udp, pod.namespace(), (&remote, ip(OUTSIDE)), SHORT).is_err(), "{kind}");
        assert!(reaches(pod.namespace(), &remote, OUTSIDE6), "{kind}: nothing denies it");
        assert!(reaches(&remote, pod.namespace(), "10.7.0.2"), "{kind}: answers leave");
        assert!(reaches(pod.namespace(), node.host(), "10.7.0.1"), "{kind}");
        added.check().ok();
        added.del().ok();
    }
}

#[test]
fn a_closed_policy_lets_pass_what_its_list_has() {
    for kind in ["bridge", "ptp"] {
        let node = node();
        let (remote, pod) = (remote(&node), node.container());
        let allow = json!(["192.0.2.2 tcp 1024-65535", "2001:db8::2 tcp 1-9,1024-65535", "node tcp 1-1023"]);
        let own = json!({"default": "deny", "allow": allow});
        let added = attach_to(kind, &node, policy(own), &pod);
        // IPv6 finds its gateway, too.
        for outside in [OUTSIDE, OUTSIDE6] {
            assert!(reaches(pod.namespace(), &remote, outside), "{kind} {outside}");
            let udp = exchange(Transport::Udp, pod.namespace(), (&remote, ip(outside)), SHORT);
            assert!(udp.is_err(), "{kind} {outside}: only TCP is permitted");
        }
        for node_address in ["10.7.0.1", "192.0.2.1"] {
            assert!(is_kept_from(pod.namespace(), node.host(), node_address), "{kind}: another port is permitted");
        }
        assert!(reaches(node.host(), pod.namespace(), "10.7.0.2"), "{kind}: answers leave");
        added.check().ok();
    }
}

/// The container may be root in its namespace.
#[test]
fn a_container_with_another_address_sends_nothing() {
    for kind in ["bridge", "ptp"] {
        let node = node();
        let (remote, pod) = (remote(&node), node.container());
        attach_to(kind, &node, policy(json!({"deny": ["metadata", "node"]})), &pod);
        assert!(reaches(pod.namespace(), &remote, OUTSIDE), "{kind}");
        let inside = pod.namespace();
        inside.add_address("eth0", "10.7.0.99/24");
        let from = |source: &str, to: &str, server: &Namespace| {
            let client = inside.enter(|| std::net::UdpSocket::bind((ip(source), 0))).unwrap();
            let server = server.enter(|| std::net::UdpSocket::bind(("0.0.0.0", 0))).unwrap();
            server.set_read_timeout(Some(SHORT)).unwrap();
            client.send_to(b"ping", (ip(to), server.local_addr().unwrap().port())).unwrap();
            server.recv_from(&mut [0; 4]).is_ok()
        };
        assert!(from("10.7.0.2", OUTSIDE, &remote), "{kind}");
        assert!(!from("10.7.0.99", OUTSIDE, &remote), "{kind}: the address is not the container's");
        // A bridge gives frames for this address to the port itself (IEEE 802.1D).
        node.host().add_address("lo", "10.7.0.254/32");
        inside.add_neighbours("eth0", &[("10.7.0.254".parse().unwrap(), "01:80:c2:00:00:03".to_owned())]);
        assert!(!from("10.7.0.99", "10.7.0.254", node.host()), "{kind}");
    }
}

#[test]
fn neighbours_on_the_bridge_are_destinations_like_others() {
    let node = node();
    let (one, two, free) = (node.container(), node.container(), node.container());
    attach(&node, &network(), policy(json!({"deny": ["private"]})), &one);
    attach(&node, &network(), policy(json!({"allow": ["10.7.0.0/24"], "deny": ["private"]})), &two);
    attach(&node, &network(), policy(json!({})), &free);
    assert!(is_kept_from(one.namespace(), two.namespace(), "10.7.0.3"));
    assert!(reaches(two.namespace(), free.namespace(), "10.7.0.4"));
    assert!(is_kept_from(two.namespace(), free.namespace(), "fd07::4"));
    assert!(is_kept_from(free.namespace(), one.namespace(), "10.7.0.2"), "frames are judged one by one");
    // A neighbour as router: what is for other subnets has to go by the node.
    free.namespace().add_address("eth0", "198.51.100.9/32");
    two.namespace().add_route("198.51.100.9/32", "10.7.0.4", "eth0");
    assert!(is_kept_from(two.namespace(), free.namespace(), "198.51.100.9"));
}

#[test]
fn the_runtime_may_only_narrow() {
    let node = node();
    let (remote, pod) = (remote(&node), node.container());
    let runtime = json!({"runtimeConfig": {"egressPolicy": {"allow": [OUTSIDE, OUTSIDE6], "default": "deny"}}});
    let own = with(policy(json!({"deny": ["192.0.2.0/24"]})), runtime);
    let added = attach(&node, &network(), own, &pod);
    assert!(is_kept_from(pod.namespace(), &remote, OUTSIDE), "the network denies it");
    assert!(reaches(pod.namespace(), &remote, OUTSIDE6));
    assert!(is_kept_from(pod.namespace(), node.host(), "10.7.0.1"), "the runtime denies it");
    added.check().ok();
}

#[test]
fn policies_are_compared_mended_and_removed() {
    let node = node();
    let (remote, one, two) = (remote(&node), node.container(), node.container());
    let denied = || policy(json!({"deny": ["192.0.2.0/24"]}));
    let first = attach(&node, &network(), denied(), &one);
    assert!(!left(&node).is_empty());
    let second = attach(&node, &network(), denied(), &two);
    for damage in [
        "flush map inet cni_egress sources4",
        "flush map bridge cni_egress bridged",
        "insert rule inet cni_egress prerouting accept",
        "flush chain inet cni_egress prerouting",
        "add table inet cni_egress { flags dormant; }",
    ] {
        on(&node, "nft", &[damage]);
        first.check().fails_with(107);
        let again = add(&node, first.config.clone(), &first.attachment, first.result.clone());
        again.check().ok();
        assert!(is_kept_from(one.namespace(), &remote, OUTSIDE), "{damage}");
        add(&node, second.config.clone(), &second.attachment, second.result.clone());
    }
    // The index is lost with its table.
    on(&node, "nft", &["delete table bridge cni_egress"]);
    // DEL needs neither the key nor a result, and leaves the neighbour's.
    first.call(Verb::Del).with_config(|config| *config = self::config(json!({}))).without("CNI_NETNS").run(&node).ok();
    first.check().fails_with(107);
    assert!(reaches(one.namespace(), &remote, OUTSIDE));
    add(&node, second.config.clone(), &second.attachment, second.result.clone()).check().ok();
    let none = with(config(json!({"cniVersion": "1.1.0"})), json!({"cni.dev/valid-attachments": []}));
    node.call(Verb::Gc, with(none.clone(), json!({"name": "elsewhere"})), Attachment::none()).ok();
    second.check().ok();
    // A list of valid attachments may be partial: as long as a container can send, it is judged.
    node.call(Verb::Gc, none.clone(), Attachment::none()).ok();
    assert!(is_kept_from(two.namespace(), &remote, OUTSIDE));
    two.namespace().delete_link("eth0");
    node.call(Verb::Gc, none, Attachment::none()).ok();
    assert_eq!(left(&node), [""; 0]);
}

/// A result may have anybody's address, and the link of a container that another suite made has no mark of ours.
#[test]
fn an_address_under_a_policy_is_not_taken_over_while_its_container_can_send() {
    let node = node();
    let (one, two) = (node.container(), node.container());
    let denied = || policy(json!({"deny": ["metadata"]}));
    let first = attach(&node, &network(), denied(), &one);
    let veth = first.result["interfaces"][1]["name"].as_str().unwrap().to_owned();
    node.host().set_alias(&veth, "");
    let made = Attached::add(&node, &layer2(json!({"name": "other", "bridge": "br1"})), &two);
    let same = with(made.result.clone(), json!({"ips": [{"address": "10.7.0.2/24", "interface": 2}]}));
    node.remember();
    let call = with(config(with(denied(), json!({"name": "other"}))), json!({"prevResult": same}));
    let error = node.call(Verb::Add, call.clone(), &two).fails();
    assert!(error.msg.contains("another attachment") && error.msg.contains(one.id()), "{error:?}");
    node.assert_as_before();
    first.check().ok();
    one.namespace().delete_link("eth0");
    node.call(Verb::Add, call, &two).ok();
}

/// Nothing passes because nothing sees it.
#[test]
fn add_is_refused_where_the_node_does_not_see_the_packets() {
    let node = node();
    let pod = node.container();
    node.host().add_link("wire", "bridge");
    node.host().set_up("wire");
    let macvlan = json!({"cniVersion": "1.0.0", "name": "net", "type": "macvlan", "master": "wire", "ipam": v4()});
    let made = Attached::add(&node, &macvlan, &pod);
    node.remember();
    let refused = with(config(policy(json!({"deny": ["metadata"]}))), json!({"prevResult": made.result}));
    let error = node.call(Verb::Add, refused, &pod).fails_with(110);
    assert!(error.msg.contains("cannot enforce egressPolicy") && error.msg.contains("macvlan"), "{error:?}");
    node.assert_as_before();
}
