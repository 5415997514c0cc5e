//! Forwarded connections pass iptables' `FORWARD`, where its policy drops packets: key `acceptForwarded`.
//!
//! ```text
//! -A FORWARD -m comment --comment "CNI portfwd accept" -j CNI-HOSTPORT-ACCEPT
//! -A CNI-HOSTPORT-ACCEPT -d 10.1.0.2/32 -p tcp -m comment --comment "…, net: n, if: eth0, id: c" -m tcp --dport 80 -m conntrack --ctstate DNAT -j ACCEPT
//! -A CNI-HOSTPORT-ACCEPT -s 10.1.0.2/32 -m comment --comment "…" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
//! ```
//!
//! The rules are in iptables' table whichever backend forwards: what a chain of another table of nf_tables accepts, a policy of
//! iptables drops all the same. They come last in `FORWARD`, so the administrator's rules count first; a program such as docker, which
//! puts its jumps first again when it restarts, leaves them where they are.

use std::cell::RefCell;
use std::rc::Rc;

use cni_filter::iptables::rule::{Is, Rule, Target, is};
use cni_filter::iptables::{Before, Edit, FoundRule, NewRule, Table};
use cni_filter::{Names, Noted, OfNetwork, Stale};
use netops::error::Result;

use crate::iptables::each_once;
use crate::pod_ports::PodPorts;

const FORWARD: &str = "FORWARD";
const OWN: &str = "CNI-HOSTPORT-ACCEPT";
/// docker's chains of table `filter`: of all versions, and of those since 28.
const DOCKERS: [&str; 2] = ["DOCKER-USER", "DOCKER-FORWARD"];
const RULES_AT_ONCE: usize = 400;

/// The rules that ADD replaces, once it changes any: shared with the undo that puts them back.
pub(crate) type Accepted = Rc<RefCell<Option<Before>>>;

