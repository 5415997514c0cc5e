//! Changes to the ruleset as data. A transaction is carried out completely or not at all.

use std::fmt;

use super::object::{Chain, Rule, Table};
use super::set::{Element, Set};
use super::wire::{Header, Writer};

// linux/netfilter/nfnetlink.h and nf_tables.h.
const SUBSYS: u16 = 10 << 8;
pub(super) const NEWTABLE: u16 = SUBSYS;
pub(super) const GETTABLE: u16 = SUBSYS | 1;
const DELTABLE: u16 = SUBSYS | 2;
pub(super) const NEWCHAIN: u16 = SUBSYS | 3;
pub(super) const GETCHAIN: u16 = SUBSYS | 4;
const DELCHAIN: u16 = SUBSYS | 5;
pub(super) const NEWRULE: u16 = SUBSYS | 6;
pub(super) const GETRULE: u16 = SUBSYS | 7;
const DELRULE: u16 = SUBSYS | 8;
const NEWSET: u16 = SUBSYS | 9;
pub(super) const NEWSETELEM: u16 = SUBSYS | 12;
pub(super) const GETSETELEM: u16 = SUBSYS | 13;
const DELSETELEM: u16 = SUBSYS | 14;
pub(super) const NEWGEN: u16 = SUBSYS | 15;
pub(super) const GETGEN: u16 = SUBSYS | 16;
pub(super) const TRACE: u16 = SUBSYS | 17;
/// `NFNL_MSG_COMPAT_GET` of `NFNL_SUBSYS_NFT_COMPAT`.
pub(super) const GETCOMPAT: u16 = 11 << 8;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const BATCH_GENID: u16 = 1;
const SUBSYS_RES_ID: u16 = 10;

pub(super) const REQUEST: u16 = 0x01;
pub(super) const ACK: u16 = 0x04;
pub(super) const DUMP: u16 = 0x300;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

/// A change of the ruleset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Creates the table if it is missing.
    EnsureTable(Table),
    /// Clears a table's flags, `dormant` among them; creates the table if it is missing. The kernel refuses new base
    /// chains of the table in the same transaction.
    WakeTable(Table),
    /// Creates a table that only this connection can change, and that ends with it; a kernel before 5.12 creates one that stays.
    OwnTable(Table),
    /// Creates the chain if it is missing; the rules of an existing one stay.
    EnsureChain(Chain),
    /// Creates a base chain of family netdev that sees what a link receives or sends.
    EnsureLinkChain {
        /// The chain, without a hook.
        chain: Chain,
        /// The link's name.
        link: String,
        /// Whether the chain sees what the link sends (kernel 5.16).
        is_egress: bool,
        /// The chain's priority.
        priority: i32,
    },
    /// Creates the set if it is missing; the elements of an existing one stay.
    EnsureSet(Set),
    /// Adds an element to its set; `EEXIST` if the key has one, whatever it is.
    AddElement(Element),
    /// Deletes the element with this key; `ENOENT` if there is none.
    DeleteElement(Element),
    /// Appends a rule to its chain.
    AppendRule(Rule),
    /// Inserts a rule at the start of its chain.
    PrependRule(Rule),
    /// Inserts a rule before the one with this handle; `ENOENT` if that is gone.
    InsertRule {
        /// The new rule.
        rule: Rule,
        /// The handle of the rule that comes next.
        before: u64,
    },
    /// Deletes all rules of a chain.
    FlushChain(Chain),
    /// Deletes a table and everything in it.
    DeleteTable(Table),
    /// Deletes a chain; `EBUSY` while a rule or element refers to it.
    DeleteChain(Chain),
    /// Deletes the rule with the handle of this rule.
    DeleteRule(Rule),
}

impl Change {
    fn kind_and_flags(&self) -> (u16, u16) {
        match self {
            Self::EnsureTable(_) | Self::WakeTable(_) | Self::OwnTable(_) => (NEWTABLE, CREATE),
            Self::EnsureChain(_) | Self::EnsureLinkChain { .. } => (NEWCHAIN, CREATE),
            Self::EnsureSet(_) => (NEWSET, CREATE),
            Self::AddElement(_) => (NEWSETELEM, CREATE | EXCLUSIVE),
            Self::DeleteElement(_) => (DELSETELEM, 0),
            Self::AppendRule(_) => (NEWRULE, CREATE | APPEND),
            Self::PrependRule(_) | Self::InsertRule { .. } => (NEWRULE, CREATE),
            Self::FlushChain(_) | Self::DeleteRule(_) => (DELRULE, 0),
            Self::DeleteTable(_) => (DELTABLE, 0),
            Self::DeleteChain(_) => (DELCHAIN, 0),
        }
    }

