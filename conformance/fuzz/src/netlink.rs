//! Answers of the kernel over routing netlink, and requests to it.

use crate::invariants;
use ipnetwork::IpNetwork;
use netops::addr::{self, Address};
use netops::bridge_port::{self, Vlans};
use netops::fuzzing::{Decoded, announced, decode, encoded, lock_holder, nft_encoded};
use netops::link::{self, Bridge, Link, Mac, Port, Target};
use netops::nft::{Body, Change, Element, Family, RuleInfo, Transaction, parse_replies};
use netops::route::{self, Route};
use netops::sysctl::Key;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// The bytes of one read.
pub fn nft_replies(data: &[u8]) {
    let replies = parse_replies(data);
    assert!(replies.len() <= data.len() / 16);
    for reply in replies {
        match reply.body {
            Body::Rule(rule) => rule_is_kept(rule),
            Body::Elements(all) => all.into_iter().for_each(element_is_kept),
            Body::Ack
            | Body::Refused { .. }
            | Body::Done
            | Body::Table(_)
            | Body::Chain(_)
            | Body::Generation(_)
            | Body::Other(_) => {}
        }
    }
}

/// The message that makes this change, read as if the kernel had sent it.
fn read_back(change: Change) -> Option<Body> {
    // Parts that a length field cannot say are refused.
    let bytes = nft_encoded(&Transaction::new(vec![change]), 7)?;
    let mut replies = parse_replies(&bytes);
    assert_eq!(replies.iter().map(|reply| reply.seq).collect::<Vec<_>>(), [7, 8, 9], "begin, change, end");
    Some(replies.swap_remove(1).body)
}

/// Nothing of a rule gets lost on the way to the kernel, known expressions or not.
fn rule_is_kept(rule: RuleInfo) {
    for expr in &rule.exprs {
        assert!(expr.to_string().starts_with("[ "));
    }
    for family in [Family::Ip, Family::Ip6] {
        let says = cni_filter::fuzzing::nft_rule(&rule.clone().of(family)).map(|rule| rule.to_string());
        assert!(says.is_none_or(|text| !text.contains('\n')));
    }
    let sent = rule.clone().of(Family::Ip);
    let Some(Body::Rule(back)) = read_back(Change::AppendRule(sent)) else { return };
    assert_eq!((&back.table, &back.chain, &back.exprs), (&rule.table, &rule.chain, &rule.exprs));
    is_cut(back.comment, rule.comment);
}

/// Nothing of an element gets lost on the way to the kernel.
fn element_is_kept(element: Element) {
    let Some(Body::Elements(back)) = read_back(Change::AddElement(element.clone())) else { return };
    let [back] = &back[..] else { panic!("{back:?}") };
    assert_eq!((&back.set, &back.key, &back.data), (&element.set, &element.key, &element.data));
    is_cut(back.comment.clone(), element.comment);
}

/// A comment that is too long for its field is cut at its end.
fn is_cut(back: Option<String>, comment: Option<String>) {
    assert_eq!(back.is_some(), comment.is_some());
    let (back, comment) = (back.unwrap_or_default(), comment.unwrap_or_default());
    assert!(comment.starts_with(&back) && (back == comment || back.len() > 250), "{back:?} of {comment:?}");
}

/// The rest of the bytes.
pub(crate) struct Draw<'a>(&'a [u8]);

impl<'a> Draw<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    fn bytes<const COUNT: usize>(&mut self) -> [u8; COUNT] {
        [(); COUNT].map(|()| self.byte())
    }

    pub(crate) fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                *byte
            }
            None => 0,
        }
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub(crate) fn number(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    pub(crate) fn number16(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }

    pub(crate) fn ipv4(&mut self) -> Ipv4Addr {
        self.bytes::<4>().into()
    }

    pub(crate) fn ipv6(&mut self) -> Ipv6Addr {
        self.bytes::<16>().into()
    }

    pub(crate) fn network(&mut self) -> IpNetwork {
        let (address, bits): (IpAddr, u8) =
            if self.flag() { (self.ipv6().into(), 129) } else { (self.ipv4().into(), 33) };
        let prefix = self.byte() % bits;
        IpNetwork::new(address, prefix).expect("the prefix is of the family")
    }

    /// Draws a name of one to fifteen letters.
    pub(crate) fn name(&mut self) -> String {
        let length = self.byte() % 15 + 1;
        (0..length).map(|_| char::from(b'a' + self.byte() % 26)).collect()
    }

    pub(crate) fn maybe<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| draw(self))
    }
}
