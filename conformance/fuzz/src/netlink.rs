//! Answers of the kernel over routing netlink, and requests to it.

use crate::draw::Draw;
use crate::invariants;
use ipnetwork::IpNetwork;
use netops::addr::{self, Address};
use netops::bridge_port::{self, Vlans};
use netops::fuzzing::{Decoded, announced, decode, encoded, lock_holder};
use netops::link::{self, Bridge, Link, Mac, Port, Target};
use netops::route::{self, Route};
use netops::sysctl::Key;

/// The bytes of one read.
pub fn netlink_read(data: &[u8]) {
    let frames = decode(data);
    let lengths: Vec<usize> = frames.iter().map(|(_, length, _)| *length).collect();
    assert!(lengths.iter().all(|length| *length >= 16) && lengths.iter().sum::<usize>() <= data.len());
    for (_, _, answer) in &frames {
        match answer {
            Decoded::Failed(error) => assert!(!error.to_string().is_empty()),
            Decoded::Address(Some(address)) => {
                assert_eq!(address.net, address.net.to_string().parse().expect("it prints"))
            }
            Decoded::Routes(routes) => routes.iter().for_each(|route| assert!(!route.to_string().is_empty())),
            Decoded::Done | Decoded::Link(..) | Decoded::Address(None) | Decoded::Other => {}
        }
    }
    // The reading of a message does not depend on what else came with it.
    let aligned = lengths.iter().all(|length| length % 4 == 0);
    if aligned && lengths.iter().sum::<usize>() == data.len() {
        let twice = decode(&[data, data].concat());
        assert_eq!(twice, [frames.clone(), frames].concat());
    }
    assert!(announced(data).len() <= lengths.len());
}

/// Links, addresses and routes as they are asked for: the kernel's form of them says the same.
pub fn netlink_objects(data: &[u8]) {
    let mut draw = Draw::new(data);
    let read = |request| match &decode(&encoded(&[request], 7))[..] {
        [(7, _, answer)] => answer.clone(),
        other => panic!("one request is one message, but: {other:?}"),
    };
    let link = Link { index: draw.number(), name: draw.name(), ..Link::default() };
    match draw.byte() % 5 {
        0 => {
            let mut address = Address::from(draw.network());
            address.nodad = draw.flag();
            assert_eq!(read(addr::add(&link, &address)), Decoded::Address(Some(address)));
            assert_eq!(read(addr::delete(&link, address.net)), Decoded::Other);
        }
        1 => {
            let route = drawn_route(&mut draw);
            let Decoded::Routes(routes) = read(route::add(&route)) else { panic!("{route} is no route") };
            assert_eq!(routes, [as_read(&route)]);
        }
        2 => {
            let mac = draw.maybe(|draw| Mac([(); 6].map(|()| draw.byte())));
            let mtu_bytes = draw.maybe(Draw::number);
            let bridge = Bridge { mtu_bytes, mac, vlan_filtering: draw.flag(), ..Bridge::default() };
            let Decoded::Link(made, _) = read(link::create_bridge(&link.name, &bridge)) else { panic!("{bridge:?}") };
            assert_eq!((&made.name, made.kind.name()), (&link.name, "bridge"));
            assert_eq!(made.mtu_bytes, bridge.mtu_bytes.unwrap_or(0));
            assert_eq!(made.mac, bridge.mac);
            assert_eq!(made.kind.bridge_vlans().filtering.unwrap_or(false), bridge.vlan_filtering);
        }
        3 => {
            let port = Port { hairpin: draw.flag(), isolated: draw.flag() };
            let Decoded::Link(set, _) = read(bridge_port::set(&Target::from(&link), port)) else { panic!("{port:?}") };
            assert_eq!((set.index, set.port), (link.index, Some(port)));
        }
        _ => {
            let (first, last) = (draw.number16() % 4094 + 1, draw.number16() % 4094 + 1);
            let vlans =
                Vlans { pvid: draw.flag(), untagged: draw.flag(), ..Vlans::tagged(first.min(last), first.max(last)) };
            assert!(!vlans.to_string().is_empty());
            assert_eq!(read(bridge_port::add_vlans(&link, vlans)), Decoded::Other);
        }
    }
}

fn drawn_route(draw: &mut Draw<'_>) -> Route {
    let dst = draw.network();
    let dst = IpNetwork::new(dst.network(), dst.prefix()).expect("the prefix was right before");
    let same_family = |draw: &mut Draw<'_>| match dst.is_ipv4() {
        true => draw.ipv4().into(),
        false => draw.ipv6().into(),
    };
    let mut route = Route::new(dst, draw.maybe(same_family), Some(draw.number()));
    route.table = draw.maybe(Draw::number);
    route.scope = draw.maybe(Draw::byte);
    route.metric = draw.maybe(Draw::number);
    route.mtu_bytes = draw.maybe(Draw::number);
    route.advmss_bytes = draw.maybe(Draw::number);
    route.source = draw.maybe(same_family);
    route
}

/// A route as the kernel returns it: with the defaults spelled out.
fn as_read(route: &Route) -> Route {
    Route { table: route.table.or(Some(254)), scope: route.scope.or(Some(0)), ..route.clone() }
}

/// Hardware addresses, sysctl keys, and `/proc/locks`.
pub fn kernel_values(data: &[u8]) {
    let text = &*invariants::text(data);
    if let Ok(mac) = text.parse::<Mac>() {
        assert_eq!(mac.to_string().parse::<Mac>().expect("it prints what it reads"), mac);
    }
    let parts: Vec<&str> = text.split('\n').collect();
    let is_name = |part: &&str| !matches!(*part, "" | "." | "..") && !part.contains(['/', '\0']);
    assert_eq!(Key::new(&parts).is_ok(), parts.iter().all(is_name));
    for id in ["fe:00:12", ""] {
        assert!(lock_holder(text, id).is_none_or(|process| process > 0 && text.contains(id)));
    }
}
