//! Masquerade as iptables has it: attribute for attribute the rules that plugins/filter/src/iptables writes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use crate::arguments::{Masquerade, Octets, Prefix};
use crate::message::{APPEND, Attributes, Batch, CREATE};
use crate::socket::Socket;

// linux/netfilter/nfnetlink.h and nf_tables.h.
const SUBSYSTEM: u16 = 10 << 8;
const NEWTABLE: u16 = SUBSYSTEM;
const NEWCHAIN: u16 = SUBSYSTEM | 3;
const GETCHAIN: u16 = SUBSYSTEM | 4;
const DELCHAIN: u16 = SUBSYSTEM | 5;
const NEWRULE: u16 = SUBSYSTEM | 6;
const DELRULE: u16 = SUBSYSTEM | 8;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// `struct nfgenmsg` around a transaction: the subsystem in network byte order.
const NFTABLES: [u8; 4] = [0, 0, 0, 10];
const NF_ACCEPT: i32 = 1;
const NFT_JUMP: i32 = -3;

const TABLE: &str = "nat";
const POSTROUTING: &str = "POSTROUTING";
/// The type of user data in which our plugins keep whose a rule is.
const NOTE: u8 = 0xc1;
/// Multicast, which is not translated.
const MULTICAST: [Prefix; 2] = [
    Prefix { ip: IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), length: 4 },
    Prefix { ip: IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), length: 8 },
];

/// A rule of an attachment, in the order in which they are made.
enum Rule {
    /// In its chain: packets to its own prefix stay as they are.
    Accept(Prefix),
    /// In its chain: all else but multicast is translated.
    Masquerade(Prefix),
    /// In POSTROUTING: what the container sends goes through its chain.
    Jump(Prefix),
}

/// Opens a connection to nf_tables.
pub(crate) fn open() -> Result<Socket, Errno> {
    Socket::open(SockProtocol::NetlinkNetFilter)
}

/// Makes the chain, its rules and the jumps there, of both families at once.
///
/// The question costs 5 us. To make a base chain that is there changes it, and closing the socket would wait for the
/// kernel then.
pub(crate) fn add(socket: &Socket, masquerade: &Masquerade, addresses: &[Prefix]) -> Result<(), Errno> {
    let mut batch = begin();
    for (multicast, own) in families(addresses) {
        let header = header(multicast);
        if handle(socket, multicast, POSTROUTING)?.is_none() {
            batch.message(NEWTABLE, CREATE, &header, |batch| batch.text(1, TABLE));
            batch.message(NEWCHAIN, CREATE, &header, |batch| {
                batch.text(1, TABLE);
                batch.text(3, POSTROUTING);
                batch.nest(4, |batch| {
                    batch.be32(1, 4); // NF_INET_POST_ROUTING
                    batch.be32(2, 100); // NF_IP_PRI_NAT_SRC
                });
                batch.text(7, "nat");
            });
        }
        batch.message(NEWCHAIN, CREATE, &header, |batch| {
            batch.text(1, TABLE);
            batch.text(3, &masquerade.chain);
        });
        rules(multicast, &own).iter().for_each(|rule| add_rule(&mut batch, &header, masquerade, rule));
    }
    commit(socket, batch)
}

/// Takes the jumps, the chain and with it its rules away, of both families at once.
///
/// A transaction numbers what it makes in a table, one after the other, so that the chain says which rules jump there. If
/// that were others' the chain would still be in use, and the kernel would refuse all.
pub(crate) fn remove(socket: &Socket, chain: &str, addresses: &[Prefix]) -> Result<(), Errno> {
    let mut batch = begin();
    for (multicast, own) in families(addresses) {
        let number = handle(socket, multicast, chain)?.ok_or(Errno::ENOENT)?;
        for (rule, number) in rules(multicast, &own).iter().zip(number + 1..) {
            if let Rule::Jump(_) = rule {
                batch.message(DELRULE, 0, &header(multicast), |batch| {
                    batch.text(1, TABLE);
                    batch.text(2, POSTROUTING);
                    batch.attribute(3, &number.to_be_bytes());
                });
            }
        }
        batch.message(DELCHAIN, 0, &header(multicast), |batch| {
            batch.text(1, TABLE);
            batch.text(3, chain);
        });
    }
    commit(socket, batch)
}

