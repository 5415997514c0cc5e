//! A walk through a gate's chains, in the order in which packets of an attachment meet the rules.

use cni_filter::iptables::rule::{Is, Target};
use cni_filter::iptables::states::{BEGINS, ICMPV6};
use cni_filter::iptables::{Rule, UNTRACKED, ZONED};
use cni_filter::packet_path::{At, Gate, Step};
use ipnetwork::IpNetwork;
use netops::Family;
use netops::nft::Hook;

use super::Own;

/// Packets to the attachment, and from it.
pub(super) type Directions = [bool; 2];

/// Chains that a packet can be in, one in the other: `NFT_JUMP_STACK_SIZE` of the kernel.
pub(super) const DEPTH_MAX: usize = 16;

/// `IPPROTO_ICMPV6` of linux/in6.h.
const ICMPV6_NUMBER: u8 = 58;

/// A rule that may drop packets of the attachment.
pub(super) struct Refused<'a> {
    pub(super) chain: &'a str,
    pub(super) rule: &'a Rule,
    /// Whether all its packets in a direction meet the rule.
    pub(super) is_whole: bool,
    /// Whether rules before it accept some of these packets.
    pub(super) is_meant: bool,
}

/// The verdicts of a gate's rules on an attachment, in the order in which its packets meet them.
#[derive(Default)]
pub(super) struct Passed<'a> {
    /// The packets that meet the gate.
    pub(super) meant: Directions,
    /// Whether these are packets of the node itself.
    is_of_node: bool,
    /// The rules that name it, with their chains: to it, from it.
    pub(super) named: [Vec<(&'a str, &'a Rule)>; 2],
    /// Rules that may drop its packets.
    pub(super) drops: Vec<Refused<'a>>,
    /// The first rule that drops all its packets that were not accepted before, and which those are.
    pub(super) barrier: Option<(&'a str, &'a Rule, Directions)>,
    /// Whether a rule accepts packets to it, and from it.
    pub(super) accepts: Directions,
    /// Whether all packets to the container, and from it, are accepted.
    is_done: Directions,
    /// Whether a rule accepts packets of connections that exist.
    pub(super) accepts_answers: bool,
    /// Whether a rule accepts packets to it that begin a connection.
    accepts_new: bool,
    /// The first rule that drops all packets to it that begin a connection.
    refuses_new: Option<(&'a str, &'a Rule)>,
    /// How many rules have further conditions, and how many of them may accept packets.
    pub(super) unread: usize,
    pub(super) may_accept: usize,
    /// Whether a rule accepts neighbour discovery of IPv6, or may by conditions that are not read.
    pub(super) accepts_discovery: bool,
    /// Whether a rule accepts packets with a mark, which all packets to it or from it may have.
    pub(super) may_accept_all: bool,
    /// Whether a rule may drop packets by conditions that are not read.
    pub(super) may_refuse: bool,
    /// The first rule that leaves its packets out of connection tracking, or puts them in another zone.
    pub(super) untracked: Option<(&'a str, &'a Rule)>,
}

/// The state that all rules of a walk share.
struct Walk<'a, 'b> {
    gate: &'a Gate,
    own: &'b Own<'b>,
    family: Family,
}

/// Which packets of the container can still be in a chain.
#[derive(Clone, Copy)]
struct In<'a> {
    chain: &'a str,
    meant: Directions,
    /// Whether the set has all packets in these directions: behind conditions that are not read nothing is certain.
    is_certain: bool,
    /// Whether packets with a mark, which all of these may have, have left the chain.
    is_marked: bool,
    /// Whether answers to the attachment have left the chain.
    has_answered: bool,
    /// Whether packets to one of its ports have left the chain.
    has_passed_port: bool,
    depth: usize,
}

impl In<'_> {
    /// Takes the packets that meet a rule out of the chain.
    fn leave(&mut self, met: Directions, whole: Directions, is_for_all: bool, is_of_mark: bool) {
        self.meant = [0, 1].map(|way| self.meant[way] && !whole[way]);
        self.is_certain &= is_for_all || !met.contains(&true) || whole == met;
        self.is_certain &= !is_of_mark;
        self.is_marked |= is_of_mark;
    }
}

impl<'a> Passed<'a> {
    pub(super) fn of(gate: &'a Gate, own: &Own<'_>, family: Family, meant: Directions) -> Self {
        let is_of_node = gate.at == At::Hook(Hook::Output) && !gate.is_of_frames;
        let mut passed = Self { meant, is_of_node, ..Self::default() };
        let walk = Walk { gate, own, family };
        passed.walk(
            &walk,
            In {
                chain: &gate.chain,
                meant,
                is_certain: true,
                is_marked: false,
                has_answered: false,
                has_passed_port: false,
                depth: 0,
            },
        );
        passed
    }

    /// Whether packets in each direction are accepted: answers reach it by the rule for connections that exist.
    pub(super) fn is_accepted(&self) -> Directions {
        [self.accepts[0] || self.accepts_answers, self.accepts[1]]
    }

