//! Without `ipam`, or with the container's interface down: a layer-2 connection only.

use super::stays;
use crate::configs::{Attached, layer2};
use crate::subjects::{each, node_with_pod};
use serde_json::json;

/// No `ipam.type`: a veth to the bridge, both ends up, frames pass, no address.
#[test]
fn without_ipam_there_is_a_link_and_no_address() {
    each(|_, node| {
        let (one, two) = (node.container(), node.container());
        for ipam in [None, Some(json!({}))] {
            let config = layer2(ipam.map_or_else(|| json!({}), |ipam| json!({"ipam": ipam})));
            let attached = [Attached::add(node, &config, &one), Attached::add(node, &config, &two)];
            assert!(attached[0].result.get("ips").is_none_or(|ips| *ips == json!([])), "{}", attached[0].result);
            assert_eq!(attached[0].result["interfaces"][2]["name"], "eth0");
            assert_eq!(one.namespace().global_addresses("eth0"), [""; 0]);
            one.namespace().add_address("eth0", "10.7.0.2/24");
            two.namespace().add_address("eth0", "10.7.0.3/24");
            one.namespace().ping([10, 7, 0, 3]);
            attached.iter().for_each(|attached| drop(attached.del().ok()));
        }
        node.assert_as_before_except(stays);
    });
}

/// CHECK passes, also after the bridge's hardware address changed with its ports; the reference looks for an IPAM
/// plugin.
#[test]
fn check_without_ipam_passes() {
    each(|who, node| {
        let config = layer2(json!({}));
        let attached = Attached::add(node, &config, &node.container());
        (0..4).for_each(|_| drop(Attached::add(node, &config, &node.container())));
        let reply = attached.check();
        if who.is_ours() {
            reply.ok();
        } else {
            assert_eq!(reply.fails().msg, "no plugin name provided");
        }
    });
}

/// disableContainerInterface leaves the container's interface down, and ADD waits for no port.
#[test]
fn a_disabled_container_interface_stays_down() {
    let (node, pod) = node_with_pod();
    let attached = Attached::add(&node, &layer2(json!({"disableContainerInterface": true})), &pod);
    assert!(!pod.namespace().link("eth0").up);
    let outside = node.host().link(attached.host_veth());
    assert_eq!((outside.up, outside.master.as_deref()), (true, Some("br0")));
    attached.check_and_del();
    node.assert_as_before_except(stays);
}
