//! The rules of bridges whose containers a policy keeps others' packets from: when they are made, and when they go.

use std::collections::BTreeSet;

use cni_filter::iptables::rule::{Rule, Target, is, is_not};
use cni_filter::iptables::{Edit, FoundRule, Table};
use netops::error::Result;

use super::{BRIDGE, FORWARD, OWN, STAGE_1, STAGE_2, commented, is_alike, is_there, shared_rule};
use crate::conf::Policy;

/// The isolation of a bridge's containers: its policy says whose packets do not reach them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Isolation<'a> {
    pub(crate) bridge: &'a str,
    pub(crate) policy: Policy,
}

/// The bridge and the policy in a note.
pub(super) fn isolation_of(note: &str) -> Option<(&str, &str)> {
    note.rsplit_once(BRIDGE)?.1.rsplit_once(' ')
}

/// The isolation that counts, where `own` are the attachment's rules before this ADD. Another entry of the list, or an earlier
/// ADD, may have asked for one: as in the reference its rules stay until DEL. On one bridge the rules of the stricter policy
/// are those of both.
pub(super) fn merged<'a>(asked: Option<Isolation<'a>>, own: &'a [FoundRule]) -> Option<Isolation<'a>> {
    own.iter().filter_map(|found| isolation_of(found.note.as_deref()?)).fold(asked, |now, (bridge, policy)| {
        let found = Policy::parse(policy).map(|policy| Isolation { bridge, policy });
        match (now, found) {
            (None, found) => found,
            (Some(now), Some(found)) if now.bridge == bridge && found.policy == Policy::Isolated => Some(found),
            (now, _) => now,
        }
    })
}

pub(super) fn policy_comment(words: &str, rule: Rule) -> Rule {
    commented(&format!("rules (ingressPolicy: {words})"), rule)
}

/// The words of rules that both policies have.
pub(super) const EITHER: &str = "same-bridge|isolated";

/// The rules of one bridge with their chains, in the order in which each is put first.
pub(super) fn bridge_rules(isolation: Isolation<'_>) -> Vec<(&'static str, Rule)> {
    let Isolation { bridge, policy } = isolation;
    let bridge = || bridge.to_owned();
    let others = Rule { input: is(bridge()), output: is_not(bridge()), ..Rule::jump(STAGE_2) };
    let own = Rule { input: is(bridge()), output: is(bridge()), target: Target::Drop, ..Rule::default() };
    let to = Rule { output: is(bridge()), target: Target::Drop, ..Rule::default() };
    let mut rules = vec![(STAGE_1, policy_comment(policy.as_str(), others))];
    if policy == Policy::Isolated {
        rules.push((STAGE_1, policy_comment(policy.as_str(), own)));
    }
    rules.push((STAGE_2, policy_comment(EITHER, to)));
    rules
}

/// The jump to the policies among the rules of `FORWARD`, if the jump that lets containers' packets pass comes before it: no
/// policy counts then. An administrator who has taken the latter out and a plugin that puts it first again make it so.
pub(super) fn policies_passed_by(forward: &[FoundRule]) -> Option<&FoundRule> {
    let at = |chain: &str| forward.iter().position(|found| found.goes_to() == Some(chain));
    let policies = at(STAGE_1)?;
    at(OWN).is_some_and(|own| own < policies).then(|| &forward[policies])
}

/// Puts the jump to the policies first again.
pub(super) fn put_first(jump: &FoundRule) -> [Edit; 2] {
    let rule = policy_comment(EITHER, Rule::jump(STAGE_1));
    [Edit::Delete(jump.clone()), Edit::Prepend(shared_rule(FORWARD, rule))]
}

pub(super) fn isolating(table: &mut Table<'_>, isolation: Isolation<'_>) -> Result<Vec<Edit>> {
    let mut edits = Vec::new();
    for chain in [STAGE_1, STAGE_2] {
        edits.extend(table.create_chain_once(chain)?);
    }
    let jump = policy_comment(EITHER, Rule::jump(STAGE_1));
    let missing = |found: Option<Vec<FoundRule>>, rule: &Rule| !is_there(&found.unwrap_or_default(), rule);
    // Behind the jump to CNI-FORWARD in the transaction, so before it in the chain.
    if table.has_jump(FORWARD, STAGE_1, |found| found.rule.as_ref().is_some_and(|rule| is_alike(rule, &jump)))? {
        table.expect_base(FORWARD)?;
        let forward = table.list(FORWARD)?.unwrap_or_default();
        edits.extend(policies_passed_by(&forward).into_iter().flat_map(put_first));
    } else {
        edits.push(Edit::Prepend(shared_rule(FORWARD, jump)));
    }
    for (chain, rule) in bridge_rules(isolation) {
        if missing(table.list(chain)?, &rule) {
            edits.push(Edit::Prepend(shared_rule(chain, rule)));
        }
    }
    for chain in [STAGE_1, STAGE_2] {
        let end = policy_comment(EITHER, Rule { target: Target::Return, ..Rule::default() });
        if missing(table.list(chain)?, &end) {
            edits.push(Edit::Append(shared_rule(chain, end)));
        }
    }
    Ok(edits)
}

/// Removes the rules of bridges whose last container goes, and those of a policy with its last container on the bridge;
/// `added` is that of an attachment that is added again. While accept rules are left that name no attachment, all stay:
/// they may be a container's on that bridge.
pub(super) fn end_isolation(
    table: &mut Table<'_>,
    gone: &[FoundRule],
    left: &[FoundRule],
    added: Option<Isolation<'_>>,
) -> Result<Vec<Edit>> {
    let isolations = |found: &[FoundRule]| -> BTreeSet<(String, String)> {
        let notes = found.iter().filter_map(|found| isolation_of(found.note.as_deref()?));
        notes.map(|(bridge, policy)| (bridge.to_owned(), policy.to_owned())).collect()
    };
    let is_unowned = |found: &FoundRule| {
        found.note.is_none() && found.rule.as_ref().is_some_and(|rule| rule.target == Target::Accept)
    };
    let (ended, mut used) = (isolations(gone), isolations(left));
    used.extend(added.map(|added| (added.bridge.to_owned(), added.policy.as_str().to_owned())));
    if ended.is_empty() || left.iter().any(is_unowned) {
        return Ok(Vec::new());
    }
    let mut edits = Vec::new();
    for bridge in ended.iter().map(|(bridge, _)| bridge).collect::<BTreeSet<_>>() {
        let has = |policy: Policy| used.contains(&(bridge.clone(), policy.as_str().to_owned()));
        let is_used = has(Policy::Isolated) || has(Policy::SameBridge);
        let all = bridge_rules(Isolation { bridge, policy: Policy::Isolated });
        for (chain, rule) in all {
            // Packets within the bridge are dropped for the isolated alone.
            let is_for_isolated = rule.input.is_some() && rule.target == Target::Drop;
            if if is_for_isolated { has(Policy::Isolated) } else { is_used } {
                continue;
            }
            edits.extend(table.delete_where(chain, |found| {
                found.note.is_none() && found.rule.as_ref().is_some_and(|found| is_alike(found, &rule))
            })?);
        }
    }
    Ok(edits)
}

/// A bridge whose containers a policy of this table keeps others' packets from.
pub(crate) fn isolated_bridge(table: &mut Table<'_>) -> Result<Option<String>> {
    let found = table.list(STAGE_2)?.unwrap_or_default();
    Ok(found.into_iter().find_map(|found| Some(found.rule?.output?.value)))
}