    fn walk(&mut self, walk: &Walk<'a, '_>, mut place: In<'a>) {
        if place.depth >= DEPTH_MAX {
            return;
        }
        for step in walk.gate.chains.get(place.chain).into_iter().flatten() {
            let Some(rule) = &step.rule else {
                self.unread += 1;
                self.may_accept += usize::from(step.may_accept);
                self.accepts_discovery |=
                    step.may_accept && step.protocol.is_none_or(|protocol| protocol == ICMPV6_NUMBER);
                self.may_refuse |= step.may_refuse;
                if let Some(to) = &step.to {
                    self.walk(walk, In { chain: to, is_certain: false, depth: place.depth + 1, ..place });
                }
                place.is_certain &= !(step.may_return || step.is_goto);
                continue;
            };
            if !Own::is_of_other_family(rule, walk.family) {
                self.step(walk, &mut place, step, rule);
            }
        }
    }

    fn step(&mut self, walk: &Walk<'a, '_>, place: &mut In<'a>, step: &'a Step, rule: &'a Rule) {
        let is_to_node = walk.gate.at == At::Hook(Hook::Input);
        // What the chain of input gets is for an address of the node.
        let plain = Rule { to_local: rule.to_local && !is_to_node, ..without_any(rule) };
        let bare = Rule { comment: rule.comment.clone(), target: rule.target.clone(), ..Rule::default() };
        let is_for_all = plain == bare;
        let is_for_answers = plain == Rule { established: true, ..bare.clone() };
        let names = walk.own.names(rule);
        let named = [0, 1].map(|way| place.meant[way] && names[way]);
        let begins = plain.words == BEGINS;
        let stateless = if begins { Rule { words: Vec::new(), ..plain.clone() } } else { plain.clone() };
        // A jump for packets of some ports or marks names no attachment, and may be for any.
        let may_be_its = is_for_all || step.to.is_some() && !names_any(&plain);
        let is_whole = [0, 1].map(|way| walk.own.is_for_whole(&plain, way));
        // Without answers, and without its first packet, no connection comes to be.
        let of_answers = [
            walk.own.is_for_whole(&Rule { established: false, ..plain.clone() }, 0),
            walk.own.is_for_whole(&stateless, 1),
        ];
        let begins_there = begins && walk.own.is_for_whole(&stateless, 0);
        let directions = [0, 1].map(|way| place.meant[way] && (named[way] || may_be_its || of_answers[way]));
        let is_met =
            |rule: &Rule| [0, 1].map(|way| place.meant[way] && walk.own.is_for_whole(rule, way)).contains(&true);
        // Of one protocol, or with a mark: some of its packets, or all of them.
        let is_of_icmp = plain.words == ICMPV6 && is_met(&Rule { words: Vec::new(), ..plain.clone() });
        let is_of_protocol =
            is_of_icmp || plain.protocol.is_some() && is_met(&Rule { protocol: None, ..stateless.clone() });
        let is_of_mark = plain.mark.is_some() && is_met(&Rule { mark: None, ..stateless.clone() });
        let whole = [0, 1].map(|way| directions[way] && is_whole[way]);
        if !is_for_all && step.to.is_none() && rule.target != Target::Return {
            for (list, _) in self.named.iter_mut().zip(named).filter(|(_, is_named)| *is_named) {
                list.push((place.chain, rule));
            }
        }
        if let Some(to) = &step.to {
            if directions.contains(&true) {
                let is_certain = place.is_certain && (named.contains(&true) || whole == directions);
                self.walk(walk, In { chain: to, meant: directions, is_certain, depth: place.depth + 1, ..*place });
            }
            if step.is_goto {
                place.leave(directions, whole, is_for_all, is_of_mark);
            }
            return;
        }
        let is_left = [0, 1].map(|way| place.meant[way] && !self.is_done[way]).contains(&true);
        let is_translated = plain == Rule { translated: true, ..bare };
        let is_of_port = plain.port.iter().chain(&plain.ports).any(|port| walk.own.ports.contains(port))
            && place.meant[0]
            && walk.own.is_for_whole(&Rule { protocol: None, port: None, ports: Vec::new(), ..stateless.clone() }, 0);
        self.accepts_new |= rule.target == Target::Accept
            && !rule.established
            && (directions[0] || is_translated || is_of_port)
            && !walk.own.is_among_own(rule);
        let fits_links =
            [&rule.input, &rule.output].into_iter().all(|is| is.is_none() || walk.own.is_link(is.as_ref()));
        self.accepts_discovery |= rule.target == Target::Accept
            && (plain.words == ICMPV6 && fits_links
                || directions.contains(&true) && plain.destination.is_none() && !plain.established && !begins);
        let is_refusal =
            matches!(rule.target, Target::Drop | Target::Reject) && !place.chain.starts_with("CNI-ISOLATION-");
        if is_refusal && (whole[0] || begins_there) && place.is_certain && !self.accepts_new && !self.may_accept_all {
            self.refuses_new.get_or_insert((place.chain, rule));
        }
        match &rule.target {
            Target::Drop | Target::Reject if is_for_all => self.drop_all(walk, *place, rule),
            // Rules that this suite writes drop what the network's configuration says.
            Target::Drop | Target::Reject if place.chain.starts_with("CNI-ISOLATION-") => {}
            Target::Drop | Target::Reject => {
                let dropped = [0, 1].map(|way| directions[way] && of_answers[way]);
                // Where a rule before it accepts some of its packets, the rest is kept out on purpose.
                let is_meant = named != [false; 2] && [0, 1].iter().any(|way| directions[*way] && self.accepts[*way]);
                if self.is_open(dropped).contains(&true) {
                    self.drop_all(walk, In { meant: dropped, ..*place }, rule);
                } else if is_left && (named != [false; 2] && !walk.own.is_about_another(rule) || is_of_protocol) {
                    let is_whole = place.is_certain && whole.contains(&true);
                    self.drops.push(Refused { chain: place.chain, rule, is_whole, is_meant });
                } else {
                    self.may_refuse |= is_left && is_of_mark;
                }
            }
            Target::Accept if place.is_certain && !walk.own.is_among_own(rule) => {
                // What the container answers is not what it sends first.
                let is_of_answers_alone = self.is_of_node && rule.established;
                let accepts = [directions[0] && !is_of_answers_alone, directions[1] && !rule.established];
                self.is_done = [0, 1].map(|way| self.is_done[way] || whole[way]);
                self.accepts = [0, 1].map(|way| self.accepts[way] || accepts[way]);
                // Where the gate is the node's own, what the container answers is all that the rule can be for.
                let is_of_its_answers = rule.established && directions[1] && !self.meant[0];
                self.accepts_answers |= is_for_answers || is_of_its_answers || is_for_all && place.meant == self.meant;
                self.may_accept_all |= is_of_mark;
            }
            Target::Accept if walk.own.is_among_own(rule) => {}
            Target::Accept => {
                self.may_accept += usize::from(directions.contains(&true) || is_for_answers);
                self.may_accept_all |= is_of_mark;
            }
            // In a base chain it leaves the rest to the policy.
            Target::Return if place.depth == 0 && !walk.gate.drops && place.is_certain => {
                self.is_done = [0, 1].map(|way| self.is_done[way] || whole[way]);
                place.meant = [0, 1].map(|way| place.meant[way] && !whole[way]);
                place.is_marked |= is_of_mark;
            }
            Target::Return => {
                place.has_answered |= plain.established && directions[0];
                place.has_passed_port |= is_of_port;
                place.leave(directions, whole, is_for_all, is_of_mark);
            }
            Target::Jump(to)
                // Where all packets are in a zone, so are their answers.
                if (to == UNTRACKED || to == ZONED && !is_for_all) && is_left && (directions.contains(&true) || is_of_protocol) =>
            {
                self.untracked.get_or_insert((place.chain, rule));
            }
            _ => {}
        }
    }

