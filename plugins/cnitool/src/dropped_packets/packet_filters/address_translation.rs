//! Rules of other programs before the translations of this suite, which packets that meet them do not get to.

use cni_filter::iptables::rule::{Is, Target};
use cni_filter::nat::{Base, Step};
use netops::Family;
use std::net::IpAddr;

use super::rules_passed::without_any;
use super::{Own, Rule};
use crate::dropped_packets::{Cause, Findings, Level, Reason, Sight};
use crate::node_networks::{Attachment, Forward};

/// portmap's chain of all ports.
const HOSTPORT_DNAT: &str = "CNI-HOSTPORT-DNAT";

impl Sight<'_> {
    pub(super) fn translated(&self, family: Family, attachment: &Attachment, own: &Own<'_>, findings: &mut Findings) {
        let is_of_node = |address| self.host.is_main(address);
        for base in self.translating.iter().filter(|base| base.family == family) {
            match base.chain {
                "POSTROUTING" => findings.reasons.extend(self.before_masquerade(base, attachment, own)),
                _ => {
                    findings.reasons.extend(before_ports(base, attachment, own, &is_of_node));
                    if base.is_unread && !attachment.ports.is_empty() {
                        findings
                            .unexamined
                            .push(format!("rules that translate on further conditions ({})", show(base)));
                    }
                }
            }
        }
    }

    /// The rule that packets from the attachment meet before the jump to its masquerade.
    fn before_masquerade(&self, base: &Base, attachment: &Attachment, own: &Own<'_>) -> Option<Reason> {
        let is_jump = |step: &Step| {
            let source = step.rule.source.as_ref().and_then(Is::host);
            step.rule.goes_to().is_some_and(|to| to.starts_with("CNI-"))
                && source.is_some_and(|source| attachment.addresses.contains(&source))
        };
        let place = base.steps.iter().position(is_jump)?;
        let (before, jump) = (base.steps.get(..place)?, base.steps.get(place)?);
        let is_of_node = |step: &Step| {
            let to = step.translation.as_ref().and_then(|words| words.strip_prefix("SNAT --to-source "));
            to.and_then(|to| to.parse().ok()).is_some_and(|to| self.host.owner(to).is_some())
        };
        // Other networks are what is left of all addresses without some.
        let without_others = |rule: Rule| {
            let is_beside = rule.destination.as_ref().is_some_and(|is| is.negated && is.value.prefix() > 0);
            let rule = if is_beside { Rule { destination: None, ..rule } } else { rule };
            // Of one protocol: a part of its packets that is worth as much.
            if rule.port.is_none() && rule.ports.is_empty() { Rule { protocol: None, ..rule } } else { rule }
        };
        let is_it =
            |step: &&Step| ends(step) && !is_of_node(step) && own.is_for_whole(&without_others(conditions(step)), 1);
        let Some(step) = before.iter().find(is_it) else { return in_own_chain(base, jump, is_it) };
        let why = format!("{} comes before its masquerade, which its packets do not get to", words(base, step));
        let what =
            why.replace("its masquerade, which its packets", "the masquerade of containers, which their packets");
        Some(Reason::new(Cause::Masquerade, Level::Warning, why).shared(what).mended_by([show(base)]))
    }
}

/// The rule that packets meet before the masquerade in the attachment's own chain, or the want of a masquerade there.
fn in_own_chain(base: &Base, jump: &Step, is_it: impl Fn(&&Step) -> bool) -> Option<Reason> {
    let chain = jump.rule.goes_to()?;
    let steps = base.own.get(chain)?;
    let masquerade = steps.iter().position(|step| step.rule.target == Target::Masquerade);
    let before = steps.get(..masquerade.unwrap_or(steps.len()))?;
    if let Some(step) = before.iter().find(is_it) {
        let why = format!("{} -A {chain}{} comes before its masquerade", base.program, step.words());
        let remedy = format!("{} -D {chain}{}", base.program, step.words());
        let what = "a rule in the chains of their masquerade comes before it";
        return Some(Reason::new(Cause::Masquerade, Level::Error, why).shared(what).mended_by([remedy]));
    }
    let why = format!("{} has no MASQUERADE in chain {chain}", base.program);
    let what = "the chains of their masquerade have no MASQUERADE";
    masquerade.is_none().then(|| Reason::new(Cause::Masquerade, Level::Error, why).shared(what))
}

