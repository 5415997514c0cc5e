//! Packets: from outside, from the node, from the container itself, from another one; in each form.

use super::{LONG, SHORT, at, bridged, config, has_iptables, made_up, map, mapping, tcp, udp_server};
use crate::prelude::*;
use crate::ptp::ptp;
use conformance::shell::sh;
use conformance::subjects::machine_outside;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Instant;
use testns::uninterrupted;

fn all_forms(who: Who) -> Vec<Value> {
    match who {
        // The reference's version in Debian 12 has no key of that name.
        Who::Reference => vec![json!({})],
        Who::Ours => {
            vec![json!({"backend": "iptables"}), json!({"backend": "nftables"}), json!({"rules": "shared"})]
        }
    }
}

#[test]
fn a_port_of_the_node_is_the_containers_from_everywhere() {
    each(|who, node| {
        let remote = machine_outside(node);
        for (number, own) in (0..).zip(all_forms(who)) {
            let (pod, other) = (node.container(), node.container());
            let port = 8080 + number;
            let mapped = bridged(node, &config(&[mapping(port, 80, "tcp")], own), &pod);
            super::bridged(node, &config(&[], json!({})), &other);
            let inside = pod.namespace();
            let reached = |from: &Namespace, address: &str| tcp(from, at(address, port), inside, 80, LONG);
            let is = |text: &str| Some(text.parse::<IpAddr>().unwrap());
            assert_eq!(reached(&remote, "192.0.2.1"), is("192.0.2.2"), "outside");
            assert_eq!(reached(&remote, "2001:db8::1"), is("2001:db8::2"), "outside");
            let node_address = reached(node.host(), "127.0.0.1");
            assert_eq!(node_address, is("10.7.0.1"), "loopback has to be translated");
            assert!(reached(node.host(), "192.0.2.1").is_some(), "the node itself");
            assert!(reached(node.host(), "2001:db8::1").is_some(), "the node itself");
            assert!(reached(other.namespace(), "192.0.2.1").is_some(), "another container");
            assert_eq!(reached(inside, "192.0.2.1"), is("10.7.0.1"), "hairpin");
            assert!(reached(inside, "2001:db8::1").is_some(), "hairpin");
            // The same port of an address that is not the node's.
            assert_eq!(tcp(&remote, at("192.0.2.9", port), inside, 80, SHORT), None);
            mapped.del().ok();
            assert_eq!(tcp(&remote, at("192.0.2.1", port), inside, 80, SHORT), None);
        }
    });
}

/// The rules only translate, as the reference's do: a firewall behind portmap accepts what containers begin themselves. README has
/// the rule that accepts the ports, too.
#[test]
fn a_policy_of_drop_closes_ports_to_the_outside_until_an_own_rule_opens_them() {
    testns::needs!(has_iptables());
    each(|_, node| {
        let both = |rule: &str| sh(node.host(), &format!("for tables in iptables ip6tables; do $tables {rule}; done"));
        let remote = machine_outside(node);
        both("-P FORWARD DROP");
        let pod = node.container();
        let mapped = bridged(node, &config(&[mapping(8080, 80, "tcp")], json!({})), &pod);
        let firewall = json!({"type": "firewall", "backend": "iptables", "prevResult": mapped.result});
        Attached::add(node, &with(mapped.config, firewall), &pod);
        let reached = |address, within| tcp(&remote, at(address, 8080), pod.namespace(), 80, within).is_some();
        let addresses = ["192.0.2.1", "2001:db8::1"];
        assert_eq!(addresses.map(|address| reached(address, SHORT)), [false; 2]);
        both("-A CNI-ADMIN -m conntrack --ctstate DNAT -j ACCEPT");
        assert_eq!(addresses.map(|address| reached(address, LONG)), [true; 2]);
    });
}

