//! CHECK: all that ADD set is compared.

use super::ptp;
use crate::configs::{dual, with};
use crate::veth_plugins::{Tamper, check_fails_after};
use serde_json::json;

const SEEN_BY_OURS: [(&str, Tamper); 7] = [
    ("the route to the gateway is gone", |_, pod, _| pod.delete_route("10.7.0.1/32")),
    ("the gateway's IPv4 address is gone", |node, _, veth| node.host().delete_address(veth, "10.7.0.1/32")),
    ("the gateway's IPv6 address is gone", |node, _, veth| node.host().delete_address(veth, "fd07::1/128")),
    ("the node's IPv4 route is gone", |node, _, _| node.host().delete_route("10.7.0.2/32")),
    ("the node's IPv6 route is gone", |node, _, _| node.host().delete_route("fd07::2/128")),
    ("the host's end is down", |node, _, veth| node.host().set_down(veth)),
    ("the masquerade is gone", |node, _, _| node.host().flush_nft()),
];

/// What the result does not show is compared by ours alone.
#[test]
fn check_fails_when_what_the_result_does_not_show_is_missing() {
    let routes = json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]);
    let config = ptp(json!({"ipMasq": true, "ipam": with(dual(), json!({"routes": routes}))}));
    check_fails_after(&config, &SEEN_BY_OURS);
}
