//! Tables, chains and rules as data. Each prints as nft(8) names it.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use super::expr::Expr;

/// The name of a table, chain or set; `'static` for those that this program defines.
pub type Name = Cow<'static, str>;

/// The family of a table: which packets it sees (`NFPROTO_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4 and IPv6.
    Inet = 1,
    /// IPv4 alone; iptables uses it.
    Ip = 2,
    /// Frames that arrive by a link, or leave by it.
    Netdev = 5,
    /// Frames that a bridge forwards.
    Bridge = 7,
    /// IPv6 alone; ip6tables uses it.
    Ip6 = 10,
}

impl Family {
    /// The family of the tables for one address family alone.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ip } else { Self::Ip6 }
    }
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The table's family.
    pub family: Family,
    /// The table's name, unique in its family.
    pub name: Name,
}

/// A chain of rules. A base chain receives packets from the kernel itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The table it is in.
    pub table: Table,
    /// The chain's name.
    pub name: Name,
    /// The hook of a base chain; `None` for a chain that is only reached from other chains.
    pub base: Option<BaseChain>,
}

/// The type, hook and priority of a base chain. Its policy is accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseChain {
    /// The chain's type.
    pub kind: ChainType,
    /// The chain's hook.
    pub hook: Hook,
    /// The chain's priority: chains with smaller numbers run earlier.
    pub priority: i32,
}

/// The type of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainType {
    /// Filters packets.
    Filter,
    /// Chooses a connection's translation at its first packet.
    Nat,
}

/// The hook of a base chain (`NF_INET_*`, `NF_BR_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// When a packet arrives (prerouting).
    Prerouting = 0,
    /// When a packet is for this node (input).
    Input = 1,
    /// The hook at which this node forwards a packet.
    Forward = 2,
    /// The hook at which this node sends a packet (output).
    Output = 3,
    /// When a packet leaves (postrouting).
    Postrouting = 4,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The table of its chain.
    pub table: Table,
    /// The name of its chain.
    pub chain: Name,
    /// The kernel's handle; `None` for a rule that is not in the kernel yet.
    pub handle: Option<u64>,
    /// The rule's expressions, in order.
    pub exprs: Vec<Expr>,
    /// The rule's comment, at most 128 bytes: nft(8) accepts no longer one.
    pub comment: Option<String>,
    /// A private note of its creator; other programs do not show it.
    pub note: Option<String>,
    /// The transport protocol that is passed to its iptables extensions; 0 for none. The kernel does not report it.
    pub extension_protocol: Option<u8>,
}

impl Table {
    /// A table with this family and name.
    #[must_use]
    pub const fn new(family: Family, name: &'static str) -> Self {
        Self { family, name: Name::Borrowed(name) }
    }

    /// A regular chain of this table.
    #[must_use]
    pub fn chain(&self, name: impl Into<Name>) -> Chain {
        Chain { table: self.clone(), name: name.into(), base: None }
    }
}

/// Priorities: enum nf_ip_hook_priorities of linux/netfilter_ipv4.h.
impl BaseChain {
    /// Destination NAT, nft(8)'s `priority dstnat`: at prerouting or output.
    #[must_use]
    pub const fn dstnat(hook: Hook) -> Self {
        Self { kind: ChainType::Nat, hook, priority: -100 }
    }

    /// Source NAT, `priority srcnat`: at postrouting or input.
    #[must_use]
    pub const fn srcnat(hook: Hook) -> Self {
        Self { kind: ChainType::Nat, hook, priority: 100 }
    }

    /// Filtering, `priority filter`.
    #[must_use]
    pub const fn filter(hook: Hook) -> Self {
        Self { kind: ChainType::Filter, hook, priority: 0 }
    }
}

impl Chain {
    /// A rule of this chain with these expressions.
    #[must_use]
    pub fn rule(&self, exprs: Vec<Expr>) -> Rule {
        let (table, chain) = (self.table.clone(), self.name.clone());
        Rule { table, chain, handle: None, exprs, comment: None, note: None, extension_protocol: None }
    }
}

impl Rule {
    /// The same rule with this comment.
    #[must_use]
    pub fn comment(mut self, comment: impl Into<String>) -> Self {
        self.comment = Some(comment.into());
        self
    }

    /// The chain that this rule jumps or goes to, if any.
    #[must_use]
    pub fn goes_to(&self) -> Option<&str> {
        self.exprs.iter().find_map(|expr| match expr {
            Expr::Verdict(verdict) => verdict.chain(),
            _ => None,
        })
    }
}

impl Hook {
    /// The name in nft(8).
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

    /// The hook with this number, which is the same in all families here.
    #[must_use]
    pub fn of(number: u32) -> Option<Self> {
        [Self::Prerouting, Self::Input, Self::Forward, Self::Output, Self::Postrouting]
            .into_iter()
            .find(|hook| *hook as u32 == number)
    }
}

impl ChainType {
    /// The name in nft(8).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inet => "inet",
            Self::Ip => "ip",
            Self::Netdev => "netdev",
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
