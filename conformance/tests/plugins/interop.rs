//! With the Go reference plugins on one node: an upgrade in either direction, and both at once.

use crate::bridge::stays;
use crate::masquerade::iptables_rules;
use crate::prelude::*;
use crate::ptp::ptp;
use std::fs::File;
use std::path::Path;
use testns::Subject;

/// Runs a test for an upgrade from ours to theirs and from theirs to ours: the first makes, the second takes over.
pub(crate) fn both_ways(test: impl Fn(&Node, &Subject, &Subject)) {
    let Some(theirs) = reference_or_skip() else { return };
    for (first, second) in [(ours(), theirs.clone()), (theirs.clone(), ours())] {
        let node = Node::with(&theirs); // the reference runs programs
        node.install(&first);
        test(&node, &first, &second);
    }
}

fn full(own: Value) -> Value {
    bridge(with(json!({"isDefaultGateway": true, "ipMasq": true, "macspoofchk": true, "ipam": dual()}), own))
}

/// Network `net` of plugin ptp, with all that both can make.
fn routed(own: Value) -> Value {
    let ipam = with(dual(), json!({"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}));
    ptp(with(json!({"ipMasq": true, "ipMasqBackend": "iptables", "ipam": ipam}), own))
}

/// GC does not know which attachment a veth without alias belongs to: the address that it may have stays reserved.
#[test]
fn gc_keeps_addresses_while_their_veths_may_have_them() {
    let Some(theirs) = reference_or_skip() else { return };
    for network in [full, routed] {
        let node = Node::with(&theirs);
        let pods = [node.container_named("c1"), node.container_named("c2")];
        let plain = network(json!({"ipMasq": false, "ipam": unshared().dual()}));
        let [kept, lost] = pods.each_ref().map(|pod| Attached::add(&node, &plain, pod));
        node.install(&ours());
        let is_file =
            |address: &str| Path::new("/var/lib/cni/networks/net").join(address.split('/').next().unwrap()).exists();
        let held = |one: &Attached<'_>| addresses(&one.result).iter().all(|address| is_file(address));
        let collect = || {
            let valid = json!([{"containerID": kept.attachment.container_id, "ifname": kept.attachment.ifname}]);
            let own = json!({"cniVersion": "1.1.0", "cni.dev/valid-attachments": valid});
            node.call(Verb::Gc, with(plain.clone(), own), Attachment::none()).ok();
        };
        collect();
        assert!(held(&kept) && held(&lost));
        node.host().delete_link(lost.host_veth());
        collect();
        assert!(held(&kept) && !held(&lost));
    }
}

/// The reference's address plugin has freed the addresses, there is no result, and nothing marks the link.
#[test]
fn what_a_failed_add_of_the_reference_left_ours_removes() {
    let Some(theirs) = reference_or_skip() else { return };
    let ranges = json!({"type": "host-local", "ranges": [[{"subnet": "10.7.1.0/24"}], [{"subnet": "fd07:1::/64"}]]});
    // The bridge has an address already; a route needs a gateway that cannot be reached.
    let unreachable = json!([{"dst": "10.9.0.0/16", "gw": "192.0.2.1"}]);
    for own in [
        json!({"isGateway": true, "ipam": {"type": "host-local", "subnet": "10.7.1.0/24"}}),
        json!({"isGateway": true, "ipam": ranges}),
        json!({"ipam": with(v4(), json!({"routes": unreachable}))}),
    ] {
        let node = Node::with(&theirs);
        let first =
            json!({"name": "first", "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.98.0.0/24"}});
        Attached::add(&node, &bridge(first.clone()), &node.container());
        let (pod, config) = (node.container(), bridge(own));
        node.call(Verb::Add, &config, &pod).fails();
        assert!(pod.namespace().find_link("eth0").is_some());
        node.install(&ours());
        let elsewhere = Attachment { container_id: "c9".to_owned(), ..pod.attachment() };
        let other = with(config.clone(), json!({"ipam": {"type": "host-local", "subnet": "10.99.0.0/24"}}));
        node.call(Verb::Del, &other, elsewhere).ok();
        assert!(pod.namespace().find_link("eth0").is_some());
        node.call(Verb::Del, &config, &pod).ok();
        assert!(pod.namespace().find_link("eth0").is_none());
        Attached::add(&node, &bridge(first), &pod).del().ok();
    }
}

/// What the reference made, ours removes: with prevResult and without, whatever is left of the container.
#[test]
fn all_that_they_added_is_deleted_by_ours() {
    let Some(theirs) = reference_or_skip() else { return };
    for remains in Remains::ALL {
        for (network, with_result) in [(full as fn(Value) -> Value, true), (full, false), (routed, true)] {
            // Without namespace and result only rules and reservation name the container: the reference's veth has no
            // alias.
            let is_blind = !with_result && remains != Remains::Alive;
            let node = Node::with(&theirs);
            let pod = node.container();
            let mut attached = Attached::add(&node, &network(json!({})), &pod);
            node.install(&ours());
            let held = File::open(pod.namespace().path()).unwrap();
            attached.attachment = pod.leave(remains);
            if is_blind && remains != Remains::EmptyPath {
                drop(held); // the namespace ends, and the veth with it
            }
            let bare = Call::new(Verb::Del, &attached.config, &attached.attachment);
            let call = if with_result { attached.call(Verb::Del) } else { bare };
            call.run(&node).ok();
            if is_blind {
                let veth = attached.host_veth().to_owned();
                if remains == Remains::EmptyPath {
                    node.host().delete_link(&veth);
                } else {
                    node.host().wait_for("the veth to end", |host| host.find_link(&veth).is_none());
                }
                // The veth stayed guarded while it was there; runtimes repeat DEL, or call GC.
                Call::new(Verb::Del, &attached.config, &attached.attachment).run(&node).ok();
            }
            let changes = node.changes();
            let left: Vec<_> = changes.lines().filter(|line| !stays(line)).collect();
            assert!(left.is_empty(), "{remains:?}, prevResult {with_result}: {left:#?}");
        }
    }
}

/// The chain's name depends on network and container: on another network the container may have the same address.
#[test]
fn an_address_that_the_container_has_twice_is_no_reason_to_leave_its_masquerade() {
    let Some(theirs) = reference_or_skip() else { return };
    let node = Node::with(&theirs);
    let pod = node.container();
    let config = |network: &str| bridge(json!({"name": network, "bridge": format!("br-{network}"), "ipMasq": true}));
    let first = Attached::add(&node, &config("a"), &pod);
    let second = Attached::add(&node, &config("b"), pod.attachment_as("net2"));
    assert_eq!(addresses(&first.result), addresses(&second.result));
    let of = |network: &str| {
        let start = format!("name: \\\"{network}\\\" id: ");
        iptables_rules(&node).into_iter().filter(|line| line.contains(&start)).collect::<Vec<_>>()
    };
    let of_first = of("a");
    assert_eq!((of_first.len(), of("b").len()), (3, 3), "{:#?}", iptables_rules(&node));
    node.install(&ours());
    Call::new(Verb::Del, &second.config, &second.attachment).run(&node).ok();
    assert_eq!((of("a"), of("b")), (of_first, Vec::new()));
    Call::new(Verb::Del, &first.config, &first.attachment).run(&node).ok();
    assert_eq!(of("a"), [""; 0]);
}

/// The chain is the container's, and nothing but host-local's reservation says that the rules are of its other interface.
#[test]
fn without_namespace_and_result_the_masquerade_of_another_interface_stays() {
    let Some(theirs) = reference_or_skip() else { return };
    let node = Node::with(&theirs);
    let pod = node.container();
    let attached = Attached::add(&node, &full(json!({"macspoofchk": false})), &pod);
    node.install(&ours());
    let rules = iptables_rules(&node);
    let nowhere = |attachment| Attachment { netns: String::new(), ..attachment };
    Call::new(Verb::Del, &attached.config, nowhere(pod.attachment_as("net1"))).run(&node).ok();
    assert_eq!(iptables_rules(&node), rules);
    Call::new(Verb::Del, &attached.config, nowhere(pod.attachment())).run(&node).ok();
    assert!(iptables_rules(&node).len() < rules.len());
}

/// With nftables the masquerade rules of both are in one table. The reference's DEL also looks for rules of iptables, and
/// fails once as there are none.
#[test]
fn masquerade_of_nftables_that_one_added_the_other_deletes() {
    both_ways(|node, _, second| {
        let attached = Attached::add(node, &full(json!({"ipMasqBackend": "nftables"})), &node.container());
        node.install(second);
        attached.check().ok();
        assert!(node.host().nft().iter().any(|line| line.contains("id: pod1")));
        if *second != ours() {
            assert!(attached.del().fails().msg.contains("does not exist"));
        }
        attached.del().ok();
        assert!(!node.host().nft().iter().any(|line| line.contains("id: pod1")));
        node.assert_as_before_except(stays);
    });
}

/// The reference's bridge with our host-local, and ours with the reference's: delegation goes by CNI_PATH.
#[test]
fn each_bridge_works_with_the_others_host_local() {
    both_ways(|node, _, second| {
        node.install_one(second, "host-local");
        let config = full(json!({"macspoofchk": false, "ipMasq": false}));
        let pod = node.container();
        let attached = Attached::add(node, &config, &pod);
        assert_eq!(addresses(&attached.result), ["10.7.0.2/24", "fd07::2/64"]);
        attached.check().ok();
        let second = Attached::add(node, &config, pod.attachment_as("net1"));
        second.del().ok();
        attached.check().ok();
        let full_range = with(config.clone(), json!({"ipam": {"type": "host-local", "subnet": "10.7.0.0/30"}}));
        let late = node.container_named("late");
        let error = node.call(Verb::Add, &full_range, &late).fails();
        assert!(error.msg.contains("no IP addresses available in range set: 10.7.0.1-10.7.0.2"), "{error:?}");
        node.call(Verb::Del, &full_range, &late).ok(); // runtimes repeat DEL, and the reference needs it
        attached.del().ok();
        node.assert_as_before_except(stays);
    });
}
