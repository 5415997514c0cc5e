//! Expressions: what a rule is made of, from a load into a register to a verdict.
//!
//! They print as `nft --debug=netlink` prints them, and the constructors at the end build the
//! sequences nft(8) would, so that `nft list ruleset` reads them back as one statement.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::Name;
use super::wire::{Attrs, Writer, c_text};

// enum nft_expr_attributes, nft_data_attributes, nft_verdict_attributes.
const NAME: u16 = 1;
const DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;

/// Where an expression reads or leaves data (`enum nft_registers`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register(u32);

impl Register {
    /// The verdict itself.
    pub const VERDICT: Self = Self(0);
    /// The first 16 bytes.
    pub const R1: Self = Self(1);
    /// The next 16 bytes: the second field of a concatenation whose first is an ifname.
    pub const R2: Self = Self(2);
}

/// What becomes of the packet (`enum nft_verdicts`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The packet leaves this base chain.
    Accept,
    /// The packet ends here.
    Drop,
    /// Back to the chain that jumped here; in a base chain, its policy.
    Return,
    /// On to that chain, and back.
    Jump(Name),
    /// On to that chain for good.
    Goto(Name),
}

/// Which property of the packet that is not in its bytes (`enum nft_meta_keys`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meta {
    /// The interface it came in by, 16 bytes.
    IifName,
    /// The interface it leaves by, 16 bytes.
    OifName,
    /// The packet's mark.
    Mark,
    /// IPv4 or IPv6, one byte: what an `inet` table asks first.
    NfProto,
    /// The transport protocol, one byte.
    L4Proto,
}

const METAS: [(Meta, u32, &str); 5] = [
    (Meta::Mark, 3, "mark"),
    (Meta::IifName, 6, "iifname"),
    (Meta::OifName, 7, "oifname"),
    (Meta::NfProto, 15, "nfproto"),
    (Meta::L4Proto, 16, "l4proto"),
];

/// Which header an offset counts from (`enum nft_payload_bases`).
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

/// How a comparison must come out for the rule to go on (`enum nft_cmp_ops`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cmp {
    /// Equal.
    Eq,
    /// Not equal.
    Neq,
}

/// One step of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    /// Loads a property of the packet.
    Meta(Meta, Register),
    /// Loads bytes of the packet.
    Payload {
        /// Which header.
        base: Base,
        /// From which byte of it.
        offset: u32,
        /// How many bytes.
        length: u32,
        /// Into which register.
        to: Register,
    },
    /// Keeps the bits of the register that the mask has.
    Mask(Register, Vec<u8>),
    /// Ends the rule unless the comparison holds.
    Cmp(Cmp, Register, Vec<u8>),
    /// Ends the rule unless the set has the register's value.
    InSet(Name, Register),
    /// Takes the verdict that a map has for the register's value; goes on if it has none.
    VerdictMap(Name, Register),
    /// Says what becomes of the packet.
    Verdict(Verdict),
    /// Source NAT to the address of the interface the packet leaves by.
    Masquerade,
    /// Counts packets and bytes.
    Counter,
    /// Any other, by the kernel's name, with its attributes as they are.
    Other {
        /// The kernel's name, `match` for iptables' extensions.
        name: String,
        /// Its attributes.
        data: Vec<u8>,
    },
}

impl Expr {
    fn name(&self) -> &str {
        match self {
            Self::Meta(..) => "meta",
            Self::Payload { .. } => "payload",
            Self::Mask(..) => "bitwise",
            Self::Cmp(..) => "cmp",
            Self::InSet(..) | Self::VerdictMap(..) => "lookup",
            Self::Verdict(_) => "immediate",
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
            Self::Mask(register, mask) => {
                w.be32(1, register.0);
                w.be32(2, register.0);
                w.be32(3, u32::try_from(mask.len()).unwrap_or(u32::MAX));
                w.nest(4, |w| w.attr(DATA_VALUE, mask));
                w.nest(5, |w| w.attr(DATA_VALUE, &vec![0; mask.len()]));
            }
            Self::Cmp(cmp, from, value) => {
                w.be32(1, from.0);
                w.be32(2, u32::from(*cmp == Cmp::Neq));
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
            "bitwise" if value(5)?.iter().all(|byte| *byte == 0) && register(1) == register(2) => {
                Self::Mask(register(1)?, value(4)?)
            }
            "cmp" => {
                let cmp = match data.be32(2)? {
                    0 => Cmp::Eq,
                    1 => Cmp::Neq,
                    _ => return None,
                };
                Self::Cmp(cmp, register(1)?, value(3)?)
            }
            "lookup" if data.be32(5).unwrap_or(0) == 0 => {
                let set = Name::from(data.text(1)?);
                match register(3) {
                    None => Self::InSet(set, register(2)?),
                    Some(Register::VERDICT) => Self::VerdictMap(set, register(2)?),
                    Some(_) => return None,
                }
            }
            "immediate" => Self::Verdict(Verdict::parse(data.nested(2))?),
            "masq" if data.next().is_none() => Self::Masquerade,
            "counter" => Self::Counter,
            _ => return None,
        })
    }

