//! The base chains that an attachment's packets pass: which rules name it, and what drops its packets.
//!
//! The ruleset is not evaluated: a rule that drops packets of the attachment is named as one that may, and a policy counts
//! unless a rule accepts packets in that direction.

use std::net::IpAddr;

use cni_filter::gates::{Gate, Maker};
use cni_filter::iptables::Rule;
use cni_filter::iptables::rule::{Is, Target};
use ipnetwork::IpNetwork;
use netops::Family;
use netops::nft::Hook;

use super::carrier::Carrier;
use super::{Cause, Findings, Level, Reason, Sight};
use crate::view::Attachment;

impl Sight<'_> {
    pub(super) fn filtered(&self, family: Family, attachment: &Attachment, carrier: &Carrier, findings: &mut Findings) {
        let filters_bridges = self.filters_bridges[family as usize];
        let hooks: &[Hook] = match carrier {
            Carrier::Routed(_) => &[Hook::Forward, Hook::Input],
            Carrier::Switched(_) if filters_bridges => &[Hook::Forward],
            Carrier::Switched(_) | Carrier::Stacked { .. } | Carrier::Unknown => return,
        };
        let links = attachment.links.iter().map(|link| link.name.as_str());
        let masters = attachment.links.iter().filter_map(|link| link.master.as_deref());
        let bridge = carrier.bridge().into_iter().flat_map(|bridge| [&*bridge.name, &*bridge.router]);
        let mut own = Own { addresses: &attachment.addresses, links: links.chain(masters).chain(bridge).collect() };
        own.links.sort_unstable();
        own.links.dedup();
        for gate in self.gates.iter().filter(|gate| hooks.contains(&gate.hook)) {
            if gate.family.is_some_and(|of| of != family) {
                continue;
            }
            let passed = Passed::of(gate, &own, family);
            if gate.hook == Hook::Input {
                findings.reasons.extend(passed.to_node(gate));
                continue;
            }
            passed.tell(gate, findings);
            let forwarded = passed.forwarded(gate, attachment, family);
            let bridged = "frames between containers pass it, too, as net.bridge.bridge-nf-call-iptables is 1";
            findings.reasons.extend(forwarded.map(|reason| match carrier {
                Carrier::Switched(_) => {
                    let (why, what) = (format!("{}: {bridged}", reason.why), format!("{}: {bridged}", reason.what));
                    Reason { why, what, ..reason }
                }
                _ => reason,
            }));
        }
    }
}

/// What the rules of a gate say of an attachment, in the order in which its packets meet them.
#[derive(Default)]
struct Passed<'a> {
    /// The rules that name it, with their chains: to it, from it.
    named: [Vec<(&'a str, &'a Rule)>; 2],
    /// Rules that drop its packets, or some of them.
    drops: Vec<(&'a str, &'a Rule)>,
    /// Whether a rule accepts packets to it, and from it.
    accepts: [bool; 2],
    /// Whether a rule accepts packets of connections that exist.
    accepts_answers: bool,
    /// How many rules have further conditions, and how many of them may accept packets.
    unread: usize,
    may_accept: usize,
}

/// Packets to the attachment, and from it.
type Directions = [bool; 2];

/// Chains that a packet can be in, one in the other: `NFT_JUMP_STACK_SIZE` of the kernel.
const DEPTH_MAX: usize = 16;

impl<'a> Passed<'a> {
    fn of(gate: &'a Gate, own: &Own<'_>, family: Family) -> Self {
        let mut passed = Self::default();
        let walk = Walk { gate, own, family };
        passed.walk(&walk, &gate.chain, ([true; 2], true), 0);
        passed
    }

