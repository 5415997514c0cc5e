//! Parses the kernel's answers, without I/O and without trusting their lengths.

use nix::errno::Errno;

use super::expr::Expr;
use super::object::{BaseChain, Family, Rule, Table};
use super::set::Element;
use super::transaction::{COMMENT, NEWCHAIN, NEWGEN, NEWRULE, NEWSETELEM, NEWTABLE, NOTE};
use super::wire::{Attrs, HEADER_LEN, RawMessage, RawMessages, c_text, u32_ne};

// linux/netlink.h.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const DUMP_INTR: u16 = 0x10;
const CAPPED: u16 = 0x100;
const ACK_TLVS: u16 = 0x200;
/// `NFTA_RULE_USERDATA`.
const RULE_USERDATA: u16 = 7;

/// A message of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The sequence number of the request that it answers.
    pub seq: u32,
    /// The message's content.
    pub body: Body,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The request was carried out.
    Ack,
    /// The request was refused.
    Refused {
        /// The errno.
        errno: Errno,
        /// The message in the extended ack, if there is one.
        extended_ack: Option<String>,
    },
    /// The end of a dump.
    Done,
    /// A table.
    Table(TableInfo),
    /// A chain.
    Chain(ChainInfo),
    /// A rule.
    Rule(RuleInfo),
    /// Elements of a set.
    Elements(Vec<Element>),
    /// The generation of the ruleset.
    Generation(u32),
    /// Any other message, with its type.
    Other(u16),
}

/// A table as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableInfo {
    /// The table's name.
    pub name: String,
    /// The number of its chains, sets and other objects.
    pub objects: u32,
    /// Whether the table is `dormant`: the kernel sends no packets to its base chains.
    pub is_dormant: bool,
    /// Whether the table has an owner: the kernel refuses changes by all other processes.
    pub is_owned: bool,
}

/// A chain as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainInfo {
    /// The name of its table.
    pub table: String,
    /// The chain's name.
    pub name: String,
    /// The kernel's handle. Rules and chains of a table are numbered in the order of their creation.
    pub handle: u64,
    /// The number of its rules, plus the rules and elements that refer to it.
    pub uses: u32,
    /// The hook of a base chain; `None` for a regular chain.
    pub base: Option<BaseInfo>,
}

/// The type and hook of a base chain, which may be unknown to this crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseInfo {
    /// The chain's type, by nft(8)'s name.
    pub kind: String,
    /// The number of its hook, which depends on the family.
    pub hook: u32,
    /// The chain's priority: chains with smaller numbers run earlier.
    pub priority: i32,
    /// Whether the chain drops the packets that no rule decides on.
    pub drops: bool,
    /// The links of a chain that hangs at links.
    pub links: Vec<String>,
}

impl BaseInfo {
    /// Whether the chain has this type and hook, at any priority.
    #[must_use]
    pub fn hangs_as(&self, base: BaseChain) -> bool {
        self.kind == base.kind.name() && self.hook == base.hook as u32
    }
}

/// A rule as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleInfo {
    /// The number of the rule's family, which may be unknown to this crate.
    pub family: u8,
    /// The name of its table.
    pub table: String,
    /// The name of its chain.
    pub chain: String,
    /// The kernel's handle.
    pub handle: u64,
    /// The rule's expressions.
    pub exprs: Vec<Expr>,
    /// The rule's comment.
    pub comment: Option<String>,
    /// The creator's private note.
    pub note: Option<String>,
}

/// `NFT_TABLE_F_DORMANT`.
const TABLE_DORMANT: u32 = 1;

/// `NFT_TABLE_F_OWNER`.
const TABLE_OWNER: u32 = 2;

/// The headers of the messages in one part of a dump.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// Whether the dump ends here or was refused.
    pub(super) is_last: bool,
    /// Whether the ruleset changed since the part before.
    pub(super) is_interrupted: bool,
}

impl Part {
    /// Reads the headers of the messages that answer request `seq`.
    pub(super) fn of(bytes: &[u8], seq: u32) -> Self {
        let mut part = Self::default();
        for message in RawMessages(bytes).filter(|message| message.seq == seq) {
            part.is_last |= matches!(message.kind, NLMSG_ERROR | NLMSG_DONE);
            part.is_interrupted |= message.flags & DUMP_INTR != 0;
        }
        part
    }
}

/// Parses the messages of one `recv`. Stops at the first whose length is wrong.
///
/// All of the kernel's bytes enter the program here. No input makes it panic.
#[must_use]
pub fn parse_replies(bytes: &[u8]) -> Vec<Reply> {
    RawMessages(bytes).map(parse_reply).collect()
}

