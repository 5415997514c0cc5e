//! Conntrack on the real kernel, with real packets through a DNAT rule.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use netops::Netns;
use netops::nft::{Family, conntrack};

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

/// Has the kernel follow flows, as it does where a rule needs it.
fn follow_flows() {
    sh("nft 'add table inet t; add chain inet t output { type nat hook output priority -100; }
        add rule inet t output udp dport 1 redirect to :2'");
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

#[test]
fn one_flow_is_deleted_in_whichever_zone_it_is() {
    Netns::run_in_new(|| {
        testns::needs!(has_programs("one_flow_is_deleted_in_whichever_zone_it_is"));
        sh("ip link set lo up");
        follow_flows();
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
        follow_flows();
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
