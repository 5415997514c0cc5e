//! The rules in iptables' table `filter`, the reference's to the letter.
//!
//! ```text
//! -A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD
//! -A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN
//! -A CNI-FORWARD -d 10.1.0.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
//! -A CNI-FORWARD -s 10.1.0.2/32 -j ACCEPT
//! ```
//!
//! A rule says nothing of its container but the address. A note, which iptables does not show, names the attachment, and
//! the bridge and policy that it has. So DEL needs no result, an address that changed hands keeps its new owner's rules,
//! and the rules of a bridge go with its last container.

mod isolation;

use isolation::{
    EITHER, bridge_rules, end_isolation, isolating, merged, policies_passed_by, policy_comment, put_first,
};
pub(crate) use isolation::{Isolation, isolated_bridge};

use std::cell::RefCell;
use std::net::IpAddr;

use cni_filter::iptables::rule::{Is, Rule, Target, is};
use cni_filter::iptables::{Before, Edit, FoundRule, NativeTable, NewRule, Table};
use cni_filter::{ACCEPT_MARK, Names, Noted, OfNetwork, Stale};
use cni_spec::gc::Sweep;
use netops::OpError;
use netops::error::Result;
use netops::nft::{self, BaseChain, Family, Hook};

use crate::conf::Policy;

const FORWARD: &str = "FORWARD";
const OWN: &str = "CNI-FORWARD";
const STAGE_1: &str = "CNI-ISOLATION-STAGE-1";
const STAGE_2: &str = "CNI-ISOLATION-STAGE-2";
/// The text between an attachment's note and its bridge.
const BRIDGE: &str = ", bridge: ";
/// The fault of a chain in which the accept rules come first.
const PASSED_BY: &str = "goes to CNI-FORWARD before CNI-ISOLATION-STAGE-1, so packets pass before any policy counts";

/// The table of backend nftables, with the same chains and rules.
pub(crate) fn native(family: Family) -> NativeTable {
    const BASE_CHAINS: &[(&str, BaseChain)] = &[(FORWARD, BaseChain::filter(Hook::Forward))];
    NativeTable { table: nft::Table::new(family, "cni_firewall"), base_chains: BASE_CHAINS }
}

/// What an attachment's rules let pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attached<'a> {
    pub(crate) names: Names<'a>,
    /// The addresses of the table's family.
    pub(crate) addresses: &'a [IpAddr],
    pub(crate) admin_chain: &'a str,
    pub(crate) isolation: Option<Isolation<'a>>,
    pub(crate) accepted: Accepted,
}

/// The way in which the addresses are let pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// By rules for each.
    Here,
    /// By one rule for all packets with a mark.
    ByMark,
    ByFirewalld,
}

impl Accepted {
    /// The other form of rules.
    pub(crate) fn other(self) -> Option<Self> {
        match self {
            Self::Here => Some(Self::ByMark),
            Self::ByMark => Some(Self::Here),
            Self::ByFirewalld => None,
        }
    }
}

impl Attached<'_> {
    /// The attachment, its bridge and its policy: `…, bridge: cni0 same-bridge`.
    fn note(&self) -> String {
        let own = self.names.comment();
        match self.isolation {
            Some(Isolation { bridge, policy }) => format!("{own}{BRIDGE}{bridge} {}", policy.as_str()),
            None => own,
        }
    }

    /// The rules that let the addresses pass, each once.
    fn accepts(&self) -> Vec<Rule> {
        let mut rules: Vec<Rule> = Vec::new();
        let by_mark =
            || commented("shared rules", Rule { mark: Some(ACCEPT_MARK), target: Target::Accept, ..Rule::default() });
        let all: Vec<Rule> = match self.accepted {
            Accepted::Here => self.addresses.iter().flat_map(|address| accepts(*address)).collect(),
            Accepted::ByMark => vec![by_mark()],
            Accepted::ByFirewalld => Vec::new(),
        };
        for rule in all {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        rules
    }
}

