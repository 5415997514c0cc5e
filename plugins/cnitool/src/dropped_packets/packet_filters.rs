//! The base chains that an attachment's packets pass: which rules name it, and what drops its packets.
//!
//! The ruleset is not evaluated: a rule that drops packets of the attachment is named as one that may, and what drops all
//! others counts unless a rule before it accepts packets in that direction.

mod address_translation;
mod before_port_forwarding;
mod between_containers;
mod rule_texts;
mod rules_passed;

use std::net::IpAddr;

use cni_filter::iptables::rule::{Is, Target};
use cni_filter::iptables::states::ICMPV6;
use cni_filter::iptables::{Rule, ZONED};
use cni_filter::packet_path::{At, Gate};
use ipnetwork::IpNetwork;
use netops::Family;
use netops::nft::Hook;

use super::way_to_container::{Carrier, sets};
use super::{Cause, Findings, Level, Reason, Sight};
use crate::node_networks::Attachment;
use rule_texts::{
    accept, accept_among, accept_answers, accept_discovery, accept_one, accept_translated, in_words, show,
};
use rules_passed::{Directions, Passed, Refused};

impl Sight<'_> {
    pub(super) fn filtered(&self, family: Family, attachment: &Attachment, carrier: &Carrier, findings: &mut Findings) {
        if matches!(carrier, Carrier::Unknown) {
            return;
        }
        let way_out = self.link_out(family).map(|(link, _)| link.name.as_str());
        let own = Own::of(attachment, carrier, way_out.filter(|_| carrier.is_routed()));
        if own.way_out.is_some() {
            self.translated(family, attachment, &own, findings);
        }
        // At the hooks of routed packets the link of a bridge's port is the bridge.
        let is_port = |name: &&str| attachment.links.iter().any(|link| link.name == **name && link.master.is_some());
        let mut routed = Own { links: own.links.clone(), ports: own.ports.clone(), ..own };
        routed.links.retain(|name| !is_port(name));
        for gate in self.gates.iter().filter(|gate| gate.family.is_none_or(|of| of == family)) {
            let Some(meant) = self.directions(gate, family, carrier, &own) else { continue };
            let own = if gate.is_of_frames || !matches!(gate.at, At::Hook(_)) { &own } else { &routed };
            findings.reasons.extend(self.port_dropped(gate, attachment, own, family));
            let meant = match self.translated_source(gate, attachment, family) {
                Some(addresses) => {
                    let own = Own { addresses: &addresses, links: own.links.clone(), ports: Vec::new(), ..*own };
                    let passed = Passed::of(gate, &own, family, [false, true]);
                    // No rule for addresses of containers opens the gate for what has the node's by then.
                    let open = |reason| Reason { remedy: vec![show(gate)], ..reason };
                    findings.reasons.extend(passed.forwarded(gate, attachment, family).map(open));
                    [meant[0], false]
                }
                None => meant,
            };
            let passed = Passed::of(gate, own, family, meant);
            if passed.may_refuse {
                let rules = show(gate);
                findings
                    .unexamined
                    .push(format!("rules of {} that drop packets on further conditions ({rules})", gate.place));
            }
            findings.reasons.extend(passed.not_tracked(gate, attachment));
            if gate.at == At::Hook(Hook::Input) && !gate.is_of_frames {
                findings.reasons.extend(passed.to_node(gate, attachment, family));
                continue;
            }
            passed.tell(gate, findings);
            findings.reasons.extend(passed.undiscovered(gate, family));
            if let Some(bridge) = carrier.bridge().filter(|_| carrier.is_routed())
                && !passed.is_open(meant).contains(&true)
            {
                findings.reasons.extend(self.among(gate, attachment, (bridge, &routed), family));
            }
            let bridged = "frames between containers pass it, too, as net.bridge.bridge-nf-call-iptables is 1";
            findings.reasons.extend(passed.forwarded(gate, attachment, family).map(|reason| match carrier {
                Carrier::Switched(bridge) if attachment.addresses.is_empty() => {
                    let why = format!("{}: {bridged}", reason.what);
                    Reason { what: why.clone(), why, remedy: vec![accept_among(gate, bridge)], ..reason }
                }
                Carrier::Switched(_) if !gate.is_of_frames && matches!(gate.at, At::Hook(_)) => {
                    let (why, what) = (format!("{}: {bridged}", reason.why), format!("{}: {bridged}", reason.what));
                    Reason { why, what, ..reason }
                }
                _ => reason,
            }));
        }
    }

    /// The addresses that packets from the attachment to other networks have at the gate, where that is behind its masquerade.
    fn translated_source(&self, gate: &Gate, attachment: &Attachment, family: Family) -> Option<Vec<IpAddr>> {
        // NF_IP_PRI_NAT_SRC of linux/netfilter_ipv4.h.
        let is_behind = gate.at == At::Hook(Hook::Postrouting) && !gate.is_of_frames && gate.priority > 100;
        let (link, _) = self.link_out(family).filter(|_| is_behind && attachment.is_masqueraded(family))?;
        let own = self.host.addresses_of(&link.name).iter().map(IpNetwork::ip);
        Some(own.filter(|own| Family::from(*own) == family).collect())
    }

    /// The packets of the attachment that meet the gate, if any do.
    fn directions(&self, gate: &Gate, family: Family, carrier: &Carrier, own: &Own<'_>) -> Option<Directions> {
        let (both, to, from) = ([true, true], [true, false], [false, true]);
        let has = |links: &[String], name: &str| links.iter().any(|link| link == name);
        let has_own = |links: &[String]| own.links.iter().any(|name| has(links, name));
        let has_out = |links: &[String]| own.way_out.is_some_and(|name| has(links, name));
        match (&gate.at, carrier) {
            (At::Ingress(links), _) if has_own(links) => Some(from),
            (At::Egress(links), _) if has_own(links) => Some(to),
            (At::Ingress(links), _) if has_out(links) => Some(to),
            (At::Egress(links), _) if has_out(links) => Some(from),
            (At::Ingress(_) | At::Egress(_), _) | (At::Hook(_), Carrier::Stacked { .. } | Carrier::Unknown) => None,
            (At::Hook(hook), _) if gate.is_of_frames => carrier.bridge().map(|_| match hook {
                Hook::Prerouting | Hook::Input => from,
                Hook::Output | Hook::Postrouting => to,
                Hook::Forward => both,
            }),
            (At::Hook(Hook::Output), Carrier::Routed(_)) => Some(to),
            (At::Hook(Hook::Input), Carrier::Routed(_)) => Some(from),
            (At::Hook(_), Carrier::Routed(_)) => Some(both),
            (At::Hook(Hook::Input | Hook::Output), Carrier::Switched(_)) => None,
            (At::Hook(_), Carrier::Switched(_)) => Some(both).filter(|_| self.filters_bridges[family as usize]),
        }
    }
}

