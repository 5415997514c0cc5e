//! Expressions: the steps of a rule, from a load into a register to a verdict.
//!
//! Expressions print as `nft --debug=netlink` prints them. The constructors in `statement.rs` make the sequences that nft(8)
//! makes, so that `nft list ruleset` reads them back as one statement.

use std::fmt;

use super::Name;
use super::extension::Extension;
use super::object::Family;
use super::wire::{Attrs, Writer};

// enum nft_expr_attributes, nft_data_attributes, nft_verdict_attributes.
const NAME: u16 = 1;
const DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;

// enum nft_ct_keys, nft_fib_result, NFTA_FIB_F_DADDR, enum nft_nat_types.
const CT_STATE: u32 = 0;
const CT_DIRECTION: u32 = 1;
const FIB_ADDRTYPE: u32 = 3;
const FIB_DADDR: u32 = 2;
const NAT_DNAT: u32 = 1;

/// The register that an expression reads or writes (`enum nft_registers`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register(u32);

impl Register {
    /// The verdict register.
    pub const VERDICT: Self = Self(0);
    /// The first 16 bytes.
    pub const R1: Self = Self(1);
    /// The next 16 bytes: the second field of a concatenation whose first is an ifname.
    pub const R2: Self = Self(2);

    /// The register of the 32-bit word with this index, of the 16 that all registers are: where a field of a concatenation is.
    /// The kernel calls each fourth by the old name (`nft_dump_register`).
    #[must_use]
    pub const fn word(index: u32) -> Self {
        if index.is_multiple_of(4) { Self(index / 4 + 1) } else { Self(8 + index) }
    }
}

/// The verdict on a packet (`enum nft_verdicts`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The packet passes this base chain.
    Accept,
    /// The packet is dropped.
    Drop,
    /// Returns to the chain that jumped here; in a base chain its policy applies.
    Return,
    /// Continues in that chain, and returns afterwards.
    Jump(Name),
    /// Continues in that chain without returning.
    Goto(Name),
}

/// A property of the packet that is not part of its bytes (`enum nft_meta_keys`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meta {
    /// The name of the incoming interface, 16 bytes.
    IifName,
    /// The name of the outgoing interface, 16 bytes.
    OifName,
    /// The index of the incoming interface, 4 bytes in the machine's order.
    Iif,
    /// The index of the outgoing interface, 4 bytes in the machine's order.
    Oif,
    /// The packet's mark, 4 bytes in the machine's order.
    Mark,
    /// IPv4 or IPv6, one byte: matched first in an `inet` table.
    NfProto,
    /// The transport protocol, one byte.
    L4Proto,
}

const METAS: [(Meta, u32, &str); 7] = [
    (Meta::Mark, 3, "mark"),
    (Meta::Iif, 4, "iif"),
    (Meta::Oif, 5, "oif"),
    (Meta::IifName, 6, "iifname"),
    (Meta::OifName, 7, "oifname"),
    (Meta::NfProto, 15, "nfproto"),
    (Meta::L4Proto, 16, "l4proto"),
];

/// The header that an offset counts from (`enum nft_payload_bases`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// The Ethernet header.
    Link,
    /// The IP header.
    Network,
    /// The TCP, UDP or SCTP header.
    Transport,
}

const BASES: [(Base, u32, &str); 3] =
    [(Base::Link, 0, "link"), (Base::Network, 1, "network"), (Base::Transport, 2, "transport")];

/// The condition under which the rule continues (`enum nft_cmp_ops`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cmp {
    /// Equal.
    Eq,
    /// The values are not equal.
    Neq,
    /// The register has at most the value, as numbers in network byte order.
    Lte,
    /// The register has at least the value.
    Gte,
}

const CMPS: [(Cmp, u32, &str); 4] =
    [(Cmp::Eq, 0, "eq"), (Cmp::Neq, 1, "neq"), (Cmp::Lte, 3, "lte"), (Cmp::Gte, 5, "gte")];