/// A packet of SCTP with one chunk, INIT (1) or INIT ACK (2). The kernel drops what has a wrong checksum.
fn sctp_packet(from: u16, to: u16, chunk: u8) -> Vec<u8> {
    let mut packet = [from.to_be_bytes(), to.to_be_bytes()].concat();
    // The verification tag: of the other side, which it has from the INIT. Then room for the checksum.
    packet.extend([0, 0, 0, chunk - 1, 0, 0, 0, 0]);
    // Length 20, initiate tag 1, window, streams out and in, first sequence number.
    packet.extend([chunk, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
    let shift = |sum: u32, _| if sum & 1 == 1 { (sum >> 1) ^ 0x82f6_3b78 } else { sum >> 1 };
    let sum = packet.iter().fold(u32::MAX, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), shift));
    packet[8..12].copy_from_slice(&(!sum).to_le_bytes());
    packet
}

/// A socket that sends and receives whole packets of SCTP: the kernel may have none itself.
fn sctp_socket(of: &Namespace, ipv4: bool) -> UdpSocket {
    let family = if ipv4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let made = of.enter(|| socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Sctp)).unwrap();
    let socket = UdpSocket::from(made);
    socket.set_read_timeout(Some(SHORT)).unwrap();
    socket
}

/// Sends a packet, again as a client does if it is lost, and returns what arrives: where it is from, its two ports and the kind
/// of its chunk.
fn sctp_send(from: &UdpSocket, packet: &[u8], to: SocketAddr, by: &UdpSocket) -> (IpAddr, u16, u16, u8) {
    let mut buffer = [0; 128];
    let until = Instant::now() + LONG;
    let (length, source) = loop {
        from.send_to(packet, to).unwrap();
        match uninterrupted(|| by.recv_from(&mut buffer)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < until => {}
            received => break received.expect("a packet of SCTP"),
        }
    };
    let ipv4 = source.is_ipv4();
    // With IPv4 the header is there, too.
    let packet = &buffer[if ipv4 { 20 } else { 0 }..length];
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    (source.ip(), port(0), port(2), packet[12])
}

#[test]
fn packets_of_sctp_reach_the_container_and_its_answers_the_client() {
    each(|who, node| {
        let remote = machine_outside(node);
        for (number, own) in (0..).zip(all_forms(who)) {
            let pod = node.container();
            let port = 8090 + number;
            let mapped = bridged(node, &config(&[mapping(port, 80, "sctp")], own), &pod);
            for (node_address, client_address) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
                let ip = |text: &str| text.parse::<IpAddr>().unwrap();
                let ipv4 = ip(node_address).is_ipv4();
                let (client, server) = (sctp_socket(&remote, ipv4), sctp_socket(pod.namespace(), ipv4));
                let init = sctp_send(&client, &sctp_packet(5000, port, 1), at(node_address, 0), &server);
                assert_eq!(init, (ip(client_address), 5000, 80, 1));
                let ack = sctp_send(&server, &sctp_packet(80, 5000, 2), at(client_address, 0), &client);
                assert_eq!(ack, (ip(node_address), port, 5000, 2));
            }
            mapped.del().ok();
        }
    });
}

#[test]
fn loopback_is_routed_only_where_it_is_forwarded() {
    let node = node();
    for (ip, expected) in [("192.0.2.1", "0"), ("127.0.0.1", "1")] {
        let pod = node.container();
        let mut mapping = mapping(8080, 80, "tcp");
        mapping["hostIP"] = json!(ip);
        bridged(&node, &config(&[mapping], json!({})), &pod);
        assert_eq!(node.host().sysctl("net/ipv4/conf/br0/route_localnet"), expected, "{ip}");
    }
}