impl Passed<'_> {
    /// Names the rules about the attachment as hops of its packets.
    fn tell(&self, gate: &Gate, findings: &mut Findings) {
        for (named, list) in self.named.iter().zip([&mut findings.to, &mut findings.from]) {
            list.extend(named.iter().map(|(chain, rule)| in_words(gate, chain, rule)));
        }
        if self.unread > 0 {
            findings.unseen.push(format!("{} rules of {} that have further conditions", self.unread, gate.place));
        }
    }

    /// Packets that are not tracked are not translated, and no rule knows answers to them.
    fn not_tracked(&self, gate: &Gate, attachment: &Attachment) -> Option<Reason> {
        let (chain, rule) = self.untracked?;
        let needs = attachment.conf.as_ref().is_some_and(|conf| sets(conf, "ipMasq")) || !attachment.ports.is_empty();
        if !needs {
            return None;
        }
        let text = in_words(gate, chain, rule);
        let does = match &rule.target {
            Target::Jump(to) if to == ZONED => "puts packets in another zone of connection tracking than their answers",
            _ => "leaves packets out of connection tracking",
        };
        let what = format!("{text} {does}: neither masquerade nor forwarded ports work for them");
        Some(Reason::new(Cause::Filtered, Level::Warning, what).mended_by([show(gate)]))
    }

    /// Why packets between the attachment and other networks are dropped.
    fn forwarded(&self, gate: &Gate, attachment: &Attachment, family: Family) -> impl Iterator<Item = Reason> {
        let by_rule = self.drops.iter().map(|Refused { chain, rule, is_whole, is_meant }| {
            let text = in_words(gate, chain, rule);
            let level = if *is_meant { Level::Note } else { Level::Warning };
            let reason = Reason::new(Cause::Filtered, level, format!("{text} may drop them"));
            reason.mended_by(match *is_whole && !is_meant {
                true if is_of_one(rule) => accept_one(gate, attachment, family),
                true => accept(gate, attachment, family),
                false => vec![show(gate)],
            })
        });
        let by_rule: Vec<Reason> = by_rule.collect();
        let new = self.new_to_ports(gate, attachment, family);
        by_rule.into_iter().chain(self.by_all_others(gate, attachment, family)).chain(new)
    }

    /// Why connections from outside to the ports of a container are dropped that may itself begin some.
    fn new_to_ports(&self, gate: &Gate, attachment: &Attachment, family: Family) -> Option<Reason> {
        let has_ports = attachment.ports.iter().any(|port| port.is_entered && Family::from(port.to.ip()) == family);
        if gate.at != At::Hook(Hook::Forward) || gate.is_of_frames || self.may_accept > 0 || !has_ports {
            return None;
        }
        let by = match self.refusal_of_new(gate)? {
            Some((chain, rule)) => in_words(gate, chain, rule),
            None => format!("{} by its policy", gate.place),
        };
        let why = format!("{by} drops new connections to its ports of the node: rules accept answers to it alone");
        let what = why.replace("its ports of the node", "ports of containers").replace("to it alone", "to them alone");
        let reason = Reason::new(Cause::Filtered, Level::Error, why).shared(what);
        Some(reason.mended_by([accept_translated(gate)]))
    }

    /// Why packets that no rule accepts are dropped: by the policy, or by a rule for all packets.
    fn by_all_others(&self, gate: &Gate, attachment: &Attachment, family: Family) -> Option<Reason> {
        let (by, ways) = match &self.barrier {
            Some((chain, rule, ways)) => (in_words(gate, chain, rule), *ways),
            None if gate.drops => (format!("{} drops by policy", gate.place), self.is_open(self.meant)),
            None => return None,
        };
        let missing: Vec<&str> =
            ["to", "from"].into_iter().zip(ways).filter(|(_, is)| *is).map(|(way, _)| way).collect();
        if missing.is_empty() {
            return None;
        }
        let drops = if self.barrier.is_some() { " drops" } else { "" };
        // The node's own packets: a container reaches other networks without them.
        let is_of_node = gate.at == At::Hook(Hook::Output);
        let is_open_to_some = is_of_node && self.may_accept > 0 && self.accepts_answers;
        let level = match (self.may_accept_all || is_open_to_some, self.may_accept > 0 || is_of_node) {
            (true, _) => Level::Note,
            (false, true) => Level::Warning,
            (false, false) => Level::Error,
        };
        let unread = match self.may_accept {
            0 => String::new(),
            count => format!(" ({count} of its rules have conditions that were not examined)"),
        };
        let directions = missing.join(" and ");
        let text = |whose: &str| {
            format!("{by}{drops} what it does not accept, and no rule for {whose} accepts packets {directions}")
        };
        let by_barrier = |text: String| match self.barrier {
            Some(_) => text.replace("what it does not accept", "what no rule before it accepts"),
            None => text,
        };
        let reason = Reason::new(Cause::Filtered, level, format!("{} it{unread}", by_barrier(text("it"))));
        let what = format!("{} containers{unread}", by_barrier(text("them")));
        let opens = match &self.barrier {
            Some((_, rule, _)) if is_of_one(rule) => accept_one(gate, attachment, family),
            // Answers have the node's address there.
            Some((_, rule, _)) if gate.at == At::Hook(Hook::Prerouting) && !rules_passed::names_any(rule) => {
                vec![show(gate)]
            }
            _ => accept(gate, attachment, family),
        };
        Some(reason.shared(what).mended_by(opens))
    }

    /// Why the container does not reach the node itself.
    fn to_node(&self, gate: &Gate, attachment: &Attachment, family: Family) -> Vec<Reason> {
        let by_rule = self.drops.iter().map(|Refused { chain, rule, .. }| {
            let text = in_words(gate, chain, rule);
            if rule.words == ICMPV6 {
                let why = format!("{text} drops neighbour discovery: nothing finds the node by IPv6, nor the node it");
                let what = why.replace("the node it", "the node them");
                return Reason::new(Cause::FilteredToNode, Level::Error, why).shared(what).mended_by([show(gate)]);
            }
            let is_of_names = rule.port.iter().chain(&rule.ports).any(|port| *port == DNS_PORT);
            // An administrator may mean it, but a resolver that runs on the node is meant to answer.
            let level = if is_of_names { Level::Warning } else { Level::Note };
            let why = format!("{text} may drop what it sends to the node's addresses");
            let what = why.replace("it sends", "containers send");
            Reason::new(Cause::FilteredToNode, level, why).shared(what).mended_by([show(gate)])
        });
        by_rule.chain(self.closed_to_node(gate, attachment, family)).collect()
    }

    /// Why the node itself does not find the container by IPv6, though a rule accepts what it sends there.
    fn undiscovered(&self, gate: &Gate, family: Family) -> Option<Reason> {
        let is_of_node = gate.at == At::Hook(Hook::Output) && !gate.is_of_frames && family == Family::V6;
        let by = match &self.barrier {
            Some((chain, rule, _)) => in_words(gate, chain, rule),
            None => format!("{} by its policy", gate.place),
        };
        let is_closed = self.barrier.is_some() || gate.drops;
        let why = format!("{by} drops neighbour discovery: the node finds no container by IPv6");
        let reason = || Reason::new(Cause::Filtered, Level::Error, why).mended_by([accept_discovery(gate)]);
        (is_of_node && is_closed && !self.accepts_discovery).then(reason)
    }

    fn closed_to_node(&self, gate: &Gate, attachment: &Attachment, family: Family) -> Option<Reason> {
        let by = match &self.barrier {
            Some((chain, rule, _)) => format!("{} drops what no rule before it accepts", in_words(gate, chain, rule)),
            None if gate.drops => format!("{} drops what it does not accept", gate.place),
            None => return None,
        };
        if self.accepts[1] {
            return None;
        }
        // Neighbour discovery is no answer to anything.
        let finds_node = family == Family::V4 || self.accepts_discovery;
        let answers = self.accepts_answers || self.may_accept > 0;
        let lost = match (finds_node, answers) {
            (true, true) => "what it sends to the node's addresses",
            (true, false) => "what it sends to the node's addresses, answers too",
            (false, true) => {
                "what it sends to the node's addresses, nor neighbour discovery, without which no IPv6 address is found"
            }
            (false, false) => "what it sends to the node's addresses, answers and neighbour discovery too",
        };
        let why = format!("{by}, and no rule for it accepts {lost}");
        let what = why.replace("for it", "for containers").replace("what it sends", "what they send");
        // An administrator may mean it.
        let is_meant = finds_node && answers;
        let mut remedy = if is_meant { vec![show(gate)] } else { Vec::new() };
        if !answers {
            remedy.extend(accept_answers(gate, attachment, family));
        }
        if !finds_node {
            remedy.push(accept_discovery(gate));
        }
        let level = if is_meant { Level::Note } else { Level::Warning };
        Some(Reason::new(Cause::FilteredToNode, level, why).shared(what).mended_by(remedy))
    }
}

