//! IPv6 beside IPv4: DHCPv6, SLAAC, and networks with neither.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testns::{Background, Call, Container, Feature, Verb};

use crate::lan::{Lan, bridge, has, macvlan};

const DHCPV6: &str = "--dhcp-range=fd00:8::50,fd00:8::99,64,2m";

/// A server of both families, whose router says how addresses are given.
fn dnsmasq(lan: &Lan, range: &str) -> Background {
    lan.server.set_sysctl("net/ipv6/conf/lan0/accept_dad", "0");
    lan.server.add_address("lan0", "fd00:8::1/64");
    let (dns, search) = ("--dhcp-option=option6:dns-server,[fd00:8::3]", "--dhcp-option=option6:domain-search,six.org");
    lan.dnsmasq(&["--enable-ra", range, dns, search])
}

/// A container that does not look for duplicates of its addresses, and asks routers again after a second.
fn pod(lan: &Lan) -> Container {
    let pod = lan.node.container();
    for (key, value) in [("accept_dad", "0"), ("router_solicitation_interval", "1")] {
        pod.namespace().set_sysctl(&format!("net/ipv6/conf/default/{key}"), value);
    }
    pod
}

/// Ends the daemon, moves the begin of the IPv6 lease into the past, and starts the next daemon.
fn later(lan: &Lan, mut daemon: Background, seconds: u64) -> Background {
    daemon.end(Signal::SIGTERM);
    let files = fs::read_dir("/run/cni/dhcp.sock.leases").unwrap().map(|entry| entry.unwrap().path());
    for file in files.filter(|file| file.extension().is_some()) {
        let mut record: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let since = record["ipv6"]["sinceSeconds"].as_u64().unwrap();
        record["ipv6"]["sinceSeconds"] = since.saturating_sub(seconds).into();
        fs::write(file, record.to_string()).unwrap();
    }
    lan.daemon(&[])
}

#[test]
fn ipv6_address_is_leased_renewed_rebound_and_released_beside_the_other() {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    let mut server = dnsmasq(&lan, DHCPV6);
    let mut daemon = lan.daemon(&[]);
    let config = match Feature::Macvlan.or_skip() {
        true => macvlan(json!({"ipv6": true})),
        false => bridge(json!({"ipv6": true})),
    };
    let pod = pod(&lan);
    let result = lan.node.call(Verb::Add, &config, &pod).ok();
    let addresses: Vec<&str> =
        result["ips"].as_array().unwrap().iter().map(|ip| ip["address"].as_str().unwrap()).collect();
    assert!(addresses.len() == 2 && addresses[0].starts_with("10.8.0."), "{result}");
    let address = addresses[1].strip_suffix("/128").unwrap();
    assert!(address.starts_with("fd00:8::"), "{result}");
    Call::new(Verb::Check, &config, &pod).prev_result(&result).run(&lan.node).ok();
    server.wait_for(&format!("DHCPREPLY(lan0) {address}"));
    // The routes are the router's word, and the kernel ends the address with the lease.
    pod.namespace().ping("fd00:8::1".parse::<std::net::Ipv6Addr>().unwrap());
    let lasts = || pod.namespace().enter(|| fs::read_to_string("/proc/thread-self/net/if_inet6")).unwrap();
    pod.namespace().wait_for("lifetimes", |_| {
        // IFA_F_PERMANENT is 0x80.
        let line =
            lasts().lines().find(|line| line.starts_with("fd000008") && line.contains(" 80 00 ")).map(str::to_owned);
        line.is_some_and(|line| u8::from_str_radix(line.split_whitespace().nth(4).unwrap(), 16).unwrap() & 0x80 == 0)
    });
    let status = lan.status();
    assert!(status.contains(&format!("{address}/128")) && status.lines().count() == 3, "{status}");

    daemon = later(&lan, daemon, 61);
    server.wait_for("DHCPRENEW(lan0) 00:04:");
    server.wait_for(&format!("DHCPREPLY(lan0) {address}"));
    daemon.wait_for("bound by DHCPv6");
    daemon = later(&lan, daemon, 110);
    server.wait_for("DHCPREBIND(lan0) 00:04:");
    server.wait_for(&format!("DHCPREPLY(lan0) {address}"));
    daemon.wait_for("bound by DHCPv6");
    assert_eq!(lan.leases().len(), 1, "one entry");
    lan.node.call(Verb::Del, &config, &pod).ok();
    // The other release names the container's Ethernet address; this one its DUID-UUID.
    server.wait_for("DHCPRELEASE(lan0) 00:04:");
    assert!(lan.leases().is_empty());
}