    /// The text of an iptables `-m comment`, if this is one.
    #[must_use]
    pub fn iptables_comment(&self) -> Option<String> {
        // enum nft_match_attributes: 1 the name, 3 struct xt_comment_info.
        let attrs = self.iptables_extension("match")?;
        (attrs.text(1).as_deref() == Some("comment")).then(|| attrs.get(3).map(c_text)).flatten()
    }

    /// The name of an iptables target, `MASQUERADE`, if this is one.
    #[must_use]
    pub fn iptables_target(&self) -> Option<String> {
        self.iptables_extension("target")?.text(1) // enum nft_target_attributes
    }

    fn iptables_extension(&self, kind: &str) -> Option<Attrs<'_>> {
        match self {
            Self::Other { name, data } if name == kind => Some(Attrs(data)),
            _ => None,
        }
    }
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

    /// The chain a packet goes on to.
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
            Self::Cmp(Cmp::Eq, from, value) => {
                write!(f, "[ cmp eq reg {}{} ]", from.0, Words(value))
            }
            Self::Cmp(Cmp::Neq, from, value) => {
                write!(f, "[ cmp neq reg {}{} ]", from.0, Words(value))
            }
            Self::InSet(set, from) => write!(f, "[ lookup reg {} set {set} ]", from.0),
            Self::VerdictMap(map, from) => {
                write!(f, "[ lookup reg {} set {map} dreg 0 ]", from.0)
            }
            Self::Verdict(verdict) => write!(f, "[ immediate reg 0 {verdict} ]"),
            Self::Masquerade | Self::Counter | Self::Other { .. } => {
                write!(f, "[ {} ]", self.name())
            }
        }
    }
}

/// Bytes as `nft --debug=netlink` shows them: 32-bit words of this machine.
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

/// Which address of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The sender's.
    Source,
    /// The receiver's.
    Destination,
}

/// `meta nfproto ipv4` or `ipv6`: what must stand before an address match in an `inet` table.
#[must_use]
pub fn nfproto_is(family_of: IpAddr) -> [Expr; 2] {
    // linux/netfilter.h: NFPROTO_IPV4 2, NFPROTO_IPV6 10.
    let nfproto = if family_of.is_ipv4() { 2 } else { 10 };
    [Expr::Meta(Meta::NfProto, Register::R1), Expr::Cmp(Cmp::Eq, Register::R1, vec![nfproto])]
}

/// Loads a packet's address of this family into the first register.
#[must_use]
pub fn load_address(side: Side, family_of: IpAddr) -> Expr {
    // RFC 791: source at 12, destination at 16. RFC 8200: source at 8, destination at 24.
    let (offset, length) = match (side, family_of) {
        (Side::Source, IpAddr::V4(_)) => (12, 4),
        (Side::Destination, IpAddr::V4(_)) => (16, 4),
        (Side::Source, IpAddr::V6(_)) => (8, 16),
        (Side::Destination, IpAddr::V6(_)) => (24, 16),
    };
    Expr::Payload { base: Base::Network, offset, length, to: Register::R1 }
}

/// `ip daddr 10.1.0.0/24` and its like, for an `inet` table.
#[must_use]
pub fn address_in(side: Side, prefix: IpNetwork) -> Vec<Expr> {
    let mut exprs = nfproto_is(prefix.ip()).to_vec();
    exprs.push(load_address(side, prefix.ip()));
    exprs.push(Expr::Mask(Register::R1, octets(prefix.mask())));
    exprs.push(Expr::Cmp(Cmp::Eq, Register::R1, octets(prefix.network())));
    exprs
}

/// `ether saddr` into the register behind an interface name.
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
