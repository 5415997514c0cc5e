//! Masquerade: our table `inet cni_masquerade`, byte for byte what plugins/filter puts there (its README.md shows it).

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use crate::arguments::{Octets, Prefix};
use crate::message::{APPEND, Attributes, Batch, CREATE, DUMP, EXCL};
use crate::socket::Socket;

// linux/netfilter/nfnetlink.h and nf_tables.h.
const SUBSYSTEM: u16 = 10 << 8;
const NEWTABLE: u16 = SUBSYSTEM;
const DELTABLE: u16 = SUBSYSTEM | 2;
const NEWCHAIN: u16 = SUBSYSTEM | 3;
const GETCHAIN: u16 = SUBSYSTEM | 4;
const DELCHAIN: u16 = SUBSYSTEM | 5;
const NEWRULE: u16 = SUBSYSTEM | 6;
const DELRULE: u16 = SUBSYSTEM | 8;
const NEWSET: u16 = SUBSYSTEM | 9;
const NEWSETELEM: u16 = SUBSYSTEM | 12;
const DELSETELEM: u16 = SUBSYSTEM | 14;
const NEWGEN: u16 = SUBSYSTEM | 15;
const GETGEN: u16 = SUBSYSTEM | 16;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// `struct nfgenmsg`: family inet.
const INET: [u8; 4] = [1, 0, 0, 0];
/// `struct nfgenmsg` around a transaction: the subsystem in network byte order.
const NFTABLES: [u8; 4] = [0, 0, 0, 10];

const TABLE: &str = "cni_masquerade";
const POSTROUTING: &str = "postrouting";
const NFT_RETURN: i32 = -5;
const NFT_GOTO: i32 = -4;
/// A prefix's chain that nothing goes to is used by its own rules alone.
const RULES_OF_PREFIX: u32 = 2;
const TRIES: usize = 16;

/// Opens a connection to nf_tables.
pub(crate) fn open() -> Result<Socket, Errno> {
    Socket::open(SockProtocol::NetlinkNetFilter)
}

/// Puts addresses into the maps. The look before costs 5 us, a refused transaction 9 ms.
pub(crate) fn add(socket: &Socket, addresses: &[Prefix], comment: &str) -> Result<(), Errno> {
    let mut done = Ok(());
    for _ in 0..TRIES {
        let mut is_set_up = true;
        for address in addresses {
            is_set_up &= uses(socket, &chain_of(address))?.is_some();
        }
        done = transact(socket, None, |batch| {
            if !is_set_up {
                table(batch);
                addresses.iter().for_each(|address| prefix_chain(batch, address));
            }
            addresses.iter().for_each(|address| element(batch, NEWSETELEM, CREATE | EXCL, address, Some(comment)));
        });
        if !matches!(done, Err(Errno::ENOENT | Errno::EEXIST)) {
            break;
        }
    }
    done
}

/// Takes addresses out, and with the last of a prefix or of all its chain or the table.
pub(crate) fn remove(socket: &Socket, addresses: &[Prefix]) -> Result<(), Errno> {
    transact(socket, None, |batch| {
        addresses.iter().for_each(|address| element(batch, DELSETELEM, 0, address, None));
    })?;
    for address in addresses {
        if uses(socket, &chain_of(address))?.is_some_and(|uses| uses <= RULES_OF_PREFIX) {
            return sweep(socket);
        }
    }
    Ok(())
}

fn sweep(socket: &Socket) -> Result<(), Errno> {
    for _ in 0..TRIES {
        let generation = generation(socket)?;
        let (mut idle, mut busy) = (Vec::new(), false);
        let mut batch = Batch::new();
        batch.message(GETCHAIN, DUMP, &INET, |_| {});
        socket.call(&batch, |kind, body| -> Option<()> {
            let all = Attributes(body.get(4..)?);
            let name = all.get(3)?;
            if kind == NEWCHAIN && all.get(1)?.strip_suffix(&[0])? == TABLE.as_bytes() && name.starts_with(b"from_") {
                match be32(all.get(6)?)? <= RULES_OF_PREFIX {
                    true => idle.push(String::from_utf8_lossy(name.strip_suffix(&[0])?).into_owned()),
                    false => busy = true,
                }
            }
            None
        })?;
        if idle.is_empty() {
            return Ok(());
        }
        let swept = transact(socket, Some(generation), |batch| match busy {
            false => batch.message(DELTABLE, 0, &INET, |batch| batch.text(1, TABLE)),
            true => idle.iter().for_each(|name| {
                batch.message(DELCHAIN, 0, &INET, |batch| {
                    batch.text(1, TABLE);
                    batch.text(3, name);
                });
            }),
        });
        if !matches!(swept, Err(Errno::ERESTART | Errno::ENOENT | Errno::EBUSY)) {
            return swept;
        }
    }
    Ok(())
}

