//! `cnitool doctor` and addresses that two stations of one layer-2 segment have, or may get.

use super::cases::{ERROR, WARNING};
use super::lost_packets::{Sick, sh};
use serde_json::{Value, json};
use std::net::UdpSocket;
use testns::Feature;

/// A network that gives one address by plugin static.
fn fixed(sick: &Sick, name: &str, plugin: Value, address: &str) {
    let mut plugin = plugin;
    plugin["ipam"] = json!({"type": "static", "addresses": [{"address": address}]});
    sick.network(&format!("20-{name}"), json!({"name": name, "plugins": [plugin]}));
}

/// Moves the node's addresses and way out to bridge `lan0`, of which `ens3` is a port then.
const BRIDGED: &str = "ip link add lan0 type bridge; ip link set lan0 up; ip link set ens3 master lan0
    ip address flush dev ens3; ip address add 192.168.1.7/24 dev lan0; ip -6 address add fd00:1::7/64 dev lan0 nodad
    ip route replace default via 192.168.1.1; ip -6 route replace default via fd00:1::1 dev lan0";

#[test]
fn containers_with_one_address_on_one_segment_are_found() {
    let mut plugins = vec![json!({"type": "bridge", "bridge": "br5"})];
    if Feature::Macvlan.or_skip() {
        plugins.push(json!({"type": "macvlan", "master": "ens3"}));
    }
    for plugin in plugins {
        for second in ["one", "two"] {
            let sick = Sick::new();
            ["one", "two"].iter().for_each(|name| fixed(&sick, name, plugin.clone(), "10.5.0.5/24"));
            let _web = sick.add("one", "web", None);
            assert_eq!(sick.doctor(), (0, Vec::new()), "{plugin}");
            let _other = sick.add(second, "other", None);
            let text = "several living containers have address 10.5.0.5";
            sick.expect(&format!("{plugin} {second}"), &[("duplicate-address", ERROR, text, false)]);
            let (_, findings) = sick.doctor();
            assert!(findings[0]["remedy"].as_str().unwrap().contains("Plugin static"), "{findings:#?}");
        }
    }
}

#[test]
fn containers_with_one_address_on_different_segments_are_no_fault() {
    let sick = Sick::new();
    fixed(&sick, "one", json!({"type": "bridge", "bridge": "br5"}), "10.5.0.5/24");
    fixed(&sick, "two", json!({"type": "bridge", "bridge": "br6"}), "10.5.0.5/24");
    let _web = sick.add("one", "web", None);
    let _other = sick.add("two", "other", None);
    assert_eq!(sick.doctor(), (0, Vec::new()));
}

#[test]
fn a_container_with_the_nodes_address_on_a_bridge_of_layer_2_is_found() {
    let sick = Sick::new();
    sh(BRIDGED);
    fixed(&sick, "lan", json!({"type": "bridge", "bridge": "lan0"}), "192.168.1.7/24");
    let _web = sick.add("lan", "web", None);
    let text = "the node has address 192.168.1.7, too, on link lan0";
    sick.expect("the node's address", &[("duplicate-address", ERROR, text, false)]);
}

/// Nothing of the node is on the bridge.
#[test]
fn a_container_with_the_nodes_address_on_a_bridge_of_its_own_is_no_fault() {
    let sick = Sick::new();
    fixed(&sick, "apart", json!({"type": "bridge", "bridge": "br5"}), "192.168.1.7/24");
    let _web = sick.add("apart", "web", None);
    assert_eq!(sick.doctor(), (0, Vec::new()));
}

