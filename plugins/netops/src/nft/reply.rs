//! What the kernel answers, parsed without I/O and without trusting it.

use nix::errno::Errno;

use super::expr::{Expr, Verdict};
use super::object::{BaseChain, Element, Family, Rule, Set, Table};
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

/// One message of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The number of the request it answers.
    pub seq: u32,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The request was carried out.
    Ack,
    /// The request was refused.
    Refused {
        /// Why, as a number.
        errno: Errno,
        /// Why, in the kernel's words, if it has some.
        words: Option<String>,
    },
    /// A dump ends here.
    Done,
    /// A table.
    Table(TableInfo),
    /// A chain.
    Chain(ChainInfo),
    /// A rule.
    Rule(RuleInfo),
    /// Some elements of one set.
    Elements(Vec<ElementInfo>),
    /// The ruleset's generation.
    Generation(u32),
    /// Something else, of this message type.
    Other(u16),
}

/// A table as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableInfo {
    /// Its name.
    pub name: String,
    /// How many chains, sets and other objects it has.
    pub objects: u32,
    /// Whether its flag `dormant` is set: the kernel sends no packets to its base chains.
    pub is_dormant: bool,
}

/// A chain as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainInfo {
    /// The name of its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// The kernel's number for it; rules of its table are numbered along with chains, later ones higher.
    pub handle: u64,
    /// How many rules it has, and rules and elements elsewhere that go to it.
    pub uses: u32,
    /// Where it hangs in the packet's way; `None` for a regular chain, which others go to.
    pub base: Option<BaseInfo>,
}

/// Where a base chain hangs. It may be of a type and on a hook this crate has no name for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseInfo {
    /// Its type, as nft(8) calls it.
    pub kind: String,
    /// The hook's number in its family.
    pub hook: u32,
}

impl BaseInfo {
    /// Whether it is of this type and on this hook, at whatever priority.
    #[must_use]
    pub fn hangs_as(&self, base: BaseChain) -> bool {
        self.kind == base.kind.name() && self.hook == base.hook as u32
    }
}

/// A rule as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleInfo {
    /// Its family, as a number: it may be one this crate has no name for.
    pub family: u8,
    /// The name of its table.
    pub table: String,
    /// The name of its chain.
    pub chain: String,
    /// The kernel's number for it.
    pub handle: u64,
    /// What it does.
    pub exprs: Vec<Expr>,
    /// Its comment.
    pub comment: Option<String>,
    /// What its maker noted.
    pub note: Option<String>,
}

/// An element as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementInfo {
    /// Its key's bytes.
    pub key: Vec<u8>,
    /// What a map says about it.
    pub verdict: Option<Verdict>,
    /// Its comment.
    pub comment: Option<String>,
}

/// `NFT_TABLE_F_DORMANT`.
const TABLE_DORMANT: u32 = 1;

/// What the messages' headers in one part of a dump say.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The dump ends here, or was refused.
    pub(super) is_last: bool,
    /// The ruleset has changed since the part before.
    pub(super) is_interrupted: bool,
}

impl Part {
    /// Reads the headers of the messages that answer the request `seq`.
    pub(super) fn of(bytes: &[u8], seq: u32) -> Self {
        let mut part = Self::default();
        for message in RawMessages(bytes).filter(|message| message.seq == seq) {
            part.is_last |= matches!(message.kind, NLMSG_ERROR | NLMSG_DONE);
            part.is_interrupted |= message.flags & DUMP_INTR != 0;
        }
        part
    }
}

/// Parses what one `recv` gave; ends at the first message whose length is wrong.
///
/// This is the place where the kernel's bytes enter the program: it cannot panic on any.
#[must_use]
pub fn parse_replies(bytes: &[u8]) -> Vec<Reply> {
    RawMessages(bytes).map(parse_reply).collect()
}

/// The comment of a rule.
pub(super) fn comment_of(rule: RawMessage<'_>) -> Option<String> {
    rule.attrs().get(RULE_USERDATA).and_then(parse_comment)
}

pub(super) fn parse_reply(message: RawMessage<'_>) -> Reply {
    let body = match message.kind {
        NLMSG_ERROR => parse_error(message),
        // A dump that failed half-way says so in its last message.
        NLMSG_DONE => match message.body.get(0..4).and_then(u32_ne).map(u32::cast_signed) {
            Some(code) if code < 0 => refused(code, None),
            _ => Body::Done,
        },
        NEWTABLE => Body::Table(parse_table(message.attrs())),
        NEWCHAIN => Body::Chain(parse_chain(message.attrs())),
        NEWRULE => Body::Rule(parse_rule(message)),
        NEWSETELEM => Body::Elements(message.attrs().nested(3).map(parse_element).collect()),
        NEWGEN => Body::Generation(message.attrs().be32(1).unwrap_or_default()),
        other => Body::Other(other),
    };
    Reply { seq: message.seq, body }
}

/// `struct nlmsgerr`: the code, the request's header (and the rest of it unless capped), and
/// behind it the extended ack.
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
    let has_words = message.flags & ACK_TLVS != 0;
    refused(code, has_words.then(|| Attrs(tlvs).text(1)).flatten())
}

fn refused(code: i32, words: Option<String>) -> Body {
    Body::Refused { errno: Errno::from_raw(code.saturating_neg()), words }
}

