//! Rules of the attachment that this ADD does not make: another entry of the list does, with other conditions or another
//! `snat`. An ADD again with other keys cannot be told from that, so they stay until DEL, as in the reference, if they are
//! for the ports and the address that this ADD has.

use std::collections::{BTreeMap, BTreeSet};

use cni_filter::iptables::rule::{Is, Rule, Target};
use cni_filter::iptables::{FoundRule, Table};

use crate::pod_ports::PodPorts;

/// What an ADD changes of the attachment's rules in a chain in which their order does not count.
pub(crate) struct Changes {
    pub(crate) gone: Vec<FoundRule>,
    pub(crate) missing: Vec<Rule>,
}

/// Compares `own` with the rules that this ADD makes. Others stay where `is_for_ports`; if there is one that does not, all that
/// this ADD makes are made anew.
pub(crate) fn changes(
    table: &Table<'_>,
    own: Vec<FoundRule>,
    wanted: Vec<Rule>,
    is_for_ports: impl Fn(&Rule) -> bool,
) -> Changes {
    let mut lacking = with_spelling(table, wanted.clone());
    let known = texts(&lacking);
    let (mut right, mut gone) = (Vec::new(), Vec::new());
    for found in own {
        let Some(rule) = &found.rule else { continue };
        if let Some(at) = lacking.iter().position(|(_, as_read)| as_read.as_ref() == Some(rule)) {
            lacking.remove(at);
            right.push(found);
        } else if known.contains(&rule.to_string()) || !is_for_ports(rule) {
            gone.push(found);
        }
    }
    if gone.is_empty() {
        return Changes { gone, missing: lacking.into_iter().map(|(rule, _)| rule).collect() };
    }
    gone.extend(right);
    Changes { gone, missing: wanted }
}

/// The rules of the container's chain: `wanted`, and in front of the rules of a port the marks that another entry has for it.
pub(crate) fn with_marks(table: &Table<'_>, pod: &PodPorts<'_>, found: &[FoundRule], wanted: Vec<Rule>) -> Vec<Rule> {
    let wanted = with_spelling(table, wanted);
    let mut known = texts(&wanted);
    let mut others: BTreeMap<String, Vec<Rule>> = BTreeMap::new();
    for rule in found.iter().filter_map(|found| found.rule.as_ref()) {
        if marks(rule, pod) && known.insert(rule.to_string()) {
            others.entry(port_of(rule)).or_default().push(rule.clone());
        }
    }
    let mut rules = Vec::new();
    for (rule, as_read) in wanted {
        rules.extend(as_read.and_then(|rule| others.remove(&port_of(&rule))).unwrap_or_default());
        rules.push(rule);
    }
    rules
}

/// Whether the rule marks connections of the container or the node.
fn marks(rule: &Rule, pod: &PodPorts<'_>) -> bool {
    let is_source = |source: &Is<ipnetwork::IpNetwork>| {
        let is_loopback = source.host().is_some_and(|ip| ip.is_loopback());
        !source.negated && (is_loopback || source.value.contains(pod.address.ip()))
    };
    matches!(rule.target, Target::Jump(_)) && rule.source.as_ref().is_none_or(is_source)
}

/// The packets of the rule, whatever their source.
fn port_of(rule: &Rule) -> String {
    Rule { source: None, target: Target::None, ..rule.clone() }.to_string()
}

/// The rules, each with the form in which it is read back.
fn with_spelling(table: &Table<'_>, rules: Vec<Rule>) -> Vec<(Rule, Option<Rule>)> {
    let spelled = |rule: &Rule| table.spelled(rule).ok().and_then(|rules| rules.into_iter().next());
    rules.into_iter().map(|rule| (rule.clone(), spelled(&rule))).collect()
}

fn texts(rules: &[(Rule, Option<Rule>)]) -> BTreeSet<String> {
    rules.iter().filter_map(|(_, as_read)| Some(as_read.as_ref()?.to_string())).collect()
}