/// The ranges have the node's addresses, its routers and an address of `lo`.
#[test]
fn what_the_next_add_may_give_of_the_nodes_addresses_is_found_before_it() {
    let lan = |bridge: &str| {
        let range = |subnet: &str, first: &str, last: &str, gateway: &str| json!([{"subnet": subnet, "rangeStart": first, "rangeEnd": last, "gateway": gateway}]);
        let ranges = json!([
            range("192.168.1.0/24", "192.168.1.1", "192.168.1.9", "192.168.1.254"),
            range("fd00:1::/64", "fd00:1::1", "fd00:1::9", "fd00:1::fe")
        ]);
        json!({"name": "lan", "plugins": [{"type": "bridge", "bridge": bridge,
            "ipam": {"type": "host-local", "ranges": ranges}}]})
    };
    let sick = Sick::new();
    sh(BRIDGED);
    sh("ip address add 192.168.1.9/32 dev lo");
    sick.network("20-lan", lan("lan0"));
    let next = |address: &str| format!("the next ADD may give {address}, which ");
    let [hop, hop6] = ["192.168.1.1", "fd00:1::1"]
        .map(|address| next(address) + "is the next hop of the node's default route by lan0");
    let [own, own6] = ["192.168.1.7", "fd00:1::7"].map(|address| next(address) + "the node has on link lan0");
    let vip = next("192.168.1.9") + "the node has on link lo";
    let expected = [&hop, &hop6, &own, &own6, &vip];
    sick.expect("ranges", &expected.map(|text| ("duplicate-address", WARNING, text.as_str(), true)));
    // Another segment.
    sick.network("20-lan", lan("br5"));
    sh("rm -r /var/lib/cni/networks/lan; ip link add br5 type bridge");
    assert_eq!(sick.doctor(), (0, Vec::new()));
}

/// The kernel passes no frame between a macvlan and its master.
#[test]
fn a_macvlan_whose_gateway_is_the_node_has_no_way_out() {
    if !Feature::Macvlan.or_skip() {
        return;
    }
    let sick = Sick::new();
    let lan = |gateway: &str| {
        json!({"name": "lan", "plugins": [{"type": "macvlan", "master": "ens3", "ipam": {"type": "host-local",
            "subnet": "192.168.1.0/24", "rangeStart": "192.168.1.50", "rangeEnd": "192.168.1.60", "gateway": gateway,
            "routes": [{"dst": "0.0.0.0/0"}]}}]})
    };
    sick.network("20-lan", lan("192.168.1.1"));
    let _right = sick.add("lan", "right", None);
    assert_eq!(sick.doctor(), (0, Vec::new()));
    sick.network("20-lan", lan("192.168.1.7"));
    let _wrong = sick.add("lan", "wrong", None);
    let text = "the container's IPv4 route out leads by 192.168.1.7, the node's address on ens3";
    sick.expect("the node as gateway", &[("no-way-out", ERROR, text, false)]);
    let shown = sick.tour.cnitool(&["explain", "wrong"]);
    assert!(shown.contains("which a macvlan on ens3 does not reach"), "{shown}");
}

/// The ports of containers keep the bridge's carrier.
#[test]
fn a_bridge_that_is_the_way_out_and_has_lost_its_uplink_is_found() {
    for is_layer_2 in [true, false] {
        let sick = Sick::new();
        sh(BRIDGED);
        let mut name = "office";
        if is_layer_2 {
            fixed(&sick, "lan", json!({"type": "bridge", "bridge": "lan0"}), "192.168.1.50/24");
            name = "lan";
        } else {
            // A virtual machine.
            sh(
                "ip link add tap0 type veth peer guest; ip link set tap0 master lan0; ip link set tap0 up; ip link set guest up",
            );
        }
        let _web = sick.add(name, "web", None);
        assert_eq!(sick.doctor(), (0, Vec::new()));
        sh("ip link set ens3 down; ip neigh flush dev lan0");
        // The node asks for the Ethernet address of its router.
        UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"x", "192.168.1.1:9").unwrap();
        let text = "bridge lan0, the IPv4 way out, has lost its port to other networks: ens3 is down";
        sick.expect("down", &[("link-down", WARNING, text, false)]);
    }
}