fn generation(socket: &Socket) -> Result<u32, Errno> {
    let mut batch = Batch::new();
    batch.message(GETGEN, 0, &INET, |_| {});
    let found = socket.call(&batch, |kind, body| {
        (kind == NEWGEN).then(|| Attributes(body.get(4..)?).get(1).and_then(be32)).flatten()
    })?;
    found.ok_or(Errno::EPROTO)
}

/// How much uses a chain: its rules, and what goes there. `None` if there is no such chain.
fn uses(socket: &Socket, chain: &str) -> Result<Option<u32>, Errno> {
    let mut batch = Batch::new();
    batch.message(GETCHAIN, 0, &INET, |batch| {
        batch.text(1, TABLE);
        batch.text(3, chain);
    });
    match socket.call(&batch, |_, body| Attributes(body.get(4..)?).get(6).and_then(be32)) {
        Err(Errno::ENOENT) => Ok(None),
        found => found,
    }
}

fn be32(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_be_bytes)
}

/// Sends changes as one transaction, which the kernel acknowledges at its last change.
fn transact(socket: &Socket, generation: Option<u32>, changes: impl FnOnce(&mut Batch)) -> Result<(), Errno> {
    let mut batch = Batch::new();
    batch.message(BATCH_BEGIN, 0, &NFTABLES, |batch| {
        if let Some(generation) = generation {
            batch.be32(1, generation);
        }
    });
    changes(&mut batch);
    let last = batch.count;
    batch.acknowledge_last();
    batch.message(BATCH_END, 0, &NFTABLES, |_| {});
    socket.send(&batch)?;
    socket.answer(last, |_, _| None::<()>).map(drop)
}

/// `from_10.1.0.0/24`, `from_fd00--/64`.
fn chain_of(address: &Prefix) -> String {
    format!("from_{}/{}", address.network().to_ip(), address.length).replace(':', "-")
}

fn map_of(ipv4: bool) -> &'static str {
    if ipv4 { "sources4" } else { "sources6" }
}

fn table(batch: &mut Batch) {
    batch.message(NEWTABLE, CREATE, &INET, |batch| batch.text(1, TABLE));
    for (ipv4, kind, length) in [(true, 7, 4), (false, 8, 16)] {
        let number = batch.count;
        batch.message(NEWSET, CREATE, &INET, |batch| {
            batch.text(1, TABLE);
            batch.text(2, map_of(ipv4));
            batch.be32(3, 8); // NFT_SET_MAP
            batch.be32(4, kind); // nft's ipv4_addr and ipv6_addr
            batch.be32(5, length);
            batch.be32(6, 0xffff_ff00); // the data is a verdict
            batch.be32(7, 0);
            batch.be32(10, number);
            let [a, b, c, d] = 2_u32.to_ne_bytes(); // nft's note that keys are in network byte order
            batch.attribute(13, &[0, 4, a, b, c, d]);
        });
    }
    chain(batch, POSTROUTING, |batch| {
        batch.nest(4, |batch| {
            batch.be32(1, 4); // NF_INET_POST_ROUTING
            batch.be32(2, 100); // NF_IP_PRI_NAT_SRC
        });
        batch.be32(5, 1); // NF_ACCEPT
        batch.text(7, "nat");
    });
    for (address, mask) in [(&[224, 0, 0, 0][..], &[240, 0, 0, 0][..]), (&MULTICAST6, &MULTICAST6)] {
        rule(batch, POSTROUTING, |batch| {
            in_prefix(batch, address, mask);
            verdict_return(batch);
        });
    }
    for ipv4 in [true, false] {
        rule(batch, POSTROUTING, |batch| {
            let (offset, length) = if ipv4 { (12, 4) } else { (8, 16) };
            load_address(batch, ipv4, offset, length);
            expression(batch, "lookup", |batch| {
                batch.text(1, map_of(ipv4));
                batch.be32(2, 1);
                batch.be32(3, 0);
            });
        });
    }
}