/// A rule of a VPN leads packets to all addresses to its link, also those to containers.
#[test]
fn the_containers_link_alone_is_opened_and_the_last_port_closes_it() {
    let setting = |node: &Node, link: &str| node.host().sysctl(&format!("net/ipv4/conf/{link}/route_localnet"));
    for verb in [Verb::Del, Verb::Gc] {
        let node = node();
        sh(node.host(), "ip link add vpn0 type veth peer vpn1; ip addr add 100.64.0.9/32 dev vpn0");
        sh(node.host(), "ip link set vpn0 up; ip link set vpn1 up; ip route add default dev vpn0 table 52");
        sh(node.host(), "ip rule add pref 5270 lookup 52");
        let (one, two) = (node.container(), node.container());
        let network = config(&[mapping(8080, 80, "tcp")], json!({"cniVersion": "1.1.0"}));
        let [first, second] = [&one, &two].map(|pod| bridged(&node, &network, pod));
        assert_eq!(["vpn0", "br0"].map(|link| setting(&node, link)), ["0", "1"]);
        second.call(Verb::Del).without("CNI_NETNS").run(&node).ok();
        assert_eq!(setting(&node, "br0"), "1", "a port of the first is left");
        match verb {
            Verb::Gc => {
                let none = with(network, json!({"cni.dev/valid-attachments": []}));
                node.call(Verb::Gc, none, Attachment::none()).ok()
            }
            _ => first.del().ok(),
        };
        assert_eq!(setting(&node, "br0"), "0", "{verb:?}");
        // An administrator's setting stays.
        node.host().set_sysctl("net/ipv4/conf/br0/route_localnet", "1");
        first.call(Verb::Add).run(&node).ok();
        first.del().ok();
        assert_eq!(setting(&node, "br0"), "1");
        let three = node.container();
        let made = Attached::add(&node, &ptp(json!({"ipam": unshared().v4()})), &three);
        Attached::add(&node, &with(first.config.clone(), json!({"prevResult": made.result})), &three);
        assert_eq!([made.host_veth(), "vpn0"].map(|link| setting(&node, link)), ["1", "0"]);
    }
}

#[test]
fn a_port_of_the_references_keeps_the_link_open() {
    let Some(theirs) = reference_or_skip() else { return };
    let node = node();
    let (one, two) = (node.container(), node.container());
    let ours = bridged(&node, &config(&[mapping(8080, 80, "tcp")], json!({})), &one);
    node.install_one(&theirs, "portmap");
    bridged(&node, &config(&[mapping(8081, 80, "tcp")], json!({})), &two);
    node.install_one(&crate::subjects::ours(), "portmap");
    ours.del().ok();
    assert_eq!(node.host().sysctl("net/ipv4/conf/br0/route_localnet"), "1");
}

/// A socket that goes on sending from one port to one address.
struct Client {
    what: String,
    socket: UdpSocket,
    to: SocketAddr,
}

impl Client {
    fn new(whose: &str, from: &Namespace, node_address: &str) -> Self {
        let to = at(node_address, 5353);
        let any = if to.is_ipv4() { "0.0.0.0" } else { "::" };
        let socket = from.enter(|| UdpSocket::bind(at(any, 0))).unwrap();
        Self { what: format!("{whose} at {to}"), socket, to }
    }

    /// The packet's fate does not matter here.
    fn send(&self) {
        self.socket.send_to(self.what.as_bytes(), self.to).ok();
    }

    fn assert_reaches(&self, server: &UdpSocket) {
        self.send();
        let mut buffer = [0; 64];
        let length = uninterrupted(|| server.recv(&mut buffer));
        let length = length.unwrap_or_else(|error| panic!("{}: {error}", self.what));
        assert_eq!(buffer[..length].escape_ascii().to_string(), self.what);
    }
}

/// A client that keeps sending from one port reaches the container that has the port now, not the one that is gone: from
/// outside, from the node, from another container and from the next container itself.
#[test]
fn a_udp_flow_follows_the_port_to_the_next_container() {
    each(|who, node| {
        let remote = machine_outside(node);
        for own in all_forms(who) {
            let (one, two, other) = (node.container(), node.container(), node.container());
            let [before, _] = [&two, &other].map(|pod| bridged(node, &config(&[], json!({})), pod));
            let config = config(&[mapping(5353, 53, "udp")], own);
            let mapped = bridged(node, &config, &one);
            let mut clients = vec![Client::new("the node", node.host(), "127.0.0.1")];
            for address in ["192.0.2.1", "2001:db8::1"] {
                clients.push(Client::new("outside", &remote, address));
                clients.push(Client::new("the node", node.host(), address));
                clients.push(Client::new("another container", other.namespace(), address));
                clients.push(Client::new("the next container", two.namespace(), address));
            }
            let first = udp_server(one.namespace(), 53);
            clients.iter().for_each(|client| client.assert_reaches(&first));
            // DEL forgets the flows, though the clients go on: to no container now, then to the next one.
            mapped.call(Verb::Del).run(node).ok();
            clients.iter().for_each(Client::send);
            let mapped = Attached::add(node, &with(config, json!({"prevResult": before.result})), &two);
            let next = udp_server(two.namespace(), 53);
            clients.iter().for_each(|client| client.assert_reaches(&next));
            mapped.del().ok();
        }
    });
}

