//! Tables, chains, sets, elements and rules as data; each prints as nft(8) would name it.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::expr::{Expr, Verdict, octets};

/// A name of a table, chain or set; `'static` for those this program defines.
pub type Name = Cow<'static, str>;

/// Which packets a table sees (`NFPROTO_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4 and IPv6.
    Inet = 1,
    /// IPv4 alone: where iptables works.
    Ip = 2,
    /// Frames that pass a bridge.
    Bridge = 7,
    /// IPv6 alone: where ip6tables works.
    Ip6 = 10,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Which packets it sees.
    pub family: Family,
    /// Its name, unique in its family.
    pub name: Name,
}

/// A chain of rules; a base chain if the kernel itself sends packets there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The table it is in.
    pub table: Table,
    /// Its name.
    pub name: Name,
    /// Where it hangs in the packet's way; `None` for a chain that others go to.
    pub base: Option<BaseChain>,
}

/// Where a base chain hangs. Its policy is accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseChain {
    /// What it may do.
    pub kind: ChainType,
    /// Where on the packet's way.
    pub hook: Hook,
    /// Its turn there: smaller is earlier.
    pub priority: i32,
}

/// What a base chain may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainType {
    /// Let pass or drop.
    Filter,
    /// Decide a connection's translation on its first packet.
    Nat,
}

/// Where on its way a packet meets a base chain (`NF_INET_*`, `NF_BR_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// As it arrives.
    Prerouting = 0,
    /// For this node.
    Input = 1,
    /// Through this node.
    Forward = 2,
    /// From this node.
    Output = 3,
    /// As it leaves.
    Postrouting = 4,
}

/// A set of keys, or a map from keys to verdicts; kept as a hash by the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// The table it is in.
    pub table: Table,
    /// Its name.
    pub name: Name,
    /// The fields of its key; several make a concatenation.
    pub key: &'static [KeyType],
    /// Whether each key has a verdict.
    pub is_verdict_map: bool,
}

/// The type of one field of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyType {
    /// `ipv4_addr`.
    Ip4,
    /// `ipv6_addr`.
    Ip6,
    /// `ether_addr`.
    Mac,
    /// `ifname`.
    IfName,
}

/// One field of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyField {
    /// An address of either family.
    Ip(IpAddr),
    /// A hardware address.
    Mac([u8; 6]),
    /// An interface's name.
    IfName(String),
}

/// An element of a set or a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The table of its set.
    pub table: Table,
    /// The name of its set.
    pub set: Name,
    /// Its key, field by field.
    pub key: Vec<KeyField>,
    /// What a map says about the key.
    pub verdict: Option<Verdict>,
    /// Its comment, at most 128 bytes for nft(8) to accept it again.
    pub comment: Option<String>,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The table of its chain.
    pub table: Table,
    /// The name of its chain.
    pub chain: Name,
    /// The kernel's number for it; `None` until it is there.
    pub handle: Option<u64>,
    /// What it does, step by step.
    pub exprs: Vec<Expr>,
    /// Its comment, at most 128 bytes for nft(8) to accept it again.
    pub comment: Option<String>,
    /// What its maker notes for itself; no other program shows it.
    pub note: Option<String>,
    /// The transport protocol that iptables' extensions in it are told; 0 for none. The kernel does not give it back.
    pub extension_protocol: Option<u8>,
}

impl Table {
    /// A table by family and name.
    #[must_use]
    pub const fn new(family: Family, name: &'static str) -> Self {
        Self { family, name: Name::Borrowed(name) }
    }

    /// A chain of this table that other chains go to.
    #[must_use]
    pub fn chain(&self, name: impl Into<Name>) -> Chain {
        Chain { table: self.clone(), name: name.into(), base: None }
    }
}

/// Priorities: enum nf_ip_hook_priorities of linux/netfilter_ipv4.h.
impl BaseChain {
    /// Decides about receivers, nft(8)'s `priority dstnat`: where packets arrive, or the node's own begin.
    #[must_use]
    pub const fn dstnat(hook: Hook) -> Self {
        Self { kind: ChainType::Nat, hook, priority: -100 }
    }

    /// Decides about senders, `priority srcnat`: where packets leave, or the node's own have arrived.
    #[must_use]
    pub const fn srcnat(hook: Hook) -> Self {
        Self { kind: ChainType::Nat, hook, priority: 100 }
    }

    /// Decides what passes, `priority filter`.
    #[must_use]
    pub const fn filter(hook: Hook) -> Self {
        Self { kind: ChainType::Filter, hook, priority: 0 }
    }
}

impl Chain {
    /// A rule of this chain that does this.
    #[must_use]
    pub fn rule(&self, exprs: Vec<Expr>) -> Rule {
        let (table, chain) = (self.table.clone(), self.name.clone());
        Rule { table, chain, handle: None, exprs, comment: None, note: None, extension_protocol: None }
    }
}

