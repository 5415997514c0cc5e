//! Masquerade: table `inet cni_plugins_masquerade`, byte for byte what plugins/filter puts there (its README.md shows it).

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use crate::arguments::{Octets, Prefix};
use crate::message::{APPEND, Attributes, Batch, CREATE, DUMP};
use crate::socket::Socket;

// linux/netfilter/nfnetlink.h and nf_tables.h.
const SUBSYSTEM: u16 = 10 << 8;
const NEWTABLE: u16 = SUBSYSTEM;
const NEWCHAIN: u16 = SUBSYSTEM | 3;
const GETCHAIN: u16 = SUBSYSTEM | 4;
const NEWRULE: u16 = SUBSYSTEM | 6;
const GETRULE: u16 = SUBSYSTEM | 7;
const DELRULE: u16 = SUBSYSTEM | 8;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// `struct nfgenmsg`: family inet.
const INET: [u8; 4] = [1, 0, 0, 0];
/// `struct nfgenmsg` around a transaction: the subsystem in network byte order.
const NFTABLES: [u8; 4] = [0, 0, 0, 10];

const TABLE: &str = "cni_plugins_masquerade";
const POSTROUTING: &str = "postrouting";
const CHECKS: &str = "masq_checks";
const NFT_RETURN: i32 = -5;
const NFT_GOTO: i32 = -4;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;

/// Opens a connection to nf_tables.
pub(crate) fn open() -> Result<Socket, Errno> {
    Socket::open(SockProtocol::NetlinkNetFilter)
}

/// Adds a rule for each address, and what leads there where that is missing.
pub(crate) fn add(socket: &Socket, addresses: &[Prefix], comment: &str) -> Result<(), Errno> {
    let is_set_up = has_postrouting(socket)?;
    transact(socket, |batch| {
        if !is_set_up {
            table(batch);
        }
        addresses.iter().for_each(|address| masquerade(batch, address, comment));
    })
}

/// Deletes the rules with these addresses in them.
pub(crate) fn remove(socket: &Socket, addresses: &[Prefix]) -> Result<(), Errno> {
    let octets: Vec<_> = addresses.iter().map(|address| Octets::of(address.ip)).collect();
    let mut handles = Vec::new();
    let mut batch = Batch::new();
    batch.message(GETRULE, DUMP, &INET, |batch| {
        batch.text(1, TABLE);
        batch.text(2, CHECKS);
    });
    socket.call(&batch, |kind, body| -> Option<()> {
        let all = Attributes(body.get(4..)?);
        let (handle, rule) = (all.get(3)?, all.get(4)?);
        let has = |octets: &Octets| rule.windows(octets.as_slice().len()).any(|bytes| bytes == octets.as_slice());
        if kind == NEWRULE && octets.iter().any(has) {
            handles.push(handle.to_vec());
        }
        None
    })?;
    transact(socket, |batch| {
        for handle in &handles {
            batch.message(DELRULE, 0, &INET, |batch| {
                batch.text(1, TABLE);
                batch.text(2, CHECKS);
                batch.attribute(3, handle);
            });
        }
    })
}

fn has_postrouting(socket: &Socket) -> Result<bool, Errno> {
    let mut batch = Batch::new();
    batch.message(GETCHAIN, 0, &INET, |batch| {
        batch.text(1, TABLE);
        batch.text(3, POSTROUTING);
    });
    match socket.call(&batch, |kind, _| (kind == NEWCHAIN).then_some(())) {
        Err(Errno::ENOENT) => Ok(false),
        found => found.map(|found| found.is_some()),
    }
}

/// Sends changes as one transaction, which the kernel acknowledges at its last change.
fn transact(socket: &Socket, changes: impl FnOnce(&mut Batch)) -> Result<(), Errno> {
    let mut batch = Batch::new();
    batch.message(BATCH_BEGIN, 0, &NFTABLES, |_| {});
    changes(&mut batch);
    let last = batch.count;
    batch.acknowledge_last();
    batch.message(BATCH_END, 0, &NFTABLES, |_| {});
    socket.send(&batch)?;
    socket.answer(last, |_, _| None::<()>).map(drop)
}

