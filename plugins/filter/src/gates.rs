//! What the packet filter does with packets between networks and to the node itself: for programs that explain what becomes
//! of a packet.

use std::collections::BTreeMap;

use netops::error::Result;
use netops::nft::{self, Family, Hook, Nft};

use crate::Filter;
use crate::iptables::{NativeTable, Rule, Table, TableName};

/// A base chain that packets pass, with all chains that it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// The table and chain in words: `chain FORWARD of iptables`, `nft chain inet filter forward`.
    pub place: String,
    /// The ruleset.
    pub maker: Maker,
    /// The family of its packets; `None`: IPv4 and IPv6.
    pub family: Option<netops::Family>,
    /// Forward or input.
    pub hook: Hook,
    /// Whether the base chain drops the packets that no rule decides on.
    pub drops: bool,
    /// The base chain's name.
    pub chain: String,
    /// The rules that decide on packets, by chain: of the base chain, and of all that it leads to.
    pub chains: BTreeMap<String, Vec<Step>>,
}

/// The ruleset that a chain belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Maker {
    /// iptables, in nf_tables.
    Iptables,
    /// iptables, the legacy variant.
    LegacyIptables,
    /// A program that writes nf_tables itself: its table and chain as nft(8) names them.
    Nftables(String),
}

/// A rule that ends a packet's way, or leads to another chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The rule, where a refusal counts as `DROP`; `None`: it has conditions that this crate does not read.
    pub rule: Option<Rule>,
    /// The chain that it leads to.
    pub to: Option<String>,
    /// Whether the rule may accept packets.
    pub may_accept: bool,
}

const BUILT_IN: [(&str, Hook); 2] = [("FORWARD", Hook::Forward), ("INPUT", Hook::Input)];

/// Lists the gates of both variants of iptables' table `filter`, and those of all other tables of nf_tables. Changes nothing.
///
/// # Errors
/// The refusal of the kernel or iptables. A kernel without a packet filter is no error.
pub fn list(search_path: &str) -> Result<Vec<Gate>> {
    let Some(filter) = Filter::find()? else { return Ok(Vec::new()) };
    let mut filter = filter.searching(search_path);
    let mut gates = Vec::new();
    for family in [Family::Ip, Family::Ip6] {
        let program = if family == Family::Ip6 { "ip6tables" } else { "iptables" };
        filter.each_iptables(family, TableName::Filter, &mut |table| {
            let is_legacy = table.is_of_legacy();
            for (chain, hook) in BUILT_IN {
                let maker = if is_legacy { Maker::LegacyIptables } else { Maker::Iptables };
                let variant = if is_legacy { " (legacy)" } else { "" };
                let gate = Gate {
                    place: format!("chain {chain} of {program}{variant}"),
                    maker,
                    family: of_packets(family),
                    hook,
                    drops: table.drops_by_policy(chain)?,
                    chain: chain.to_owned(),
                    chains: chains(table, chain)?,
                };
                gates.push(gate);
            }
            Ok(())
        })?;
    }
    for family in [Family::Inet, Family::Ip, Family::Ip6] {
        of_others(&mut filter.nft, family, &mut gates)?;
    }
    Ok(gates)
}

/// The base chains of a family that iptables' table `filter` does not have.
fn of_others(nft: &mut Nft, family: Family, gates: &mut Vec<Gate>) -> Result<()> {
    for chain in nft.list_base_chains(family)? {
        let Some(base) = &chain.base else { continue };
        let Some(hook) = Hook::of(base.hook).filter(|hook| matches!(hook, Hook::Forward | Hook::Input)) else {
            continue;
        };
        let is_iptables = family != Family::Inet
            && chain.table == TableName::Filter.as_str()
            && BUILT_IN.iter().any(|(name, _)| *name == chain.name);
        let table = nft::Table { family, name: chain.table.clone().into() };
        if base.kind != "filter" || is_iptables || nft.find_table(&table)?.is_some_and(|table| table.is_dormant) {
            continue;
        }
        let name = format!("{table} {}", chain.name);
        gates.push(Gate {
            place: format!("nft chain {name}"),
            maker: Maker::Nftables(name),
            family: of_packets(family),
            hook,
            drops: base.drops,
            chains: chains(&mut Table::native(nft, NativeTable { table, base_chains: &[] }), &chain.name)?,
            chain: chain.name,
        });
    }
    Ok(())
}

/// The family of the packets that a table of nf_tables sees, if it is one alone.
fn of_packets(family: Family) -> Option<netops::Family> {
    match family {
        Family::Ip => Some(netops::Family::V4),
        Family::Ip6 => Some(netops::Family::V6),
        Family::Inet | Family::Bridge => None,
    }
}

/// The rules of a chain and of those that it leads to.
fn chains(table: &mut Table<'_>, start: &str) -> Result<BTreeMap<String, Vec<Step>>> {
    let (mut read, mut next) = (BTreeMap::new(), vec![start.to_owned()]);
    // A chain is noted once: what is noted is not read yet.
    while let Some(chain) = next.pop() {
        let mut steps = Vec::new();
        let mut rules = Vec::new();
        for found in table.list(&chain)?.unwrap_or_default() {
            rules.extend(table.without_sets(found)?);
        }
        for found in rules {
            let to = match found.goes_to() {
                Some(to) if read.contains_key(to) || next.iter().any(|next| next == to) || *to == *chain => Some(to),
                // In the legacy variant a verdict has the form of a jump.
                Some(to) if table.has_chain(to)? => {
                    next.push(to.to_owned());
                    Some(to)
                }
                _ => None,
            };
            if to.is_some() || found.may_decide() {
                let (rule, to) = (found.refusing(), to.map(str::to_owned));
                steps.push(Step { rule, to, may_accept: found.may_accept() });
            }
        }
        read.insert(chain, steps);
    }
    Ok(read)
}
