//! Changes to a table, and what they are in each variant: nf_tables' changes, or lines for iptables-restore.

use netops::error::Result;
use netops::nft::{self, Change, Nft};

use super::{Dialect, FoundRule, Id};
use crate::base_chains;
use crate::iptables::rule::Rule;

/// A change to a table.
#[derive(Debug, Clone)]
pub enum Edit {
    /// Creates a chain that does not exist.
    CreateChain(String),
    /// Adds a rule at the end of a chain, `-A`.
    Append(NewRule),
    /// Adds a rule at the start of a chain, `-I CHAIN 1`.
    Prepend(NewRule),
    /// Adds a rule that was there before at its old place.
    PutBack(PutBack),
    /// Deletes a rule.
    Delete(FoundRule),
    /// Deletes a chain's rules.
    FlushChain(String),
    /// Deletes a chain and its rules; `EBUSY` while a rule jumps to it.
    DeleteChain(String),
}

/// A rule to add.
#[derive(Debug, Clone)]
pub struct NewRule {
    /// The chain. A missing base chain is created, such as a built-in chain of iptables.
    pub chain: String,
    /// The rule. In a [`crate::iptables::NativeTable`], a list of ports becomes one rule for each, [`crate::iptables::Table::spelled`].
    pub rule: Rule,
    /// The private note, at most 254 bytes; natively, at most 250 together with a comment.
    pub note: Option<String>,
}

/// A rule that a change deleted, and where it was.
#[derive(Debug, Clone)]
pub struct PutBack {
    pub(super) rule: FoundRule,
    /// The number of rules that come before it then.
    pub(super) at: usize,
    /// The handle of the rule that comes next; `None` at the end of the chain.
    pub(super) next: Option<u64>,
}

impl FoundRule {
    /// The name of its chain.
    #[must_use]
    pub fn chain(&self) -> Option<&str> {
        match &self.id {
            Id::Handle(rule) => Some(&rule.chain),
            Id::Words(words) => words.split(' ').next(),
        }
    }
}

/// The base chains that these edits need and that do not exist. They are created with their first rule.
pub(super) fn missing_base_chains(
    nft: &mut Nft,
    table: &nft::Table,
    dialect: Dialect,
    edits: &[Edit],
) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    let mut made: Vec<&str> = Vec::new();
    let mut has_table = false;
    for edit in edits {
        match edit {
            Edit::CreateChain(_) => {}
            Edit::Append(new) | Edit::Prepend(new) if !made.contains(&new.chain.as_str()) => {
                let Some(base) = dialect.base(&new.chain) else { continue };
                let chain = nft::Chain { base: Some(base), ..table.chain(new.chain.clone()) };
                made.push(&new.chain);
                match base_chains::find(nft, &chain)? {
                    Some(_) => has_table = true,
                    None => changes.push(Change::EnsureChain(chain)),
                }
            }
            Edit::Append(_)
            | Edit::Prepend(_)
            | Edit::PutBack(_)
            | Edit::Delete(_)
            | Edit::FlushChain(_)
            | Edit::DeleteChain(_) => {}
        }
    }
    let makes_chain = !changes.is_empty() || edits.iter().any(|edit| matches!(edit, Edit::CreateChain(_)));
    if makes_chain && !has_table && nft.find_table(table)?.is_none() {
        changes.insert(0, Change::EnsureTable(table.clone()));
    }
    Ok(changes)
}

pub(super) fn nft_changes(table: &nft::Table, dialect: Dialect, edit: Edit) -> Result<Vec<Change>> {
    Ok(match edit {
        Edit::CreateChain(chain) => {
            let base = dialect.base(&chain);
            vec![Change::EnsureChain(nft::Chain { base, ..table.chain(chain) })]
        }
        Edit::Append(new) => dialect.encode(table, new)?.into_iter().map(Change::AppendRule).collect(),
        // Prepended in reverse order, so that the first is at the start.
        Edit::Prepend(new) => dialect.encode(table, new)?.into_iter().rev().map(Change::PrependRule).collect(),
        Edit::PutBack(PutBack { rule: FoundRule { id: Id::Handle(rule), .. }, next, .. }) => {
            let rule = dialect.as_it_was(rule);
            vec![match next {
                Some(before) => Change::InsertRule { rule, before },
                None => Change::AppendRule(rule),
            }]
        }
        Edit::Delete(FoundRule { id: Id::Handle(rule), .. }) => vec![Change::DeleteRule(rule)],
        Edit::PutBack(PutBack { rule: FoundRule { id: Id::Words(_), .. }, .. })
        | Edit::Delete(FoundRule { id: Id::Words(_), .. }) => Vec::new(),
        Edit::FlushChain(chain) => vec![Change::FlushChain(table.chain(chain))],
        Edit::DeleteChain(chain) => {
            let chain = table.chain(chain);
            vec![Change::FlushChain(chain.clone()), Change::DeleteChain(chain)]
        }
    })
}

/// An edit in the words of iptables, for programs that show it.
pub(super) fn words(edit: &Edit) -> String {
    match edit {
        Edit::Delete(FoundRule { rule, id: Id::Handle(found), .. }) => {
            let rule = rule.as_ref().map_or_else(|| " (another program's rule)".to_owned(), ToString::to_string);
            format!("-D {}{rule}", found.chain)
        }
        Edit::PutBack(PutBack { rule: FoundRule { rule, id: Id::Handle(found), .. }, at, .. }) => {
            let rule = rule.as_ref().map_or_else(|| " (another program's rule)".to_owned(), ToString::to_string);
            format!("-I {} {}{rule}", found.chain, at + 1)
        }
        Edit::DeleteChain(chain) => format!("-X {chain}"),
        other => line(other).trim_end().to_owned(),
    }
}

/// An edit as a line for iptables-restore.
pub(super) fn line(edit: &Edit) -> String {
    match edit {
        Edit::CreateChain(chain) => format!("-N {chain}\n"),
        Edit::Append(new) => format!("-A {}{}\n", new.chain, new.rule),
        Edit::Prepend(new) => format!("-I {} 1{}\n", new.chain, new.rule),
        Edit::PutBack(PutBack { rule: FoundRule { id: Id::Words(words), .. }, at, .. }) => {
            let (chain, options) = words.split_once(' ').unwrap_or((words, ""));
            format!("-I {chain} {} {options}\n", at + 1)
        }
        Edit::Delete(FoundRule { id: Id::Words(words), .. }) => format!("-D {words}\n"),
        Edit::PutBack(PutBack { rule: FoundRule { id: Id::Handle(_), .. }, .. })
        | Edit::Delete(FoundRule { id: Id::Handle(_), .. }) => String::new(),
        Edit::FlushChain(chain) => format!("-F {chain}\n"),
        Edit::DeleteChain(chain) => format!("-F {chain}\n-X {chain}\n"),
    }
}
