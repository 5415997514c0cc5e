//! What a network gets beyond the reference, if its config has the key.

use serde_json::json;
use testns::{Call, Verb};

use crate::lan::{Lan, SERVER, bridge, has, macvlan};
use crate::scripted_server::{DhcpReply, REQUEST, Server};

#[test]
fn address_that_another_station_has_is_declined() {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    let other = lan.node.remote("other");
    other.add_veth("eth0", &lan.server, "port2");
    lan.server.set_master("port2", "lan0");
    other.add_address("eth0", "10.8.0.50/24"); // the first of the server's range
    let mut server = lan.dnsmasq(&[]);
    let mut daemon = lan.daemon(&[]);
    let pod = lan.node.container();
    let first = lan.node.call(Verb::Add, bridge(json!({})), &pod).ok();
    assert_eq!(first["ips"][0]["address"], "10.8.0.50/24", "as with the reference");
    lan.node.call(Verb::Del, bridge(json!({})), &pod).ok();
    server.end(nix::sys::signal::Signal::SIGTERM);
    std::fs::remove_file(lan.node.work_dir().join("dnsmasq.leases")).ok();
    let mut server = lan.dnsmasq(&[]);
    let pod = lan.node.container();
    let result = lan.node.call(Verb::Add, bridge(json!({"detectConflict": true})), &pod).ok();
    server.wait_for("DHCPDECLINE");
    assert_eq!(result["ips"][0]["address"], "10.8.0.51/24");
    assert!(daemon.wait_for("is declined").contains(&format!("10.8.0.50 is declined, as {}", other.link("eth0").mac)));
    assert_eq!(lan.leases().len(), 1);
}

/// At rebind a server may give another address, which another station may have.
#[test]
fn new_address_of_a_renewal_is_declined_and_the_old_one_goes() {
    let lan = Lan::new();
    lan.server.add_address("lan0", "10.8.0.78/24");
    let mut requests = 0;
    let _server = Server::start(&lan, move |asked| {
        requests += u8::from(asked.kind == REQUEST);
        let yiaddr = std::net::Ipv4Addr::new(10, 8, 0, if requests == 2 { 78 } else { 77 });
        let answer = asked.plain().map(|answer| DhcpReply { yiaddr, ..answer.with(58, Some(&[0, 0, 0, 2])) });
        answer.into_iter().collect()
    });
    let mut daemon = lan.daemon(&[]);
    let pod = lan.node.container();
    let result = lan.node.call(Verb::Add, bridge(json!({"detectConflict": true})), &pod).ok();
    assert_eq!(result["ips"][0]["address"], "10.8.0.77/24");
    let line = daemon.wait_for("the lease has ended, and the link loses its address");
    assert!(line.contains("address 10.8.0.78 is declined"), "{line}");
    pod.namespace().wait_for("no address", |namespace| namespace.global_addresses("eth0").is_empty());
    daemon.wait_for("the link gets the address of the new lease");
    pod.namespace().wait_for("its address", |namespace| namespace.global_addresses("eth0") == ["10.8.0.77/24"]);
}

#[test]
fn mtu_of_the_server_is_that_of_the_link() {
    testns::needs!(has("dnsmasq"));
    for (config, mtu, expected) in [
        (bridge(json!({"useMTU": true})), "1400", 1400),
        (macvlan(json!({"useMTU": true})), "1400", 1400),
        (bridge(json!({})), "1400", 1500),
        (bridge(json!({"request": [{"option": "26"}]})), "1400", 1500),
        (bridge(json!({"useMTU": true})), "9000", 1500),
        (bridge(json!({"useMTU": true})), "100", 1500),
    ] {
        if config["type"] == "macvlan" && !testns::Feature::Macvlan.or_skip() {
            continue;
        }
        let lan = Lan::new();
        let _server = lan.dnsmasq(&[&format!("--dhcp-option-force=option:mtu,{mtu}")]);
        let mut daemon = lan.daemon(&[]);
        let pod = lan.node.container();
        let mut config = config;
        config["cniVersion"] = "1.1.0".into();
        let result = lan.node.call(Verb::Add, &config, &pod).ok();
        daemon.wait_for("bound");
        assert_eq!(pod.namespace().link("eth0").mtu_bytes, expected, "{config} {mtu}");
        let interfaces = result["interfaces"].as_array().unwrap();
        assert_eq!(interfaces.last().unwrap()["mtu"], expected, "{result}");
        Call::new(Verb::Check, &config, &pod).prev_result(&result).run(&lan.node).ok();
        pod.namespace().ping(SERVER.parse::<std::net::Ipv4Addr>().unwrap());
    }
}