fn accepts(address: IpAddr) -> [Rule; 2] {
    let accept = Rule { target: Target::Accept, ..Rule::default() };
    let to = Rule { destination: is(address.into()), established: true, ..accept.clone() };
    [to, Rule { source: is(address.into()), ..accept }]
}

fn commented(text: &str, rule: Rule) -> Rule {
    Rule { comment: Some(format!("CNI firewall plugin {text}")), ..rule }
}

/// Whether the rule is there, by whichever version of the reference, which have different comments.
fn is_there(found: &[FoundRule], wanted: &Rule) -> bool {
    found.iter().any(|found| found.rule.as_ref().is_some_and(|rule| is_alike(rule, wanted)))
}

fn is_alike(one: &Rule, other: &Rule) -> bool {
    Rule { comment: None, ..one.clone() } == Rule { comment: None, ..other.clone() }
}

fn shared_rule(chain: &str, rule: Rule) -> NewRule {
    NewRule { chain: chain.to_owned(), rule, note: None }
}

/// The attachment's rules before ADD, and those that ADD adds.
#[derive(Debug)]
pub(crate) struct Replaced {
    before: Before,
    added: Vec<Rule>,
}

/// Makes the rules; with addresses of an earlier ADD of the attachment they are replaced. `replaced` gets what was there, before
/// anything is changed.
pub(crate) fn add(table: &mut Table<'_>, attached: Attached<'_>, replaced: &RefCell<Option<Replaced>>) -> Result<()> {
    table.change(|table| {
        let mut before = Before::default();
        let edits = planned(table, attached, &mut before)?;
        replaced.replace(Some(Replaced::of(table, before, &edits)?));
        Ok(edits)
    })
}

impl Replaced {
    /// `before` has the rules of the chain in which attachments have theirs.
    fn of(table: &mut Table<'_>, mut before: Before, edits: &[Edit]) -> Result<Self> {
        for chain in [STAGE_1, STAGE_2] {
            let deleted = |edit: &Edit, found: &FoundRule| matches!(edit, Edit::Delete(gone) if gone.is(found));
            if edits.iter().any(|edit| matches!(edit, Edit::Delete(gone) if gone.chain() == Some(chain))) {
                let all = table.list(chain)?.unwrap_or_default();
                before.keep(chain, &all, |found| edits.iter().any(|edit| deleted(edit, found)));
            }
        }
        let added = edits.iter().filter_map(|edit| match edit {
            // The others use the one that has no note.
            Edit::Append(new) if new.chain == OWN && new.note.is_some() => Some(new.rule.clone()),
            _ => None,
        });
        Ok(Self { before, added: added.collect() })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.before.is_empty()
    }
}

/// Takes an ADD back: its rules, and those of bridges that only it has used, are removed, and those that it has replaced are put
/// back in their places.
pub(crate) fn put_back(table: &mut Table<'_>, names: Names<'_>, replaced: &Replaced) -> Result<()> {
    let (owner, Replaced { before, added }) = (names.owner(), replaced);
    table.change(|table| {
        let keeps_notes = table.keeps_notes();
        let is_made = |chain: &str, found: &FoundRule| {
            let is_added = !keeps_notes && found.rule.as_ref().is_some_and(|rule| added.contains(rule));
            chain == OWN && (is_added || owner.owns(found.note.as_deref()))
        };
        let mut edits = table.put_back(before, is_made)?;
        let now = table.list(OWN)?.unwrap_or_default();
        let (gone, mut left): (Vec<_>, Vec<_>) =
            now.into_iter().partition(|found| is_made(OWN, found) && !before.has(found));
        left.extend(before.rules().cloned());
        edits.extend(end_isolation(table, &gone, &left, None)?);
        Ok(edits)
    })
}

pub(crate) fn edits(table: &mut Table<'_>, attached: Attached<'_>) -> Result<Vec<Edit>> {
    planned(table, attached, &mut Before::default())
}

fn planned(table: &mut Table<'_>, attached: Attached<'_>, before: &mut Before) -> Result<Vec<Edit>> {
    let mut edits = Vec::new();
    if attached.accepted != Accepted::ByFirewalld {
        edits.extend(accepting(table, attached, before)?);
    }
    if let Some(isolation) = attached.isolation {
        edits.extend(isolating(table, isolation)?);
    }
    Ok(edits)
}