    /// The rules of a chain, for packets in these directions. Behind conditions that are not read nothing is certain.
    fn walk(&mut self, walk: &Walk<'a, '_>, chain: &'a str, (meant, is_certain): (Directions, bool), depth: usize) {
        for step in walk.gate.chains.get(chain).into_iter().flatten().filter(|_| depth < DEPTH_MAX) {
            let Some(rule) = &step.rule else {
                self.unread += 1;
                self.may_accept += usize::from(step.may_accept);
                if let Some(to) = &step.to {
                    self.walk(walk, to, (meant, false), depth + 1);
                }
                continue;
            };
            if walk.own.is_of_other_family(rule, walk.family) {
                continue;
            }
            let plain = without_any(rule);
            let bare = Rule { comment: rule.comment.clone(), target: rule.target.clone(), ..Rule::default() };
            let is_for_all = plain == bare;
            let is_for_answers = plain == Rule { established: true, ..bare };
            let named = [walk.own.is_to(rule), walk.own.is_from(rule)];
            // A jump for packets of some ports or marks names no attachment, and may be for any.
            let may_be_its = is_for_all || step.to.is_some() && !names_any(&plain);
            let directions = [0, 1].map(|way| meant[way] && (named[way] || may_be_its));
            if !is_for_all && step.to.is_none() {
                for (list, _) in self.named.iter_mut().zip(named).filter(|(_, is_named)| *is_named) {
                    list.push((chain, rule));
                }
            }
            if let Some(to) = &step.to {
                if directions.contains(&true) {
                    let is_certain = is_certain && (is_for_all || named.contains(&true));
                    self.walk(walk, to, (directions, is_certain), depth + 1);
                }
                continue;
            }
            match rule.target {
                // Behind a rule that accepts, one for all packets decides on others.
                Target::Drop if is_for_all => {
                    let is_open = [0, 1].map(|way| directions[way] && !self.is_accepted()[way]);
                    if is_open.contains(&true) {
                        self.drops.push((chain, rule));
                    }
                }
                // Rules that this suite writes drop what the network's configuration says.
                Target::Drop if directions.contains(&true) && !chain.starts_with("CNI-") => {
                    self.drops.push((chain, rule));
                }
                Target::Accept if is_certain => {
                    self.accepts = [0, 1].map(|way| self.accepts[way] || directions[way]);
                    self.accepts_answers |= is_for_answers || is_for_all && meant == [true; 2];
                }
                Target::Accept => self.may_accept += usize::from(directions.contains(&true) || is_for_answers),
                _ => {}
            }
        }
    }

    /// Whether packets in each direction are accepted: answers reach it by the rule for connections that exist.
    fn is_accepted(&self) -> Directions {
        [self.accepts[0] || self.accepts_answers, self.accepts[1]]
    }

    fn tell(&self, gate: &Gate, findings: &mut Findings) {
        for (named, list) in self.named.iter().zip([&mut findings.to, &mut findings.from]) {
            list.extend(named.iter().map(|(chain, rule)| in_words(gate, chain, rule)));
        }
        if self.unread > 0 {
            findings.unseen.push(format!("{} rules of {} that have further conditions", self.unread, gate.place));
        }
    }

    /// Why packets between the attachment and other networks are dropped.
    fn forwarded(&self, gate: &Gate, attachment: &Attachment, family: Family) -> impl Iterator<Item = Reason> {
        let by_rule = self.drops.iter().map(|(chain, rule)| {
            let text = in_words(gate, chain, rule);
            let reason = Reason::new(Cause::Filtered, Level::Warning, format!("{text} may drop them"));
            reason.mended_by([show(gate)])
        });
        let by_rule: Vec<Reason> = by_rule.collect();
        let missing: Vec<&str> = ["to", "from"]
            .into_iter()
            .zip(self.is_accepted())
            .filter(|(_, is)| !is)
            .map(|(direction, _)| direction)
            .collect();
        let by_policy = (gate.drops && !missing.is_empty()).then(|| {
            let level = if self.may_accept == 0 { Level::Error } else { Level::Warning };
            let directions = missing.join(" and ");
            let unread = match self.may_accept {
                0 => String::new(),
                count => format!(" ({count} of its rules have conditions that were not examined)"),
            };
            let place = &gate.place;
            let text = |whose: &str| {
                format!("{place} drops by policy what it does not accept, and no rule for {whose} accepts packets {directions}")
            };
            let reason = Reason::new(Cause::Filtered, level, format!("{} it{unread}", text("it")));
            let what = format!("{} containers{unread}", text("them"));
            reason.shared(what).mended_by(accept(gate, attachment, family))
        });
        by_rule.into_iter().chain(by_policy)
    }

    /// Why the container does not reach the node itself.
    fn to_node(&self, gate: &Gate) -> Option<Reason> {
        if !gate.drops && self.drops.is_empty() || self.accepts[1] {
            return None;
        }
        let level = if self.accepts_answers || self.may_accept > 0 { Level::Note } else { Level::Warning };
        let mut lost = "what it sends to the node's addresses".to_owned();
        if level == Level::Warning {
            lost += ", answers too";
        }
        let place = &gate.place;
        let why = format!("{place} drops what it does not accept, and no rule for it accepts {lost}");
        let what = why.replace("for it", "for containers").replace("what it sends", "what they send");
        Some(Reason::new(Cause::FilteredToNode, level, why).shared(what).mended_by([show(gate)]))
    }
}