impl Set {
    /// An element of this set with this key.
    #[must_use]
    pub fn element(&self, key: impl Into<Vec<KeyField>>) -> Element {
        let (table, set) = (self.table.clone(), self.name.clone());
        Element { table, set, key: key.into(), verdict: None, comment: None }
    }

    /// Bytes of one key.
    pub(super) fn key_len(&self) -> usize {
        self.key.iter().map(|field| field.len().next_multiple_of(4)).sum()
    }

    /// Reads a key as the kernel has it; `None` if it is not of this set's type.
    pub(super) fn parse_key(&self, mut bytes: &[u8]) -> Option<Vec<KeyField>> {
        let fields = self.key.iter().map(|kind| {
            let field = kind.parse(bytes.get(..kind.len())?)?;
            bytes = bytes.get(kind.len().next_multiple_of(4)..)?;
            Some(field)
        });
        fields.collect()
    }
}

impl Element {
    /// The same element with this verdict.
    #[must_use]
    pub fn verdict(mut self, verdict: Verdict) -> Self {
        self.verdict = Some(verdict);
        self
    }

    /// The same element with this comment.
    #[must_use]
    pub fn comment(mut self, comment: impl Into<String>) -> Self {
        self.comment = Some(comment.into());
        self
    }

    /// The key's bytes: each field starts at a multiple of four.
    pub(super) fn key_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in &self.key {
            match field {
                KeyField::Ip(address) => bytes.extend(octets(*address)),
                KeyField::Mac(mac) => bytes.extend(mac),
                KeyField::IfName(name) => {
                    let end = bytes.len() + KeyType::IfName.len();
                    bytes.extend(name.as_bytes());
                    bytes.resize(end, 0); // cuts what cannot be an interface's name
                }
            }
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }
}

impl Rule {
    /// The same rule with this comment.
    #[must_use]
    pub fn comment(mut self, comment: impl Into<String>) -> Self {
        self.comment = Some(comment.into());
        self
    }

    /// The chain this rule ends in, if it jumps or goes to one.
    #[must_use]
    pub fn goes_to(&self) -> Option<&str> {
        self.exprs.iter().find_map(|expr| match expr {
            Expr::Verdict(verdict) => verdict.chain(),
            _ => None,
        })
    }
}

impl Hook {
    /// As nft(8) calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
        }
    }

    /// The hook of this number, which the families here share.
    #[must_use]
    pub fn of(number: u32) -> Option<Self> {
        [Self::Prerouting, Self::Input, Self::Forward, Self::Output, Self::Postrouting]
            .into_iter()
            .find(|hook| *hook as u32 == number)
    }
}

impl ChainType {
    /// As nft(8) calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }
}

impl KeyType {
    fn len(self) -> usize {
        match self {
            Self::Ip4 => 4,
            Self::Mac => 6,
            Self::Ip6 | Self::IfName => 16,
        }
    }

    /// nft(8)'s number for the type, which it needs to print keys (its datatype.h).
    pub(super) fn nft_type(self) -> u32 {
        match self {
            Self::Ip4 => 7,
            Self::Ip6 => 8,
            Self::Mac => 9,
            Self::IfName => 41,
        }
    }

    /// nft(8)'s `enum byteorder`: 1 the machine's, 2 the network's.
    pub(super) fn nft_byte_order(self) -> u32 {
        match self {
            Self::IfName => 1,
            Self::Ip4 | Self::Ip6 | Self::Mac => 2,
        }
    }

    fn parse(self, bytes: &[u8]) -> Option<KeyField> {
        Some(match self {
            Self::Ip4 => KeyField::Ip(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
            Self::Ip6 => KeyField::Ip(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
            Self::Mac => KeyField::Mac(bytes.try_into().ok()?),
            Self::IfName => KeyField::IfName(super::wire::c_text(bytes)),
        })
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inet => "inet",
            Self::Ip => "ip",
            Self::Bridge => "bridge",
            Self::Ip6 => "ip6",
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family, self.name)
    }
}

impl fmt::Display for KeyField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Mac([a, b, c, d, e, g]) => {
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
            }
            Self::IfName(name) => write!(f, "\"{name}\""),
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {{ ", self.table, self.set)?;
        for (number, field) in self.key.iter().enumerate() {
            let dot = if number == 0 { "" } else { " . " };
            write!(f, "{dot}{field}")?;
        }
        if let Some(comment) = &self.comment {
            write!(f, " comment \"{comment}\"")?;
        }
        if let Some(verdict) = &self.verdict {
            write!(f, " : {verdict}")?;
        }
        f.write_str(" }")
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.table, self.chain)?;
        if let Some(handle) = self.handle {
            write!(f, " handle {handle}")?;
        }
        self.exprs.iter().try_for_each(|expr| write!(f, " {expr}"))?;
        match &self.comment {
            Some(comment) => write!(f, " comment \"{comment}\""),
            None => Ok(()),
        }
    }
}