    /// In which of these directions no rule accepted packets yet.
    pub(super) fn is_open(&self, meant: Directions) -> Directions {
        // At the hook of what the node sends, a rule for connections that exist accepts no first packet.
        let accepted = if self.is_of_node { self.accepts } else { self.is_accepted() };
        [0, 1].map(|way| meant[way] && !accepted[way])
    }

    /// What drops the packets to it that begin a connection, while answers reach it: a rule, or the policy.
    pub(super) fn refusal_of_new(&self, gate: &'a Gate) -> Option<Option<(&'a str, &'a Rule)>> {
        let is_refused = self.refuses_new.is_some() || gate.drops && !self.accepts_new && !self.may_accept_all;
        (is_refused && self.is_accepted()[0]).then_some(self.refuses_new)
    }

    /// Behind a rule that accepts, one for all packets decides on others.
    fn drop_all(&mut self, walk: &Walk<'a, '_>, place: In<'a>, rule: &'a Rule) {
        let is_open = self.is_open(place.meant);
        if !is_open.contains(&true) {
            return;
        }
        match place.is_certain {
            true if self.barrier.is_none() => self.barrier = Some((place.chain, rule, is_open)),
            true => {}
            // A guard of a port first lets pass the frames that it knows, by conditions that are not read.
            false if walk.gate.is_of_frames => {}
            false if place.is_marked => self.may_refuse = true,
            // What begins a connection to it may be kept out on purpose, but for some.
            false => {
                let lets_pass = place.has_passed_port || walk.own.ports.is_empty();
                let is_meant = place.has_answered && lets_pass && !place.meant[1];
                self.drops.push(Refused { chain: place.chain, rule, is_whole: false, is_meant });
            }
        }
    }
}

/// The rule without conditions that any packet of its family meets.
pub(super) fn without_any(rule: &Rule) -> Rule {
    let is_any = |is: &Is<IpNetwork>| is.value.prefix() == 0 && !is.negated;
    let source = rule.source.clone().filter(|is| !is_any(is));
    let destination = rule.destination.clone().filter(|is| !is_any(is));
    Rule { source, destination, ..rule.clone() }
}

/// Whether a rule has a condition on addresses or links.
pub(super) fn names_any(rule: &Rule) -> bool {
    rule.source.is_some() || rule.destination.is_some() || rule.input.is_some() || rule.output.is_some()
}