    fn table(&self) -> &Table {
        match self {
            Self::EnsureTable(table) | Self::WakeTable(table) | Self::OwnTable(table) | Self::DeleteTable(table) => {
                table
            }
            Self::EnsureChain(chain)
            | Self::EnsureLinkChain { chain, .. }
            | Self::FlushChain(chain)
            | Self::DeleteChain(chain) => &chain.table,
            Self::AppendRule(rule)
            | Self::PrependRule(rule)
            | Self::InsertRule { rule, .. }
            | Self::DeleteRule(rule) => &rule.table,
            Self::EnsureSet(set) => &set.table,
            Self::AddElement(element) | Self::DeleteElement(element) => &element.table,
        }
    }

    /// The verb in an error message.
    pub(super) fn verb(&self) -> &'static str {
        match self {
            Self::WakeTable(_) => "wake",
            Self::EnsureTable(_)
            | Self::OwnTable(_)
            | Self::EnsureChain(_)
            | Self::EnsureLinkChain { .. }
            | Self::EnsureSet(_)
            | Self::AddElement(_)
            | Self::AppendRule(_)
            | Self::PrependRule(_)
            | Self::InsertRule { .. } => "create",
            Self::FlushChain(_) => "flush",
            Self::DeleteTable(_) | Self::DeleteChain(_) | Self::DeleteRule(_) | Self::DeleteElement(_) => "delete",
        }
    }

    /// The object in an error message.
    pub(super) fn object(&self) -> String {
        match self {
            Self::EnsureTable(table) | Self::WakeTable(table) | Self::OwnTable(table) | Self::DeleteTable(table) => {
                format!("nft table {table}")
            }
            Self::EnsureChain(chain)
            | Self::EnsureLinkChain { chain, .. }
            | Self::FlushChain(chain)
            | Self::DeleteChain(chain) => {
                format!("nft chain {} {}", chain.table, chain.name)
            }
            Self::AppendRule(rule)
            | Self::PrependRule(rule)
            | Self::InsertRule { rule, .. }
            | Self::DeleteRule(rule) => format!("nft rule {rule}"),
            Self::EnsureSet(set) => format!("nft set {} {}", set.table, set.name),
            Self::AddElement(element) | Self::DeleteElement(element) => format!("nft element {element}"),
        }
    }

    /// The kernel's name of the request.
    pub(super) fn request(&self) -> &'static str {
        match self {
            Self::EnsureTable(_) | Self::WakeTable(_) | Self::OwnTable(_) => "NFT_MSG_NEWTABLE",
            Self::EnsureChain(_) | Self::EnsureLinkChain { .. } => "NFT_MSG_NEWCHAIN",
            Self::AppendRule(_) | Self::PrependRule(_) | Self::InsertRule { .. } => "NFT_MSG_NEWRULE",
            Self::FlushChain(_) | Self::DeleteRule(_) => "NFT_MSG_DELRULE",
            Self::DeleteTable(_) => "NFT_MSG_DELTABLE",
            Self::DeleteChain(_) => "NFT_MSG_DELCHAIN",
            Self::EnsureSet(_) => "NFT_MSG_NEWSET",
            Self::AddElement(_) => "NFT_MSG_NEWSETELEM",
            Self::DeleteElement(_) => "NFT_MSG_DELSETELEM",
        }
    }

    // Attribute numbers: linux/netfilter/nf_tables.h, enum nft_<object>_attributes.
    fn encode(&self, w: &mut Writer) {
        w.text(1, &self.table().name);
        match self {
            Self::EnsureTable(_) | Self::DeleteTable(_) => {}
            Self::WakeTable(_) => w.be32(2, 0),
            // NFT_TABLE_F_OWNER.
            Self::OwnTable(_) => w.be32(2, 2),
            Self::EnsureChain(chain) => encode_chain(chain, w),
            Self::EnsureLinkChain { chain, link, is_egress, priority } => {
                w.text(3, &chain.name);
                w.nest(4, |w| {
                    // NF_NETDEV_INGRESS, NF_NETDEV_EGRESS.
                    w.be32(1, u32::from(*is_egress));
                    w.attr(2, &priority.to_be_bytes());
                    w.text(3, link);
                });
                w.text(7, "filter");
            }
            Self::DeleteChain(chain) => w.text(3, &chain.name),
            Self::EnsureSet(set) => set.encode(w),
            Self::AddElement(element) => element.encode(true, w),
            Self::DeleteElement(element) => element.encode(false, w),
            Self::FlushChain(chain) => w.text(2, &chain.name),
            Self::AppendRule(rule) | Self::PrependRule(rule) => encode_rule(rule, w),
            Self::InsertRule { rule, before } => {
                encode_rule(rule, w);
                w.attr(6, &before.to_be_bytes());
            }
            Self::DeleteRule(rule) => {
                w.text(2, &rule.chain);
                // Handle 0 belongs to no rule. Without a handle the request would flush the chain.
                w.attr(3, &rule.handle.unwrap_or_default().to_be_bytes());
            }
        }
    }
}