/// Whether a rule names one address on either side.
fn is_of_one(rule: &Rule) -> bool {
    [&rule.source, &rule.destination].into_iter().flatten().any(|is| is.host().is_some())
}

/// The port of DNS.
const DNS_PORT: u16 = 53;

/// The names by which rules know an attachment.
struct Own<'a> {
    addresses: &'a [IpAddr],
    links: Vec<&'a str>,
    /// The link that packets leave the node by.
    way_out: Option<&'a str>,
    /// Whether the node passes on frames between the attachment and its own network alone.
    is_switched: bool,
    /// The ports that are forwarded to it, by its own numbers.
    ports: Vec<u16>,
}

impl<'a> Own<'a> {
    fn of(attachment: &'a Attachment, carrier: &'a Carrier, way_out: Option<&'a str>) -> Self {
        let own = attachment.links.iter().map(|link| link.name.as_str());
        let masters = attachment.links.iter().filter_map(|link| link.master.as_deref());
        let bridge = carrier.bridge().into_iter().flat_map(|bridge| [&*bridge.name, &*bridge.router]);
        let stacked_on = match carrier {
            Carrier::Stacked { master, .. } => master.as_deref(),
            Carrier::Routed(_) | Carrier::Switched(_) | Carrier::Unknown => None,
        };
        let mut links: Vec<&str> = own.chain(masters).chain(bridge).chain(stacked_on).collect();
        links.sort_unstable();
        links.dedup();
        let is_switched = matches!(carrier, Carrier::Switched(_));
        let ports = attachment.ports.iter().map(|forward| forward.to.port()).collect();
        Self { addresses: &attachment.addresses, links, way_out, is_switched, ports }
    }