/// ff00::/8, address and mask alike.
const MULTICAST6: [u8; 16] = [255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn prefix_chain(batch: &mut Batch, address: &Prefix) {
    let name = chain_of(address);
    chain(batch, &name, |_| {});
    rule(batch, &name, |batch| {
        in_prefix(batch, address.network().as_slice(), address.mask().as_slice());
        verdict_return(batch);
    });
    rule(batch, &name, |batch| expression(batch, "masq", |_| {}));
}

/// A chain without rules; another ADD may have made it first.
fn chain(batch: &mut Batch, name: &str, hook: impl FnOnce(&mut Batch)) {
    batch.message(NEWCHAIN, CREATE, &INET, |batch| {
        batch.text(1, TABLE);
        batch.text(3, name);
        hook(batch);
    });
    batch.message(DELRULE, 0, &INET, |batch| {
        batch.text(1, TABLE);
        batch.text(2, name);
    });
}

fn rule(batch: &mut Batch, chain: &str, expressions: impl FnOnce(&mut Batch)) {
    batch.message(NEWRULE, CREATE | APPEND, &INET, |batch| {
        batch.text(1, TABLE);
        batch.text(2, chain);
        batch.nest(4, expressions);
    });
}

fn expression(batch: &mut Batch, name: &str, data: impl FnOnce(&mut Batch)) {
    batch.nest(1, |batch| {
        batch.text(1, name);
        batch.nest(2, data);
    });
}

/// `ip daddr PREFIX` or `ip6 daddr PREFIX`.
fn in_prefix(batch: &mut Batch, address: &[u8], mask: &[u8]) {
    let (offset, length) = if address.len() == 4 { (16, 4) } else { (24, 16) };
    load_address(batch, address.len() == 4, offset, length);
    expression(batch, "bitwise", |batch| {
        batch.be32(1, 1);
        batch.be32(2, 1);
        batch.be32(3, length);
        batch.nest(4, |batch| batch.attribute(1, mask));
        batch.nest(5, |batch| batch.attribute(1, &[0; 16][..mask.len()]));
    });
    equal(batch, address);
}

/// `meta nfproto ipv4` or `ipv6`, then an address of the packet into register 1.
fn load_address(batch: &mut Batch, ipv4: bool, offset: u32, length: u32) {
    expression(batch, "meta", |batch| {
        batch.be32(1, 1);
        batch.be32(2, 15); // NFT_META_NFPROTO
    });
    equal(batch, &[if ipv4 { 2 } else { 10 }]);
    expression(batch, "payload", |batch| {
        batch.be32(1, 1);
        batch.be32(2, 1); // NFT_PAYLOAD_NETWORK_HEADER
        batch.be32(3, offset);
        batch.be32(4, length);
    });
}

fn equal(batch: &mut Batch, value: &[u8]) {
    expression(batch, "cmp", |batch| {
        batch.be32(1, 1);
        batch.be32(2, 0);
        batch.nest(3, |batch| batch.attribute(1, value));
    });
}

fn verdict_return(batch: &mut Batch) {
    expression(batch, "immediate", |batch| {
        batch.be32(1, 0);
        batch.nest(2, |batch| batch.nest(2, |batch| batch.attribute(1, &NFT_RETURN.to_be_bytes())));
    });
}

/// An address's element, with its verdict and comment (type 0, length, text, NUL) if it is to be made.
fn element(batch: &mut Batch, kind: u16, flags: u16, address: &Prefix, comment: Option<&str>) {
    batch.message(kind, flags, &INET, |batch| {
        batch.text(1, TABLE);
        batch.text(2, map_of(address.ip.is_ipv4()));
        batch.nest(3, |batch| {
            batch.nest(1, |batch| {
                batch.nest(1, |batch| batch.attribute(1, Octets::of(address.ip).as_slice()));
                let Some(comment) = comment else { return };
                batch.nest(2, |batch| {
                    batch.nest(2, |batch| {
                        batch.attribute(1, &NFT_GOTO.to_be_bytes());
                        batch.text(2, &chain_of(address));
                    });
                });
                let length = u8::try_from(comment.len() + 1).unwrap_or(u8::MAX);
                batch.attribute(6, &[&[0, length], comment.as_bytes(), &[0]].concat());
            });
        });
    });
}