fn encode_rule(rule: &Rule, w: &mut Writer) {
    w.text(2, &rule.chain);
    w.nest(4, |w| rule.exprs.iter().for_each(|expr| w.nest(1, |w| expr.encode(w))));
    if let Some(protocol) = rule.extension_protocol {
        // enum nft_rule_compat_attributes: the protocol, and flags.
        w.nest(5, |w| {
            w.be32(1, protocol.into());
            w.be32(2, 0);
        });
    }
    let comment = rule.comment.as_ref().map(|comment| userdata(COMMENT, comment));
    let note = rule.note.as_ref().map(|note| userdata(NOTE, note));
    let userdata = [comment.unwrap_or_default(), note.unwrap_or_default()].concat();
    if !userdata.is_empty() {
        w.attr(7, &userdata);
    }
}

/// The policy of a new chain is accept. The policy of an existing one is not changed.
fn encode_chain(chain: &Chain, w: &mut Writer) {
    w.text(3, &chain.name);
    let Some(base) = chain.base else { return };
    w.nest(4, |w| {
        w.be32(1, base.hook as u32);
        w.attr(2, &base.priority.to_be_bytes());
    });
    w.text(7, base.kind.name());
}

/// Types of userdata: comments use libnftnl's (its udata.h). The private note uses a number that nft(8) and iptables
/// skip.
pub(super) const COMMENT: u8 = 0;
pub(super) const NOTE: u8 = 0xc1;

/// A text in nft(8)'s form: type, length, text, NUL. A text that is too long for one byte of length is cut at a
/// character boundary.
pub(super) fn userdata(kind: u8, text: &str) -> Vec<u8> {
    let end = text.floor_char_boundary(usize::from(u8::MAX) - 1);
    let text = text.get(..end).unwrap_or_default().as_bytes();
    let length = u8::try_from(text.len() + 1).unwrap_or(u8::MAX);
    [&[kind, length], text, &[0]].concat()
}

/// Changes that the kernel carries out all at once or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    pub(super) changes: Vec<Change>,
    pub(super) generation: Option<u32>,
}

impl Transaction {
    /// A transaction of these changes, in this order.
    #[must_use]
    pub fn new(changes: Vec<Change>) -> Self {
        Self { changes, generation: None }
    }

    /// The same transaction, refused with `ERESTART` if the ruleset has changed since this generation.
    #[must_use]
    pub fn if_still(mut self, generation: u32) -> Self {
        self.generation = Some(generation);
        self
    }

    /// Appends a change.
    pub fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// The transaction's changes.
    #[must_use]
    pub fn into_changes(self) -> Vec<Change> {
        self.changes
    }

    /// Whether the transaction deletes objects.
    pub(super) fn deletes(&self) -> bool {
        let deletes = |change: &Change| {
            matches!(
                change,
                Change::FlushChain(_)
                    | Change::DeleteTable(_)
                    | Change::DeleteChain(_)
                    | Change::DeleteRule(_)
                    | Change::DeleteElement(_)
            )
        };
        self.changes.iter().any(deletes)
    }

    /// Whether the transaction has no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The batch. Its start has the number `seq`, the changes have the numbers after it.
    pub(super) fn encode(&self, seq: u32) -> Option<Vec<u8>> {
        let mut w = self.encode_open(seq);
        let seq = seq.wrapping_add(u32::try_from(self.changes.len()).ok()?).wrapping_add(1);
        w.message(Header { kind: BATCH_END, flags: REQUEST, seq, family: 0, res_id: SUBSYS_RES_ID }, |_| {});
        w.finish()
    }

    /// The batch without its end message: the kernel processes it and rolls it back.
    pub(super) fn encode_trial(&self, seq: u32) -> Option<Vec<u8>> {
        self.encode_open(seq).finish()
    }

    fn encode_open(&self, seq: u32) -> Writer {
        let mut w = Writer::default();
        let res_id = SUBSYS_RES_ID;
        let begin = Header { kind: BATCH_BEGIN, flags: REQUEST, seq, family: 0, res_id };
        w.message(begin, |w| {
            if let Some(generation) = self.generation {
                w.be32(BATCH_GENID, generation);
            }
        });
        let mut seq = seq;
        for (number, change) in (1_u32..).zip(&self.changes) {
            seq = seq.wrapping_add(1);
            let (kind, flags) = change.kind_and_flags();
            let is_last = usize::try_from(number).is_ok_and(|n| n == self.changes.len());
            let flags = flags | REQUEST | if is_last { ACK } else { 0 };
            let family = change.table().family as u8;
            w.message(Header { kind, flags, seq, family, res_id: 0 }, |w| change.encode(w));
        }
        w
    }
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for change in &self.changes {
            writeln!(f, "{} {}", change.verb(), change.object())?;
        }
        Ok(())
    }
}