/// Whether docker has been here, which sets the policy of `FORWARD` to DROP.
pub(crate) fn has_docker(table: &mut Table<'_>) -> Result<bool> {
    for chain in DOCKERS {
        if table.has_chain(chain)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What the attachment's connections need.
fn rules(pod: &PodPorts<'_>) -> Vec<Rule> {
    let accept = Rule { comment: Some(pod.names.comment()), target: Target::Accept, ..Rule::default() };
    let container = || is(pod.address.ip().into());
    let to = |mapping: crate::conf::Mapping| Rule {
        protocol: Some(mapping.protocol),
        port: Some(mapping.container_port),
        destination: container(),
        translated: true,
        ..accept.clone()
    };
    let mut rules = each_once(pod.mappings().into_iter().map(to).collect());
    if !rules.is_empty() {
        rules.push(Rule { source: container(), established: true, ..accept });
    }
    rules
}

fn jump() -> Rule {
    Rule { comment: Some("CNI portfwd accept".to_owned()), ..Rule::jump(OWN) }
}

/// Returns whether the rule is the attachment's: its comment names the attachment, also in the legacy variant.
fn is_own(found: &FoundRule, names: Names<'_>) -> bool {
    names.owner().owns(found.comment().as_deref())
}

fn own(table: &mut Table<'_>, names: Names<'_>) -> Result<Vec<FoundRule>> {
    let mut found = table.list(OWN)?.unwrap_or_default();
    found.retain(|found| is_own(found, names));
    Ok(found)
}

/// The edits that make the rules, in the place of those of an earlier ADD.
///
/// `replaced` keeps those.
pub(crate) fn edits(table: &mut Table<'_>, pod: &PodPorts<'_>, replaced: &Accepted) -> Result<Vec<Edit>> {
    let wanted = rules(pod);
    let all = table.list(OWN)?.unwrap_or_default();
    let found: Vec<&FoundRule> = all.iter().filter(|found| is_own(found, pod.names)).collect();
    let mut edits = Vec::new();
    if !wanted.is_empty() {
        edits.extend(table.create_chain_once(OWN)?);
        if !table.has_jump(FORWARD, OWN, |found| found.rule.as_ref() == Some(&jump()))? {
            edits.push(Edit::Append(NewRule { chain: FORWARD.to_owned(), rule: jump(), note: None }));
        }
    }
    let is_right = found.len() == wanted.len()
        && found.iter().zip(&wanted).all(|(found, wanted)| found.rule.as_ref() == Some(wanted));
    if !is_right {
        let mut before = Before::default();
        before.keep(OWN, &all, |found| is_own(found, pod.names));
        replaced.replace(Some(before));
        edits.extend(found.into_iter().cloned().map(Edit::Delete));
        edits.extend(wanted.into_iter().map(|rule| Edit::Append(NewRule { chain: OWN.to_owned(), rule, note: None })));
    }
    Ok(edits)
}

/// Removes the rules of a failed ADD, and puts those back in their places that it replaced.
pub(crate) fn put_back(table: &mut Table<'_>, names: Names<'_>, before: &Before) -> Result<()> {
    table.change(|table| table.put_back(before, |_, found| is_own(found, names)))
}

pub(crate) fn check(table: &mut Table<'_>, pod: &PodPorts<'_>) -> Result<Option<String>> {
    let found = own(table, pod.names)?;
    let missing = rules(pod).into_iter().find(|wanted| !found.iter().any(|found| found.rule.as_ref() == Some(wanted)));
    if let Some(rule) = missing {
        return Ok(Some(format!("iptables chain {OWN} of table filter lacks the rule{rule}")));
    }
    match table.has_jump(FORWARD, OWN, |found| found.rule.as_ref() == Some(&jump()))? {
        true => Ok(None),
        false => Ok(Some(format!("iptables chain {FORWARD} of table filter lacks the rule{}", jump()))),
    }
}

pub(crate) fn remove(table: &mut Table<'_>, names: Names<'_>) -> Result<()> {
    if !table.has_chain(OWN)? {
        return Ok(());
    }
    table.change(|table| Ok(own(table, names)?.into_iter().map(Edit::Delete).collect()))
}

/// The rules of the network's attachments, each with its comment.
fn of_network(table: &mut Table<'_>, network: &OfNetwork) -> Result<Vec<(FoundRule, String)>> {
    let found = table.list(OWN)?.unwrap_or_default().into_iter();
    let commented = found.filter_map(|found| {
        let comment = found.comment()?;
        Some((found, comment))
    });
    Ok(commented.filter(|(_, comment)| network.has(Some(comment))).collect())
}

/// What GC of the network would remove if no attachment were valid.
pub(crate) fn list(table: &mut Table<'_>, network: &OfNetwork) -> Result<Vec<Noted>> {
    let noted = |(found, comment): &(FoundRule, String)| {
        let sides = found.rule.as_ref().map(|rule| [&rule.source, &rule.destination]);
        let address = sides.into_iter().flatten().flatten().find_map(Is::host);
        let to = address.map_or(String::new(), |address| format!(" to {address}"));
        Noted::of(network, Some(comment), address, format!("accept rules of forwarded connections{to}"))
    };
    Ok(of_network(table, network)?.iter().filter_map(noted).collect())
}

/// Removes the rules of a network's attachments that are not valid.
pub(crate) fn gc(table: &mut Table<'_>, network: &OfNetwork, stale: &Stale) -> Result<()> {
    if !table.has_chain(OWN)? {
        return Ok(());
    }
    let mut is_over = false;
    while !is_over {
        table.sweep(|table| {
            let found = of_network(table, network)?.into_iter();
            let gone = found.filter(|(_, comment)| stale.has(Some(comment))).take(RULES_AT_ONCE);
            let edits: Vec<Edit> = gone.map(|(found, _)| Edit::Delete(found)).collect();
            is_over = edits.len() < RULES_AT_ONCE;
            Ok(edits)
        })?;
    }
    Ok(())
}
