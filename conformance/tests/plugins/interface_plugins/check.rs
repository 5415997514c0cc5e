//! CHECK: each thing that ADD has set, changed behind its back.

use super::{BRIDGE, HOST_DEVICE, InterfacePlugin, MACVLAN, PTP, each_interface_plugin};
use crate::configs::{Attached, dual, with};
use crate::subjects::each;
use serde_json::json;
use testns::Namespace;

const MAC: &str = "0a:00:00:00:00:99";

/// CHECK fails with each change, with code 107, and passes when it is taken back.
fn check_reports_each_change(kind: InterfacePlugin) {
    let (node, _outside) = kind.node(1);
    let pod = node.container();
    let routes = json!([{"dst": "192.0.2.0/24", "gw": "10.7.0.1"}]);
    let config = kind.config(0, json!({"ipam": with(dual(), json!({"routes": routes}))}));
    let attached = Attached::add(&node, &config, &pod);
    let inside = pod.namespace();
    let mac = inside.link("eth0").mac;
    attached.check().ok();
    let reports = |what: &str, change: &dyn Fn(&Namespace), named: &str| {
        change(inside);
        let error = attached.check().fails_with(107);
        assert!(error.msg.contains(named), "{what}: {error:?}");
    };
    reports("a route is gone", &|inside| inside.delete_route("192.0.2.0/24"), "192.0.2.0/24");
    inside.add_route("192.0.2.0/24", "10.7.0.1", "eth0");
    attached.check().ok();
    // ipvlan and vlan follow their master.
    if !["ipvlan", "vlan"].contains(&kind.name) {
        reports("another Ethernet address", &|inside| inside.set_mac("eth0", MAC), MAC);
        inside.set_mac("eth0", &mac);
        attached.check().ok();
    }
    reports("an address is gone", &|inside| inside.delete_address("eth0", "fd07::2/64"), "fd07::2/64");
    inside.add_address("eth0", "fd07::2/64");
    attached.check().ok();
    reports("the link is down", &|inside| inside.set_down("eth0"), "eth0");
    reports("the link is gone", &|inside| inside.rename("eth0", "eth7"), "eth0");
    reports("another link has its name", &|inside| inside.add_link("eth0", "bridge"), "eth0");
}

// The kit has rules for this, and `.ci/run` tries them on the plugins whose links most kernels have.
each_interface_plugin! {
    ipvlan: IPVLAN, vlan: VLAN, dummy: DUMMY;
    (check_reports_each_change)
}

/// The kernel takes 0 for its default: for a route's table that is the main one, for an IPv6 metric 1024.
#[test]
fn numbers_of_routes_that_are_0_are_the_kernels_defaults() {
    let numbers = json!({"table": 0, "scope": 0, "priority": 0, "mtu": 0, "advmss": 0});
    let routes = json!(["0.0.0.0/0", "198.51.100.0/24", "::/0"].map(|dst| with(numbers.clone(), json!({"dst": dst}))));
    for kind in [BRIDGE, PTP, MACVLAN, HOST_DEVICE].into_iter().filter(|kind| kind.is_known()) {
        each(|_, node| {
            let _outside = kind.place.lay(node, 1);
            let pod = node.container();
            let config = kind.config(0, json!({"ipam": with(dual(), json!({"routes": routes}))}));
            let attached = Attached::add(node, &config, &pod);
            let tables = pod.namespace().routes().into_iter().filter(|route| route.to == "198.51.100.0/24");
            assert_eq!(tables.map(|route| route.table).collect::<Vec<_>>(), [254], "{}", kind.name);
            attached.check().ok();
            attached.del().ok();
        });
    }
}
