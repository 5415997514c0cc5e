//! What the packets that were sent say of an attachment: why ways of it are dead.

use std::collections::BTreeMap;
use std::fmt;

use netops::Family;
use netops::nft::trace::{Checkpoint, Outcome};
use netops::nft::{Hook, Nft};
use netops::probe::{Kind as Sent, Met};

use super::dropping_rules::{Culprit, Gate, Words, culprit};
use super::packet_answers::{Answers, Asked, Stray, Verdict, Way, in_words};
use super::real_packets::DNS;
use super::{Found, Level, Reason, Sight};
use crate::doctor::{Kind, Step, advice};
use crate::node_networks::Attachment;

impl<'a> Sight<'a> {
    /// Sends packets of attachments, or of one, and adds what drops them to the reasons that are known without.
    pub(crate) fn prove(&self, found: &mut Vec<Found<'a>>, only: Option<&'a Attachment>) -> Answers<'a> {
        let answers = self.real_packets(only);
        for asked in &answers.asked {
            let (network, attachment) = (asked.network, asked.attachment);
            for (reason, is_dropped) in self.of_packets(asked, only.is_some()) {
                let mut known = found.iter().filter(|found| std::ptr::eq(found.attachment, attachment));
                // A link that is down, or a route that leads elsewhere, has packets lost without a rule that drops them.
                let explains = |known: &Found<'_>| {
                    !is_dropped
                        && known.reason.level > Level::Note
                        && (known.reason.kind == reason.kind
                            || explains(known.reason.kind)
                            || known.reason.kind == Kind::Mtu && known.reason.level == Level::Error
                            || [known.reason.kind, reason.kind].into_iter().all(is_of_ports))
                };
                if !known.any(|known| explains(known) || known.reason.what == reason.what) {
                    found.push(Found { network, attachment, reason });
                }
            }
        }
        answers
    }

    /// Why ways of an attachment are dead, a reason for each cause, and whether a rule or policy drops their packets. What its
    /// network's egressPolicy drops is no fault, and a reason only `with_policy`.
    fn of_packets(&self, asked: &Asked<'_>, with_policy: bool) -> Vec<(Reason, bool)> {
        let mut causes: Vec<(&Verdict, Vec<Way>)> = Vec::new();
        let is_reason = |verdict: &Verdict| match verdict {
            Verdict::Passed(_) => false,
            Verdict::Dropped(met) => with_policy || met.table != cni_filter::EGRESS_TABLE,
            _ => true,
        };
        for (way, verdict) in asked.ways.iter().filter(|(_, verdict)| is_reason(verdict)) {
            // Each port has its own rule.
            let is_port = matches!((way, verdict), (Way::Port(_), Verdict::Astray(_)));
            match causes.iter_mut().find(|(of, _)| *of == verdict && !is_port) {
                Some((_, ways)) => ways.push(*way),
                None => causes.push((verdict, vec![*way])),
            }
        }
        let reasons = causes.into_iter().map(|(verdict, ways)| {
            let level = ways.iter().map(|way| level(asked, *way, verdict)).max().unwrap_or(Level::Note);
            (self.reason(asked, verdict, &ways, level), matches!(verdict, Verdict::Dropped(_)))
        });
        reasons.collect()
    }

    fn reason(&self, asked: &Asked<'_>, verdict: &Verdict, ways: &[Way], level: Level) -> Reason {
        let packets = format!("packets {}", in_words(ways));
        match verdict {
            Verdict::Dropped(met) => self.dropped(asked, met, ways, level),
            Verdict::Lost(behind) => {
                let what = format!("something drops {packets}, {}: it is not known what", between(*behind));
                let remedy = "Look for legacy iptables (iptables-legacy-save), programs of tc and eBPF (tc filter show, bpftool net), and \
                    settings that no rule shows.";
                Kind::FirewallDrops.finding(level, None, what).steps([advice(remedy)])
            }
            Verdict::Refused(errno) => {
                let what = format!("the node's routing refuses {packets}: {}", errno.desc().to_lowercase());
                let to = asked.attachment.addresses.iter().find(|it| Family::from(**it) == asked.family);
                let show = to.map(|to| ["ip rule".to_owned(), format!("ip route get {to}")]).into_iter().flatten();
                Kind::RouteElsewhere.finding(level, None, what).steps(show)
            }
            Verdict::NoAnswer(gateway) => {
                let what = format!(
                    "nothing answers the container when it asks for its gateway {gateway}: {packets} are not sent"
                );
                Kind::GatewayAddress
                    .finding(level, None, what)
                    .steps([advice("Look at the bridge, its ports, and rules of family bridge and arp.")])
            }
            Verdict::Astray(stray) => self.astray(asked, stray, ways, level),
            Verdict::Passed(_) => Kind::FirewallDrops.finding(Level::Note, None, format!("{packets} pass")),
        }
    }

    /// A rule or a policy drops packets.
    fn dropped(&self, asked: &Asked<'_>, met: &Met, ways: &[Way], level: Level) -> Reason {
        let gate = Nft::open("the host").ok().and_then(|mut nft| {
            let gate = Gate::of(&mut nft, met)?;
            let by = gate.words(&mut nft, self.search_path, met);
            Some((gate, by))
        });
        let verb = if met.outcome == Outcome::Queue { "gives a program" } else { "drops" };
        let packets = format!("{verb} packets {}", in_words(ways));
        let Some((gate, by)) = gate else {
            let by = format!("chain {} of table {}", met.chain, met.table);
            return Kind::FirewallDrops.finding(level, None, format!("{by} {packets}"));
        };
        let remedy = self.opens(asked, &gate, &by, ways);
        Kind::FirewallDrops.finding(level, None, format!("{by} {packets}")).steps(remedy)
    }

    /// The commands that let packets of these ways pass a chain; those that show it where they may be kept out on purpose.
    fn opens(&self, asked: &Asked<'_>, gate: &Gate, rule: &Words, ways: &[Way]) -> Vec<Step> {
        let (attachment, family) = (asked.attachment, asked.family);
        let is_out = ways.iter().any(|way| matches!(way, Way::Out(_) | Way::Answer(_))) && asked.is_cut_off();
        if let (true, Some(bridge)) = (ways == [Way::Among], &asked.bridge) {
            return vec![gate.accept_among(bridge).into()];
        }
        match gate.hook {
            Some(Hook::Input | Hook::Output) if family == Family::V6 && is_out => vec![gate.accept_discovery()],
            Some(Hook::Input) if ways.iter().any(|way| matches!(way, Way::Back(_))) => {
                gate.accept_answers(attachment, family)
            }
            Some(Hook::Output) => gate.accept(attachment, family),
            Some(Hook::Forward) if ways.iter().all(|way| matches!(way, Way::Port(_))) => vec![gate.accept_translated()],
            _ if !is_out || gate.is_behind_masquerade() => vec![gate.show().into()],
            // Answers have the node's address there.
            Some(Hook::Prerouting) if rule.names_none() => vec![gate.show().into()],
            _ if rule.is_of_one(&attachment.addresses) => gate.accept_one(attachment, family),
            _ => gate.accept(attachment, family),
        }
    }

    /// Packets pass with other addresses than they have to have.
    fn astray(&self, asked: &Asked<'_>, stray: &Stray, ways: &[Way], level: Level) -> Reason {
        let packets = format!("packets {}", in_words(ways));
        let of = |way: &Way| asked.rules.get(way).map_or(&[][..], Vec::as_slice);
        let (hook, rules) = match ways.first() {
            Some(way @ Way::Port(_)) => (Some(Hook::Prerouting), of(way)),
            Some(way @ Way::Out(_)) => (Some(Hook::Postrouting), of(way)),
            way => (None, way.map_or(&[][..], of)),
        };
        let culprit = culprit(self.search_path, rules, hook);
        let end = match stray {
            Stray::NotMasqueraded => "leave with the container's address".to_owned(),
            Stray::As(address) => format!("leave as {address}, which no link of the node has"),
            Stray::ElseWhere { to, .. } => format!("reach {to}, and not the container"),
            Stray::ByLink(link) => format!("leave by link {link}"),
        };
        let kind = match stray {
            Stray::NotMasqueraded | Stray::As(_) => Kind::MasqueradeGone,
            Stray::ElseWhere { is_translated: true, .. } => Kind::PortTwice,
            Stray::ElseWhere { .. } => Kind::PortGone,
            Stray::ByLink(_) => Kind::RouteElsewhere,
        };
        match culprit {
            Some(Culprit { by, is_of_tracking: true, remedy }) => {
                let what = format!("{by} takes packets out of the usual connection tracking: {packets} {end}");
                Kind::FirewallDrops.finding(level, None, what).steps([remedy])
            }
            Some(Culprit { by, remedy, .. }) => {
                let before = match ways.first() {
                    Some(Way::Port(Sent::Tcp(port))) => format!("the rule that forwards port {port}/tcp"),
                    Some(Way::Port(Sent::Udp(port))) => format!("the rule that forwards port {port}/udp"),
                    _ => "the masquerade of containers".to_owned(),
                };
                let what = format!("{by} comes before {before}: {packets} {end}");
                kind.finding(level, None, what).steps([remedy])
            }
            None => kind.finding(level, None, format!("{packets} {end}")),
        }
    }
}

