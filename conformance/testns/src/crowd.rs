//! Large numbers of objects, as on a busy host.

use std::net::Ipv4Addr;

use nix::libc;
use nix::sys::socket::SockProtocol;

use crate::Namespace;
use crate::must::Must;
use crate::netlink::{Body, Socket};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_GROUP: u16 = 27;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFINFOMSG: usize = 16;

const NFT: u16 = 10 << 8;
const NFT_MSG_NEWTABLE: u16 = NFT;
const NFT_MSG_NEWCHAIN: u16 = NFT | 3;
const NFT_MSG_NEWRULE: u16 = NFT | 6;
const OF_IPV4: [u8; 4] = [2, 0, 0, 0]; // struct nfgenmsg

const NEW: i32 = libc::NLM_F_CREATE | libc::NLM_F_EXCL;

impl Namespace {
    /// Gives a bridge ports until it has `count`, in one request.
    ///
    /// # Panics
    /// When there is no such bridge, or it takes no more.
    #[track_caller]
    pub fn crowd_bridge(&self, bridge: &str, count: usize) {
        let master = self.link(bridge).index.to_ne_bytes();
        let there = self.links().iter().filter(|link| link.master.as_deref() == Some(bridge)).count();
        self.enter(|| {
            let mut socket = Socket::route();
            for number in there..count {
                let name = format!("crowd{number}");
                let body = Body(vec![0; IFINFOMSG]).string(IFLA_IFNAME, &name).attribute(IFLA_MASTER, &master);
                let body = body.nest(IFLA_LINKINFO, |info| info.string(IFLA_INFO_KIND, "ifb"));
                let made = socket.request(RTM_NEWLINK, NEW, &body.0);
                made.must(format_args!("make {name} a port of {bridge}"));
            }
        });
    }

    /// Makes veths from the namespace to itself until it has `count` links of that sort, two each.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    pub fn crowd_links(&self, count: usize) {
        let there = self.links().iter().filter(|link| link.name.starts_with("crowd")).count();
        self.enter(|| {
            let mut socket = Socket::route();
            (there / 2..count / 2).for_each(|number| add_pair(&mut socket, &format!("crowd{number}"), 0));
        });
    }

    /// Makes `count` links, as veths from the namespace to itself, and removes them all at once; returns how many.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    pub fn pass_links(&self, count: usize) -> usize {
        const GROUP: u32 = 4242;
        self.enter(|| {
            let mut socket = Socket::route();
            (0..count / 2).for_each(|number| add_pair(&mut socket, &format!("pass{number}"), GROUP));
            let body = Body(vec![0; IFINFOMSG]).attribute(IFLA_GROUP, &GROUP.to_ne_bytes());
            socket.request(RTM_DELLINK, 0, &body.0).must("remove a group of links");
        });
        count / 2 * 2
    }

    /// Makes an nftables table of IPv4 rules, as other software has it, with `count` rules: each counts and accepts the
    /// forwarded packets of one address.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    pub fn crowd_nft(&self, count: usize) {
        const AT_ONCE: usize = 200; // as much as fits into a socket's buffer
        let there = self.nft().iter().filter(|line| line.starts_with("nft rule ip 1=\"crowd\"")).count();
        let rules: Vec<_> = (there..count).map(rule).collect();
        let table = Body(OF_IPV4.to_vec()).string(1, "crowd").0;
        let hook = |hook: Body| hook.attribute(1, &2_u32.to_be_bytes()).attribute(2, &0_u32.to_be_bytes());
        let chain = Body(OF_IPV4.to_vec()).string(1, "crowd").string(3, "forward").nest(4, hook).string(7, "filter").0;
        self.enter(|| {
            let mut socket = Socket::open(SockProtocol::NetlinkNetFilter)?;
            for rules in rules.chunks(AT_ONCE) {
                let mut changes: Vec<(u16, i32, &[u8])> = vec![
                    (NFT_MSG_NEWTABLE, libc::NLM_F_CREATE, &table),
                    (NFT_MSG_NEWCHAIN, libc::NLM_F_CREATE, &chain),
                ];
                let flags = libc::NLM_F_CREATE | libc::NLM_F_APPEND;
                changes.extend(rules.iter().map(|rule| (NFT_MSG_NEWRULE, flags, rule.as_slice())));
                socket.change_netfilter_at_once(&changes)?;
            }
            nix::Result::Ok(())
        })
        .must(format_args!("give nftables {count} rules"));
    }
}

/// A veth from `name` to a peer beside it, the near end in a group.
#[track_caller]
fn add_pair(socket: &mut Socket, name: &str, group: u32) {
    let peer = Body(vec![0; IFINFOMSG]).string(IFLA_IFNAME, &format!("{name}p"));
    let data = |data: Body| data.attribute(VETH_INFO_PEER, &peer.0);
    let body = Body(vec![0; IFINFOMSG]).string(IFLA_IFNAME, name).attribute(IFLA_GROUP, &group.to_ne_bytes());
    let body = body.nest(IFLA_LINKINFO, |info| info.string(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, data));
    socket.request(RTM_NEWLINK, NEW, &body.0).must(format_args!("make the veth {name}"));
}

/// `ip saddr ADDRESS counter accept`, with attributes as nf_tables.h numbers them.
fn rule(number: usize) -> Vec<u8> {
    let address = Ipv4Addr::from_bits(0x0b00_0000 | u32::try_from(number).must("number a rule"));
    let word = |number: u32| number.to_be_bytes();
    let expression = |list: Body, name: &str, data: &dyn Fn(Body) -> Body| {
        list.nest(1, |element| element.string(1, name).nest(2, data))
    };
    let source =
        |load: Body| load.attribute(1, &word(1)).attribute(2, &word(1)).attribute(3, &word(12)).attribute(4, &word(4));
    let is_address = |compare: Body| {
        compare.attribute(1, &word(1)).attribute(2, &word(0)).nest(3, |data| data.attribute(1, &address.octets()))
    };
    let accept =
        |verdict: Body| verdict.attribute(1, &word(0)).nest(2, |data| data.nest(2, |code| code.attribute(1, &word(1))));
    let expressions = |list: Body| {
        let list = expression(list, "payload", &source);
        let list = expression(list, "cmp", &is_address);
        let list = expression(list, "counter", &|none| none);
        expression(list, "immediate", &accept)
    };
    Body(OF_IPV4.to_vec()).string(1, "crowd").string(2, "forward").nest(4, expressions).0
}