/// The rules that CHECK looks for: jumps of `FORWARD`, and the rest.
fn wanted<'a>(attached: Attached<'a>) -> [Vec<(&'a str, Rule)>; 2] {
    let (mut jumps, mut rules) = (Vec::new(), Vec::new());
    if attached.accepted != Accepted::ByFirewalld {
        jumps.push((OWN, commented("rules", Rule::jump(OWN))));
        rules.push((OWN, commented("admin overrides", Rule::jump(attached.admin_chain))));
        rules.extend(attached.accepts().into_iter().map(|rule| (OWN, rule)));
    }
    if let Some(isolation) = attached.isolation {
        jumps.push((STAGE_1, policy_comment(EITHER, Rule::jump(STAGE_1))));
        rules.extend(bridge_rules(isolation));
    }
    [jumps, rules]
}

/// Whether CHECK looks for this rule.
pub(crate) fn is_compared(attached: Attached<'_>, rule: &NewRule) -> bool {
    let [jumps, rules] = wanted(attached);
    rule.chain == FORWARD && jumps.iter().any(|(_, jump)| *jump == rule.rule)
        || rules.iter().any(|(chain, wanted)| *chain == rule.chain && *wanted == rule.rule)
}

/// The rules that CHECK looks for and that are there already, for programs that show what ADD would do.
pub(crate) fn present(table: &mut Table<'_>, attached: Attached<'_>) -> Result<Vec<Edit>> {
    let [jumps, rules] = wanted(attached);
    let mut present = Vec::new();
    for (chain, jump) in jumps {
        if table.has_jump(FORWARD, chain, |found| found.rule.as_ref().is_some_and(|rule| is_alike(rule, &jump)))? {
            present.push(Edit::Prepend(shared_rule(FORWARD, jump)));
        }
    }
    for (chain, rule) in rules {
        if is_there(&table.list(chain)?.unwrap_or_default(), &rule) {
            present.push(Edit::Append(shared_rule(chain, rule)));
        }
    }
    Ok(present)
}

fn accepting(table: &mut Table<'_>, attached: Attached<'_>, before: &mut Before) -> Result<Vec<Edit>> {
    let mut edits = Vec::new();
    for chain in [OWN, attached.admin_chain] {
        edits.extend(table.create_chain_once(chain)?);
    }
    let jump = commented("rules", Rule::jump(OWN));
    if table.has_jump(FORWARD, OWN, |found| found.rule.as_ref() == Some(&jump))? {
        table.expect_base(FORWARD)?;
    } else {
        edits.push(Edit::Prepend(shared_rule(FORWARD, jump)));
        let forward = table.list(FORWARD)?.unwrap_or_default();
        if let Some(policies) = forward.iter().find(|found| found.goes_to() == Some(STAGE_1)) {
            edits.extend(put_first(policies));
        }
    }
    let found = table.list(OWN)?.unwrap_or_default();
    let admin = commented("admin overrides", Rule::jump(attached.admin_chain));
    if !found.iter().any(|found| found.rule.as_ref() == Some(&admin)) {
        edits.push(Edit::Prepend(shared_rule(OWN, admin)));
    }
    let owner = attached.names.owner();
    let wanted = attached.accepts();
    before.keep(OWN, &found, |found| match &found.note {
        Some(note) => owner.owns(Some(note)),
        None => found.rule.as_ref().is_some_and(|rule| wanted.contains(rule)),
    });
    let (own, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|found| owner.owns(found.note.as_deref()));
    let isolation = merged(attached.isolation, &own);
    let note = Attached { isolation, ..attached }.note();
    let (mut kept, mut gone): (Vec<Rule>, Vec<FoundRule>) = Default::default();
    for found in own.iter().cloned() {
        let is_right =
            |rule: &Rule| found.note.as_ref() == Some(&note) && wanted.contains(rule) && !kept.contains(rule);
        match found.rule.clone().filter(is_right) {
            Some(rule) => kept.push(rule),
            None => gone.push(found),
        }
    }
    edits.extend(end_isolation(table, &gone, &others, isolation)?);
    edits.extend(gone.into_iter().map(Edit::Delete));
    let unnoted = first_unnoted(others, wanted.iter().filter(|rule| !kept.contains(rule)));
    let is_by_mark = attached.accepted == Accepted::ByMark;
    if table.keeps_notes() && !is_by_mark {
        edits.extend(unnoted.into_iter().map(Edit::Delete));
    } else {
        kept.extend(unnoted.into_iter().filter_map(|found| found.rule));
    }
    let missing = wanted.into_iter().filter(|rule| !kept.contains(rule));
    let note = Some(note).filter(|_| !is_by_mark);
    edits.extend(missing.map(|rule| Edit::Append(NewRule { chain: OWN.to_owned(), rule, note: note.clone() })));
    Ok(edits)
}

/// Returns, for each of these rules, the first equal one without a note: the reference's, for an address that is the attachment's
/// now. As with `iptables -D`, others that are equal are left, which an administrator may have added.
fn first_unnoted<'a>(mut found: Vec<FoundRule>, rules: impl Iterator<Item = &'a Rule>) -> Vec<FoundRule> {
    let mut first = |rule: &Rule| {
        let at = found.iter().position(|found| found.note.is_none() && found.rule.as_ref() == Some(rule))?;
        Some(found.remove(at))
    };
    rules.filter_map(&mut first).collect()
}

