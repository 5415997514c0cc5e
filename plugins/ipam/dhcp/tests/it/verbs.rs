//! ADD, CHECK, DEL, GC and STATUS, over bridge and macvlan.

use serde_json::json;
use testns::{Call, Feature, Verb};

use crate::lan::{Lan, SERVER, bridge, has, macvlan};
use crate::scripted_server::{DhcpReply, REQUEST, Server};

const OPTIONS: [&str; 4] = [
    "--dhcp-option=option:dns-server,10.8.0.3",
    "--dhcp-option=option:domain-name,example.org",
    "--dhcp-option=option:domain-search,a.example.org,b.example.org",
    "--dhcp-option=option:static-route,172.16.0.0,10.8.0.7",
];

#[test]
fn container_gets_address_routes_and_dns_of_the_server() {
    testns::needs!(has("dnsmasq"));
    let mut configs = vec![bridge(json!({}))];
    if Feature::Macvlan.or_skip() {
        configs.push(macvlan(json!({})));
    }
    for config in configs {
        let lan = Lan::new();
        let mut server = lan.dnsmasq(&OPTIONS);
        let _daemon = lan.daemon(&[]);
        let pod = lan.node.container();
        let result = lan.node.call(Verb::Add, &config, &pod).ok();
        let address = result["ips"][0]["address"].as_str().unwrap().to_owned();
        assert!(address.starts_with("10.8.0.") && address.ends_with("/24"), "{result}");
        assert_eq!(result["ips"][0]["gateway"], SERVER);
        assert_eq!(result["routes"], json!([{"dst": "0.0.0.0/0", "gw": SERVER}]), "option 33 was not asked for");
        // As with the reference's macvlan, its own key `dns` counts alone.
        if config["type"] == "bridge" {
            let search = json!(["a.example.org", "b.example.org"]);
            assert_eq!(result["dns"], json!({"nameservers": ["10.8.0.3"], "domain": "example.org", "search": search}));
        }
        assert_eq!(pod.namespace().global_addresses("eth0"), [&*address]);
        pod.namespace().ping(SERVER.parse::<std::net::Ipv4Addr>().unwrap());

        let status = lan.status();
        assert!(status.contains("pod1") && status.contains(&address) && status.contains("bound"), "{status}");
        Call::new(Verb::Check, &config, &pod).prev_result(&result).run(&lan.node).ok();
        lan.node.call(Verb::Del, &config, &pod).ok();
        server.wait_for("DHCPRELEASE");
        assert!(lan.leases().is_empty());
        lan.node.call(Verb::Del, &config, &pod).ok();
        Call::new(Verb::Check, &config, &pod).prev_result(&result).run(&lan.node).fails();
    }
}

#[test]
fn provided_and_requested_options_reach_the_server() {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    let mut server = lan.dnsmasq(&OPTIONS);
    let _daemon = lan.daemon(&[]);
    let mut config = bridge(json!({
        "provide": [
            {"option": "host-name", "fromArg": "K8S_POD_NAME"},
            {"option": "60", "value": "maker"},
            {"option": "user-class", "value": "lab"},
        ],
        "request": [{"option": "33"}, {"option": "routers"}, {"option": "subnet-mask", "skipDefault": true}],
        "priority": 300,
    }));
    config["cniVersion"] = "1.1.0".into(); // the first that has a route's priority
    let pod = lan.node.container();
    let result = Call::new(Verb::Add, &config, &pod).args("IgnoreUnknown=1;K8S_POD_NAME=web-0").run(&lan.node).ok();
    let routes = json!([
        {"dst": "172.16.0.0/16", "gw": "10.8.0.7", "priority": 300}, {"dst": "0.0.0.0/0", "gw": SERVER, "priority": 300},
    ]);
    assert_eq!(result["routes"], routes);
    server.wait_for("vendor class: maker");
    server.wait_for("user class: lab");
    server.wait_for("client provides name: web-0");
    server.wait_for("DHCPACK");
    // As in the reference, an option without a value is left out: `ctr` and others set no such arguments.
    Call::new(Verb::Add, &config, &lan.node.container()).run(&lan.node).ok();
    server.wait_for("user class: lab");
}

#[test]
fn add_that_gets_no_address_leaves_nothing() {
    let lan = Lan::new();
    let _daemon = lan.daemon(&["-resendtimeout", "3s"]);
    lan.node.remember();
    let error = lan.node.call(Verb::Add, bridge(json!({})), &lan.node.container()).fails_with(105);
    assert!(error.msg.contains("no DHCP server gave eth0 an address within 3 s"), "{error:?}");
    assert!(lan.leases().is_empty());
    assert!(!lan.status().contains("pod"));
}

#[test]
fn add_and_status_without_the_daemon_say_how_to_start_it() {
    let lan = Lan::new();
    let pod = lan.node.container();
    let error = lan.node.call(Verb::Add, bridge(json!({})), &pod).fails_with(11);
    assert!(error.msg.starts_with("cannot ask the dhcp daemon at /run/cni/dhcp.sock: "), "{error:?}");
    assert!(pod.namespace().find_link("eth0").is_none());
    let config =
        json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "ipam": {"type": "dhcp"}});
    lan.node.call(Verb::Status, &config, &pod).fails_with(50);
    let _daemon = lan.daemon(&[]);
    lan.node.call(Verb::Status, &config, &pod).ok();
}

#[test]
fn gc_releases_the_leases_of_attachments_that_are_gone() {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    let _server = lan.dnsmasq(&[]);
    let mut daemon = lan.daemon(&[]);
    let mut config = bridge(json!({}));
    config["cniVersion"] = "1.1.0".into();
    let pods = [lan.node.container(), lan.node.container()];
    for pod in &pods {
        lan.node.call(Verb::Add, &config, pod).ok();
    }
    config["cni.dev/valid-attachments"] = json!([{"containerID": pods[0].id(), "ifname": "eth0"}]);
    // A container that has its address keeps its lease, whatever the list says.
    Call::new(Verb::Gc, &config, &pods[0]).plugin("dhcp").run(&lan.node).ok();
    assert_eq!(lan.leases().len(), 2);
    pods[1].namespace().delete_addresses("eth0");
    // Not by way of the bridge: it collects no addresses as long as links such as the node's own may be containers'.
    Call::new(Verb::Gc, &config, &pods[0]).plugin("dhcp").run(&lan.node).ok();
    daemon.wait_for("the lease of an attachment that is gone is given back");
    let leases = lan.leases();
    assert_eq!(leases.len(), 1);
    assert_eq!(leases[0]["subject"]["names"]["containerId"], pods[0].id());
}

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
