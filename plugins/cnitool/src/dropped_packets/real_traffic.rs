//! Packets that a container itself sends and gets, as nftables' trace tells of them: where each went, or which rule dropped it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use netops::nft::trace::{Checkpoint, Event, Outcome, Seen, Trace};
use netops::nft::{Hook, Nft};
use netops::probe::Met;
use serde_json::{Value, json};

use super::Survey;
use super::dropping_rules::Gate;
use super::packet_reasons::between;

/// A packet without a word for so long has come to its end.
const QUIET: Duration = Duration::from_millis(150);

/// A packet, and what became of it.
pub(crate) struct Told {
    packet: Seen,
    end: End,
}

enum End {
    Arrived {
        by: String,
    },
    Node,
    Left {
        by: String,
        from: IpAddr,
    },
    /// A rule or policy dropped it, or gave it to a program, and the command that shows the chain.
    Dropped {
        by: String,
        show: String,
        is_queue: bool,
    },
    Lost {
        place: String,
    },
}

/// A packet on its way.
struct Open {
    first: Seen,
    last: Seen,
    place: Option<Checkpoint>,
    base: String,
    met: Option<Met>,
    at: Instant,
}

impl Open {
    fn take(&mut self, event: Event, place: Option<Checkpoint>) {
        self.at = Instant::now();
        if let Some(seen) = event.packet {
            (self.last, self.base) = (seen, event.chain.clone());
        }
        let Event { family, table, chain, rule, outcome, .. } = event;
        match place {
            Some(_) => self.place = place,
            None if matches!(outcome, Outcome::Drop | Outcome::Queue) => {
                self.met = Some(Met { family, table, base: self.base.clone(), chain, rule, outcome });
            }
            None => {}
        }
    }

    /// Whether a base chain may have seen it like this. A bridge that hands a packet to the node has it counted as another one.
    fn is_same(&self, seen: &Seen) -> bool {
        let key = |it: &Seen| (it.from, it.to, it.from_port, it.to_port, it.protocol, it.cookie);
        !self.is_over() && key(&self.last) == key(seen)
    }

    fn is_over(&self) -> bool {
        self.met.is_some() || self.place.is_some_and(Checkpoint::is_last)
    }
}

impl Survey {
    /// Tells of packets from and to these addresses, of which one is the container's, until `is_done` says so between two of them.
    pub(crate) fn follow(
        &self,
        addresses: &[IpAddr],
        is_done: impl Fn() -> bool,
        mut tell: impl FnMut(&Told) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let trace = Trace::watch(addresses)?;
        trace.lacks.iter().for_each(|what| tracing::warn!("not looked at: {what}"));
        let mut nft = Nft::open("the host")?;
        let mut open: BTreeMap<u32, Open> = BTreeMap::new();
        while !is_done() {
            let mut over: Vec<Open> = Vec::new();
            trace.read(QUIET, |event| {
                let (id, place) = (event.id, trace.checkpoint(&event));
                // The kernel gives the number of a packet to a later one.
                let is_new = place.is_some_and(Checkpoint::is_first) && open.get(&id).is_some_and(Open::is_over);
                if is_new {
                    over.extend(open.remove(&id));
                }
                let same = event.packet.filter(|_| !open.contains_key(&id));
                let same = same.and_then(|seen| open.iter().find(|(_, it)| it.is_same(&seen)).map(|(id, _)| *id));
                if let Some(packet) = same.and_then(|same| open.remove(&same)) {
                    open.insert(id, packet);
                }
                let new = |seen| {
                    let (base, at) = (String::new(), Instant::now());
                    Open { first: seen, last: seen, place: None, base, met: None, at }
                };
                let packet = match event.packet {
                    Some(seen) => open.entry(id).or_insert_with(|| new(seen)),
                    None => match open.get_mut(&id) {
                        Some(packet) => packet,
                        None => return false,
                    },
                };
                packet.take(event, place);
                packet.is_over()
            })?;
            over.extend(
                open.extract_if(.., |_, packet| packet.met.is_some() || packet.at.elapsed() >= QUIET).map(|(_, it)| it),
            );
            over.sort_by_key(|packet| packet.at);
            for packet in over {
                if !is_done() {
                    tell(&Told { packet: packet.first, end: self.end(&packet, addresses, &mut nft) })?;
                }
            }
        }
        Ok(())
    }

    fn end(&self, packet: &Open, addresses: &[IpAddr], nft: &mut Nft) -> End {
        if let Some(met) = &packet.met {
            let gate = Gate::of(nft, met);
            let by = gate.as_ref().map(|gate| gate.words(nft, &self.search_path, met).to_string());
            let by = by.unwrap_or_else(|| format!("chain {} of table {}", met.chain, met.table));
            let show = gate.map_or(String::new(), |gate| gate.show());
            return End::Dropped { by, show, is_queue: met.outcome == Outcome::Queue };
        }
        let link = packet.last.oif.and_then(|index| self.host.at(index));
        let by = link.map_or("an unknown link", |link| &link.name).to_owned();
        match packet.place {
            Some(Checkpoint { hook: Some(Hook::Input), is_of_frames: false, .. }) if packet.is_over() => End::Node,
            Some(_) if packet.is_over() && addresses.contains(&packet.last.to) => End::Arrived { by },
            Some(_) if packet.is_over() => End::Left { by, from: packet.last.from },
            place => End::Lost { place: between(place) },
        }
    }
}

impl Told {
    pub(crate) fn json(&self) -> Value {
        let Seen { from, to, from_port, to_port, .. } = self.packet;
        let end = match &self.end {
            End::Arrived { by } => json!({"end": "arrived", "link": by}),
            End::Node => json!({"end": "node"}),
            End::Left { by, from } => json!({"end": "left", "link": by, "as": from}),
            End::Dropped { by, show, is_queue } => {
                json!({"end": if *is_queue { "queued" } else { "dropped" }, "by": by, "show": show})
            }
            End::Lost { place } => json!({"end": "lost", "where": place}),
        };
        let mut told =
            json!({"from": from, "to": to, "protocol": self.protocol(), "fromPort": from_port, "toPort": to_port});
        if let (Some(told), Value::Object(end)) = (told.as_object_mut(), end) {
            told.extend(end);
        }
        told
    }

    fn protocol(&self) -> String {
        match self.packet.protocol {
            1 | 58 => "ICMP".to_owned(),
            6 => "TCP".to_owned(),
            17 => "UDP".to_owned(),
            other => format!("protocol {other}"),
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen { from, to, from_port, to_port, .. } = self.packet;
        let side = |address: IpAddr, port: u16| match port {
            0 => address.to_string(),
            _ => SocketAddr::new(address, port).to_string(),
        };
        write!(f, "{} {} > {}: ", self.protocol(), side(from, from_port), side(to, to_port))?;
        match &self.end {
            End::Arrived { by } => write!(f, "goes to the container by {by}"),
            End::Node => f.write_str("comes to the node itself"),
            End::Left { by, from } => write!(f, "leaves by {by} as {from}"),
            End::Dropped { by, show, is_queue: false } => write!(f, "dropped: {by} ({show})"),
            End::Dropped { by, show, is_queue: true } => write!(f, "given to a program: {by} ({show})"),
            End::Lost { place } => write!(f, "lost {place}: it is not known why"),
        }
    }
}