/// A step of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    /// Loads a property of the packet.
    Meta(Meta, Register),
    /// Loads bytes of the packet.
    Payload {
        /// The header.
        base: Base,
        /// The offset of the first byte.
        offset: u32,
        /// The number of bytes.
        length: u32,
        /// The destination register.
        to: Register,
    },
    /// A bitwise and of the register with the mask.
    Mask(Register, Vec<u8>),
    /// A bitwise and of the register with the first value, then an exclusive or with the second.
    MaskXor(Register, Vec<u8>, Vec<u8>),
    /// Loads an immediate value.
    Load(Register, Vec<u8>),
    /// Loads the state of the packet's connection, as bits in the machine's byte order: 2 established, 4 related, 8 new
    /// (`NF_CT_STATE_BIT`). "Any of these" is [`Expr::Mask`] with them, then [`Cmp::Neq`] with zeros.
    CtState(Register),
    /// Loads the direction of the packet in its connection, one byte (`IP_CT_DIR_*`): 0 as the first packet, 1 as its answers.
    CtDirection(Register),
    /// Loads the type of the packet's destination address (`RTN_*`).
    DestinationType(Register),
    /// Sets the packet's mark to the register's value.
    SetMark(Register),
    /// Destination NAT to the address, and the port if given, in these registers.
    Dnat {
        /// The family of the addresses: IPv4 or IPv6.
        family: Family,
        /// The register with the address.
        address: Register,
        /// The register with the port.
        port: Option<Register>,
    },
    /// A match of iptables.
    Match(Extension),
    /// A target of iptables.
    Target(Extension),
    /// Ends the rule unless the comparison is true.
    Cmp(Cmp, Register, Vec<u8>),
    /// Ends the rule unless the set contains the register's value.
    InSet(Name, Register),
    /// Applies the verdict that a map has for the register's value; continues if it has none.
    VerdictMap(Name, Register),
    /// Loads what a map has for the first register's value into the second; ends the rule if it has nothing.
    Map(Name, Register, Register),
    /// Applies a verdict.
    Verdict(Verdict),
    /// Source NAT to the address of the outgoing interface.
    Masquerade,
    /// Counts packets and bytes.
    Counter,
    /// Any other expression, such as `limit`, `log` or `reject`, read or to be written.
    Other {
        /// The kernel's name.
        name: String,
        /// The attributes within `NFTA_EXPR_DATA` (`linux/netfilter/nf_tables.h`): of each its length with this header and its type, 2 bytes
        /// either in the machine's order, then the value in network order, filled up to a multiple of 4.
        data: Vec<u8>,
    },
}

impl Expr {
    fn name(&self) -> &str {
        match self {
            Self::Meta(..) | Self::SetMark(_) => "meta",
            Self::Payload { .. } => "payload",
            Self::Mask(..) | Self::MaskXor(..) => "bitwise",
            Self::CtState(_) | Self::CtDirection(_) => "ct",
            Self::DestinationType(_) => "fib",
            Self::Dnat { .. } => "nat",
            Self::Match(_) => "match",
            Self::Target(_) => "target",
            Self::Cmp(..) => "cmp",
            Self::InSet(..) | Self::VerdictMap(..) | Self::Map(..) => "lookup",
            Self::Verdict(_) | Self::Load(..) => "immediate",
            Self::Masquerade => "masq",
            Self::Counter => "counter",
            Self::Other { name, .. } => name,
        }
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.text(NAME, self.name());
        w.nest(DATA, |w| self.encode_data(w));
    }

    // Attribute numbers: linux/netfilter/nf_tables.h, enum nft_<name>_attributes.
    fn encode_data(&self, w: &mut Writer) {
        match self {
            Self::Meta(meta, to) => {
                w.be32(1, to.0);
                w.be32(2, meta.entry().1);
            }
            Self::Payload { base, offset, length, to } => {
                w.be32(1, to.0);
                w.be32(2, base.entry().1);
                w.be32(3, *offset);
                w.be32(4, *length);
            }
            Self::Mask(register, mask) => encode_bitwise(*register, mask, &vec![0; mask.len()], w),
            Self::MaskXor(register, mask, xor) => encode_bitwise(*register, mask, xor, w),
            Self::Load(to, value) => {
                w.be32(1, to.0);
                w.nest(2, |w| w.attr(DATA_VALUE, value));
            }
            Self::CtState(to) => {
                w.be32(1, to.0);
                w.be32(2, CT_STATE);
            }
            Self::CtDirection(to) => {
                w.be32(1, to.0);
                w.be32(2, CT_DIRECTION);
            }
            Self::DestinationType(to) => {
                w.be32(1, to.0);
                w.be32(2, FIB_ADDRTYPE);
                w.be32(3, FIB_DADDR);
            }
            Self::SetMark(from) => {
                w.be32(2, Meta::Mark.entry().1);
                w.be32(3, from.0);
            }
            Self::Dnat { family, address, port } => {
                w.be32(1, NAT_DNAT);
                w.be32(2, *family as u32);
                w.be32(3, address.0);
                if let Some(port) = port {
                    w.be32(5, port.0);
                }
            }
            Self::Match(extension) | Self::Target(extension) => extension.encode(w),
            Self::Cmp(cmp, from, value) => {
                w.be32(1, from.0);
                w.be32(2, cmp.entry().1);
                w.nest(3, |w| w.attr(DATA_VALUE, value));
            }
            Self::InSet(set, from) => {
                w.text(1, set);
                w.be32(2, from.0);
            }
            Self::VerdictMap(map, from) => {
                w.text(1, map);
                w.be32(2, from.0);
                w.be32(3, Register::VERDICT.0);
            }
            Self::Map(map, from, to) => {
                w.text(1, map);
                w.be32(2, from.0);
                w.be32(3, to.0);
            }
            Self::Verdict(verdict) => {
                w.be32(1, Register::VERDICT.0);
                w.nest(2, |w| verdict.encode(w));
            }
            Self::Masquerade | Self::Counter => {}
            Self::Other { data, .. } => w.raw(data),
        }
    }