/// The rules that packets from other networks meet before the jump to the forwards of ports.
fn before_ports(
    base: &Base,
    attachment: &Attachment,
    own: &Own<'_>,
    is_of_node: &dyn Fn(IpAddr) -> bool,
) -> Vec<Reason> {
    let is_jump = |step: &Step| step.rule.goes_to() == Some(HOSTPORT_DNAT);
    let Some(place) = base.steps.iter().position(is_jump) else { return Vec::new() };
    let before = base.steps.get(..place).unwrap_or_default();
    let of_family = attachment.ports.iter().filter(|port| Family::from(port.to.ip()) == base.family);
    let reasons = of_family.filter_map(|port| {
        // A rule for one of the node's addresses is for packets to the port, too.
        let to_any = |rule: Rule| match rule.destination.as_ref().and_then(Is::host) {
            Some(to) if is_of_node(to) && port.address.is_none_or(|of| of == to) => Rule { destination: None, ..rule },
            _ => rule,
        };
        let is_for_all_ports = |rule: &Rule| rule.port.is_none() && rule.ports.is_empty();
        let translates = |step: &Step| {
            step.translation.is_some() || matches!(step.rule.target, Target::Dnat(_)) && is_for_all_ports(&step.rule)
        };
        let is_it = |step: &&Step| (ends(step) || translates(step)) && gets(&to_any(conditions(step)), port, own);
        if let Some(step) = before.iter().find(is_it) {
            let why = format!("{} comes before the rule that forwards {}", words(base, step), port.host_port());
            let cause = if translates(step) { Cause::PortTwice } else { Cause::PortGone };
            return Some(Reason::new(cause, Level::Error, why).mended_by([show(base)]));
        }
        let (chain, step) = before_forward(base, port).find(|(_, step)| is_it(step))?;
        let rule = format!("{chain}{}", step.words());
        let why = format!("{} -A {rule} comes before the rule that forwards {}", base.program, port.host_port());
        let remedy = format!("{} -D {rule}", base.program);
        Some(Reason::new(Cause::PortGone, Level::Error, why).mended_by([remedy]))
    });
    reasons.collect()
}

/// The rules of the suite's chains that packets to a port meet before those of its own chain, and there before its forward.
fn before_forward<'a>(base: &'a Base, port: &'a Forward) -> impl Iterator<Item = (&'a str, &'a Step)> {
    let all = base.own.get(HOSTPORT_DNAT).map_or(&[][..], Vec::as_slice);
    let of_all = all.iter().take_while(|step| step.rule.goes_to() != Some(&port.owner));
    let own = base.own.get(&port.owner).map_or(&[][..], Vec::as_slice);
    let own = own.iter().take_while(|step| step.rule.target != Target::Dnat(port.to));
    of_all.map(|step| (HOSTPORT_DNAT, step)).chain(own.map(|step| (port.owner.as_str(), step)))
}

/// Whether a packet that meets the rule meets no other of its chain.
fn ends(step: &Step) -> bool {
    // What goes to a chain of another program does not come back.
    let is_led_away = step.is_goto && !step.rule.goes_to().is_some_and(|to| to.starts_with("CNI-"));
    is_led_away || step.translation.is_some() || matches!(step.rule.target, Target::Accept | Target::Return)
}

/// Whether packets from other networks to a port meet the conditions.
pub(super) fn gets(rule: &Rule, port: &Forward, own: &Own<'_>) -> bool {
    let is_protocol = rule.protocol.is_none_or(|protocol| protocol == port.protocol);
    let is_port =
        rule.port.is_none_or(|of| of == port.port) && (rule.ports.is_empty() || rule.ports.contains(&port.port));
    let is_link = rule.input.as_ref().is_none_or(|is| own.is_way_out(&is.value) != is.negated);
    let rest = Rule {
        protocol: None,
        port: None,
        ports: Vec::new(),
        input: None,
        comment: None,
        to_local: false,
        target: Target::None,
        ..rule.clone()
    };
    is_protocol && is_port && is_link && rest == Rule::default()
}

/// The conditions of a rule, without those that any packet meets.
fn conditions(step: &Step) -> Rule {
    Rule { target: Target::None, ..without_any(&step.rule) }
}

fn words(base: &Base, step: &Step) -> String {
    format!("{} -A {}{}", base.program, base.chain, step.words())
}

fn show(base: &Base) -> String {
    format!("{} -S {}", base.program, base.chain)
}