fn in_words(gate: &Gate, chain: &str, rule: &Rule) -> String {
    let program = program(gate.family);
    match &gate.maker {
        Maker::Iptables => format!("{program} -A {chain}{rule}"),
        Maker::LegacyIptables => format!("{program}-legacy -A {chain}{rule}"),
        Maker::Nftables(name) => {
            let table = name.rsplit_once(' ').map_or(name.as_str(), |(table, _)| table);
            format!("the rule of nft chain {table} {chain} that iptables would write as{rule}")
        }
    }
}

fn program(family: Option<Family>) -> &'static str {
    if family == Some(Family::V6) { "ip6tables" } else { "iptables" }
}

/// The command that shows the chain.
fn show(gate: &Gate) -> String {
    let chain = if gate.hook == Hook::Input { "INPUT" } else { "FORWARD" };
    let program = program(gate.family);
    match &gate.maker {
        Maker::Iptables => format!("{program} -S {chain}"),
        Maker::LegacyIptables => format!("{program}-legacy -S {chain}"),
        Maker::Nftables(name) => format!("nft list chain {name}"),
    }
}

/// Commands that accept packets of the attachment's subnets at the beginning of the chain.
fn accept(gate: &Gate, attachment: &Attachment, family: Family) -> Vec<String> {
    let of_result = attachment.result.ips.iter().map(|ip| ip.address);
    let single = attachment.addresses.iter().map(|address| IpNetwork::from(*address));
    let mut nets: Vec<IpNetwork> = of_result.filter(|net| Family::from(*net) == family).collect();
    if nets.is_empty() {
        nets = single.filter(|net| Family::from(*net) == family).collect();
    }
    let program = program(Some(family));
    let family = if family == Family::V6 { "ip6" } else { "ip" };
    let commands = nets.into_iter().flat_map(|net| {
        let net = format!("{}/{}", net.network(), net.prefix());
        match &gate.maker {
            Maker::Iptables | Maker::LegacyIptables => {
                let variant = if gate.maker == Maker::LegacyIptables { "-legacy" } else { "" };
                ["-s", "-d"].map(|side| format!("{program}{variant} -I FORWARD {side} {net} -j ACCEPT"))
            }
            Maker::Nftables(name) => {
                ["saddr", "daddr"].map(|side| format!("nft insert rule {name} {family} {side} {net} accept"))
            }
        }
    });
    commands.collect()
}

/// The rule without conditions that any packet of its family meets.
fn without_any(rule: &Rule) -> Rule {
    let is_any = |is: &Is<IpNetwork>| is.value.prefix() == 0 && !is.negated;
    let source = rule.source.clone().filter(|is| !is_any(is));
    let destination = rule.destination.clone().filter(|is| !is_any(is));
    Rule { source, destination, ..rule.clone() }
}

/// Whether a rule has a condition on addresses or links.
fn names_any(rule: &Rule) -> bool {
    rule.source.is_some() || rule.destination.is_some() || rule.input.is_some() || rule.output.is_some()
}

/// The state that all rules of a walk share.
struct Walk<'a, 'b> {
    gate: &'a Gate,
    own: &'b Own<'b>,
    family: Family,
}

/// What rules call an attachment.
struct Own<'a> {
    addresses: &'a [IpAddr],
    links: Vec<&'a str>,
}

impl Own<'_> {
    fn is_to(&self, rule: &Rule) -> bool {
        self.has(rule.destination.as_ref()) || self.is_link(rule.output.as_ref())
    }

    fn is_from(&self, rule: &Rule) -> bool {
        self.has(rule.source.as_ref()) || self.is_link(rule.input.as_ref())
    }

    /// A condition that is negated speaks of all others.
    fn has(&self, is: Option<&Is<IpNetwork>>) -> bool {
        let named = is.filter(|is| !is.negated && is.value.prefix() > 0);
        named.is_some_and(|is| self.addresses.iter().any(|address| is.value.contains(*address)))
    }

    fn is_link(&self, is: Option<&Is<String>>) -> bool {
        let named = is.filter(|is| !is.negated).map(|is| is.value.as_str());
        named.is_some_and(|name| match name.strip_suffix('+') {
            Some(start) if !start.is_empty() => self.links.iter().any(|link| link.starts_with(start)),
            Some(_) => false,
            None => self.links.contains(&name),
        })
    }

    /// Whether the rule of a table for both families is for the other one.
    fn is_of_other_family(&self, rule: &Rule, family: Family) -> bool {
        let nets = [&rule.source, &rule.destination];
        nets.into_iter().flatten().any(|is| Family::from(is.value) != family)
    }
}
