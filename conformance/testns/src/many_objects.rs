//! Large numbers of objects, as on a busy host.

use std::net::Ipv4Addr;

use netlink_packet_core::{DefaultNla, NLM_F_APPEND, NLM_F_CREATE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo};
use nix::sys::socket::SockProtocol;

use crate::Namespace;
use crate::must::Must;
use crate::netlink::{NEW, Socket, nest, netfilter_body, text};
use crate::topology::link_message;

const NFT: u16 = 10 << 8;
const NFT_MSG_NEWTABLE: u16 = NFT;
const NFT_MSG_NEWCHAIN: u16 = NFT | 3;
const NFT_MSG_NEWRULE: u16 = NFT | 6;
const IPV4: u8 = 2;

impl Namespace {
    /// Gives a bridge ports until it has `count`, in one request.
    #[track_caller]
    pub fn crowd_bridge(&self, bridge: &str, count: usize) {
        let master = self.link(bridge).index;
        let there = self.links().iter().filter(|link| link.master.as_deref() == Some(bridge)).count();
        self.enter(|| {
            let mut socket = Socket::route();
            for number in there..count {
                let name = format!("crowd{number}");
                let kind = LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Ifb)]);
                let attributes = vec![LinkAttribute::IfName(name.clone()), LinkAttribute::Controller(master), kind];
                let made = socket.request(NEW, &RouteNetlinkMessage::NewLink(link_message(0, attributes)));
                made.must(format_args!("make {name} a port of {bridge}"));
            }
        });
    }

    /// Makes veths from the namespace to itself until it has `count` links of that sort, two each.
    #[track_caller]
    pub fn crowd_links(&self, count: usize) {
        let there = self.links().iter().filter(|link| link.name.starts_with("crowd")).count();
        self.enter(|| {
            let mut socket = Socket::route();
            (there / 2..count / 2).for_each(|number| add_pair(&mut socket, &format!("crowd{number}"), 0));
        });
    }

    /// Makes `count` links, as veths from the namespace to itself, and removes them all at once; returns how many.
    #[track_caller]
    pub fn pass_links(&self, count: usize) -> usize {
        const GROUP: u32 = 4242;
        self.enter(|| {
            let mut socket = Socket::route();
            (0..count / 2).for_each(|number| add_pair(&mut socket, &format!("pass{number}"), GROUP));
            let group = link_message(0, vec![LinkAttribute::Group(GROUP)]);
            socket.request(0, &RouteNetlinkMessage::DelLink(group)).must("remove a group of links");
        });
        count / 2 * 2
    }

    /// Makes an nftables table of IPv4 rules, as other software has it, with `count` rules: each counts and accepts the
    /// forwarded packets of one address.
    #[track_caller]
    pub fn crowd_nft(&self, count: usize) {
        const AT_ONCE: usize = 200; // as much as fits into a socket's buffer
        let there = self.nft().iter().filter(|line| line.starts_with("nft rule ip 1=\"crowd\"")).count();
        let rules: Vec<_> = (there..count).map(rule).collect();
        let table = netfilter_body(IPV4, &[text(1, "crowd")]);
        let hook = nest(4, &[word(1, 2), word(2, 0)]);
        let chain = netfilter_body(IPV4, &[text(1, "crowd"), text(3, "forward"), hook, text(7, "filter")]);
        self.enter(|| {
            let mut socket = Socket::open(SockProtocol::NetlinkNetFilter)?;
            for rules in rules.chunks(AT_ONCE) {
                let mut changes: Vec<(u16, u16, &[u8])> =
                    vec![(NFT_MSG_NEWTABLE, NLM_F_CREATE, &table), (NFT_MSG_NEWCHAIN, NLM_F_CREATE, &chain)];
                let flags = NLM_F_CREATE | NLM_F_APPEND;
                changes.extend(rules.iter().map(|rule| (NFT_MSG_NEWRULE, flags, rule.as_slice())));
                socket.change_netfilter(&changes)?;
            }
            nix::Result::Ok(())
        })
        .must(format_args!("give nftables {count} rules"));
    }
}

/// A veth from `name` to a peer beside it, the near end in a group.
#[track_caller]
fn add_pair(socket: &mut Socket, name: &str, group: u32) {
    let peer = link_message(0, vec![LinkAttribute::IfName(format!("{name}p"))]);
    let info = vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer)))];
    let name_and_group = [LinkAttribute::IfName(name.to_owned()), LinkAttribute::Group(group)];
    let link = link_message(0, name_and_group.into_iter().chain([LinkAttribute::LinkInfo(info)]).collect());
    socket.request(NEW, &RouteNetlinkMessage::NewLink(link)).must(format_args!("make the veth {name}"));
}

/// `ip saddr ADDRESS counter accept`, with attributes as nf_tables.h numbers them.
fn rule(number: usize) -> Vec<u8> {
    let address = Ipv4Addr::from_bits(0x0b00_0000 | u32::try_from(number).must("number a rule"));
    let address = DefaultNla::new(1, address.octets().to_vec());
    let expression = |name: &str, data: &[DefaultNla]| nest(1, &[text(1, name), nest(2, data)]);
    let expressions = [
        expression("payload", &[word(1, 1), word(2, 1), word(3, 12), word(4, 4)]),
        expression("cmp", &[word(1, 1), word(2, 0), nest(3, &[address])]),
        expression("counter", &[]),
        expression("immediate", &[word(1, 0), nest(2, &[nest(2, &[word(1, 1)])])]),
    ];
    netfilter_body(IPV4, &[text(1, "crowd"), text(2, "forward"), nest(4, &expressions)])
}

/// An attribute of 32 bits in network byte order.
fn word(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_be_bytes().to_vec())
}
