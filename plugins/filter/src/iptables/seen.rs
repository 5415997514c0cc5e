//! What iptables' filter table does with packets between networks, for programs that explain what becomes of a packet.

use std::collections::BTreeSet;

use netops::error::Result;
use netops::nft::Family;

use super::{Rule, TableName};
use crate::Filter;

/// A chain of table `filter`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The chain's name.
    pub name: String,
    /// Whether the chain drops the packets that no rule decides on. A chain that other chains jump to does not.
    pub drops: bool,
    /// The chain's rules in order; `None`: a rule with something that our rules do not have.
    pub rules: Vec<Option<Rule>>,
    /// The chains that the rules jump to.
    pub jumps: Vec<String>,
}

/// The chains of both variants of iptables that packets between networks pass: `FORWARD`, and those that it leads to. Changes
/// nothing.
///
/// # Errors
/// The refusal of the kernel or iptables. A kernel without a packet filter is no error.
pub fn chains(search_path: &str, family: Family) -> Result<Vec<Chain>> {
    let Some(filter) = Filter::find()? else { return Ok(Vec::new()) };
    let mut chains = Vec::new();
    filter.searching(search_path).each_iptables(family, TableName::Filter, &mut |table| {
        for name in table.list_chains()? {
            let found = table.list(&name)?.unwrap_or_default();
            let jumps = found.iter().filter_map(|found| found.goes_to().map(str::to_owned)).collect();
            let rules = found.into_iter().map(|found| found.rule).collect();
            let drops = table.drops_by_policy(&name)?;
            chains.push(Chain { name, drops, rules, jumps });
        }
        Ok(())
    })?;
    let mut passed = BTreeSet::from(["FORWARD".to_owned()]);
    // Each turn takes a chain more, or is the last.
    for _ in 0..chains.len() {
        let jumps =
            chains.iter().filter(|chain| passed.contains(&chain.name)).flat_map(|chain| chain.jumps.iter().cloned());
        let jumps: Vec<String> = jumps.filter(|name| !passed.contains(name)).collect();
        if jumps.is_empty() {
            break;
        }
        passed.extend(jumps);
    }
    chains.retain(|chain| passed.contains(&chain.name));
    Ok(chains)
}
