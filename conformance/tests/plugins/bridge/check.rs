//! CHECK succeeds after ADD and after permitted changes by later plugins, and fails when something is missing.

use crate::configs::{Attached, bridge, dual, ip};
use crate::subjects::each;
use crate::veth_plugins::{Tamper, check_fails_after};
use conformance::shell::sh;
use serde_json::{Value, json};

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

fn config() -> Value {
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
    check_fails_after(&config(), &SEEN_BY_OURS);
}

#[test]
fn check_wants_the_containers_own_host_veth_on_the_bridge() {
    each(|_, node| {
        let (one, two) = (node.container(), node.container());
        let mut first = Attached::add(node, &config(), &one);
        let second = Attached::add(node, &config(), &two);
        first.result["interfaces"][1] = second.result["interfaces"][1].clone();
        let code = first.check().output.code();
        assert!(code != 0);
        two.namespace().ping(ip("10.7.0.1"));
    });
}