    pub(super) fn parse(attrs: Attrs<'_>) -> Self {
        let name = attrs.text(NAME).unwrap_or_default();
        let data = attrs.nested(DATA);
        Self::parse_known(&name, data).unwrap_or_else(|| Self::Other { name, data: data.0.to_vec() })
    }

    fn parse_known(name: &str, mut data: Attrs<'_>) -> Option<Self> {
        let register = |kind| data.be32(kind).map(Register);
        let value = |kind| data.nested(kind).get(DATA_VALUE).map(<[u8]>::to_vec);
        Some(match name {
            "meta" if data.get(3).is_some() => {
                (data.be32(2)? == Meta::Mark.entry().1).then(|| register(3).map(Self::SetMark)).flatten()?
            }
            "meta" => {
                let key = data.be32(2)?;
                let (meta, ..) = *METAS.iter().find(|(_, number, _)| *number == key)?;
                Self::Meta(meta, register(1)?)
            }
            "payload" => {
                let number = data.be32(2)?;
                let (base, ..) = *BASES.iter().find(|(_, found, _)| *found == number)?;
                let (offset, length) = (data.be32(3)?, data.be32(4)?);
                Self::Payload { base, offset, length, to: register(1)? }
            }
            // Operation 0 is mask and xor. Older kernels have no other operation and do not report it.
            "bitwise" if register(1) == register(2) && data.be32(6).unwrap_or(0) == 0 => {
                let (mask, xor) = (value(4)?, value(5)?);
                match xor.iter().all(|byte| *byte == 0) {
                    true => Self::Mask(register(1)?, mask),
                    false => Self::MaskXor(register(1)?, mask, xor),
                }
            }
            "ct" => match data.be32(2)? {
                CT_STATE => Self::CtState(register(1)?),
                CT_DIRECTION if data.get(3).is_none() => Self::CtDirection(register(1)?),
                _ => return None,
            },
            "fib" if data.be32(2)? == FIB_ADDRTYPE && data.be32(3)? == FIB_DADDR => Self::DestinationType(register(1)?),
            // A NAT expression with a range or flags has another meaning.
            "nat" if data.be32(1)? == NAT_DNAT && plain_nat(data) => {
                let family =
                    [Family::Ip, Family::Ip6].into_iter().find(|family| Some(*family as u32) == data.be32(2))?;
                Self::Dnat { family, address: register(3)?, port: register(5) }
            }
            "match" => Self::Match(Extension::parse(data)?),
            "target" => Self::Target(Extension::parse(data)?),
            "cmp" => {
                let number = data.be32(2)?;
                let (cmp, ..) = *CMPS.iter().find(|(_, found, _)| *found == number)?;
                Self::Cmp(cmp, register(1)?, value(3)?)
            }
            "lookup" if data.be32(5).unwrap_or(0) == 0 => {
                let set = Name::from(data.text(1)?);
                match register(3) {
                    None => Self::InSet(set, register(2)?),
                    Some(Register::VERDICT) => Self::VerdictMap(set, register(2)?),
                    Some(to) => Self::Map(set, register(2)?, to),
                }
            }
            "immediate" if register(1)? == Register::VERDICT => Self::Verdict(Verdict::parse(data.nested(2))?),
            "immediate" => Self::Load(register(1)?, value(2)?),
            "masq" if data.next().is_none() => Self::Masquerade,
            "counter" => Self::Counter,
            _ => return None,
        })
    }
}

fn encode_bitwise(register: Register, mask: &[u8], xor: &[u8], w: &mut Writer) {
    w.be32(1, register.0);
    w.be32(2, register.0);
    w.be32(3, u32::try_from(mask.len()).unwrap_or(u32::MAX));
    w.nest(4, |w| w.attr(DATA_VALUE, mask));
    w.nest(5, |w| w.attr(DATA_VALUE, xor));
}

/// Whether a translation is to one address and at most one port, without further flags.
fn plain_nat(data: Attrs<'_>) -> bool {
    let one = |min, max| data.be32(max).is_none_or(|max| data.be32(min) == Some(max));
    // NF_NAT_RANGE_MAP_IPS and PROTO_SPECIFIED only repeat which registers are given.
    one(3, 4) && one(5, 6) && data.be32(7).unwrap_or(0) & !3 == 0
}

