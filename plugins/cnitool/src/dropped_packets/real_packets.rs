//! What the kernel itself does with packets of living attachments: they are sent, and followed by nftables' trace.
//!
//! Packets are sent of one attachment of each network and family, and of a few more, those with ports first. No packet leaves the node,
//! and nothing stays there: see [`netops::probe`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnetwork::IpNetwork;
use netops::error::Result;
use netops::link::{self, Link, Mac};
use netops::nft::Hook;
use netops::nft::trace::Seen;
use netops::probe::{self, Exit, Fate, Followed, Kind, Number, Outside, Packet, Session, Station, from_node};
use netops::{Family, Kernel, Netns, addr, route, tc};

use super::Sight;
use super::host_routes::outside;
use super::mac_of;
use super::packet_answers::{Answers, Asked, Stray, Verdict, Way};
use super::packet_reasons::without_answer;
use super::way_to_container::{Bridge, Carrier, sets};
use crate::node_networks::{Attachment, Network, Protocol};
use libcni::inventory::Life;

/// How long an answer on layer 2 is waited for: on one node it is there at once.
const WITHIN: Duration = Duration::from_millis(100);
/// Attachments that packets are sent of beside the first of each network.
const MORE: usize = 8;
pub(super) const DNS: u16 = 53;
const OUT: [Kind; 3] = [Kind::Ping, Kind::Tcp(443), Kind::Tcp(80)];
const TO_NODE: [Kind; 2] = [Kind::Ping, Kind::Udp(DNS)];

/// An address of nobody: TEST-NET-2 of RFC 5737, and the documentation's prefix of RFC 3849.
fn nobody(family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::new(198, 51, 100, 9)),
        Family::V6 => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9)),
    }
}

/// An attachment with all that is needed to send its packets.
struct Target<'a> {
    asked: Asked<'a>,
    address: IpAddr,
    /// The node's link that has the container's gateway.
    router: &'a Link,
    /// The link by which packets leave the node, and the next hop.
    way_out: Option<(&'a Link, Option<IpAddr>)>,
    /// The container's end.
    station: Station,
    gateway: Option<IpAddr>,
    gateway_mac: Option<Mac>,
    /// Whether the gateway answers the container on layer 2.
    is_answered: bool,
    /// Another living container on its bridge.
    neighbour: Option<(IpAddr, Mac)>,
}

impl Target<'_> {
    /// Layer 2: whether the gateway answers the container.
    fn neighbours_answer(&mut self) -> bool {
        if let Some(gateway) = self.gateway {
            for _ in 0..2 {
                if self.gateway_mac.is_none() && self.station.ask(self.address, gateway).is_ok() {
                    self.gateway_mac = self.station.answer(gateway, WITHIN);
                }
            }
        }
        self.gateway_mac.is_some()
    }
}

