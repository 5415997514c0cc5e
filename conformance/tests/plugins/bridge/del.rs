//! DEL in every state that a runtime may leave.

use super::stays;
use crate::configs::{Attached, bridge, dual, with};
use crate::subjects::{node, node_with_pod};
use serde_json::{Value, json};
use std::fs::File;
use std::path::Path;
use testns::{Call, Remains, Verb};

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

/// prevResult has the form of the config's version; the oldest forms have no interfaces.
#[test]
fn del_takes_prev_result_of_every_version() {
    let node = node();
    for version in crate::configs::VERSIONS {
        for remains in [Remains::Alive, Remains::EmptyPath] {
            let pod = node.container();
            let mut attached = Attached::add(&node, &full(json!({"cniVersion": version})), &pod);
            let _held = File::open(pod.namespace().path()).unwrap();
            attached.attachment = pod.leave(remains);
            attached.del().ok();
            node.assert_as_before_except(stays);
        }
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
