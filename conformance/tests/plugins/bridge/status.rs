//! STATUS: it fails where ADD would.

use crate::configs::{Attached, bridge, dual, with};
use crate::subjects::node;
use serde_json::{Value, json};
use testns::{Attachment, Feature, Node, Verb};

fn config(own: Value) -> Value {
    let base = json!({"cniVersion": "1.1.0", "isGateway": true, "ipMasq": true, "macspoofchk": true, "ipam": dual()});
    bridge(with(base, own))
}

fn status(node: &Node, own: Value) -> testns::Reply {
    node.call(Verb::Status, config(own), Attachment::none())
}

/// Returns whether a line belongs to the mark of the test, once a boot, that the kernel has what ADD needs.
fn is_mark(line: &str) -> bool {
    line.contains(" /run/cni")
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

/// SPEC 2, STATUS: it fails if the kernel lacks a feature that the config needs.
#[test]
fn status_is_50_when_the_kernel_lacks_vlan_filtering() {
    let node = node();
    let reply = status(&node, json!({"vlan": 100}));
    if Feature::BridgeVlanFiltering.is_here() {
        reply.ok();
    } else {
        reply.fails_with(50);
    }
    node.assert_as_before_except(is_mark);
}