#[test]
fn ipv6_address_that_the_server_ends_is_replaced_on_the_link() {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    let mut server = dnsmasq(&lan, DHCPV6);
    let daemon = lan.daemon(&[]);
    let pod = pod(&lan);
    let result = lan.node.call(Verb::Add, bridge(json!({"ipv6": true})), &pod).ok();
    let dns = json!({"nameservers": ["fd00:8::3"], "search": ["six.org"]});
    assert_eq!(result["dns"], dns);
    server.end(Signal::SIGTERM);
    // The same server by its identifier, which has lost its leases.
    let file = lan.node.work_dir().join("dnsmasq.leases");
    let leases = fs::read_to_string(&file).unwrap();
    fs::write(&file, leases.lines().find(|line| line.starts_with("duid ")).unwrap().to_owned() + "\n").unwrap();
    let _server = lan.dnsmasq(&["--enable-ra", "--dhcp-range=fd00:8::200,fd00:8::209,64,2m"]);
    let mut daemon = later(&lan, daemon, 61);
    daemon.wait_for("the IPv6 lease has ended");
    daemon.wait_for("bound by DHCPv6");
    pod.namespace().wait_for("the new address alone", |namespace| {
        let addresses = namespace.global_addresses("eth0");
        let leased: Vec<&String> = addresses.iter().filter(|address| address.starts_with("fd00")).collect();
        leased.len() == 1 && leased[0].starts_with("fd00:8::20")
    });
}

#[test]
fn address_of_a_network_with_slaac_is_the_kernels_and_there_when_add_returns() {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    let _server = dnsmasq(&lan, "--dhcp-range=fd00:8::,ra-only,64,2m");
    let daemon = lan.daemon(&["-resendtimeout", "12s"]);
    let (pod, config) = (pod(&lan), bridge(json!({"ipv6": true})));
    pod.namespace().set_sysctl("net/ipv6/conf/default/disable_ipv6", "1");
    let reply = lan.node.call(Verb::Add, &config, &pod);
    let result = reply.ok();
    assert_eq!(result["ips"].as_array().unwrap().len(), 1, "{result}");
    let addresses = pod.namespace().global_addresses("eth0");
    assert!(
        addresses.iter().any(|address| address.starts_with("fd00:8::") && address.ends_with("/64")),
        "{addresses:?}"
    );
    let _daemon = later(&lan, daemon, 0);
    assert!(lan.status().contains("slaac"));
    Call::new(Verb::Check, &config, &pod).prev_result(&result).run(&lan.node).ok();
    lan.node.call(Verb::Del, &config, &pod).ok();
}

/// The interface plugin does not add it a second time, and the kernel goes on with its lifetimes.
#[test]
fn slaac_address_is_in_the_result_where_the_key_asks_for_it() {
    testns::needs!(has("dnsmasq"), Feature::Macvlan.or_skip());
    let lan = Lan::new();
    let _server = dnsmasq(&lan, "--dhcp-range=fd00:8::,ra-only,64,2m");
    let _daemon = lan.daemon(&["-resendtimeout", "12s"]);
    let (pod, config) = (pod(&lan), macvlan(json!({"ipv6": true, "slaacInResult": true})));
    let result = lan.node.call(Verb::Add, &config, &pod).ok();
    let address = result["ips"][1]["address"].as_str().unwrap_or_default();
    assert!(address.starts_with("fd00:8::") && address.ends_with("/64"), "{result}");
    assert_eq!(pod.namespace().global_addresses("eth0").iter().filter(|own| *own == address).count(), 1);
    let lines = pod.namespace().enter(|| fs::read_to_string("/proc/thread-self/net/if_inet6")).unwrap();
    let flags = lines.lines().find(|line| line.starts_with("fd000008")).and_then(|line| line.split_whitespace().nth(4));
    // IFA_F_PERMANENT is 0x80.
    assert_eq!(u8::from_str_radix(flags.unwrap(), 16).unwrap() & 0x80, 0, "{lines}");
    Call::new(Verb::Check, &config, &pod).prev_result(&result).run(&lan.node).ok();
    lan.node.call(Verb::Del, &config, &pod).ok();
}

#[test]
fn add_in_a_network_without_ipv6_says_so_and_gives_the_other_lease_back() {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    let mut server = lan.dnsmasq(&[]);
    let _daemon = lan.daemon(&["-resendtimeout", "2s"]);
    let error = lan.node.call(Verb::Add, bridge(json!({"ipv6": true})), &lan.node.container()).fails_with(105);
    assert!(error.msg.contains("no DHCPv6 server or router gave eth0 an address within 2 s"), "{error:?}");
    server.wait_for("DHCPRELEASE");
    assert!(lan.leases().is_empty());
}