/// The level of a reason for which packets of a way do not arrive.
fn level(asked: &Asked<'_>, way: Way, verdict: &Verdict) -> Level {
    let is_dead = |way: Way| asked.ways.get(&way).is_some_and(|verdict| !matches!(verdict, Verdict::Passed(_)));
    match way {
        _ if matches!(verdict, Verdict::Astray(Stray::As(_))) => Level::Warning,
        Way::Out(_) | Way::Answer(_) if asked.is_cut_off() => Level::Error,
        Way::Port(_) | Way::PortAnswer(_) => Level::Error,
        Way::Among if asked.is_switched => Level::Error,
        Way::Out(_) | Way::Answer(_) | Way::FromNode(_) | Way::Among | Way::Back(_) => Level::Warning,
        // An administrator may mean it, but a resolver that runs on the node is meant to answer.
        Way::ToNode(_) => match verdict {
            Verdict::Dropped(met) => {
                let is_of_names = way == Way::ToNode(Sent::Udp(DNS)) && !is_dead(Way::ToNode(Sent::Ping));
                let is_rule = met.rule.is_some() && is_of_names;
                if is_rule { Level::Warning } else { Level::Note }
            }
            _ => Level::Warning,
        },
    }
}

fn is_of_ports(kind: Kind) -> bool {
    matches!(kind, Kind::PortGone | Kind::PortTwice)
}

