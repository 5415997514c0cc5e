//! Tests of vlan alone.

use super::{VLAN, config, node};
use crate::configs::{Attached, addresses, ip};
use serde_json::{Value, json};
use testns::{Attachment, Feature, Verb};

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