/// The rules that are missing, a sentence each. The reference's are accepted.
pub(crate) fn check(table: &mut Table<'_>, attached: Attached<'_>) -> Result<Vec<String>> {
    let (place, mut differences) = (table.to_string(), Vec::new());
    let lacks = |chain: &str, rule: &Rule| format!("chain {chain} of table {place} lacks the rule{rule}");
    let [jumps, wanted] = wanted(attached);
    for (chain, jump) in &jumps {
        if !table.has_jump(FORWARD, chain, |found| found.rule.as_ref().is_some_and(|rule| is_alike(rule, jump)))? {
            differences.push(lacks(FORWARD, jump));
        }
    }
    if attached.isolation.is_some() && policies_passed_by(&table.list(FORWARD)?.unwrap_or_default()).is_some() {
        differences.push(format!("chain {FORWARD} of table {place} {PASSED_BY}"));
    }
    for chain in [OWN, STAGE_1, STAGE_2] {
        let mut of_chain = wanted.iter().filter(|(found, _)| *found == chain).map(|(_, rule)| rule).peekable();
        if of_chain.peek().is_none() {
            continue;
        }
        let found = table.list(chain)?.unwrap_or_default();
        differences.extend(of_chain.filter(|rule| !is_there(&found, rule)).map(|rule| lacks(chain, rule)));
    }
    if !wanted.is_empty() && differences.is_empty() {
        table.expect_packets(FORWARD)?;
    }
    Ok(differences)
}

/// Removes an attachment's rules: those with its note, or the reference's for these addresses.
pub(crate) fn remove(table: &mut Table<'_>, names: Names<'_>, addresses: &[IpAddr]) -> Result<()> {
    let owner = names.owner();
    let accepts: Vec<Rule> = addresses.iter().flat_map(|address| accepts(*address)).collect();
    table.change(|table| {
        if !table.has_chain(OWN)? {
            return Ok(Vec::new());
        }
        let found = table.list(OWN)?.unwrap_or_default();
        let is_noted = |found: &FoundRule| owner.owns(found.note.as_deref());
        let has_noted = |rule: &Rule| found.iter().any(|found| is_noted(found) && found.rule.as_ref() == Some(rule));
        let mut unnoted: Vec<&Rule> = accepts.iter().filter(|rule| !has_noted(rule)).collect();
        let is_ours = |found: &FoundRule| {
            // Remove one rule each, as `iptables -D` does: others that are equal may be an administrator's.
            let at = unnoted.iter().position(|rule| found.note.is_none() && found.rule.as_ref() == Some(*rule));
            is_noted(found) || at.map(|at| unnoted.swap_remove(at)).is_some()
        };
        let (gone, left): (Vec<_>, Vec<_>) = found.iter().cloned().partition(is_ours);
        let mut edits = end_isolation(table, &gone, &left, None)?;
        edits.extend(gone.into_iter().map(Edit::Delete));
        Ok(edits)
    })
}

