//! Key `"rules": "shared"`: ports as elements of maps. Packets are in `packets.rs`.

use super::{LONG, SHORT, at, bridged, config, made_up, map, mapping, tcp};
use crate::bridge::nft_for_containers;
use crate::prelude::*;
use conformance::subjects::machine_outside;

fn shared(mappings: &[Value], own: Value) -> Value {
    config(mappings, with(json!({"cniVersion": "1.1.0", "rules": "shared"}), own))
}

fn on(host_ip: &str, port: u16) -> Value {
    with(mapping(port, 80, "tcp"), json!({"hostIP": host_ip}))
}

fn elements(node: &Node) -> usize {
    nft_for_containers(node).iter().filter(|line| line.contains(" ports_")).count()
}

/// DEL of one attachment leaves the elements of all others; none makes a rule.
#[test]
fn each_attachment_has_its_own_elements_and_no_rule() {
    let node = node();
    let (one, two) = (node.container(), node.container());
    let previous = |last: u8| made_up("eth0", &[&format!("10.1.0.{last}/24"), &format!("fd00::{last}/64")]);
    let many: Vec<Value> = (8000..8300).map(|port| mapping(port, port, "tcp")).collect();
    let first = map(&node, shared(&many, json!({})), &one, previous(2));
    let rules = || node.host().nft().into_iter().filter(|line| line.starts_with("nft rule")).collect::<Vec<_>>();
    let before = rules();
    let own = [mapping(53, 53, "UDP"), on("192.0.2.1", 8000), mapping(99, 99, "sctp"), mapping(33, 33, "dccp")];
    let second = map(&node, shared(&own, json!({"masqAll": true})), &two, previous(3));
    let net1 = map(
        &node,
        shared(&[mapping(54, 54, "udp")], json!({"snat": false})),
        two.attachment_as("net1"),
        made_up("net1", &["10.1.0.4/24"]),
    );
    assert_eq!(rules(), before);
    [&first, &second, &net1].into_iter().for_each(|mapped| drop(mapped.check().ok()));
    // Ports and their indexes: 300 of each family. 3 of both, 1 of IPv4. 1. And what is masqueraded.
    assert_eq!(elements(&node), 2 * (600 + 7 + 1) + 2 * (3 + 2));
    second.call(Verb::Del).without("CNI_NETNS").run(&node).ok();
    second.check().fails_with(107);
    [&first, &net1].into_iter().for_each(|mapped| drop(mapped.check().ok()));
    let none = with(shared(&[], json!({})), json!({"cni.dev/valid-attachments": []}));
    node.call(Verb::Gc, with(none.clone(), json!({"name": "other"})), Attachment::none()).ok();
    [&first, &net1].into_iter().for_each(|mapped| drop(mapped.check().ok()));
    Call::new(Verb::Del, shared(&[], json!({})), &one).run(&node).ok();
    assert_eq!(elements(&node), 2);
    node.call(Verb::Gc, none, Attachment::none()).ok();
    assert_eq!(nft_for_containers(&node), [""; 0]);
}

/// A port of one address comes before that of any; both ports of a container that lives are refused to another.
#[test]
fn a_port_is_one_containers_for_each_address() {
    let node = node();
    let remote = machine_outside(&node);
    node.host().add_address("uplink", "192.0.2.3/24");
    let (one, two, three) = (node.container(), node.container(), node.container());
    let first = bridged(&node, &shared(&[mapping(8080, 80, "tcp")], json!({})), &one);
    let second = bridged(&node, &shared(&[on("192.0.2.3", 8080)], json!({})), &two);
    let reaches = |address, to: &testns::Container, within| tcp(&remote, at(address, 8080), to.namespace(), 80, within);
    assert!(reaches("192.0.2.1", &one, LONG).is_some() && reaches("192.0.2.3", &two, LONG).is_some());
    let third = bridged(&node, &config(&[], json!({})), &three);
    for (taken, holder) in [(mapping(8080, 81, "tcp"), &first), (on("192.0.2.3", 8080), &second)] {
        let config = with(shared(&[mapping(8081, 81, "tcp"), taken], json!({})), json!({"prevResult": third.result}));
        let before = nft_for_containers(&node);
        let error = node.call(Verb::Add, &config, &three).fails();
        let text = format!("{error:?}");
        let id = format!("id: {}", holder.attachment.container_id);
        assert!(text.contains("port 8080/tcp") && text.contains(&id), "{text}");
        assert_eq!(nft_for_containers(&node), before, "a refused ADD changed something");
    }
    second.del().ok();
    assert!(reaches("192.0.2.3", &one, LONG).is_some());
    first.del().ok();
    assert_eq!(reaches("192.0.2.1", &one, SHORT), None);
}

/// Rules and elements have no order: a port by a living container's rules is refused, too.
#[test]
fn a_port_of_another_containers_rules_is_refused() {
    for own in [json!({"backend": "iptables"}), json!({"backend": "nftables"})] {
        let (node, mappings) = (node(), [mapping(8080, 80, "tcp")]);
        let [one, two] = ["c1", "c2"].map(|id| node.container_named(id));
        bridged(&node, &config(&mappings, own.clone()), &one);
        let previous = json!({"prevResult": bridged(&node, &config(&[], json!({})), &two).result});
        let config = with(shared(&mappings, json!({})), previous);
        let error = node.call(Verb::Add, &config, &two).fails_with(103);
        assert!(error.msg.contains("port 8080/tcp") && error.msg.contains("c1") && elements(&node) == 0, "{error:?}");
    }
}

/// The key may change while containers live, in either direction.
#[test]
fn check_and_del_go_by_what_the_container_has() {
    for other in [json!({}), json!({"backend": "nftables"})] {
        for (at_add, later) in [(json!({"rules": "shared"}), other.clone()), (other, json!({"rules": "shared"}))] {
            let (node, mappings) = (node(), [mapping(8080, 80, "tcp")]);
            let pod = node.container();
            let mut mapped = map(&node, config(&mappings, at_add.clone()), &pod, made_up("eth0", &["10.1.0.2/24"]));
            mapped.config = with(mapped.config.clone(), with(json!({"rules": null, "backend": ""}), later));
            mapped.check().ok();
            mapped.del().ok();
            mapped.check().fails_with(107);
            let left: Vec<_> = nft_for_containers(&node).into_iter().filter(|line| line.contains("10.1.0.2")).collect();
            assert!(left.is_empty() && elements(&node) == 0, "{at_add}: {left:?}");
        }
    }
}