impl<'a> Sight<'a> {
    /// Sends packets of attachments, or of one, and tells what the kernel did with them.
    pub(super) fn real_packets(&self, only: Option<&'a Attachment>) -> Answers<'a> {
        let mut answers = Answers::default();
        let Some(kernel) = &self.host.kernel else { return answers };
        let mut targets = self.targets(only);
        if targets.is_empty() {
            return answers;
        }
        let sent = Probe::begin(self, kernel, &targets).and_then(|mut probe| {
            let sent = probe.send(&mut targets);
            answers.skipped = probe.skipped;
            sent
        });
        match sent {
            Ok(()) => answers.asked = targets.into_iter().map(|target| target.asked).collect(),
            Err(error) => {
                answers.skipped.push(format!("what the packet filter drops, as no packets were sent: {error}"));
            }
        }
        answers
    }

    fn targets(&self, only: Option<&'a Attachment>) -> Vec<Target<'a>> {
        let mut targets: Vec<Target<'a>> = Vec::new();
        let mut more = 0;
        for with_ports in [None, Some(true), Some(false)] {
            for network in &self.view.networks {
                let lives = |it: &&Attachment| it.life == Life::Lives && it.is_complete != Some(false);
                let is_meant = |it: &&Attachment| only.is_none_or(|only| std::ptr::eq(only, *it));
                for attachment in network.attachments.iter().filter(lives).filter(is_meant) {
                    let is_asked = |it: &Target<'_>| match with_ports {
                        None => it.asked.network.name == network.name,
                        Some(_) => std::ptr::eq(it.asked.attachment, attachment),
                    };
                    let is_of_turn = with_ports.is_none_or(|with| with != attachment.ports.is_empty());
                    if !is_of_turn || with_ports.is_some() && more >= MORE {
                        continue;
                    }
                    let families: Vec<Family> = Family::BOTH
                        .into_iter()
                        .filter(|family| !targets.iter().any(|it| it.asked.family == *family && is_asked(it)))
                        .collect();
                    let before = targets.len();
                    targets.extend(families.into_iter().filter_map(|family| self.target(network, attachment, family)));
                    more += usize::from(with_ports.is_some() && targets.len() > before);
                }
            }
        }
        targets
    }

    fn target(&self, network: &'a Network, attachment: &'a Attachment, family: Family) -> Option<Target<'a>> {
        let carrier = Carrier::of(self.host, network, attachment);
        let is_switched = matches!(carrier, Carrier::Switched(_));
        let own = attachment.addresses.iter().find(|address| Family::from(**address) == family);
        // A network of links alone has addresses that only its containers know.
        let is_bare = is_switched && attachment.addresses.is_empty() && family == Family::V4;
        let address = own.copied().or(is_bare.then_some(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 8))))?;
        let router = match &carrier {
            Carrier::Routed(Some(bridge)) | Carrier::Switched(bridge) => self.host.find(&bridge.router)?,
            Carrier::Routed(None) => self.host.find(&attachment.links.first()?.name)?,
            Carrier::Stacked { .. } | Carrier::Unknown => return None,
        };
        let netns = Netns::open(&attachment.netns).ok()?;
        let inside = Kernel::in_netns(&netns).ok()?;
        let link = link::find(&inside, attachment.id.ifname.as_str()).ok()??;
        // A guest has the addresses of a port, and what it answers is its own affair.
        if link.master.is_some() || !link.up || !router.up {
            return None;
        }
        let way = route::lookup(&inside, outside(family)).ok().filter(|way| way.link == Some(link.index));
        let by_result = attachment.result.ips.iter().find(|ip| ip.address.ip() == address);
        let gateway = way.as_ref().and_then(|way| way.gateway).or(by_result.and_then(|ip| ip.gateway));
        // The node answers for an address of IPv6 only when it has looked for another station that has it.
        let own = addr::list(self.host.kernel.as_ref()?, router).unwrap_or_default();
        if own.iter().any(|own| own.tentative && Some(own.net.ip()) == gateway) {
            return None;
        }
        let station = netns.run(|| Station::open(&link)).ok()?.ok()?;
        let way_out = route::lookup(self.host.kernel.as_ref()?, nobody(family)).ok();
        let way_out = way_out.and_then(|way| Some((self.host.at(way.link?)?, way.gateway)));
        let neighbour = carrier.bridge().and_then(|bridge| self.neighbour_on(bridge, attachment, family));
        let leads_out = way.is_some() && way_out.is_some() && !is_switched;
        let gateway = gateway.filter(|_| !is_switched);
        let bridge = carrier.into_bridge();
        let (ways, rules) = (BTreeMap::new(), BTreeMap::new());
        let asked = Asked { network, attachment, family, ways, rules, bridge, is_switched, leads_out };
        Some(Target {
            asked,
            address,
            router,
            way_out,
            station,
            gateway,
            gateway_mac: None,
            is_answered: false,
            neighbour,
        })
    }

    /// Another living container on a bridge.
    fn neighbour_on(&self, bridge: &Bridge, attachment: &Attachment, family: Family) -> Option<(IpAddr, Mac)> {
        let all = self.view.networks.iter().flat_map(|network| &network.attachments);
        let is_other = |it: &&Attachment| it.life == Life::Lives && it.id != attachment.id;
        let is_on_it =
            |it: &&Attachment| it.links.iter().any(|link| link.master.as_deref() == Some(bridge.name.as_str()));
        all.filter(is_other).filter(is_on_it).find_map(|other| {
            let address = other.addresses.iter().find(|address| Family::from(**address) == family).copied();
            let is_bare = other.addresses.is_empty() && family == Family::V4;
            Some((address.or(is_bare.then(|| nobody(family)))?, mac_of(other)?.parse().ok()?))
        })
    }
}

