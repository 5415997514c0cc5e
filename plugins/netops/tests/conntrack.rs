//! Conntrack on the real kernel, with real packets through a DNAT rule.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use netops::Netns;
use netops::nft::Family;
use netops::nft::conntrack::{self, Flow};

fn sh(commands: &str) {
    let status = Command::new("sh").args(["-ec", commands]).status().unwrap();
    assert!(status.success(), "{commands}");
}

fn has_programs(test: &str) -> bool {
    let is_here = |program: &str| {
        ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
            .iter()
            .any(|folder| std::path::Path::new(folder).join(program).exists())
    };
    let all = is_here("nft") && is_here("ip");
    if !all {
        testns::skip(test, "no nft and ip here");
    }
    all
}

/// What a client has sent to `port` of the node goes to one of two servers: the first, until the rule names the second.
fn translate(port: u16, server: u16) {
    sh(&format!(
        "nft 'add table inet t; add chain inet t output {{ type nat hook output priority -100; }}
         flush chain inet t output
         add rule inet t output udp dport {port} redirect to :{server}'"
    ));
}

fn socket(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];

fn delete_of(port: u16) -> usize {
    conntrack::delete_udp(&FAMILIES, &mut |flow| flow.port == port).unwrap()
}

/// The best-known complaint: who goes on sending to a port reaches the container that is gone.
#[test]
fn a_client_that_keeps_sending_reaches_the_next_server() {
    Netns::run_in_new(|| {
        testns::needs!(has_programs("a_client_that_keeps_sending_reaches_the_next_server"));
        sh("ip link set lo up");
        for host in ["127.0.0.1", "[::1]"] {
            let (old, new) = (socket(&format!("{host}:7001")), socket(&format!("{host}:7002")));
            let client = socket(&format!("{host}:0"));
            let send = |text: &str| client.send_to(text.as_bytes(), format!("{host}:53")).unwrap();
            let received = |server: &UdpSocket| {
                let mut text = [0; 16];
                let length = server.recv(&mut text).unwrap();
                String::from_utf8_lossy(&text[..length]).into_owned()
            };
            translate(53, 7001);
            send("first");
            assert_eq!(received(&old), "first");
            translate(53, 7002);
            send("again");
            assert_eq!(received(&old), "again", "the flow keeps its translation");
            assert_eq!(delete_of(53), 1);
            send("at last");
            assert_eq!(received(&new), "at last");
            assert_eq!(delete_of(53), 1);
        }
    })
    .unwrap();
}

#[test]
fn flows_to_other_ports_and_addresses_stay() {
    Netns::run_in_new(|| {
        testns::needs!(has_programs("flows_to_other_ports_and_addresses_stay"));
        sh("ip link set lo up; ip addr add 10.9.0.1/32 dev lo");
        translate(1, 2); // conntrack watches where a rule needs it
        let client = socket("0.0.0.0:0");
        let _servers = [socket("127.0.0.1:53"), socket("127.0.0.1:54"), socket("10.9.0.1:53")];
        for server in ["127.0.0.1:53", "127.0.0.1:54", "10.9.0.1:53"] {
            client.send_to(b"x", server).unwrap();
        }
        let mut seen: Vec<Flow> = Vec::new();
        let mut look = |flow: &Flow| {
            seen.push(*flow);
            false
        };
        assert_eq!(conntrack::delete_udp(&[], &mut look).unwrap(), 0);
        assert_eq!(conntrack::delete_udp(&[Family::Ip6], &mut look).unwrap(), 0);
        assert_eq!(seen, []);
        assert_eq!(delete_of(55), 0);
        let is_it = |flow: &Flow| flow.address.to_string() == "10.9.0.1" && flow.server == flow.address;
        assert_eq!(conntrack::delete_udp(&FAMILIES, &mut |flow| is_it(flow)).unwrap(), 1);
        assert_eq!(conntrack::delete_udp(&FAMILIES, &mut |flow| is_it(flow)).unwrap(), 0);
        assert_eq!((delete_of(53), delete_of(54)), (1, 1));
    })
    .unwrap();
}

#[test]
fn one_flow_is_deleted_in_whichever_zone_it_is() {
    Netns::run_in_new(|| {
        testns::needs!(has_programs("one_flow_is_deleted_in_whichever_zone_it_is"));
        sh("ip link set lo up");
        translate(1, 2);
        sh("nft 'add table inet z; add chain inet z output { type filter hook output priority raw; }
            add rule inet z output udp dport 54 ct zone set 7'");
        let (client, other) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
        let _servers = [socket("127.0.0.1:53"), socket("127.0.0.1:54")];
        for server in ["127.0.0.1:53", "127.0.0.1:54"] {
            client.send_to(b"x", server).unwrap();
            other.send_to(b"x", server).unwrap();
            let from = client.local_addr().unwrap();
            conntrack::delete_flow(17, from, server.parse().unwrap()).unwrap();
            let mut left = Vec::new();
            conntrack::delete_udp(&FAMILIES, &mut |flow| {
                left.push(flow.from);
                true
            })
            .unwrap();
            assert_eq!(left, [other.local_addr().unwrap()], "{server}");
        }
    })
    .unwrap();
}

/// The number of entries that a busy name server has.
#[test]
fn many_flows_are_deleted_at_once() {
    Netns::run_in_new(|| {
        testns::needs!(has_programs("many_flows_are_deleted_at_once"));
        sh("ip link set lo up");
        translate(1, 2);
        let _server = socket("127.0.0.1:53");
        for _ in 0..1_000 {
            socket("127.0.0.1:0").send_to(b"x", "127.0.0.1:53").unwrap();
        }
        let deleted = delete_of(53);
        assert!((900..=1_000).contains(&deleted), "{deleted}"); // a port may have been used again
        assert_eq!(delete_of(53), 0);
    })
    .unwrap();
}