#[test]
fn del_ends_the_udp_flows() {
    let node = node();
    let remote = machine_outside(&node);
    let conditions = [
        ("iptables", json!([])),
        ("nftables", json!([])),
        ("iptables", json!(["-d", "192.0.2.0/24"])),
        ("nftables", json!(["ip", "daddr", "192.0.2.0/24"])),
        ("nftables", json!(["ip", "daddr", "!=", "192.0.2.9"])),
    ];
    for (backend, conditions) in conditions {
        let pod = node.container();
        let own = json!({"backend": backend, "conditionsV4": conditions});
        let mapped = bridged(&node, &config(&[mapping(5353, 53, "udp")], own), &pod);
        let client = remote.enter(|| std::net::UdpSocket::bind(at("192.0.2.2", 0))).unwrap();
        let server = udp_server(pod.namespace(), 53);
        client.send_to(b"x", at("192.0.2.1", 5353)).unwrap();
        assert!(uninterrupted(|| server.recv_from(&mut [0; 1])).is_ok());
        mapped.del().ok();
        client.send_to(b"x", at("192.0.2.1", 5353)).unwrap();
        server.set_read_timeout(Some(SHORT)).unwrap();
        assert!(uninterrupted(|| server.recv_from(&mut [0; 1])).is_err(), "{backend} {conditions}");
    }
}

/// A query of one container to port 53 of a foreign host is under way while another container's host port 53 comes and goes: the
/// answer still finds its way through the masquerade.
#[test]
fn add_and_del_leave_flows_to_that_port_of_foreign_hosts_alone() {
    let node = node();
    let remote = machine_outside(&node);
    for own in all_forms(Who::Ours) {
        let (other, pod) = (node.container(), node.container());
        bridged(&node, &config(&[], json!({})), &other);
        let made = bridged(&node, &config(&[], json!({})), &pod);
        for (server, client) in [("192.0.2.2", "0.0.0.0"), ("2001:db8::2", "::")] {
            let server = remote.enter(|| UdpSocket::bind(at(server, 53))).unwrap();
            server.set_read_timeout(Some(LONG)).unwrap();
            let client = other.namespace().enter(|| UdpSocket::bind(at(client, 0))).unwrap();
            client.set_read_timeout(Some(LONG)).unwrap();
            client.send_to(b"?", server.local_addr().unwrap()).unwrap();
            let (_, masqueraded) = uninterrupted(|| server.recv_from(&mut [0; 1])).unwrap();
            let config = config(&[mapping(53, 53, "udp")], own.clone());
            let mapped = Attached::add(&node, &with(config, json!({"prevResult": made.result})), &pod);
            mapped.del().ok();
            server.send_to(b"!", masqueraded).unwrap();
            assert!(uninterrupted(|| client.recv_from(&mut [0; 1])).is_ok(), "{own} {masqueraded}");
        }
    }
}

/// A list of flows takes the kernel some 10 ms, whatever is in it: none is asked for where there are no flows, and one
/// where there are, as the container has addresses of one family.
#[test]
fn flows_are_listed_only_where_there_are_some() {
    let node = node();
    let (pod, other) = (node.container(), node.container());
    let of = |port| config(&[mapping(port, 53, "udp")], json!({"backend": "nftables"}));
    let previous = made_up("eth0", &["10.1.0.2/16"]);
    let _stays = map(&node, of(5354), &other, previous.clone()); // the kernel follows flows where rules need that
    let config = with(of(5353), json!({"prevResult": previous}));
    let sends_of_add = || {
        let traced = Call::new(Verb::Add, &config, &pod).trace(&node);
        traced.reply.ok();
        node.call(Verb::Del, &config, &pod).ok();
        traced.counts()["sendto"]
    };
    let without = sends_of_add();
    let client = node.host().enter(|| UdpSocket::bind(at("127.0.0.1", 0))).unwrap();
    client.send_to(b"x", at("127.0.0.1", 9)).unwrap();
    assert_eq!(sends_of_add(), without + 1);
}