impl Verdict {
    fn code(&self) -> i32 {
        match self {
            Self::Drop => 0,
            Self::Accept => 1,
            Self::Jump(_) => -3,
            Self::Goto(_) => -4,
            Self::Return => -5,
        }
    }

    /// The chain that the packet continues in.
    #[must_use]
    pub fn chain(&self) -> Option<&str> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(chain),
            Self::Accept | Self::Drop | Self::Return => None,
        }
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.nest(DATA_VERDICT, |w| {
            w.attr(VERDICT_CODE, &self.code().to_be_bytes());
            if let Some(chain) = self.chain() {
                w.text(VERDICT_CHAIN, chain);
            }
        });
    }

    pub(super) fn parse(data: Attrs<'_>) -> Option<Self> {
        let verdict = data.nested(DATA_VERDICT);
        let code = verdict.get(VERDICT_CODE)?.try_into().ok().map(i32::from_be_bytes)?;
        let chain = || verdict.text(VERDICT_CHAIN).map(Name::from);
        Some(match code {
            0 => Self::Drop,
            1 => Self::Accept,
            -3 => Self::Jump(chain()?),
            -4 => Self::Goto(chain()?),
            -5 => Self::Return,
            _ => return None,
        })
    }
}

impl Meta {
    fn entry(self) -> (Self, u32, &'static str) {
        METAS.into_iter().find(|(meta, ..)| *meta == self).unwrap_or(METAS[0])
    }
}

impl Cmp {
    fn entry(self) -> (Self, u32, &'static str) {
        CMPS.into_iter().find(|(cmp, ..)| *cmp == self).unwrap_or(CMPS[0])
    }
}

impl Base {
    fn entry(self) -> (Self, u32, &'static str) {
        BASES.into_iter().find(|(base, ..)| *base == self).unwrap_or(BASES[0])
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Return => f.write_str("return"),
            Self::Jump(chain) => write!(f, "jump -> {chain}"),
            Self::Goto(chain) => write!(f, "goto -> {chain}"),
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meta(meta, to) => write!(f, "[ meta load {} => reg {} ]", meta.entry().2, to.0),
            Self::Payload { base, offset, length, to } => {
                let base = base.entry().2;
                write!(f, "[ payload load {length}b @ {base} header + {offset} => reg {} ]", to.0)
            }
            Self::Mask(register, mask) => {
                let (r, mask, zero) = (register.0, Words(mask), Words(&vec![0; mask.len()]));
                write!(f, "[ bitwise reg {r} = ( reg {r} &{mask} ) ^{zero} ]")
            }
            Self::Cmp(cmp, from, value) => write!(f, "[ cmp {} reg {}{} ]", cmp.entry().2, from.0, Words(value)),
            Self::InSet(set, from) => write!(f, "[ lookup reg {} set {set} ]", from.0),
            Self::VerdictMap(map, from) => {
                write!(f, "[ lookup reg {} set {map} dreg 0 ]", from.0)
            }
            Self::Map(map, from, to) => write!(f, "[ lookup reg {} set {map} dreg {} ]", from.0, to.0),
            Self::Verdict(verdict) => write!(f, "[ immediate reg 0 {verdict} ]"),
            Self::MaskXor(register, mask, xor) => {
                let (r, mask, xor) = (register.0, Words(mask), Words(xor));
                write!(f, "[ bitwise reg {r} = ( reg {r} &{mask} ) ^{xor} ]")
            }
            Self::Load(to, value) => write!(f, "[ immediate reg {}{} ]", to.0, Words(value)),
            Self::CtState(to) => write!(f, "[ ct load state => reg {} ]", to.0),
            Self::CtDirection(to) => write!(f, "[ ct load direction => reg {} ]", to.0),
            Self::DestinationType(to) => write!(f, "[ fib daddr type => reg {} ]", to.0),
            Self::SetMark(from) => write!(f, "[ meta set mark with reg {} ]", from.0),
            Self::Dnat { address, port: None, .. } => write!(f, "[ nat dnat addr_min reg {} ]", address.0),
            Self::Dnat { address, port: Some(port), .. } => {
                write!(f, "[ nat dnat addr_min reg {} proto_min reg {} ]", address.0, port.0)
            }
            Self::Match(extension) | Self::Target(extension) => write!(f, "[ {} {extension} ]", self.name()),
            Self::Masquerade | Self::Counter | Self::Other { .. } => {
                write!(f, "[ {} ]", self.name())
            }
        }
    }
}

/// Bytes as `nft --debug=netlink` prints them: 32-bit words in the machine's byte order.
struct Words<'a>(&'a [u8]);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chunks(4).try_for_each(|chunk| {
            let mut word = [0; 4];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            write!(f, " 0x{:08x}", u32::from_ne_bytes(word))
        })
    }
}