/// Whether a reason explains packets that no rule drops.
fn explains(kind: Kind) -> bool {
    match kind {
        Kind::FirewallDrops | Kind::Mtu | Kind::MasqueradeGone | Kind::PortTaken => false,
        _ => !is_of_ports(kind),
    }
}

/// Where packets were lost behind a checkpoint.
pub(super) fn between(behind: Option<Checkpoint>) -> String {
    match behind.map(|behind| (behind, behind.next())) {
        None => "before the node has seen them".to_owned(),
        Some((behind, Some(next))) => format!("between {} and {}", Place(behind), Place(next)),
        Some((behind, None)) => format!("behind {}", Place(behind)),
    }
}

struct Place(Checkpoint);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Checkpoint { is_of_frames, hook, priority } = self.0;
        let Some(hook) = hook else { return f.write_str("where the link receives them") };
        let of = if is_of_frames { " of the bridge" } else { "" };
        write!(f, "hook {}{of} at priority {priority}", hook.name())
    }
}

/// Verdicts by way where nothing answers for the gateway: what a rule drops has its own; of IPv6 a rule that drops what is sent to the
/// node, or by it, drops neighbour discovery, too.
pub(super) fn without_answer(asked: &mut Asked<'_>, gateway: std::net::IpAddr) {
    let of = |ways: &BTreeMap<Way, Verdict>, way: Way| {
        ways.get(&way).filter(|verdict| matches!(verdict, Verdict::Dropped(_))).cloned()
    };
    let ping = [Way::ToNode(Sent::Ping), Way::FromNode(Sent::Ping)];
    let by = ping.into_iter().find_map(|way| of(&asked.ways, way)).filter(|_| asked.family == Family::V6);
    for (way, verdict) in &mut asked.ways {
        if matches!(way, Way::Out(_) | Way::ToNode(_)) && !matches!(verdict, Verdict::Dropped(_)) {
            *verdict = by.clone().unwrap_or(Verdict::NoAnswer(gateway));
        }
    }
}