    /// Whether a rule names the attachment as destination, and as source.
    fn names(&self, rule: &Rule) -> Directions {
        [
            self.is_end(rule.destination.as_ref(), rule.output.as_ref()),
            self.is_end(rule.source.as_ref(), rule.input.as_ref()),
        ]
    }

    /// Whether conditions on one end of a packet's way name the attachment, and none is for others alone.
    fn is_end(&self, net: Option<&Is<IpNetwork>>, link: Option<&Is<String>>) -> bool {
        self.fits(net, link) && (self.has(net) || self.is_link(link))
    }

    /// Whether conditions on one end of a packet's way are met by the attachment.
    fn fits(&self, net: Option<&Is<IpNetwork>>, link: Option<&Is<String>>) -> bool {
        let fits_net = net.is_none_or(|is| {
            let value = Is { value: is.value, negated: false };
            is.value.prefix() == 0 || self.has(Some(&value)) != is.negated
        });
        let fits_link = link.is_none_or(|is| {
            let value = Is { value: is.value.clone(), negated: false };
            is.value == "+" || self.is_link(Some(&value)) != is.negated
        });
        fits_net && fits_link
    }

    /// Whether a rule is for packets between the attachment and some other addresses or links alone.
    fn is_about_another(&self, rule: &Rule) -> bool {
        let nets = [&rule.source, &rule.destination].into_iter().flatten();
        let mut links = [&rule.input, &rule.output].into_iter().flatten();
        let is_of_others = nets.filter(|is| !is.negated && is.value.prefix() > 0).any(|is| !self.has(Some(is)))
            || links.any(|is| !is.negated && !self.is_link(Some(is)) && !self.is_way_out(&is.value));
        // A port of its own is kept from some on purpose, and so are ports of other hosts from it, but for those of names.
        let is_of_ports = rule.port.is_some() || !rule.ports.is_empty();
        let is_beside = |is: &&Is<IpNetwork>| is.negated && is.value.prefix() > 0;
        let is_of_others = is_of_others
            || is_of_ports && [&rule.source, &rule.destination].into_iter().flatten().any(|is| is_beside(&is));
        let mut ports = rule.port.iter().chain(&rule.ports).peekable();
        is_of_others || ports.peek().is_some() && ports.all(|port| *port != DNS_PORT && !self.ports.contains(port))
    }