/// Packets of containers on their ways.
struct Probe<'s, 'a> {
    sight: &'s Sight<'a>,
    kernel: &'s Kernel,
    session: Session,
    /// Parts that were left out, and why.
    skipped: Vec<String>,
}

impl<'s, 'a> Probe<'s, 'a> {
    fn begin(sight: &'s Sight<'a>, kernel: &'s Kernel, targets: &[Target<'a>]) -> Result<Self> {
        let veths = targets.iter().flat_map(|target| &target.asked.attachment.links).map(|link| link.name.as_str());
        let incoming: BTreeSet<&str> = veths.filter(|name| sight.host.find(name).is_some()).collect();
        let uplinks = targets.iter().filter_map(|target| target.way_out).map(|(link, _)| link.name.as_str());
        let outgoing: BTreeSet<&str> =
            uplinks.chain(targets.iter().map(|target| target.router.name.as_str())).collect();
        let (incoming, outgoing): (Vec<_>, Vec<_>) = (incoming.into_iter().collect(), outgoing.into_iter().collect());
        let mut session = Session::begin(&incoming, &outgoing)?;
        let skipped = std::mem::take(&mut session.trace.lacks);
        Ok(Self { sight, kernel, session, skipped })
    }

    fn send(&mut self, targets: &mut [Target<'a>]) -> Result<()> {
        let mut by_passes: BTreeMap<&str, bool> = BTreeMap::new();
        for target in targets.iter_mut() {
            let by_passed = target.way_out.into_iter().map(|(link, _)| link).chain([target.router]).find(|link| {
                *by_passes.entry(&link.name).or_insert_with(|| tc::has_filters(self.kernel, link).unwrap_or_default())
            });
            if let Some(link) = by_passed {
                let what = format!("real packets to and from other networks: programs of tc are on {}", link.name);
                self.skipped.push(what);
            }
            target.is_answered = target.neighbours_answer();
            // The node's own link gets what is sent to the gateway's address, whether or not it answers.
            if target.gateway.is_some_and(|gateway| self.sight.host.owner(gateway).is_some()) {
                target.gateway_mac = target.router.mac.or(target.gateway_mac);
            }
            let mut asked = Vec::new();
            self.ask_from_container(target, by_passed.is_none(), &mut asked);
            self.node_sends(target, &mut asked);
            self.settle(target, asked)?;
            match target.gateway {
                Some(gateway) if !target.is_answered => without_answer(&mut target.asked, gateway),
                _ => self.answer_to_node(target)?,
            }
        }
        self.others_send(targets)
    }

    fn ask_from_container(&mut self, target: &mut Target<'a>, outside: bool, asked: &mut Vec<(Number, Way)>) {
        let (from, family) = (target.address, target.asked.family);
        let ways = OUT.map(Way::Out).into_iter().filter(|_| target.asked.leads_out && outside);
        for way in ways.chain(TO_NODE.map(Way::ToNode)) {
            let (kind, to) = match (way, target.gateway) {
                (Way::Out(kind), _) => (kind, nobody(family)),
                (Way::ToNode(kind), Some(gateway)) => (kind, gateway),
                _ => continue,
            };
            let Some(mac) = target.gateway_mac else {
                let gateway = target.gateway.unwrap_or(to);
                target.asked.ways.insert(way, Verdict::NoAnswer(gateway));
                continue;
            };
            let (number, bytes) = self.session.packet(&Packet { from, to, kind }, false);
            match target.station.send(mac, &bytes) {
                Ok(()) => asked.push((number, way)),
                Err(_) => drop(target.asked.ways.insert(way, Verdict::Lost(None))),
            }
        }
        if let Some((to, mac)) = target.neighbour {
            let (number, bytes) = self.session.packet(&Packet { from, to, kind: Kind::Ping }, false);
            asked.extend(target.station.send(mac, &bytes).is_ok().then_some((number, Way::Among)));
        }
    }

    fn node_sends(&mut self, target: &mut Target<'a>, asked: &mut Vec<(Number, Way)>) {
        let owner = |gateway: &IpAddr| self.sight.host.owner(*gateway).is_some();
        let Some(gateway) = target.gateway.filter(owner) else { return };
        for kind in [Kind::Ping, Kind::Tcp(80)] {
            let way = Way::FromNode(kind);
            let packet = Packet { from: gateway, to: target.address, kind };
            let (number, bytes) = self.session.packet(&packet, false);
            match from_node(target.address, &bytes) {
                Ok(()) => asked.push((number, way)),
                Err(error) => {
                    let errno = error.os_errno().unwrap_or(netops::Errno::EINVAL);
                    target.asked.ways.insert(way, Verdict::Refused(errno));
                }
            }
        }
    }

    /// What the node asks ends where it leaves for the container, whose answer comes back.
    fn answer_to_node(&mut self, target: &mut Target<'a>) -> Result<()> {
        let is_sent = matches!(target.asked.ways.get(&Way::FromNode(Kind::Ping)), Some(Verdict::Passed(_)));
        let Some(gateway) = target.gateway.filter(|_| is_sent && self.session.trace.has_egress) else { return Ok(()) };
        for kind in [Kind::Udp(DNS), Kind::Tcp(80), Kind::Ping] {
            let packet = Packet { from: gateway, to: target.address, kind };
            let (number, bytes) = self.session.packet(&packet, true);
            let sent = from_node(target.address, &bytes);
            self.container_answers(target, (sent.is_ok(), number), (kind, Way::Back(kind)))?;
            probe::forget(&packet);
        }
        Ok(())
    }

    /// The container's answer to a packet that has ended where it leaves for it.
    fn container_answers(
        &mut self,
        target: &mut Target<'a>,
        (is_sent, asked): (bool, Number),
        (kind, way): (Kind, Way),
    ) -> Result<()> {
        let Some(mac) = target.gateway_mac.filter(|_| is_sent) else { return Ok(()) };
        if let Some(Followed { fate: Fate::Passed(seen, _), .. }) = self.session.fates(&[asked])?.remove(&asked) {
            let answer = Packet { from: seen.to, to: seen.from, kind: kind.answer(&seen, asked) };
            let (number, bytes) = self.session.packet(&answer, false);
            let sent = target.station.send(mac, &bytes).map(|()| (number, way));
            self.settle(target, sent.into_iter().collect())?;
        }
        Ok(())
    }

    /// Takes the fates of packets as verdicts. Those that were lost are sent once more.
    fn settle(&mut self, target: &mut Target<'a>, asked: Vec<(Number, Way)>) -> Result<()> {
        let numbers: Vec<Number> = asked.iter().map(|(number, _)| *number).collect();
        let mut fates = self.session.fates(&numbers)?;
        let is_lost = |it: &Followed| matches!(it.fate, Fate::Lost(_));
        let lost: Vec<(Number, Way)> =
            asked.iter().filter(|(number, _)| fates.get(number).is_some_and(is_lost)).copied().collect();
        for (number, way) in lost {
            let mut again = Vec::new();
            if let (Way::Out(kind), Some(mac)) = (way, target.gateway_mac) {
                let packet = Packet { from: target.address, to: nobody(target.asked.family), kind };
                let (number, bytes) = self.session.packet(&packet, false);
                again.extend(target.station.send(mac, &bytes).is_ok().then_some(number));
            }
            if let Some((_, fate)) = self.session.fates(&again)?.into_iter().next() {
                fates.insert(number, fate);
            }
        }
        for (number, way) in asked {
            if let Some(Followed { fate, rules }) = fates.remove(&number) {
                let verdict = self.verdict(target, way, fate);
                if matches!(verdict, Verdict::Astray(_)) {
                    target.asked.rules.entry(way).or_default().extend(rules);
                }
                // Ports of a bridge may be kept apart by its configuration.
                if way != Way::Among || matches!(verdict, Verdict::Passed(_) | Verdict::Dropped(_)) {
                    target.asked.ways.insert(way, verdict);
                }
            }
        }
        Ok(())
    }

    fn verdict(&self, target: &Target<'_>, way: Way, fate: Fate) -> Verdict {
        match fate {
            Fate::Dropped(dropped) => Verdict::Dropped(dropped),
            Fate::Passed(seen, exit) => self.arrived(target, way, seen, exit),
            Fate::Lost(lost) => {
                let is_routed = |lost: &netops::probe::Lost| {
                    lost.behind.hook == Some(Hook::Prerouting)
                        && !lost.behind.is_of_frames
                        && lost.behind.priority == 300
                };
                let seen = lost.filter(is_routed).and_then(|lost| Some((lost, lost.seen?)));
                let refused = seen.and_then(|(_, seen)| {
                    let by = self.sight.host.at(seen.iif?)?;
                    route::lookup_forwarded(self.kernel, seen.from, by, seen.to).err()?.os_errno()
                });
                refused.map_or(Verdict::Lost(lost.map(|lost| lost.behind)), Verdict::Refused)
            }
        }
    }

    /// Whether a packet that came to its end came to the right one.
    fn arrived(&self, target: &Target<'_>, way: Way, seen: Seen, exit: Exit) -> Verdict {
        let by = seen.oif.and_then(|index| self.sight.host.at(index));
        let network = target.asked.attachment.conf.as_ref();
        let is_masqueraded = network.is_some_and(|conf| sets(conf, "ipMasq"));
        let else_where = |is_translated| Some(Stray::ElseWhere { to: seen.to, is_translated });
        let stray = match way {
            Way::Out(_) if exit == Exit::Node => else_where(seen.to != nobody(target.asked.family)),
            Way::Out(_) if is_masqueraded && seen.from == target.address => Some(Stray::NotMasqueraded),
            Way::Out(_) if is_masqueraded && self.sight.host.owner(seen.from).is_none() => Some(Stray::As(seen.from)),
            Way::Port(Kind::Tcp(port) | Kind::Udp(port)) if seen.to != target.address => {
                else_where(seen.to_port != port || self.sight.host.owner(seen.to).is_none())
            }
            Way::Answer(_) | Way::FromNode(_) if seen.to != target.address => else_where(false),
            Way::Port(_) | Way::Answer(_) | Way::FromNode(_) => {
                by.filter(|by| by.index != target.router.index).map(|by| Stray::ByLink(by.name.clone()))
            }
            Way::Out(_) | Way::ToNode(_) | Way::Back(_) | Way::PortAnswer(_) | Way::Among => None,
        };
        stray.map_or(Verdict::Passed(seen), Verdict::Astray)
    }

    /// The ways that begin at other hosts: to ports, and back to what has asked.
    fn others_send(&mut self, targets: &mut [Target<'a>]) -> Result<()> {
        let mut ways_in: BTreeMap<u32, Outside> = BTreeMap::new();
        // Whether the next hop of a link answers there; `None`: it does not, and the node does not know it.
        let mut hops: BTreeMap<(u32, Option<IpAddr>), Option<bool>> = BTreeMap::new();
        for target in targets {
            // A link without carrier takes nothing in.
            let Some((uplink, hop)) = target.way_out.filter(|(uplink, _)| uplink.carrier) else { continue };
            if target.asked.ways.keys().all(|way| !matches!(way, Way::Out(_))) {
                continue;
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = ways_in.entry(uplink.index) {
                match Outside::new(self.kernel, uplink) {
                    Ok(way_in) => drop(entry.insert(way_in)),
                    Err(error) => {
                        self.skipped.push(format!("packets that come in by {}: {error}", uplink.name));
                        continue;
                    }
                }
            }
            let Some(way_in) = ways_in.get(&uplink.index) else { continue };
            let family = target.asked.family;
            let mut own = self.sight.host.addresses_of(&uplink.name).iter().map(IpNetwork::ip);
            let own = own.find(|own| Family::from(*own) == family && super::is_global(*own));
            let mut asked = Vec::new();
            let mut ports = Vec::new();
            for forward in target.asked.attachment.ports.iter().filter(|it| it.is_entered && !it.is_conditional) {
                let is_own = Family::from(forward.to.ip()) == family;
                let Some(to) = forward.address.or(own).filter(|to| is_own && !to.is_loopback()) else { continue };
                let kind = match forward.protocol {
                    Protocol::Tcp => Kind::Tcp(forward.port),
                    Protocol::Udp => Kind::Udp(forward.port),
                    Protocol::Sctp | Protocol::Dccp => continue,
                };
                let packet = Packet { from: hop.unwrap_or(nobody(family)), to, kind };
                let (number, bytes) = self.session.packet(&packet, false);
                if way_in.send(&bytes).is_ok() {
                    asked.push((number, Way::Port(kind)));
                    ports.push(packet);
                }
            }
            self.settle(target, asked)?;
            if !self.session.trace.has_egress {
                continue;
            }
            for packet in &ports {
                let arrives = matches!(target.asked.ways.get(&Way::Port(packet.kind)), Some(Verdict::Passed(_)));
                let (number, bytes) = self.session.packet(packet, true);
                let is_sent = arrives && way_in.send(&bytes).is_ok();
                let way = Way::PortAnswer(packet.kind);
                self.container_answers(target, (is_sent, number), (packet.kind, way))?;
                probe::forget(packet);
            }
            let is_known = |hop: IpAddr| netops::neighbour::find(self.kernel, uplink, hop).ok().flatten().is_some();
            let resolves = uplink.mac.is_some() && !uplink.no_arp;
            let answers = |hop: IpAddr| match self.hop_answers(uplink, hop) {
                false if resolves && !is_known(hop) => None,
                answers => Some(answers),
            };
            let found = hops.entry((uplink.index, hop)).or_insert_with(|| hop.map_or(Some(false), answers));
            let Some(answers) = *found else { continue };
            for kind in [Kind::Udp(DNS), OUT[0], OUT[1], OUT[2]] {
                self.query_and_answer(target, (way_in, kind, answers))?;
            }
        }
        Ok(())
    }

    /// A query that ends where the uplink sends it, and its answer on the way back.
    fn query_and_answer(
        &mut self,
        target: &mut Target<'a>,
        (way_in, kind, has_hop): (&Outside, Kind, bool),
    ) -> Result<()> {
        let Some(mac) = target.gateway_mac.filter(|_| target.is_answered) else { return Ok(()) };
        let query = Packet { from: target.address, to: nobody(target.asked.family), kind };
        // Without a word from the next hop, what is behind the last hook is beyond the node.
        let is_behind =
            |fate: &Fate| matches!(fate, Fate::Lost(Some(lost)) if lost.behind.hook == Some(Hook::Postrouting));
        let mut asked = None;
        for _ in 0..2 {
            let (number, bytes) = self.session.packet(&query, true);
            if target.station.send(mac, &bytes).is_err() {
                return Ok(());
            }
            asked = self.session.fates(&[number])?.remove(&number).map(|it| (number, it));
            if !has_hop || !asked.as_ref().is_some_and(|(_, it)| is_behind(&it.fate)) {
                break;
            }
        }
        let Some((number, Followed { fate, rules })) = asked else { return Ok(()) };
        let is_beyond = is_behind(&fate) && !has_hop;
        let (way, back) = (Way::Out(kind), Way::Answer(kind));
        if let Fate::Passed(seen, Exit::Link) = &fate {
            // An answer that is not known owes it to what the query met.
            target.asked.rules.insert(back, rules.clone());
            let answer = Packet { from: query.to, to: seen.from, kind: kind.answer(seen, number) };
            let (number, bytes) = self.session.packet(&answer, false);
            let sent = way_in.send(&bytes).map(|()| (number, back));
            self.settle(target, sent.into_iter().collect())?;
        }
        let verdict = self.verdict(target, way, fate);
        let is_known = matches!(verdict, Verdict::Passed(_)) && target.asked.ways.contains_key(&way);
        if !is_beyond && !is_known {
            target.asked.rules.insert(way, rules);
            target.asked.ways.insert(way, verdict);
        }
        probe::forget(&query);
        Ok(())
    }

    /// Whether the next hop answers on the link to other networks.
    fn hop_answers(&self, uplink: &Link, hop: IpAddr) -> bool {
        let own = self
            .sight
            .host
            .addresses_of(&uplink.name)
            .iter()
            .map(IpNetwork::ip)
            .find(|own| own.is_ipv4() == hop.is_ipv4());
        let (Some(own), Ok(station)) = (own, Station::open(uplink)) else { return false };
        station.ask(own, hop).is_ok() && station.answer(hop, WITHIN).is_some()
    }
}
