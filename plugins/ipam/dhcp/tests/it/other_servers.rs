//! Other servers than dnsmasq, and servers behind a relay.

use std::process::Command;

use serde_json::json;
use testns::{Background, Verb};

use crate::lan::{Lan, SERVER, bridge, has};

/// Kea with leases of two minutes, renewed after two seconds.
fn kea(lan: &Lan) -> Background {
    let config = lan.node.work_dir().join("kea.conf");
    let options = json!([
        {"name": "routers", "data": SERVER}, {"name": "domain-name-servers", "data": "10.8.0.3"},
        {"name": "domain-name", "data": "example.org"}, {"name": "domain-search", "data": "a.example.org, b.example.org"},
    ]);
    let logger =
        json!({"name": "kea-dhcp4", "severity": "INFO", "output_options": [{"output": "stderr", "flush": true}]});
    let subnet =
        json!({"id": 1, "subnet": "10.8.0.0/24", "pools": [{"pool": "10.8.0.50-10.8.0.99"}], "option-data": options});
    let dhcp4 = json!({
        "interfaces-config": {"interfaces": ["lan0"]}, "lease-database": {"type": "memfile", "persist": false},
        "valid-lifetime": 120, "renew-timer": 2, "rebind-timer": 4, "subnet4": [subnet], "loggers": [logger],
    });
    std::fs::write(&config, json!({"Dhcp4": dhcp4}).to_string()).unwrap();
    let mut command = Command::new("kea-dhcp4");
    for folder in ["KEA_PIDFILE_DIR", "KEA_LOCKFILE_DIR"] {
        command.env(folder, lan.node.work_dir());
    }
    command.arg("-c").arg(config);
    let mut server = lan.server.enter(|| Background::with_stderr(command));
    server.wait_for("DHCP4_STARTED");
    server
}

#[test]
fn kea_gives_renews_and_takes_back() {
    if has("kea-dhcp4") {
        let lan = Lan::new();
        gives_renews_and_takes_back(&lan, kea(&lan), "DHCP4_LEASE_ALLOC", "DHCP4_RELEASE");
    }
}

/// `given` and `taken_back`: what the server writes when it gives the address, and when it has it back.
fn gives_renews_and_takes_back(lan: &Lan, mut server: Background, given: &str, taken_back: &str) {
    let mut daemon = lan.daemon(&[]);
    let (pod, config) = (lan.node.container(), bridge(json!({})));
    let result = lan.node.call(Verb::Add, &config, &pod).ok();
    assert_eq!(result["ips"][0]["gateway"], SERVER);
    let search = json!(["a.example.org", "b.example.org"]);
    assert_eq!(result["dns"], json!({"nameservers": ["10.8.0.3"], "domain": "example.org", "search": search}));
    daemon.wait_for("bound");
    daemon.wait_for("bound");
    server.wait_for(given);
    lan.node.call(Verb::Del, &config, &pod).ok();
    server.wait_for(taken_back);
}

/// The server of the Internet Systems Consortium with leases of four seconds. It does not ping addresses before it gives them.
fn isc(lan: &Lan) -> Background {
    let file = |name: &str| lan.node.work_dir().join(name);
    let config = format!(
        "authoritative;\nping-check false;\ndefault-lease-time 4;\nmax-lease-time 4;\n\
         subnet 10.8.0.0 netmask 255.255.255.0 {{\n  range 10.8.0.50 10.8.0.99;\n  option routers {SERVER};\n  \
         option domain-name-servers 10.8.0.3;\n  option domain-name \"example.org\";\n  \
         option domain-search \"a.example.org\", \"b.example.org\";\n}}\n"
    );
    std::fs::write(file("dhcpd.conf"), config).unwrap();
    std::fs::write(file("dhcpd.leases"), "").unwrap();
    let mut command = Command::new("dhcpd");
    command.args(["-4", "-f", "-d", "-cf"]).arg(file("dhcpd.conf")).arg("-lf").arg(file("dhcpd.leases"));
    command.arg("-pf").arg(file("dhcpd.pid")).arg("lan0");
    let mut server = lan.server.enter(|| Background::with_stderr(command));
    server.wait_for("Server starting service");
    server
}

#[test]
fn isc_server_gives_renews_and_takes_back() {
    if has("dhcpd") {
        let lan = Lan::new();
        gives_renews_and_takes_back(&lan, isc(&lan), "DHCPACK on 10.8.0.", "DHCPRELEASE of 10.8.0.");
    }
}

/// The server is on another network, and renewals and the release are routed to it.
#[test]
fn lease_comes_through_a_relay() {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    lan.node.host().clear_master("cable");
    let relay = lan.node.remote("relay");
    lan.node.host().add_veth("torelay", &relay, "down0");
    lan.node.host().set_master("torelay", "br0");
    relay.add_veth("up0", &lan.server, "port2");
    lan.server.set_master("port2", "lan0");
    relay.add_address("down0", "10.9.0.1/24");
    relay.add_address("up0", "10.8.0.9/24");
    relay.set_sysctl("net/ipv4/ip_forward", "1");
    lan.server.add_route("10.9.0.0/24", "10.8.0.9", "lan0");
    let range = "10.9.0.50,10.9.0.99,255.255.255.0,2m";
    let mut server = lan.dnsmasq_for(range, &["--dhcp-option=option:T1,2s", "--dhcp-option=option:T2,4s"]);
    let mut command = Command::new("dnsmasq");
    command.args([
        "--no-daemon",
        "--conf-file=/dev/null",
        "--port=0",
        "--dhcp-relay=10.9.0.1,10.8.0.1",
        "--log-facility=-",
    ]);
    command.args(["--pid-file", "--user=root"]);
    let mut relays = relay.enter(|| Background::with_stderr(command));
    relays.wait_for("DHCP relay from 10.9.0.1 to 10.8.0.1");
    let mut daemon = lan.daemon(&[]);
    let (pod, config) = (lan.node.container(), bridge(json!({})));
    let result = lan.node.call(Verb::Add, &config, &pod).ok();
    assert_eq!(result["ips"][0]["gateway"], "10.9.0.1");
    assert!(daemon.wait_for("bound").contains("address=10.9.0."));
    daemon.wait_for("bound");
    server.wait_for("DHCPACK");
    lan.node.call(Verb::Del, &config, &pod).ok();
    server.wait_for("DHCPRELEASE");
}
