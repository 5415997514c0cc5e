//! A port of the node, by rules in a native table.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use cni_filter::iptables::rule::{Protocol, Rule, Target, is};
use netops::nft::Family;

use super::native::{common, jump, rule, table, write};
use crate::node::{OtherNamespace, has, in_netns, in_pod, sh};

const WITHIN: Duration = Duration::from_secs(5);

/// A port of the node is the container's, over TCP and UDP and both families, and the container sees the node.
#[test]
fn a_port_of_the_node_leads_to_the_container() {
    in_netns(|| {
        testns::needs!(has("a_port_of_the_node_leads_to_the_container", "ip"));
        let (pod, remote) = (OtherNamespace::new(), OtherNamespace::new());
        sh(&format!(
            "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
             ip link add p0 type veth peer name eth0 netns {pod}
             ip link add r0 type veth peer name eth0 netns {remote}
             ip addr add 10.1.0.1/24 dev p0; ip addr add fd00::1/64 dev p0 nodad; ip link set p0 up
             ip addr add 192.0.2.1/24 dev r0; ip addr add 2001:db8::1/64 dev r0 nodad; ip link set r0 up
             nsenter -t {pod} -n sh -ec 'ip addr add 10.1.0.2/24 dev eth0; ip addr add fd00::2/64 dev eth0 nodad
                 ip link set eth0 up; ip -4 route add default via 10.1.0.1; ip -6 route add default via fd00::1'
             nsenter -t {remote} -n sh -ec 'ip addr add 192.0.2.2/24 dev eth0
                 ip addr add 2001:db8::2/64 dev eth0 nodad; ip link set eth0 up'",
            pod = pod.pid(),
            remote = remote.pid(),
        ));
        let families = [("10.1.0.2", "192.0.2.1", "10.1.0.1"), ("fd00::2", "2001:db8::1", "fd00::1")];
        let mut rules = common();
        rules.retain(|(chain, _)| ["prerouting", "setmark", "masquerading"].contains(&chain.as_str()));
        for (container, host, _) in families {
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let port = Rule {
                    protocol: Some(protocol),
                    port: Some(8080),
                    destination: is(host.parse().unwrap()),
                    ..Rule::default()
                };
                let to = Target::Dnat(SocketAddr::new(container.parse().unwrap(), 80));
                rules.push(rule("hostports", jump("setmark", port.clone())));
                rules.push(rule("hostports", Rule { target: to, ..port }));
            }
        }
        write(&table(Family::Inet), &rules);
        for (container, host, node) in families {
            let inside = SocketAddr::new(container.parse().unwrap(), 80);
            let outside = SocketAddr::new(host.parse().unwrap(), 8080);
            assert_eq!(sender_over_tcp(&pod, &remote, inside, outside).to_string(), node);
            assert_eq!(sender_over_udp(&pod, &remote, inside, outside).to_string(), node);
        }
    });
}

/// The client as the server sees it, when both have heard each other.
fn sender_over_tcp(pod: &OtherNamespace, remote: &OtherNamespace, inside: SocketAddr, outside: SocketAddr) -> IpAddr {
    let server = in_pod(pod, move || TcpListener::bind(inside).unwrap());
    let _client = in_pod(remote, move || TcpStream::connect_timeout(&outside, WITHIN).unwrap());
    let (_served, sender) = server.accept().unwrap();
    sender.ip()
}

fn sender_over_udp(pod: &OtherNamespace, remote: &OtherNamespace, inside: SocketAddr, outside: SocketAddr) -> IpAddr {
    let server = in_pod(pod, move || UdpSocket::bind(inside).unwrap());
    let client =
        in_pod(remote, move || UdpSocket::bind((if outside.is_ipv4() { "0.0.0.0" } else { "::" }, 0)).unwrap());
    [&server, &client].into_iter().for_each(|socket| socket.set_read_timeout(Some(WITHIN)).unwrap());
    client.connect(outside).unwrap();
    client.send(b"ping").unwrap();
    let (_, sender) = server.recv_from(&mut [0; 4]).unwrap();
    server.send_to(b"pong", sender).unwrap();
    assert_eq!(client.recv(&mut [0; 4]).unwrap(), 4);
    sender.ip()
}
