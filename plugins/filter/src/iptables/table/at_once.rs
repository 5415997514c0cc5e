//! A change to the tables of several families: one look and one transaction for all of them.

use std::collections::BTreeMap;
use std::time::Instant;

use netops::error::{Cause, Result};
use netops::nft::{Chain, ChainInfo, Change, Family, Nft, Transaction};
use netops::{Errno, OpError};

use super::edit::nft_changes;
use super::{DEADLINE, Edit, Table, TableName, World};
use crate::iptables::table::{FoundRule, Id, parse};
use crate::iptables::variant;
use crate::{base_chains, retry_when_changed};

/// The chains that a change is about, in each family's table.
#[derive(Clone, Copy)]
pub(crate) struct Chains<'a> {
    pub(crate) table: TableName,
    /// A chain of the caller's own.
    pub(crate) own: &'a str,
    /// The built-in chain with rules that jump there.
    pub(crate) base: &'a str,
}

impl Chains<'_> {
    fn of(self, family: Family) -> [Chain; 2] {
        let table = netops::nft::Table::new(family, self.table.as_str());
        [
            table.chain(self.own.to_owned()),
            Chain { base: self.table.built_in(self.base), ..table.chain(self.base.to_owned()) },
        ]
    }
}

/// Changes the tables of these families in nf_tables, as [`Table::change`] does one: all edits or none. `edits` gets each family's
/// table and whether it has the own chain, and appends to no base chain but the one named. `false`: the kernel lacks
/// extensions, and nothing was changed.
pub(crate) fn change(
    nft: &mut Nft,
    families: &[Family],
    chains: Chains<'_>,
    mut edits: impl FnMut(&mut Table<'_>, Family, bool) -> Result<Vec<Edit>>,
) -> Result<bool> {
    let _turn = retry_when_changed::queue();
    let start = Instant::now();
    let places: Vec<_> = families.iter().flat_map(|family| chains.of(*family)).collect();
    loop {
        let Some(look) = nft.look(families, &variant::extensions(chains.table), &places)? else { return Ok(false) };
        let mut changes = Vec::new();
        let found = look.chains.chunks(2).zip(places.chunks(2));
        for (family, (found, places)) in families.iter().zip(found) {
            let ([own, base], [_, place]) = (found, places) else { continue };
            base_chains::expect(place, base.as_ref())?;
            let edits = edits(&mut Table::new(chains.table, *family, World::Netlink(nft)), *family, own.is_some())?;
            changes.extend(missing(nft, place, [own, base], &edits)?);
            let dialect = super::Dialect::Iptables(chains.table);
            for edit in edits {
                changes.extend(nft_changes(&place.table, dialect, edit)?);
            }
        }
        match nft.commit(&Transaction::new(changes).if_still(look.generation)) {
            Err(error) if error.os_errno() == Some(Errno::ERESTART) => {
                if start.elapsed() > DEADLINE {
                    let object = format!("iptables' tables {}, which others keep changing", chains.table.as_str());
                    return Err(OpError::new("change", object, Cause::Timeout(DEADLINE)));
                }
            }
            done => return done.map(|()| true),
        }
    }
}

/// The base chain, and the table, if they are missing and edits need them.
fn missing(nft: &mut Nft, place: &Chain, found: [&Option<ChainInfo>; 2], edits: &[Edit]) -> Result<Vec<Change>> {
    let [own, base] = found;
    let is_for_base = |edit: &Edit| matches!(edit, Edit::Append(new) if new.chain == place.name);
    let chain = (base.is_none() && edits.iter().any(is_for_base)).then(|| Change::EnsureChain(place.clone()));
    let has_table = own.is_some() || base.is_some() || edits.is_empty() || nft.find_table(&place.table)?.is_some();
    let table = (!has_table).then(|| Change::EnsureTable(place.table.clone()));
    Ok(table.into_iter().chain(chain).collect())
}

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

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a namespace of the test's own, on a thread that ends there")]
    fn both_families_change_together_and_after_a_new_look_if_the_ruleset_changed() {
        let test = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let mut nft = Nft::open("the host").unwrap();
            let chains = Chains { table: TableName::Nat, own: "CNI-own", base: "POSTROUTING" };
            let families = [Family::Ip, Family::Ip6];
            let mut looks = Vec::new();
            let is_done = change(&mut nft, &families, chains, |_, family, has_own| {
                looks.push((family, has_own));
                if looks.len() == 2 {
                    let others = netops::nft::Table::new(Family::Inet, "another");
                    let others = Transaction::new(vec![Change::EnsureTable(others)]);
                    Nft::open("the host").unwrap().commit(&others).unwrap();
                }
                Ok(vec![Edit::CreateChain("CNI-own".to_owned())])
            });
            if !is_done.unwrap() {
                return testns::skip("both_families_change_together", "the kernel has no nft_compat");
            }
            assert_eq!(
                looks,
                [families.map(|family| (family, false)), families.map(|family| (family, false))].concat()
            );
            let owns = families.map(|family| chains.of(family)).map(|[own, _]| nft.find_chain(&own).unwrap().is_some());
            assert_eq!(owns, [true, true]);
        };
        std::thread::spawn(test).join().unwrap();
    }
}