fn table(batch: &mut Batch) {
    batch.message(NEWTABLE, CREATE, &INET, |batch| batch.text(1, TABLE));
    chain(batch, CHECKS, |_| {});
    chain(batch, POSTROUTING, |batch| {
        batch.nest(4, |batch| {
            batch.be32(1, 4); // NF_INET_POST_ROUTING
            batch.be32(2, 100); // NF_IP_PRI_NAT_SRC
        });
        batch.be32(5, 1); // NF_ACCEPT
        batch.text(7, "nat");
    });
    rule(batch, POSTROUTING, None, |batch| {
        family(batch, true);
        load(batch, 16, 4);
        masked(batch, &[224, 0, 0, 0], &[240, 0, 0, 0], EQUAL);
        verdict(batch, NFT_RETURN, None);
    });
    rule(batch, POSTROUTING, None, |batch| {
        family(batch, false);
        load(batch, 24, 1);
        compare(batch, &[255], EQUAL);
        verdict(batch, NFT_RETURN, None);
    });
    rule(batch, POSTROUTING, None, |batch| verdict(batch, NFT_GOTO, Some(CHECKS)));
}

/// `ip saddr ADDRESS ip daddr != PREFIX masquerade`.
fn masquerade(batch: &mut Batch, address: &Prefix, comment: &str) {
    rule(batch, CHECKS, Some(comment), |batch| {
        let (octets, network) = (Octets::of(address.ip), address.network());
        let (source, destination, length) = if address.ip.is_ipv4() { (12, 16, 4) } else { (8, 24, 16) };
        family(batch, address.ip.is_ipv4());
        load(batch, source, length);
        compare(batch, octets.as_slice(), EQUAL);
        let bytes = u32::from(address.length / 8);
        if address.length > 0 && address.length.is_multiple_of(8) {
            load(batch, destination, bytes);
            compare(batch, &network.as_slice()[..bytes as usize], NOT_EQUAL);
        } else {
            load(batch, destination, length);
            masked(batch, network.as_slice(), address.mask().as_slice(), NOT_EQUAL);
        }
        expression(batch, "masq", |_| {});
    });
}

fn chain(batch: &mut Batch, name: &str, hook: impl FnOnce(&mut Batch)) {
    batch.message(NEWCHAIN, CREATE, &INET, |batch| {
        batch.text(1, TABLE);
        batch.text(3, name);
        hook(batch);
    });
}

/// A comment is type 0, length, text, NUL.
fn rule(batch: &mut Batch, chain: &str, comment: Option<&str>, expressions: impl FnOnce(&mut Batch)) {
    batch.message(NEWRULE, CREATE | APPEND, &INET, |batch| {
        batch.text(1, TABLE);
        batch.text(2, chain);
        batch.nest(4, expressions);
        if let Some(comment) = comment {
            let length = u8::try_from(comment.len() + 1).unwrap_or(u8::MAX);
            batch.attribute(7, &[&[0, length], comment.as_bytes(), &[0]].concat());
        }
    });
}

fn expression(batch: &mut Batch, name: &str, data: impl FnOnce(&mut Batch)) {
    batch.nest(1, |batch| {
        batch.text(1, name);
        batch.nest(2, data);
    });
}

/// `meta nfproto ipv4` or `ipv6`.
fn family(batch: &mut Batch, ipv4: bool) {
    expression(batch, "meta", |batch| {
        batch.be32(1, 1);
        batch.be32(2, 15); // NFT_META_NFPROTO
    });
    compare(batch, &[if ipv4 { 2 } else { 10 }], EQUAL);
}

/// Loads bytes of the network header into register 1.
fn load(batch: &mut Batch, offset: u32, length: u32) {
    expression(batch, "payload", |batch| {
        batch.be32(1, 1);
        batch.be32(2, 1); // NFT_PAYLOAD_NETWORK_HEADER
        batch.be32(3, offset);
        batch.be32(4, length);
    });
}

fn masked(batch: &mut Batch, value: &[u8], mask: &[u8], how: u32) {
    expression(batch, "bitwise", |batch| {
        batch.be32(1, 1);
        batch.be32(2, 1);
        batch.be32(3, u32::try_from(mask.len()).unwrap_or(u32::MAX));
        batch.nest(4, |batch| batch.attribute(1, mask));
        batch.nest(5, |batch| batch.attribute(1, &[0; 16][..mask.len()]));
    });
    compare(batch, value, how);
}

fn compare(batch: &mut Batch, value: &[u8], how: u32) {
    expression(batch, "cmp", |batch| {
        batch.be32(1, 1);
        batch.be32(2, how);
        batch.nest(3, |batch| batch.attribute(1, value));
    });
}

fn verdict(batch: &mut Batch, code: i32, chain: Option<&str>) {
    expression(batch, "immediate", |batch| {
        batch.be32(1, 0);
        batch.nest(2, |batch| {
            batch.nest(2, |batch| {
                batch.attribute(1, &code.to_be_bytes());
                chain.into_iter().for_each(|chain| batch.text(2, chain));
            });
        });
    });
}
