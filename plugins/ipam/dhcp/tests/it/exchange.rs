//! What client and servers say to each other, option by option.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::mpsc::Receiver;

use nix::sys::signal::Signal;
use serde_json::json;
use socket2::{Domain, Socket, Type};
use testns::Verb;

use crate::lan::{Lan, PATIENCE, SERVER, bridge, has};
use crate::scripted_server::{Asked, DISCOVER, REQUEST, Server};

fn next(asked: &Receiver<Asked>, kind: u8) -> Asked {
    loop {
        let message = asked.recv_timeout(PATIENCE).unwrap();
        if message.kind == kind {
            return message;
        }
    }
}

/// Option 43 has no name: it is provided and requested by number. The server's value is any bytes, and changes nothing.
#[test]
fn vendor_specific_option_is_provided_and_requested_and_the_servers_is_passed_over() {
    let lan = Lan::new();
    let (_server, asked) = Server::changing(&lan, |answer| {
        let value: Vec<u8> = (0..=255).cycle().take(600).collect();
        answer.with(43, Some(&value))
    });
    let _daemon = lan.daemon(&[]);
    let plain = lan.node.call(Verb::Add, bridge(json!({})), &lan.node.container()).ok();
    for kind in [DISCOVER, REQUEST] {
        let Asked { options, .. } = next(&asked, kind);
        assert!(!options.contains_key(&43) && !options[&55].contains(&43), "{options:?}");
    }
    let ipam = json!({"provide": [{"option": "43", "value": "\u{1}\u{2}ab"}], "request": [{"option": "43"}]});
    let result = lan.node.call(Verb::Add, bridge(ipam), &lan.node.container()).ok();
    for kind in [DISCOVER, REQUEST] {
        let Asked { options, .. } = next(&asked, kind);
        assert_eq!(options[&43], b"\x01\x02ab");
        assert!(options[&55].contains(&43) && options[&55].contains(&3), "{options:?}");
    }
    for key in ["ips", "routes", "dns"] {
        assert_eq!(result[key], plain[key], "{key}");
    }
}

/// The client receives without an address, so servers need not broadcast. A renewal by unicast is answered likewise.
#[test]
fn servers_are_asked_to_broadcast_only_with_the_flag() {
    for flags in [&[][..], &["-broadcast"]] {
        let lan = Lan::new();
        let (_server, asked) = Server::changing(&lan, |answer| answer.with(58, Some(&[0, 0, 0, 1])));
        let _daemon = lan.daemon(flags);
        lan.node.call(Verb::Add, bridge(json!({})), &lan.node.container()).ok();
        for kind in [DISCOVER, REQUEST] {
            assert_eq!(next(&asked, kind).broadcast, !flags.is_empty(), "{kind} {flags:?}");
        }
        let renewal = next(&asked, REQUEST);
        assert_ne!(renewal.ciaddr, Ipv4Addr::UNSPECIFIED);
        assert!(!renewal.broadcast, "{flags:?}");
    }
}

/// An answer as of a server with two addresses, or behind a relay: the identifier names it, not the sender (RFC 2131, 4.1).
#[test]
fn server_is_known_by_its_identifier_whatever_address_it_answers_from() {
    const IDENTIFIER: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 2);
    let lan = Lan::new();
    lan.server.add_address("lan0", "10.8.0.2/24");
    let renewals = lan.server.enter(|| {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind_device(Some(b"lan0")).unwrap();
        socket.bind(&SocketAddrV4::new(IDENTIFIER, 67).into()).unwrap();
        std::net::UdpSocket::from(socket)
    });
    renewals.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server answers from 10.8.0.1, the first address of its link.
    let (_server, asked) =
        Server::changing(&lan, |answer| answer.with(54, Some(&IDENTIFIER.octets())).with(58, Some(&[0, 0, 0, 1])));
    let _daemon = lan.daemon(&[]);
    lan.node.call(Verb::Add, bridge(json!({})), &lan.node.container()).ok();
    assert_eq!(next(&asked, REQUEST).options[&54], IDENTIFIER.octets());
    assert_eq!(lan.leases()[0]["lease"]["server"], IDENTIFIER.to_string());
    let mut buffer = [0; 1500];
    let length = renewals.recv(&mut buffer).unwrap();
    let renewal = Asked::parse(&buffer[..length]);
    assert_eq!((renewal.kind, renewal.ciaddr), (REQUEST, Ipv4Addr::new(10, 8, 0, 77)));
}

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
