//! The base chains of iptables' table `nat`, in the order in which packets meet their rules: for programs that explain why
//! a translation is not reached.

use std::collections::BTreeMap;

use netops::error::Result;
use netops::nft::Family;

use crate::Filter;
use crate::iptables::{FoundRule, Rule, Table, TableName};

/// A base chain of the table `nat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// The program that shows it, with its table: `iptables -t nat`.
    pub program: String,
    /// The family of its packets.
    pub family: netops::Family,
    /// The chain's name.
    pub chain: &'static str,
    /// The chain's rules that this crate can read.
    pub steps: Vec<Step>,
    /// Whether a rule before these chains of this suite translates packets by conditions that are not read.
    pub is_unread: bool,
    /// The rules of this suite's chains that packets get to from there, by name.
    pub own: BTreeMap<String, Vec<Step>>,
}

/// A rule of a base chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The rule; with a translation that this suite's rules do not have, its conditions alone.
    pub rule: Rule,
    /// Whether packets that it leads to another chain do not come back to this one (`-g`).
    pub is_goto: bool,
    /// The translation in words: `SNAT --to-source 192.0.2.1`.
    pub translation: Option<String>,
}

/// Lists the chains by which packets enter and leave, of both families and of both variants of iptables. Changes nothing.
///
/// # Errors
/// The refusal of the kernel or iptables. A kernel without a packet filter is no error.
pub fn list(search_path: &str) -> Result<Vec<Base>> {
    let Some(mut filter) = Filter::find(search_path)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for (of, family, program) in
        [(Family::Ip, netops::Family::V4, "iptables"), (Family::Ip6, netops::Family::V6, "ip6tables")]
    {
        filter.each_iptables(of, TableName::Nat, &mut |table| {
            let variant = if table.is_of_legacy() { "-legacy" } else { "" };
            for chain in ["PREROUTING", "POSTROUTING"] {
                let rules = table.list(chain)?.unwrap_or_default();
                let before = rules.iter().take_while(|rule| !rule.goes_to().is_some_and(|to| to.starts_with("CNI-")));
                let is_unread = before.filter(|rule| rule.translates()).any(|rule| rule.translating().is_none());
                let steps: Vec<Step> = rules.iter().filter_map(step).collect();
                let mut own = BTreeMap::new();
                add_own(table, &steps, &mut own)?;
                let program = format!("{program}{variant} -t nat");
                found.push(Base { program, family, chain, steps, is_unread, own });
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// The rules of a chain that can be read.
fn steps(table: &mut Table<'_>, chain: &str) -> Result<Vec<Step>> {
    Ok(table.list(chain)?.unwrap_or_default().iter().filter_map(step).collect())
}

fn step(rule: &FoundRule) -> Option<Step> {
    let is_goto = rule.is_goto();
    rule.translating().map(|(rule, translation)| Step { rule, is_goto, translation })
}

/// Adds the suite's chains that these rules jump to, and those that they jump to in turn.
fn add_own(table: &mut Table<'_>, from: &[Step], own: &mut BTreeMap<String, Vec<Step>>) -> Result<()> {
    for chain in from.iter().filter_map(|step| step.rule.goes_to()).filter(|chain| chain.starts_with("CNI-")) {
        if !own.contains_key(chain) {
            let steps = steps(table, chain)?;
            own.insert(chain.to_owned(), steps.clone());
            add_own(table, &steps, own)?;
        }
    }
    Ok(())
}

impl Step {
    /// The rule as iptables writes it after the chain's name.
    #[must_use]
    pub fn words(&self) -> String {
        let target = self.translation.as_ref().map_or(String::new(), |translation| format!(" -j {translation}"));
        let rule = self.rule.to_string();
        let rule = if self.is_goto { rule.replace(" -j ", " -g ") } else { rule };
        format!("{rule}{target}")
    }
}