    /// Whether a rule is for packets between the attachment and its own network alone, of one that has more to reach.
    fn is_among_own(&self, rule: &Rule) -> bool {
        !self.is_switched && self.names(rule) == [true; 2]
    }

    /// Whether a rule is for all packets between the attachment and other networks in a direction: its conditions name the
    /// attachment or the way out, or leave out others.
    fn is_for_whole(&self, rule: &Rule, way: usize) -> bool {
        let Rule { source, destination, input, output, .. } = rule;
        let is_bare = {
            let rest = Rule { source: None, destination: None, input: None, output: None, ..rule.clone() };
            rest == Rule { comment: rule.comment.clone(), target: rule.target.clone(), ..Rule::default() }
        };
        let (own_net, own_link, net, link) =
            if way == 0 { (destination, output, source, input) } else { (source, input, destination, output) };
        let is_other = link.as_ref().is_none_or(|is| self.is_way_out(&is.value) != is.negated);
        is_bare && self.fits(own_net.as_ref(), own_link.as_ref()) && net.is_none() && is_other
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

    fn is_way_out(&self, pattern: &str) -> bool {
        let is_it = |name: &str| pattern.strip_suffix('+').map_or(name == pattern, |start| name.starts_with(start));
        pattern == "+" || self.way_out.is_some_and(is_it)
    }

    /// Whether the rule of a table for both families is for the other one.
    fn is_of_other_family(rule: &Rule, family: Family) -> bool {
        let nets = [&rule.source, &rule.destination];
        nets.into_iter().flatten().any(|is| Family::from(is.value) != family)
    }
}