/// Whether packets reach the rules, and those of policies before they pass.
/// Errors: the error that keeps packets from the chain.
pub(crate) fn probe(table: &mut Table<'_>, policy: Option<Policy>) -> Result<()> {
    table.expect_packets(FORWARD)?;
    if policy.is_some() && policies_passed_by(&table.list(FORWARD)?.unwrap_or_default()).is_some() {
        let remedy = "delete its jump to CNI-FORWARD: the next ADD puts both in order";
        return Err(OpError::state(
            "use",
            format!("chain {FORWARD} of table {table}"),
            format!("it {PASSED_BY}; {remedy}"),
        ));
    }
    Ok(())
}

const RULES_AT_ONCE: usize = 400;

/// Removes the rules of a network's attachments that GC removes. The reference's name no network, so they stay.
pub(crate) fn gc(table: &mut Table<'_>, network: &str, sweep: &Sweep<Names<'_>>) -> Result<()> {
    let (stale, of) = (Stale::new(network, sweep), OfNetwork::new(network));
    let mut is_over = false;
    while !is_over {
        // Guarded by the ruleset's generation: whether a bridge has a container left depends on what others add.
        table.change(|table| {
            let (found, mut left) = of_network(table, &of)?;
            let mut count = 0;
            let (gone, valid): (Vec<_>, Vec<_>) = found.into_iter().partition(|found| {
                let is_gone = stale.has(found.note.as_deref()) && count < RULES_AT_ONCE;
                count += usize::from(is_gone);
                is_gone
            });
            left.extend(valid);
            is_over = count < RULES_AT_ONCE;
            let mut edits = end_isolation(table, &gone, &left, None)?;
            edits.extend(gone.into_iter().map(Edit::Delete));
            Ok(edits)
        })?;
    }
    Ok(())
}

/// The rules that name an attachment to the network, and all others.
fn of_network(table: &mut Table<'_>, network: &OfNetwork) -> Result<(Vec<FoundRule>, Vec<FoundRule>)> {
    let found = table.list(OWN)?.unwrap_or_default();
    Ok(found.into_iter().partition(|found| network.has(found.note.as_deref())))
}

/// What GC of the network would remove if no attachment were valid.
pub(crate) fn list(table: &mut Table<'_>, network: &OfNetwork) -> Result<Vec<Noted>> {
    let noted = |found: FoundRule| {
        let note = found.note.as_deref().map(|note| note.rsplit_once(BRIDGE).map_or(note, |(own, _)| own));
        let sides = found.rule.as_ref().map(|rule| [&rule.source, &rule.destination]);
        let address = sides.into_iter().flatten().flatten().find_map(Is::host);
        let object = address.map_or("firewall rules".to_owned(), |address| format!("firewall rules of {address}"));
        Noted::of(network, note, address, object)
    };
    Ok(of_network(table, network)?.0.into_iter().filter_map(noted).collect())
}

#[cfg(test)]
mod tests {
    use super::isolation::isolation_of;
    use super::*;

    #[test]
    fn a_note_has_bridge_and_policy_behind_the_attachment() {
        let names = Names { network: "n", container: "c", ifname: "eth0" };
        let isolation = Some(Isolation { bridge: "cni0", policy: Policy::SameBridge });
        let attached = Attached { names, addresses: &[], admin_chain: "A", isolation, accepted: Accepted::Here };
        assert_eq!(isolation_of(&attached.note()), Some(("cni0", "same-bridge")));
        assert!(names.owner().owns(Some(&attached.note())));
        assert_eq!(isolation_of(&Attached { isolation: None, ..attached }.note()), None);
    }
}
