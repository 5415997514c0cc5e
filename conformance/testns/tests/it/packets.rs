//! Packets between namespaces.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use testns::{Namespace, Node, Transport, exchange};

const SHORT: Duration = Duration::from_millis(300);

/// Two machines on one cable.
fn cabled(node: &Node) -> (Namespace, Namespace) {
    let (left, right) = (node.remote("left"), node.remote("right"));
    left.add_veth("eth0", &right, "eth0");
    left.add_address("eth0", "10.1.0.1/24");
    right.add_address("eth0", "10.1.0.2/24");
    left.add_address("eth0", "fd01::1/64");
    right.add_address("eth0", "fd01::2/64");
    (left, right)
}

#[test]
fn echo_requests_are_answered_by_existing_hosts() {
    let node = Node::new();
    let (left, right) = cabled(&node);
    left.ping([10, 1, 0, 2]);
    right.ping("fd01::1".parse::<Ipv6Addr>().unwrap());
    assert!(!left.pings([10, 1, 0, 3], SHORT));
    assert!(!left.pings("fd01::3".parse::<Ipv6Addr>().unwrap(), SHORT));
    assert!(!node.host().pings([10, 1, 0, 2], SHORT));
}

#[test]
fn payload_shows_its_source() {
    let node = Node::new();
    let (left, right) = cabled(&node);
    for transport in [Transport::Udp, Transport::Tcp] {
        for (ip, source) in [("10.1.0.2", "10.1.0.1"), ("fd01::2", "fd01::1")] {
            let ip: IpAddr = ip.parse().unwrap();
            let seen = exchange(transport, &left, (&right, ip), Duration::from_secs(10)).unwrap();
            assert_eq!(seen.ip(), source.parse::<IpAddr>().unwrap());
        }
        let unused = "10.1.0.3".parse().unwrap();
        assert!(exchange(transport, &left, (&right, unused), SHORT).is_err());
    }
}

#[test]
fn a_router_advertisement_has_effect_only_where_it_is_accepted() {
    let node = Node::new();
    let (left, right) = cabled(&node);
    let is_advertised =
        |namespace: &Namespace| namespace.routes().iter().any(|route| route.to == "::/0" && route.protocol == 9);
    right.set_sysctl("net/ipv6/conf/eth0/accept_ra", "0");
    left.advertise_router("eth0", "fd99::".parse().unwrap());
    // In order on one cable: when the echo is through, the advertisement was.
    left.ping("fd01::2".parse::<Ipv6Addr>().unwrap());
    assert!(!is_advertised(&right));

    // Also where new links forward.
    right.set_sysctl("net/ipv6/conf/eth0/accept_ra", "2");
    left.advertise_router("eth0", "fd99::".parse().unwrap());
    right.wait_for("a default route by advertisement", is_advertised);
    let of_prefix = |address: &String| address.starts_with("fd99::") && address.ends_with("/64");
    assert!(right.global_addresses("eth0").iter().any(of_prefix));
}
