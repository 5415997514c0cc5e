//! Shared rules (key `"rules": "shared"`): one table of ours for each family, whose rules look containers up in sets and maps.
//! The rules are made once and stay; a container has elements alone, so that neither a call nor a packet pays for the others.
//!
//! Each element has the comment of its attachment ([`Names::comment`]). What is in the maps is keyed by what packets have, so a
//! second map, the index, leads from the attachment to it: DEL finds its elements by their keys without addresses, a result or
//! a list of all. The key of the index is the attachment's hash and a number that counts from 0; its value, the *entry*, is the
//! key that the attachment's elements are derived from. All is in types of nft(8), so a listed ruleset can be loaded again.
//!
//! An element is added only where its key has none, which the kernel sees to, so two attachments never have one together, and
//! none takes another's.

pub(crate) mod accept;
pub(crate) mod masquerade;
pub(crate) mod ports;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netops::OpError;
use netops::all_namespaces::AllNamespaces;
use netops::error::Result;
use netops::kernel_probe::once;
use netops::nft::{
    Chain, Change, Data, DataType, Element, Expr, Family, MAX_CHANGES, MapOf, Name, Nft, Set, Table, Transaction,
};

use crate::alias::may_live;
use crate::names_and_comments::{Names, Stale};
use crate::nftables_masquerade::{put_in_order, stand_in_order};
use crate::{base_chains, retry_when_changed};

/// The families, each of which has a table.
pub(crate) const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];

pub(crate) fn table(family: Family) -> Table {
    Table::new(family, "cni_shared")
}

/// The sets, chains and rules that one kind of elements needs.
pub(crate) struct Layout {
    pub(crate) table: Table,
    pub(crate) sets: Vec<Set>,
    pub(crate) chains: Vec<(Chain, Vec<Vec<Expr>>)>,
}

/// The set and the key of each element of an entry.
type Keys = Vec<(Name, Vec<u8>)>;

/// A kind of elements: what one plugin adds for an attachment.
pub(crate) struct Kind {
    /// The name of the index.
    index: Name,
    /// Whether the container has its addresses already when elements are added.
    is_attached: bool,
    /// The sets whose elements belong to an entry.
    sets: &'static [Name],
    /// The keys of an entry's elements, by set.
    keys: fn(Family, &[u8]) -> Keys,
    /// The address of the container that an element is for.
    address: fn(&Element) -> Option<IpAddr>,
    /// What an element does, for people.
    text: fn(&Element) -> String,
}

/// The state that an attachment asks for: the layouts of its families, and its entries of each kind in both.
pub(crate) struct Wanted {
    layouts: Vec<Layout>,
    entries: Vec<(Family, &'static Kind, Vec<Entry>)>,
}

/// What an attachment wants: an entry, and the data of its elements in the order of [`Kind::keys`].
pub(crate) struct Entry {
    key: Vec<u8>,
    data: Vec<Option<Data>>,
}

impl Layout {
    /// The changes that make what is missing; none if all is there. `is_whole`: a set was missing.
    fn mend(&self, nft: &mut Nft, is_whole: bool) -> Result<Vec<Change>> {
        let mut mended = Vec::new();
        for (chain, rules) in &self.chains {
            base_chains::find(nft, chain)?;
            mended.extend(put_in_order(chain, &nft.list_rules(chain)?, rules));
        }
        if mended.is_empty() && !is_whole {
            return Ok(mended);
        }
        Ok(self.objects().chain(mended).collect())
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = Change> {
        let sets = self.sets.iter().cloned().map(Change::EnsureSet);
        let chains = self.chains.iter().map(|(chain, _)| Change::EnsureChain(chain.clone()));
        [Change::EnsureTable(self.table.clone())].into_iter().chain(sets).chain(chains)
    }

    /// All of it, for a kernel that has none.
    pub(crate) fn trial(&self) -> Vec<Change> {
        let rules = |(chain, rules): &(Chain, Vec<Vec<Expr>>)| put_in_order(chain, &[], rules);
        self.objects().chain(self.chains.iter().flat_map(rules)).collect()
    }

    /// Errors: packets do not reach the rules, or these are not what they were.
    fn check(&self, nft: &mut Nft) -> Result<()> {
        base_chains::expect_awake(nft, &self.table)?;
        for (chain, rules) in &self.chains {
            base_chains::find(nft, chain)?;
            if !stand_in_order(&nft.list_rules(chain)?, rules) {
                let object = format!("nft chain {} {}", self.table, chain.name);
                return Err(OpError::state("find", object, "its rules are not what they were"));
            }
        }
        Ok(())
    }
}

impl Kind {
    /// The index, whose entries have these fields.
    fn index(&self, table: &Table, fields: Vec<DataType>) -> Set {
        let key = vec![DataType::LinkName, DataType::LinkName, DataType::Mark];
        Set { table: table.clone(), name: self.index.clone(), key, map: Some(MapOf::Values(fields)) }
    }

    fn element(&self, table: &Table, set: &Name, key: Vec<u8>) -> Element {
        Element { table: table.clone(), set: set.clone(), key, data: None, comment: None }
    }

