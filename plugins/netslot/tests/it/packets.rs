//! What slots send and get.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use netslot::{Device, Egress, Error, Port, Protocol, Queue, Slot};
use testns::{Namespace, Transport, exchange};

use crate::{METADATA, PRIVATE, PUBLIC, assert_nothing_is_left, node, open, spec};

const SOON: Duration = Duration::from_secs(10);
/// Long enough for a packet that nothing drops.
const NOT: Duration = Duration::from_millis(500);

fn inside(slot: &Slot) -> Namespace {
    Namespace::at(slot.path())
}

/// The address from which a machine gets the slot's packets, if it gets them.
fn seen(slot: &Slot, to: (&Namespace, &str), within: Duration) -> Option<IpAddr> {
    exchange(Transport::Tcp, &inside(slot), (to.0, to.1.parse().unwrap()), within).ok().map(|seen| seen.ip())
}

#[test]
fn a_slot_reaches_public_addresses_alone_and_each_by_its_own_address() {
    let (node, outside) = node();
    let pool = open(spec("public").ready(2).egress(Egress::public()));
    assert_eq!(pool.wait_ready(SOON).unwrap(), 2);
    let [one, other] = [(); 2].map(|()| pool.take().unwrap());
    for (far, near) in [(PUBLIC, "192.0.2.1"), ("2001:db8::2", "2001:db8::1")] {
        assert_eq!(seen(&one, (&outside, far), SOON), Some(near.parse().unwrap()));
    }
    assert!(inside(&one).pings(PUBLIC.parse::<IpAddr>().unwrap(), SOON));
    for denied in [METADATA, PRIVATE] {
        assert_eq!(seen(&one, (&outside, denied), NOT), None, "{denied}");
    }
    let neighbour = other.addresses()[0].ip().to_string();
    assert_eq!(seen(&one, (&inside(&other), &neighbour), NOT), None);
    assert_eq!(seen(&one, (node.host(), "192.0.2.1"), NOT), None);
    // Another's address, from which nothing passes.
    inside(&one).add_address("eth0", &format!("{neighbour}/32"));
    let from_other = inside(&one).enter(|| {
        let socket = std::net::UdpSocket::bind((neighbour.as_str(), 0)).unwrap();
        let server = outside.enter(|| std::net::UdpSocket::bind((PUBLIC, 0))).unwrap();
        server.set_read_timeout(Some(NOT)).unwrap();
        socket.send_to(b"forged", server.local_addr().unwrap()).unwrap();
        server.recv(&mut [0; 8])
    });
    assert!(from_other.is_err());
    pool.destroy([one, other]).unwrap();
    pool.close().unwrap();
    assert_nothing_is_left(&node, "closed");
}

#[test]
fn a_published_port_leads_to_the_slot_until_it_is_destroyed() {
    let (node, outside) = node();
    let pool = open(spec("ports").egress(Egress::closed()));
    let mut slot = pool.take().unwrap();
    let listener = inside(&slot).enter(|| std::net::TcpListener::bind("0.0.0.0:80")).unwrap();
    slot.publish(&[Port::new(Protocol::Tcp, 8080, 80)]).unwrap();
    slot.check().unwrap();
    let node_port: SocketAddr = "192.0.2.1:8080".parse().unwrap();
    let mut client = outside.enter(|| TcpStream::connect_timeout(&node_port, SOON)).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    served.write_all(b"slot").unwrap();
    let mut answer = [0; 4];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"slot");
    // Nothing else leaves the slot.
    assert_eq!(seen(&slot, (&outside, PUBLIC), NOT), None);
    let mut other = pool.take().unwrap();
    assert!(matches!(other.publish(&[Port::new(Protocol::Tcp, 8080, 80)]), Err(Error::Op(_))));
    pool.destroy([slot, other]).unwrap();
    pool.close().unwrap();
    assert_nothing_is_left(&node, "closed");
}

#[test]
fn check_finds_what_repair_makes_again() {
    let (node, outside) = node();
    let pool = open(spec("repaired"));
    let slot = pool.take().unwrap();
    let rename = || {
        inside(&slot).set_down("eth0");
        inside(&slot).rename("eth0", "eth1");
    };
    let damages: [(&str, &dyn Fn()); 5] = [
        ("the name inside", &rename),
        ("the link", &|| node.host().delete_link(&slot.link())),
        ("an address", &|| inside(&slot).delete_address("eth0", &format!("{}/32", slot.addresses()[0].ip()))),
        ("up", &|| node.host().set_down(&slot.link())),
        ("rules", &|| node.host().flush_nft()),
    ];
    for (what, damage) in damages {
        slot.check().unwrap();
        damage();
        slot.check().expect_err(what);
        slot.repair().unwrap();
        slot.check().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(seen(&slot, (&outside, PUBLIC), SOON), Some("192.0.2.1".parse().unwrap()), "{what}");
    }
    rename();
    inside(&slot).add_link("eth0", "bridge");
    assert!(slot.check().unwrap_err().to_string().contains("other side is not eth0"));
    drop(slot);
    pool.close().unwrap();
}

#[test]
fn a_tap_is_open_to_a_monitor_and_goes_with_its_slot() {
    let (node, _outside) = node();
    let tap = Device::Tap { owner: Some(0), group: None, multi_queue: true };
    let pool = open(spec("taps").device(tap).mtu_bytes(1400));
    let slot = pool.take().unwrap();
    slot.check().unwrap();
    let queue = slot.open_tap(Queue { multi_queue: true, vnet_header: true }).unwrap();
    let link = node.host().link(&slot.link());
    assert_eq!((link.kind.as_str(), link.up), ("tun", true));
    drop(queue);
    slot.destroy().unwrap();
    pool.close().unwrap();
    assert_nothing_is_left(&node, "closed");
}

#[test]
fn a_pool_is_open_once_and_has_no_more_slots_than_it_may() {
    let (_node, _outside) = node();
    let pool = open(spec("one").slots_max(1));
    let slot = pool.take().unwrap();
    assert_eq!(pool.take().unwrap_err(), Error::Exhausted(1));
    assert!(matches!(netslot::Pool::open(spec("one")), Err(Error::Open { name, .. }) if name == "one"));
    assert!(matches!(netslot::Pool::open(spec("../one")), Err(Error::Spec { key: "name", .. })));
    slot.destroy().unwrap();
    pool.take().unwrap().destroy().unwrap();
    pool.close().unwrap();
}
