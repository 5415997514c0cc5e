//! Addresses answer their neighbours from the moment that ADD returns.

use crate::prelude::*;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often the test is repeated: the kernel has to be in time each time.
const OFTEN: usize = 128;

/// Enough addresses to keep the kernel busy for some milliseconds.
const MANY: usize = 300;

/// The group by which neighbours ask for an address (RFC 4291, 2.7.1), as `/proc/net/igmp6` writes it.
fn solicited_node_group(address: IpAddr) -> String {
    let IpAddr::V6(address) = address else { panic!("{address} is no IPv6 address") };
    let octets = address.octets();
    let low: Vec<String> = octets.iter().skip(13).map(|octet| format!("{octet:02x}")).collect();
    format!("ff0200000000000000000001ff{}", low.concat())
}

fn has_joined(namespace: &Namespace, link: &str, address: IpAddr) -> bool {
    let groups = namespace.enter(|| std::fs::read_to_string("/proc/thread-self/net/igmp6")).expect("read the groups");
    let group = solicited_node_group(address);
    groups.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1..3) == Some(&[link, &group])
    })
}

/// SPEC 2, ADD: the interface is ready. A pod has joined the groups by which neighbours ask for its addresses, even
/// while the kernel works on other addresses, which it handles in order.
#[test]
fn addresses_answer_when_add_returns() {
    let node = node();
    // The kernel has a work queue for each processor.
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let busy: Vec<Namespace> = (0..processors).map(|number| busy(&node, number)).collect();
    let (done, late) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let config = config();
    std::thread::scope(|scope| {
        for busy in &busy {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    busy.set_down("one");
                    busy.set_up("one");
                }
            });
        }
        for round in 0..OFTEN {
            let pod = node.container();
            let attached = Attached::add(&node, &config, &pod);
            let addresses = [0, 1].map(|number| address_of(&attached, number));
            if !addresses.iter().all(|address| has_joined(pod.namespace(), "eth0", *address)) {
                late.lock().unwrap().push(round);
            }
            attached.del().ok();
        }
        done.store(true, Ordering::Relaxed);
    });
    let late = late.into_inner().unwrap();
    assert!(late.is_empty(), "{} of {OFTEN} were late: {late:?}", late.len());
}

/// A namespace with a link of so many addresses that setting it up keeps the kernel busy.
fn busy(node: &Node, number: usize) -> Namespace {
    let busy = node.remote(&format!("busy{number}"));
    busy.add_veth("one", &busy, "two");
    busy.set_sysctl("net/ipv6/conf/one/keep_addr_on_down", "1");
    busy.set_sysctl("net/ipv6/conf/one/accept_dad", "0");
    (0..MANY).for_each(|number| busy.add_address("one", &format!("fd10::{number:x}/64")));
    busy
}

/// A gateway that this ADD put on a bridge answers the first packet, and so does a pod's neighbour.
#[test]
fn the_first_packet_is_answered() {
    let node = node();
    let mut late = Vec::new();
    for round in 0..16 {
        let (pod, neighbour) = (node.container(), node.container());
        let first = Attached::add(&node, &config(), &pod);
        late.extend(
            [ip("fd07::1"), ip("fd08::1")].into_iter().filter(|gateway| !has_joined(node.host(), "br0", *gateway)),
        );
        let second = Attached::add(&node, &config(), &neighbour);
        for address in [address_of(&second, 0), address_of(&second, 1), ip("fd07::1")] {
            assert!(pod.namespace().pings(address, Duration::ZERO), "round {round}: no answer from {address}");
        }
        first.del().ok();
        second.del().ok();
        node.host().delete_link("br0");
    }
    assert!(late.is_empty(), "{late:?}");
}

/// A container that is made anew with its addresses has another Ethernet address, and the node and a neighbour have just spoken with
/// the former one: their first packets are answered.
#[test]
fn the_next_container_of_an_address_is_reached_by_the_first_packet() {
    let node = node();
    let fixed = |last: u8| {
        let address = |address: String, gateway| json!({"address": address, "gateway": gateway});
        let addresses =
            [address(format!("10.7.0.{last}/24"), "10.7.0.1"), address(format!("fd07::{last}/64"), "fd07::1")];
        bridge(json!({"isGateway": true, "ipam": {"type": "static", "addresses": addresses}}))
    };
    let neighbour = node.container();
    Attached::add(&node, &fixed(8), &neighbour);
    for round in 0..8 {
        let attached = Attached::add(&node, &fixed(9), &node.container());
        for address in [ip("10.7.0.9"), ip("fd07::9")] {
            for from in [node.host(), neighbour.namespace()] {
                assert!(from.pings(address, Duration::ZERO), "round {round}: no answer from {address}");
            }
        }
        attached.del().ok();
    }
}

fn config() -> Value {
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "fd07::/64"}], [{"subnet": "fd08::/64"}]]});
    bridge(json!({"isGateway": true, "ipam": ipam}))
}

fn address_of(attached: &Attached<'_>, number: usize) -> IpAddr {
    let text = attached.result["ips"][number]["address"].as_str().expect("an address");
    text.split('/').next().expect("an address").parse::<Ipv6Addr>().expect("an IPv6 address").into()
}

/// Addresses have the reference's flags: permanent, and not exempt from duplicate address detection.
#[test]
fn an_address_has_the_references_flags() {
    const NODAD: u32 = 0x02;
    each(|_, node| {
        let pod = node.container();
        Attached::add(node, &bridge(json!({"ipam": v6()})), &pod);
        let all = pod.namespace().addresses();
        let flags: Vec<u32> =
            all.iter().filter(|address| address.ip == ip("fd07::2")).map(|address| address.flags & NODAD).collect();
        assert_eq!(flags, [0]);
    });
}

/// A duplicate is detected where enabledad asks for that, or the node's administrator turned the detection on for all namespaces.
#[test]
fn a_duplicate_fails_add() {
    for (enabledad, accept_dad) in [(true, "0"), (false, "1")] {
        let node = node();
        let config = bridge(json!({"enabledad": enabledad, "ipam": v6()}));
        let (squatter, pod) = (node.container(), node.container());
        Attached::add(&node, &config, &squatter); // fd07::2
        squatter.namespace().add_address("eth0", "fd07::3/64"); // the address that the next pod gets
        pod.namespace().set_sysctl("net/ipv6/conf/all/accept_dad", accept_dad);
        let failure = Call::new(Verb::Add, &config, &pod).run(&node).fails();
        assert!(failure.msg.contains("fd07::3") && failure.details.contains("Undone: link veth"), "{failure:?}");
        assert!(!std::fs::exists("/var/lib/cni/networks/net/fd07::3").unwrap());
    }
}