/// The addresses of each family that has any.
fn families(addresses: &[Prefix]) -> impl Iterator<Item = (Prefix, Vec<Prefix>)> {
    let of = |family: Prefix| {
        let own = addresses.iter().filter(move |address| address.ip.is_ipv4() == family.ip.is_ipv4());
        (family, own.copied().collect::<Vec<_>>())
    };
    MULTICAST.into_iter().map(of).filter(|(_, own)| !own.is_empty())
}

fn rules(multicast: Prefix, addresses: &[Prefix]) -> Vec<Rule> {
    let mut prefixes: Vec<Prefix> = Vec::new();
    for address in addresses {
        let prefix = Prefix { ip: address.network().to_ip(), ..*address };
        if !prefixes.contains(&prefix) {
            prefixes.push(prefix);
        }
    }
    let jump = |address: &Prefix| {
        let length = if address.ip.is_ipv4() { 32 } else { 128 };
        Rule::Jump(Prefix { length, ..*address })
    };
    let in_chain = prefixes.into_iter().map(Rule::Accept).chain([Rule::Masquerade(multicast)]);
    in_chain.chain(addresses.iter().map(jump)).collect()
}

/// `struct nfgenmsg`: NFPROTO_IPV4 or NFPROTO_IPV6.
fn header(family: Prefix) -> [u8; 4] {
    [if family.ip.is_ipv4() { 2 } else { 10 }, 0, 0, 0]
}

/// The number of a chain, if there is one of this name.
fn handle(socket: &Socket, family: Prefix, chain: &str) -> Result<Option<u64>, Errno> {
    let mut batch = Batch::new();
    batch.message(GETCHAIN, 0, &header(family), |batch| {
        batch.text(1, TABLE);
        batch.text(3, chain);
    });
    match socket.call(&batch, |_, body| Attributes(body.get(4..)?).get(2)?.try_into().ok().map(u64::from_be_bytes)) {
        Err(Errno::ENOENT) => Ok(None),
        found => found,
    }
}

fn begin() -> Batch {
    let mut batch = Batch::new();
    batch.message(BATCH_BEGIN, 0, &NFTABLES, |_| {});
    batch
}

/// Sends changes as one transaction, which the kernel acknowledges at its last change.
fn commit(socket: &Socket, mut batch: Batch) -> Result<(), Errno> {
    let last = batch.count;
    batch.acknowledge_last();
    batch.message(BATCH_END, 0, &NFTABLES, |_| {});
    socket.send(&batch)?;
    socket.answer(last, |_, _| None::<()>).map(drop)
}

fn add_rule(batch: &mut Batch, header: &[u8], masquerade: &Masquerade, rule: &Rule) {
    let Masquerade { chain, comment, note } = masquerade;
    batch.message(NEWRULE, CREATE | APPEND, header, |batch| {
        batch.text(1, TABLE);
        batch.text(2, if let Rule::Jump(_) = rule { POSTROUTING } else { chain });
        batch.nest(4, |batch| match rule {
            Rule::Accept(prefix) => {
                is_in(batch, Address::Destination, prefix, true);
                comment_and_counter(batch, comment);
                verdict(batch, NF_ACCEPT, None);
            }
            Rule::Masquerade(multicast) => {
                is_in(batch, Address::Destination, multicast, false);
                comment_and_counter(batch, comment);
                masquerade_target(batch, multicast.ip.is_ipv4());
            }
            Rule::Jump(address) => {
                is_in(batch, Address::Source, address, true);
                comment_and_counter(batch, comment);
                verdict(batch, NFT_JUMP, Some(chain));
            }
        });
        // As nft(8) keeps a comment: type, length, text, NUL.
        let length = u8::try_from(note.len() + 1).unwrap_or(u8::MAX);
        batch.attribute(7, &[&[NOTE, length], note.as_bytes(), &[0]].concat());
    });
}