pub(super) fn comment_of(rule: RawMessage<'_>) -> Option<String> {
    rule.attrs().get(RULE_USERDATA).and_then(|userdata| parse_userdata(userdata, COMMENT))
}

/// A rule as the kernel sends it, for a look before it is decoded.
#[derive(Debug, Clone, Copy)]
pub struct Undecoded<'a>(Attrs<'a>);

impl<'a> Undecoded<'a> {
    pub(super) fn of(rule: RawMessage<'a>) -> Self {
        Self(rule.attrs().nested(4))
    }

    /// The data of its expressions with this name of the kernel's.
    fn expressions(self, name: &str) -> impl Iterator<Item = Attrs<'a>> {
        let own = self.0.map(|(_, expr)| Attrs(expr));
        own.filter(move |expr| is_text(expr.get(1), name)).map(|expr| expr.nested(2))
    }

    /// The structure of its first iptables match with this name.
    #[must_use]
    pub fn find_match(self, name: &str) -> Option<&'a [u8]> {
        self.expressions("match").find(|data| is_text(data.get(1), name))?.get(3)
    }

    /// Whether the rule jumps to this chain.
    #[must_use]
    pub fn jumps_to(self, chain: &str) -> bool {
        // The verdict is in the data of an immediate value.
        self.expressions("immediate").any(|data| is_text(data.nested(2).nested(2).get(2), chain))
    }
}

fn is_text(value: Option<&[u8]>, text: &str) -> bool {
    value.is_some_and(|value| value.strip_suffix(&[0]).unwrap_or(value) == text.as_bytes())
}

pub(super) fn parse_reply(message: RawMessage<'_>) -> Reply {
    let body = match message.kind {
        NLMSG_ERROR => parse_error(message),
        // A dump that failed half-way carries the errno in its last message.
        NLMSG_DONE => match message.body.get(0..4).and_then(u32_ne).map(u32::cast_signed) {
            Some(code) if code < 0 => refused(code, None),
            _ => Body::Done,
        },
        NEWTABLE => Body::Table(parse_table(message.attrs())),
        NEWCHAIN => Body::Chain(parse_chain(message.attrs())),
        NEWRULE => Body::Rule(parse_rule(message)),
        NEWSETELEM => Body::Elements(Element::parse_all(message)),
        NEWGEN => Body::Generation(message.attrs().be32(1).unwrap_or_default()),
        other => Body::Other(other),
    };
    Reply { seq: message.seq, body }
}

/// `struct nlmsgerr`: the errno, the request's header (and the rest of the request unless acks are capped), then the
/// extended ack.
fn parse_error(message: RawMessage<'_>) -> Body {
    let number = |at: usize| message.body.get(at..at + 4).and_then(u32_ne);
    let code = number(0).map_or(0, u32::cast_signed);
    if code == 0 {
        return Body::Ack;
    }
    let request_len = if message.flags & CAPPED != 0 {
        HEADER_LEN
    } else {
        number(4).and_then(|length| usize::try_from(length).ok()).unwrap_or(HEADER_LEN)
    };
    let tlvs = 4_usize.saturating_add(request_len).checked_next_multiple_of(4);
    let tlvs = tlvs.and_then(|at| message.body.get(at..)).unwrap_or_default();
    let has_extended_ack = message.flags & ACK_TLVS != 0;
    refused(code, has_extended_ack.then(|| Attrs(tlvs).text(1)).flatten())
}

fn refused(code: i32, extended_ack: Option<String>) -> Body {
    Body::Refused { errno: Errno::from_raw(code.saturating_neg()), extended_ack }
}

fn parse_table(attrs: Attrs<'_>) -> TableInfo {
    TableInfo {
        name: attrs.text(1).unwrap_or_default(),
        objects: attrs.be32(3).unwrap_or_default(),
        is_dormant: attrs.be32(2).unwrap_or_default() & TABLE_DORMANT != 0,
        is_owned: attrs.be32(2).unwrap_or_default() & TABLE_OWNER != 0,
    }
}

const NF_DROP: u32 = 0; // include/uapi/linux/netfilter.h

fn parse_chain(attrs: Attrs<'_>) -> ChainInfo {
    ChainInfo {
        table: attrs.text(1).unwrap_or_default(),
        name: attrs.text(3).unwrap_or_default(),
        handle: attrs.be64(2).unwrap_or_default(),
        uses: attrs.be32(6).unwrap_or_default(),
        base: attrs.get(4).map(|hook| BaseInfo {
            kind: attrs.text(7).unwrap_or_default(),
            hook: Attrs(hook).be32(1).unwrap_or_default(),
            priority: Attrs(hook).be32(2).unwrap_or_default().cast_signed(),
            drops: attrs.be32(5) == Some(NF_DROP),
            links: links_of(Attrs(hook)),
        }),
    }
}