fn parse_table(attrs: Attrs<'_>) -> TableInfo {
    TableInfo {
        name: attrs.text(1).unwrap_or_default(),
        objects: attrs.be32(3).unwrap_or_default(),
        is_dormant: attrs.be32(2).unwrap_or_default() & TABLE_DORMANT != 0,
    }
}

fn parse_chain(attrs: Attrs<'_>) -> ChainInfo {
    ChainInfo {
        table: attrs.text(1).unwrap_or_default(),
        name: attrs.text(3).unwrap_or_default(),
        handle: attrs.be64(2).unwrap_or_default(),
        uses: attrs.be32(6).unwrap_or_default(),
        base: attrs.get(4).map(|hook| BaseInfo {
            kind: attrs.text(7).unwrap_or_default(),
            hook: Attrs(hook).be32(1).unwrap_or_default(),
        }),
    }
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

fn parse_element((_, element): (u16, &[u8])) -> ElementInfo {
    let attrs = Attrs(element);
    ElementInfo {
        key: attrs.nested(1).get(1).unwrap_or_default().to_vec(),
        verdict: Verdict::parse(attrs.nested(2)),
        comment: attrs.get(6).and_then(parse_comment),
    }
}

fn parse_comment(userdata: &[u8]) -> Option<String> {
    parse_userdata(userdata, COMMENT)
}

/// A text among nft(8)'s userdata, a list of (type, length, value).
fn parse_userdata(mut userdata: &[u8], wanted: u8) -> Option<String> {
    while let [kind, length, rest @ ..] = userdata {
        let value = rest.get(..usize::from(*length))?;
        if *kind == wanted {
            return Some(c_text(value));
        }
        userdata = rest.get(usize::from(*length)..)?;
    }
    None
}

impl ElementInfo {
    /// This element of that set; `None` if the key is not of the set's type.
    #[must_use]
    pub fn of(self, set: &Set) -> Option<Element> {
        let element = set.element(set.parse_key(&self.key)?);
        Some(Element { verdict: self.verdict, comment: self.comment, ..element })
    }
}

impl RuleInfo {
    /// This rule, named for a change.
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
    use std::hint::black_box;

    use super::*;
    use crate::nft::{Change, KeyField, KeyType, Name, Transaction};

    fn element() -> Element {
        let table = Table::new(Family::Inet, "t");
        let set = Set { table, name: Name::Borrowed("s"), key: &[KeyType::Ip4], is_verdict_map: true };
        let key = [KeyField::Ip("10.1.0.5".parse().unwrap())];
        set.element(key).verdict(Verdict::Goto("somewhere".into())).comment("whose")
    }

    /// What we write has the kernel's form, so it can stand for its answers.
    fn messages() -> Vec<u8> {
        let chain = element().table.chain("c");
        let rule = chain.rule(vec![Expr::Mask(crate::nft::Register::R1, vec![255; 4]), Expr::Masquerade]);
        let changes = vec![
            Change::EnsureTable(element().table),
            Change::EnsureChain(chain),
            Change::AppendRule(rule.comment("whose")),
            Change::CreateElement(element()),
        ];
        Transaction::new(changes).encode(7).unwrap()
    }

    #[test]
    fn messages_are_taken_apart() {
        let replies = parse_replies(&messages());
        assert_eq!(replies.iter().map(|reply| reply.seq).collect::<Vec<_>>(), [7, 8, 9, 10, 11, 12]);
        let Body::Rule(rule) = &replies[3].body else { panic!("{:?}", replies[3]) };
        assert_eq!((rule.exprs.len(), rule.comment.as_deref()), (2, Some("whose")));
        let Body::Elements(elements) = &replies[4].body else { panic!("{:?}", replies[4]) };
        assert_eq!(elements[0].verdict, Some(Verdict::Goto("somewhere".into())));
    }

    #[test]
    fn the_kernels_words_are_found_behind_a_whole_or_a_capped_request() {
        let words = [15, 0, 1, 0].iter().chain(b"No buffers\0\0").copied();
        for (flags, request) in [(ACK_TLVS, vec![0; 8]), (ACK_TLVS | CAPPED, vec![])] {
            let mut body = (-105_i32).to_ne_bytes().to_vec();
            body.extend((u32::try_from(request.len()).unwrap() + 16).to_ne_bytes());
            body.extend([0; 12]);
            body.extend(request);
            body.extend(words.clone());
            let message = RawMessage { kind: NLMSG_ERROR, flags, seq: 1, body: &body };
            let words = Some("No buffers".to_owned());
            assert_eq!(parse_reply(message).body, Body::Refused { errno: Errno::ENOBUFS, words });
        }
    }

    #[test]
    fn no_damage_makes_it_panic() {
        let whole = messages();
        for end in 0..whole.len() {
            black_box(parse_replies(&whole[..end]));
            for value in [0, 1, 3, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[end] = value;
                black_box(parse_replies(&damaged));
            }
        }
    }

    #[test]
    fn a_comment_of_any_length_is_kept_whole_or_cut_at_a_character() {
        for (text, kept) in [("a".repeat(128), 128), ("é".repeat(200), 254), (String::new(), 0)] {
            let change = Change::CreateElement(element().comment(text));
            let replies = parse_replies(&Transaction::new(vec![change]).encode(1).unwrap());
            let Body::Elements(elements) = &replies[1].body else { panic!("{:?}", replies[1]) };
            assert_eq!(elements[0].comment.as_ref().unwrap().len(), kept);
        }
    }
}