    /// The element of the index with this number; `key` is the attachment's.
    fn numbered(&self, table: &Table, key: &str, number: usize) -> Element {
        let mut bytes = Vec::with_capacity(36);
        for half in key.split('-') {
            // With a final NUL, as a link's name is 16 bytes.
            bytes.extend(half.bytes().take(15).chain([0]));
        }
        bytes.extend(u32::try_from(number).unwrap_or(u32::MAX).to_ne_bytes());
        self.element(table, &self.index, bytes)
    }

    /// The attachment's entries, in order.
    fn entries(&self, nft: &mut Nft, table: &Table, key: &str) -> Result<Vec<Vec<u8>>> {
        let mut entries: Vec<Vec<u8>> = Vec::new();
        // More than two addresses of a family are rare, ports less so.
        let mut asked = 4;
        loop {
            let first = entries.len();
            let numbers = first..first + asked;
            let all: Vec<_> = numbers.map(|number| self.numbered(table, key, number)).collect();
            let value = |found: Option<Element>| if let Data::Value(value) = found?.data? { Some(value) } else { None };
            entries.extend(nft.find_elements(&all)?.into_iter().map_while(value));
            if entries.len() < first + asked {
                return Ok(entries);
            }
            asked = (asked * 2).min(MAX_CHANGES);
        }
    }

    /// The elements of these entries.
    fn elements(&self, table: &Table, names: Names<'_>, wanted: &[Entry]) -> Vec<Element> {
        let comment = names.comment();
        let of_entry = |entry: &Entry| {
            let elements = (self.keys)(table.family, &entry.key).into_iter().zip(entry.data.clone());
            let comment = || Some(comment.clone());
            let made = |((set, key), data)| Element { data, comment: comment(), ..self.element(table, &set, key) };
            elements.map(made).collect::<Vec<_>>()
        };
        wanted.iter().flat_map(of_entry).collect()
    }

    /// The changes by which the attachment has the elements of these entries and no others, none if that is so; and whether it has none now.
    /// Errors: another attachment that lives has an element.
    fn hold(&self, nft: &mut Nft, table: &Table, names: Names<'_>, wanted: &[Entry]) -> Result<(Vec<Change>, bool)> {
        let (owner, comment, key) = (names.owner(), names.comment(), names.key());
        let old = self.entries(nft, table, &key)?;
        let new = self.elements(table, names, wanted);
        let is_kept = |entry: &&Vec<u8>| wanted.iter().any(|wanted| wanted.key == **entry);
        let mut asked = new.clone();
        for entry in old.iter().filter(|entry| !is_kept(entry)) {
            asked.extend((self.keys)(table.family, entry).into_iter().map(|(set, key)| self.element(table, &set, key)));
        }
        let found: Vec<Option<Element>> = nft.find_elements(&asked)?;
        let is_same = old.iter().eq(wanted.iter().map(|entry| &entry.key));
        if is_same && found.iter().map(Option::as_ref).eq(new.iter().map(Some)) {
            return Ok((Vec::new(), old.is_empty()));
        }
        let mut changes = Vec::new();
        for (number, found) in found.into_iter().enumerate() {
            let Some(found) = found else { continue };
            if !owner.owns(found.comment.as_deref()) {
                if number >= new.len() {
                    continue;
                }
                let is_own =
                    self.is_attached && new.iter().any(|wanted| (self.address)(wanted) == (self.address)(&found));
                self.refuse_living(&found, is_own.then_some(names))?;
            }
            changes.push(Change::DeleteElement(found));
        }
        changes.extend((0..old.len()).map(|old| Change::DeleteElement(self.numbered(table, &key, old))));
        changes.extend(new.into_iter().map(Change::AddElement));
        changes.extend(wanted.iter().enumerate().map(|(place, entry)| {
            let data = Some(Data::Value(entry.key.clone()));
            Change::AddElement(Element { data, comment: Some(comment.clone()), ..self.numbered(table, &key, place) })
        }));
        Ok((changes, old.is_empty()))
    }

    /// Errors: a container that may live has the element. `own`: the attachment that asks, if it has the address.
    fn refuse_living(&self, found: &Element, own: Option<Names<'_>>) -> Result<()> {
        let (whose, text) = (found.comment.as_deref().unwrap_or_default(), (self.text)(found));
        // A DEL of the reference leaves elements.
        if (self.address)(found).is_some_and(|address| !may_live(&AllNamespaces::read(), whose, address, own)) {
            tracing::warn!("{text} is taken over from {whose:?}: no container has that address any more");
            return Ok(());
        }
        let sentence =
            format!("{text} is there for another attachment, {whose:?}: run DEL of that, or GC of its network");
        Err(OpError::state("create", format!("an element {found}"), sentence))
    }