/// The one link of a chain, or its several (`NFTA_HOOK_DEV`, `NFTA_HOOK_DEVS`).
fn links_of(hook: Attrs<'_>) -> Vec<String> {
    let several = hook.nested(4).filter(|(kind, _)| *kind == 1).map(|(_, name)| c_text(name));
    hook.text(3).into_iter().filter(|_| hook.get(4).is_none()).chain(several).collect()
}

fn parse_rule(message: RawMessage<'_>) -> RuleInfo {
    let attrs = message.attrs();
    RuleInfo {
        family: message.family(),
        table: attrs.text(1).unwrap_or_default(),
        chain: attrs.text(2).unwrap_or_default(),
        handle: attrs.be64(3).unwrap_or_default(),
        exprs: attrs.nested(4).map(|(_, expr)| Expr::parse(Attrs(expr))).collect(),
        comment: comment_of(message),
        note: attrs.get(RULE_USERDATA).and_then(|userdata| parse_userdata(userdata, NOTE)),
    }
}

/// Finds a text in nft(8)'s userdata, a list of (type, length, value).
pub(super) fn parse_userdata(mut userdata: &[u8], wanted: u8) -> Option<String> {
    while let [kind, length, rest @ ..] = userdata {
        let value = rest.get(..usize::from(*length))?;
        if *kind == wanted {
            return Some(c_text(value));
        }
        userdata = rest.get(usize::from(*length)..)?;
    }
    None
}

impl RuleInfo {
    /// The rule in the form that changes use.
    #[must_use]
    pub fn of(self, family: Family) -> Rule {
        Rule {
            table: Table { family, name: self.table.into() },
            chain: self.chain.into(),
            handle: Some(self.handle),
            exprs: self.exprs,
            comment: self.comment,
            note: self.note,
            extension_protocol: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nft::{Change, Transaction};

    /// Messages written here have the kernel's form, so they can serve as its answers.
    fn messages() -> Vec<u8> {
        let table = Table::new(Family::Inet, "t");
        let chain = table.chain("c");
        let rule = chain.rule(vec![Expr::Mask(crate::nft::Register::R1, vec![255; 4]), Expr::Masquerade]);
        let changes =
            vec![Change::EnsureTable(table), Change::EnsureChain(chain), Change::AppendRule(rule.comment("whose"))];
        Transaction::new(changes).encode(7).unwrap()
    }

    #[test]
    fn messages_are_decoded() {
        let replies = parse_replies(&messages());
        assert_eq!(replies.iter().map(|reply| reply.seq).collect::<Vec<_>>(), [7, 8, 9, 10, 11]);
        let Body::Rule(rule) = &replies[3].body else { panic!("{:?}", replies[3]) };
        assert_eq!((rule.exprs.len(), rule.comment.as_deref()), (2, Some("whose")));
    }

    #[test]
    fn the_extended_ack_is_found_after_a_complete_or_a_capped_request() {
        let extended_ack = [&15_u16.to_ne_bytes()[..], &1_u16.to_ne_bytes(), b"No buffers\0\0"].concat();
        for (flags, request) in [(ACK_TLVS, vec![0; 8]), (ACK_TLVS | CAPPED, vec![])] {
            let mut body = (-105_i32).to_ne_bytes().to_vec();
            body.extend((u32::try_from(request.len()).unwrap() + 16).to_ne_bytes());
            body.extend([0; 12]);
            body.extend(request);
            body.extend(&extended_ack);
            let message = RawMessage { kind: NLMSG_ERROR, flags, seq: 1, body: &body };
            let extended_ack = Some("No buffers".to_owned());
            assert_eq!(parse_reply(message).body, Body::Refused { errno: Errno::ENOBUFS, extended_ack });
        }
    }

    #[test]
    fn a_comment_is_kept_or_cut_at_a_character_boundary() {
        for (text, kept) in [("a".repeat(128), 128), ("é".repeat(200), 254), (String::new(), 0)] {
            let rule = Table::new(Family::Inet, "t").chain("c").rule(Vec::new()).comment(text);
            let change = Change::AppendRule(rule);
            let replies = parse_replies(&Transaction::new(vec![change]).encode(1).unwrap());
            let Body::Rule(rule) = &replies[1].body else { panic!("{:?}", replies[1]) };
            assert_eq!(rule.comment.as_ref().unwrap().len(), kept);
        }
    }
}
