//! Renewal, rebinding, and a server that gives another address.

use crate::lan::{Lan, SERVER, bridge, has};
use nix::sys::signal::Signal;
use serde_json::json;
use testns::Verb;

/// T1 after two seconds, T2 after four.
const SOON: [&str; 2] = ["--dhcp-option=option:T1,2s", "--dhcp-option=option:T2,4s"];

#[test]
fn lease_is_rebound_with_another_server() {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    let mut server = lan.dnsmasq(&SOON);
    let mut daemon = lan.daemon(&[]);
    lan.node.call(Verb::Add, bridge(json!({})), &lan.node.container()).ok();
    server.wait_for("DHCPACK");
    server.end(nix::sys::signal::Signal::SIGTERM);
    daemon.wait_for("bound");
    // Another machine, which knows the same leases.
    lan.server.delete_address("lan0", "10.8.0.1/24");
    lan.server.add_address("lan0", "10.8.0.2/24");
    let mut other = lan.dnsmasq(&SOON);
    other.wait_for("DHCPREQUEST");
    other.wait_for("DHCPACK");
    assert!(daemon.wait_for("bound").contains("server=10.8.0.2"));
}

#[test]
fn address_that_a_server_refuses_is_replaced_by_the_one_it_gives() {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    let mut server = lan.dnsmasq(&SOON);
    let mut daemon = lan.daemon(&[]);
    let pod = lan.node.container();
    lan.node.call(Verb::Add, bridge(json!({})), &pod).ok();
    server.wait_for("DHCPACK");
    server.end(nix::sys::signal::Signal::SIGTERM);
    std::fs::remove_file(lan.node.work_dir().join("dnsmasq.leases")).unwrap();
    let mut server = lan.dnsmasq_for("10.8.0.200,10.8.0.209,255.255.255.0,2m", &[]);
    server.wait_for("DHCPNAK");
    server.wait_for("DHCPACK");
    daemon.wait_for("the lease has ended, and the link loses its address");
    daemon.wait_for("the link gets the address of the new lease");
    pod.namespace().wait_for("the new address", |namespace| {
        let addresses = namespace.global_addresses("eth0");
        addresses.len() == 1 && addresses[0].starts_with("10.8.0.20")
    });
    pod.namespace().ping(std::net::Ipv4Addr::new(10, 8, 0, 1));
    assert_eq!(lan.leases().len(), 1);
}

#[test]
fn link_goes_down_at_the_end_of_the_lease_and_comes_up_when_a_server_answers() {
    testns::needs!(has("busybox"));
    let lan = Lan::new();
    let mut server = lan.udhcpd(6);
    let mut daemon = lan.daemon(&[]);
    let pod = lan.node.container();
    let mut config = bridge(json!({}));
    config["isDefaultGateway"] = json!(false);
    let result = lan.node.call(Verb::Add, &config, &pod).ok();
    let routes = pod.namespace().routes();
    server.end(Signal::SIGKILL);
    let line = daemon.wait_for("no server renewed the lease until its end");
    assert!(line.contains(pod.id()), "{line}");
    pod.namespace().wait_for("the link to be down", |namespace| !namespace.link("eth0").up);
    assert!(pod.namespace().global_addresses("eth0").is_empty());
    assert!(lan.status().contains("lost"));

    let _server = lan.udhcpd(60);
    daemon.wait_for("the link gets the address of the new lease");
    // Logged before it is done; the link is also up for each try.
    let has_all = |namespace: &testns::Namespace| {
        namespace.global_addresses("eth0").len() == 1 && namespace.routes().len() >= routes.len()
    };
    pod.namespace().wait_for("address and routes", has_all);
    assert_eq!(json!(pod.namespace().global_addresses("eth0")[0]), result["ips"][0]["address"]);
    let v4 = |routes: &[testns::Route]| routes.iter().filter(|route| format!("{route:?}").contains(SERVER)).count();
    assert_eq!(v4(&pod.namespace().routes()), v4(&routes));
    pod.namespace().ping(SERVER.parse::<std::net::Ipv4Addr>().unwrap());
}