    /// Errors: an element of these entries is missing or different.
    fn check(&self, nft: &mut Nft, table: &Table, names: Names<'_>, wanted: &[Entry]) -> Result<()> {
        let (old, elements) = (self.entries(nft, table, &names.key())?, self.elements(table, names, wanted));
        let found = nft.find_elements(&elements)?;
        let lost = elements.iter().zip(&found).find(|(wanted, found)| found.as_ref() != Some(*wanted));
        let is_indexed = wanted.iter().all(|entry| old.contains(&entry.key));
        let Some(element) = lost.map(|(wanted, _)| wanted).or(elements.first().filter(|_| !is_indexed)) else {
            return Ok(());
        };
        let sentence = format!("it or {} lacks what ADD made for {}", self.index, (self.text)(element));
        Err(OpError::state("find", format!("an element {element}"), sentence))
    }

    /// Removes the attachment's elements; returns them.
    fn remove(&self, nft: &mut Nft, family: Family, names: Names<'_>) -> Result<Vec<Element>> {
        retry_when_changed::retry(|| {
            let generation = nft.generation()?;
            let (changes, _) = self.hold(nft, &table(family), names, &[])?;
            nft.commit(&guarded(changes.clone(), generation))?;
            Ok(changes.into_iter().filter_map(deleted).collect())
        })
    }

    /// Removes the elements of a network's attachments that are no longer valid; returns them.
    fn gc(&self, nft: &mut Nft, stale: &Stale) -> Result<Vec<Element>> {
        let mut all = Vec::new();
        for (table, set) in
            FAMILIES.iter().flat_map(|family| self.sets.iter().chain([&self.index]).map(|set| (table(*family), set)))
        {
            let mut is_over = false;
            while !is_over {
                all.extend(retry_when_changed::retry(|| {
                    let generation = nft.generation()?;
                    let mut gone = nft.list_elements(&table, set)?;
                    gone.retain(|element| stale.has(element.comment.as_deref()));
                    is_over = gone.len() <= MAX_CHANGES;
                    gone.truncate(MAX_CHANGES);
                    let changes = gone.iter().cloned().map(Change::DeleteElement).collect();
                    nft.commit(&guarded(changes, generation)).map(|()| gone)
                })?);
            }
        }
        Ok(all)
    }

    /// The elements of all attachments, but those of the index.
    fn list(&self, nft: &mut Nft) -> Result<Vec<Element>> {
        let mut found = Vec::new();
        for table in FAMILIES.map(table) {
            for set in self.sets {
                found.extend(nft.list_elements(&table, set)?);
            }
        }
        Ok(found)
    }
}

fn deleted(change: Change) -> Option<Element> {
    if let Change::DeleteElement(element) = change { Some(element) } else { None }
}

/// A transaction that is refused if the ruleset is another than was looked at, where that matters: an element is deleted by its key
/// alone, which another attachment may have taken over meanwhile, and rules that two processes make would be there twice.
pub(crate) fn guarded(changes: Vec<Change>, generation: u32) -> Transaction {
    let is_free = changes.iter().all(|change| matches!(change, Change::AddElement(_)));
    let transaction = Transaction::new(changes);
    if is_free { transaction } else { transaction.if_still(generation) }
}

/// The address at the start of a key or value.
pub(crate) fn address_at(family: Family, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        Family::Ip => <[u8; 4]>::try_from(bytes.get(..4)?).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes.get(..16)?).ok().map(IpAddr::from),
    }
}

impl Wanted {
    /// Makes what is missing of the layouts, and the elements in place of the attachment's earlier ones, in one transaction. Returns whether it had none.
    fn add(&self, nft: &mut Nft, attachment: Names<'_>) -> Result<bool> {
        let (mut is_set_missing, mut had_none) = (false, true);
        retry_when_changed::retry(|| {
            let generation = nft.generation()?;
            let mut changes = Vec::new();
            for layout in &self.layouts {
                base_chains::wake(nft, &layout.table)?;
                changes.extend(layout.mend(nft, is_set_missing)?);
            }
            for (family, kind, entries) in &self.entries {
                let (held, is_new) = kind.hold(nft, &table(*family), attachment, entries)?;
                changes.extend(held);
                had_none &= is_new;
            }
            let done = nft.commit(&guarded(changes, generation));
            is_set_missing |= done.as_ref().is_err_and(retry_when_changed::is_overtaken);
            done
        })?;
        Ok(had_none)
    }

    /// Compares the ruleset with what [`Wanted::add`] makes.
    fn check(&self, nft: &mut Nft, attachment: Names<'_>) -> Result<()> {
        for layout in &self.layouts {
            layout.check(nft)?;
            for (_, kind, entries) in self.entries.iter().filter(|(family, ..)| *family == layout.table.family) {
                kind.check(nft, &layout.table, attachment, entries)?;
            }
        }
        Ok(())
    }
}

/// Returns whether this kernel can have the layouts. Where the chain exists they have worked before.
fn probe(nft: &mut Nft, name: &'static str, first: &Chain, layouts: impl FnOnce() -> Vec<Layout>) -> Result<()> {
    if base_chains::find(nft, first)?.is_some() {
        return Ok(());
    }
    let changes = layouts().iter().flat_map(Layout::trial).collect();
    once(name, || nft.try_out(&Transaction::new(changes)))
}

fn unspecified(family: Family) -> IpAddr {
    if family == Family::Ip { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}