fn expression(batch: &mut Batch, name: &str, data: impl FnOnce(&mut Batch)) {
    batch.nest(1, |batch| {
        batch.text(1, name);
        batch.nest(2, data);
    });
}

/// An address of a packet.
#[derive(Clone, Copy)]
enum Address {
    Source,
    Destination,
}

/// Goes on if the packet's address is in the prefix, or is not. Whole bytes are compared without a mask.
fn is_in(batch: &mut Batch, address: Address, prefix: &Prefix, is_wanted: bool) {
    let offset = match (address, prefix.ip.is_ipv4()) {
        (Address::Source, true) => 12,
        (Address::Destination, true) => 16,
        (Address::Source, false) => 8,
        (Address::Destination, false) => 24,
    };
    let (network, mask) = (prefix.network(), prefix.mask());
    let is_whole = prefix.length.is_multiple_of(8);
    let length = if is_whole { usize::from(prefix.length / 8) } else { network.as_slice().len() };
    if length == 0 {
        return;
    }
    let bytes = |octets: &Octets| octets.as_slice()[..length].to_vec();
    let count = u32::try_from(length).unwrap_or(u32::MAX);
    expression(batch, "payload", |batch| {
        batch.be32(1, 1);
        batch.be32(2, 1); // NFT_PAYLOAD_NETWORK_HEADER
        batch.be32(3, offset);
        batch.be32(4, count);
    });
    if !is_whole {
        expression(batch, "bitwise", |batch| {
            batch.be32(1, 1);
            batch.be32(2, 1);
            batch.be32(3, count);
            batch.nest(4, |batch| batch.attribute(1, &bytes(&mask)));
            batch.nest(5, |batch| batch.attribute(1, &vec![0; length]));
        });
    }
    expression(batch, "cmp", |batch| {
        batch.be32(1, 1);
        batch.be32(2, u32::from(!is_wanted)); // NFT_CMP_EQ, NFT_CMP_NEQ
        batch.nest(3, |batch| batch.attribute(1, &bytes(&network)));
    });
}

/// `struct xt_comment_info`: 256 bytes, the last of them NUL.
fn comment_and_counter(batch: &mut Batch, comment: &str) {
    let mut info = comment.as_bytes().to_vec();
    info.truncate(255);
    info.resize(256, 0);
    extension(batch, "match", "comment", &info);
    expression(batch, "counter", |_| {});
}

/// `struct nf_nat_ipv4_multi_range_compat` of one empty range, or an empty `struct nf_nat_range`.
fn masquerade_target(batch: &mut Batch, ipv4: bool) {
    let mut info = [0; 40];
    info[..4].copy_from_slice(&u32::from(ipv4).to_ne_bytes());
    extension(batch, "target", "MASQUERADE", &info[..if ipv4 { 24 } else { 40 }]);
}

/// A match or a target of iptables: name, revision, structure.
fn extension(batch: &mut Batch, kind: &str, name: &str, info: &[u8]) {
    expression(batch, kind, |batch| {
        batch.text(1, name);
        batch.be32(2, 0);
        batch.attribute(3, info);
    });
}

fn verdict(batch: &mut Batch, code: i32, chain: Option<&str>) {
    expression(batch, "immediate", |batch| {
        batch.be32(1, 0);
        batch.nest(2, |batch| {
            batch.nest(2, |batch| {
                batch.attribute(1, &code.to_be_bytes());
                if let Some(chain) = chain {
                    batch.text(2, chain);
                }
            });
        });
    });
}
