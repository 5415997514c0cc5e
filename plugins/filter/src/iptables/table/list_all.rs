//! A whole table at once, for programs that list what is on the node: a plugin's calls read single chains.

use std::collections::BTreeMap;

use netops::error::Result;

use super::{FoundRule, Id, Table, World, parse};

impl Table<'_> {
    /// Lists the rules of all chains by chain, read at once. Chains without rules may be left out.
    ///
    /// # Errors
    /// The refusal of the kernel.
    pub fn list_all(&mut self) -> Result<BTreeMap<String, Vec<FoundRule>>> {
        let mut all: BTreeMap<String, Vec<FoundRule>> = BTreeMap::new();
        match &mut self.world {
            World::Netlink(nft) => {
                for rule in nft.list_all_rules(&self.table)? {
                    all.entry(rule.chain.to_string()).or_default().push(FoundRule::from_nft(rule));
                }
            }
            World::Program { text, .. } => {
                for name in parse::chains(text) {
                    let rules = parse::chain(text, name).unwrap_or_default().into_iter();
                    let found = rules.map(|(words, rule)| FoundRule { rule, note: None, id: Id::Words(words) });
                    all.insert(name.to_owned(), found.collect());
                }
            }
        }
        Ok(all)
    }
}
