//! Builds the expressions that nft(8) builds for a statement, and compares rules in either of its encodings.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::expr::{Base, Cmp, Expr, Meta, Register};

/// The address of a packet to match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The source address.
    Source,
    /// The destination address.
    Destination,
}

/// `meta nfproto ipv4` or `ipv6`: must precede an address match in an `inet` table.
#[must_use]
pub fn nfproto_is(family_of: IpAddr) -> [Expr; 2] {
    // linux/netfilter.h: NFPROTO_IPV4 2, NFPROTO_IPV6 10.
    let nfproto = if family_of.is_ipv4() { 2 } else { 10 };
    [Expr::Meta(Meta::NfProto, Register::R1), Expr::Cmp(Cmp::Eq, Register::R1, vec![nfproto])]
}

/// Loads an address of this family from the packet into the first register.
#[must_use]
pub fn load_address(side: Side, family_of: IpAddr) -> Expr {
    load_address_to(side, family_of, Register::R1)
}

/// The same into another register.
#[must_use]
pub fn load_address_to(side: Side, family_of: IpAddr, to: Register) -> Expr {
    // RFC 791: source at 12, destination at 16. RFC 8200: source at 8, destination at 24.
    let (offset, length) = match (side, family_of) {
        (Side::Source, IpAddr::V4(_)) => (12, 4),
        (Side::Destination, IpAddr::V4(_)) => (16, 4),
        (Side::Source, IpAddr::V6(_)) => (8, 16),
        (Side::Destination, IpAddr::V6(_)) => (24, 16),
    };
    Expr::Payload { base: Base::Network, offset, length, to }
}

/// `ip daddr 10.1.0.0/24` and the like, as nft(8) and iptables encode it: whole bytes are compared directly, and a mask
/// is only used if the prefix ends within a byte. In an `inet` table, put [`nfproto_is`] before it.
#[must_use]
pub fn address_in(side: Side, cmp: Cmp, prefix: IpNetwork) -> Vec<Expr> {
    let (mut load, value) = (load_address(side, prefix.ip()), octets(prefix.network()));
    let bytes = usize::from(prefix.prefix() / 8);
    if prefix.prefix() == 0 || !prefix.prefix().is_multiple_of(8) {
        return vec![load, Expr::Mask(Register::R1, octets(prefix.mask())), Expr::Cmp(cmp, Register::R1, value)];
    }
    if let Expr::Payload { length, .. } = &mut load {
        *length = u32::from(prefix.prefix() / 8);
    }
    vec![load, Expr::Cmp(cmp, Register::R1, value.into_iter().take(bytes).collect())]
}

/// The same rule in the encoding of current nft(8) and iptables. Older ones mask the whole address where current ones
/// load and compare fewer bytes. A counter does not change the meaning.
#[must_use]
pub fn normalised(exprs: &[Expr]) -> Vec<Expr> {
    let mut short: Vec<Expr> = Vec::with_capacity(exprs.len());
    for expr in exprs.iter().filter(|expr| **expr != Expr::Counter) {
        short.push(expr.clone());
        let [.., Expr::Payload { base, offset, to, .. }, Expr::Mask(masked, mask), Expr::Cmp(cmp, from, value)] =
            &short[..]
        else {
            continue;
        };
        let bytes = mask.iter().take_while(|byte| **byte == 0xff).count();
        let is_whole = bytes > 0 && mask.iter().skip(bytes).chain(value.iter().skip(bytes)).all(|byte| *byte == 0);
        if let (true, true, Ok(length)) = (is_whole, to == masked && masked == from, u32::try_from(bytes)) {
            let load = Expr::Payload { base: *base, offset: *offset, length, to: *to };
            let compare = Expr::Cmp(*cmp, *from, value.iter().copied().take(bytes).collect());
            short.truncate(short.len() - 3);
            short.extend([load, compare]);
        }
    }
    short
}

/// Loads `ether saddr` into the register after an interface name.
#[must_use]
pub fn load_ether_saddr(to: Register) -> Expr {
    Expr::Payload { base: Base::Link, offset: 6, length: 6, to }
}

/// An address in network byte order.
#[must_use]
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}
