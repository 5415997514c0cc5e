//! Deletes the conntrack entries of UDP flows whose translation has changed.
//!
//! The kernel chooses the translation of a flow at its first packet and keeps it as long as packets come. So a client
//! that keeps sending to a port reaches a container that is gone, or none, until the flow is deleted. TCP clients open
//! a new connection by themselves.
//!
//! The messages are built here because there are only six: a request for the number of flows or for a list, their answers,
//! a deletion and its ack, and nf_tables already has the encoding.

use std::net::{IpAddr, SocketAddr};

use netlink_sys::Socket;
use nix::errno::Errno;

use super::object::Family;
use super::reply::{Body, parse_reply};
use super::socket::ANSWER_TIMEOUT;
use super::trace::{ICMP, ICMPV6, UDP};
use super::transaction::{ACK, DUMP, REQUEST};
use super::wire::{Attrs, Header, RawMessages, Writer};
use crate::error::{Cause, OpError, Result};
use crate::netns::HOST;

// linux/netfilter/nfnetlink_conntrack.h.
const SUBSYS: u16 = 1 << 8;
const NEW: u16 = SUBSYS;
const GET: u16 = SUBSYS | 1;
const DELETE: u16 = SUBSYS | 2;
const GET_STATS: u16 = SUBSYS | 5;
const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;
const FILTER: u16 = 25;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const IP_SOURCE: u16 = 1;
const IP_DESTINATION: u16 = 2;
const IP6_SOURCE: u16 = 3;
const IP6_DESTINATION: u16 = 4;
const PROTO_NUMBER: u16 = 1;
const PROTO_SOURCE_PORT: u16 = 2;
const PROTO_DESTINATION_PORT: u16 = 3;
/// Each with the type and the code behind it.
const PROTO_ICMP_ID: u16 = 4;
const PROTO_ICMPV6_ID: u16 = 7;
const FILTER_ORIG_FLAGS: u16 = 1;
/// `CTA_STATS_GLOBAL_ENTRIES`.
const STATS_ENTRIES: u16 = 1;
/// `CTA_FILTER_F_CTA_PROTO_NUM` (net/netfilter/nf_internals.h).
const BY_PROTO_NUMBER: u32 = 1 << 3;

/// The size of a `recv` buffer.
const RECEIVE_LEN: usize = 64 * 1024;
/// The number of deletions in one message.
const PART: usize = 100;

/// A UDP flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// The address and port of the client.
    pub from: SocketAddr,
    /// The address that its packets are sent to, before any translation.
    pub address: IpAddr,
    /// The port that they are sent to, before any translation.
    pub port: u16,
    /// The address that the answers come from: the server's, after translation.
    pub server: IpAddr,
}

/// Deletes the UDP flows of the calling thread's network namespace, of these families, that `is_meant` selects; returns
/// their number. The next packet of each starts a new flow.
///
/// Asks the kernel for the number of its flows first: a list takes it some 10 ms even if there are none, as it looks into
/// every bucket of a table that all namespaces share. Then reads the flows once for each family. It is no error if a flow
/// ends meanwhile or if the kernel has no conntrack.
///
/// # Errors
/// The kernel's refusal, except for absence; a timeout if it does not answer.
pub fn delete_udp(families: &[Family], is_meant: &mut dyn FnMut(&Flow) -> bool) -> Result<usize> {
    if families.is_empty() {
        return Ok(0);
    }
    let mut flows = match Flows::open() {
        Err(error) if error.os_errno() == Some(Errno::EPROTONOSUPPORT) => return Ok(0),
        opened => opened?,
    };
    match flows.count() {
        Ok(Some(0)) => return Ok(0),
        Err(error) if !is_absent(&error) => return Err(error),
        // There are some, or the kernel does not say.
        Ok(_) | Err(_) => {}
    }
    let mut deleted = 0;
    for family in families {
        // The kernel leaves other protocols out from 5.8 on. An older one ignores the filter or refuses it.
        let found = match flows.list(*family, UDP, is_meant, true) {
            Err(error) if is_absent(&error) => flows.list(*family, UDP, is_meant, false),
            found => found,
        };
        match found {
            Err(error) if is_absent(&error) => return Ok(deleted), // there is no nf_conntrack_netlink
            found => deleted += flows.delete(*family, &found?)?,
        }
    }
    Ok(deleted)
}

/// Deletes the entry of one flow of UDP, TCP or echo requests of the calling thread's network namespace, by the addresses of its first
/// packet, in whichever zone of connection tracking it is. The identifier of an echo request stands in place of its sender's port.
/// No entry is no error.
///
/// # Errors
/// As [`delete_udp`].
pub fn delete_flow(protocol: u8, from: SocketAddr, to: SocketAddr) -> Result<()> {
    let mut w = Writer::default();
    let kinds = if from.is_ipv4() { (IP_SOURCE, IP_DESTINATION) } else { (IP6_SOURCE, IP6_DESTINATION) };
    w.nest(TUPLE_IP, |w| {
        w.attr(kinds.0, &super::octets(from.ip()));
        w.attr(kinds.1, &super::octets(to.ip()));
    });
    w.nest(TUPLE_PROTO, |w| {
        w.attr(PROTO_NUMBER, &[protocol]);
        let (source, destination) = match protocol {
            ICMP => (PROTO_ICMP_ID, [8, 0]),
            ICMPV6 => (PROTO_ICMPV6_ID, [128, 0]),
            _ => (PROTO_SOURCE_PORT, to.port().to_be_bytes()),
        };
        w.attr(source, &from.port().to_be_bytes());
        if source == PROTO_SOURCE_PORT {
            w.attr(PROTO_DESTINATION_PORT, &destination);
        } else {
            (1..).zip(destination).for_each(|(next, byte)| w.attr(source + next, &[byte]));
        }
    });
    let (tuple, family) = (w.finish().unwrap_or_default(), Family::of(from.ip()));
    let mut flows = Flows::open()?;
    // Without a zone the kernel looks into the first one alone, and only a list tells of others.
    if flows.delete(family, &[vec![(TUPLE_ORIG, tuple)]])? == 0 {
        let is_it = |flow: &Flow| (flow.from, flow.address, flow.port) == (from, to.ip(), to.port());
        let found = flows.list(family, protocol, &mut |flow| is_it(flow), true)?;
        flows.delete(family, &found)?;
    }
    Ok(())
}

fn is_absent(error: &OpError) -> bool {
    matches!(error.os_errno(), Some(Errno::EINVAL | Errno::EOPNOTSUPP | Errno::ENOENT))
}

/// The attributes that identify a flow for its deletion, as the kernel sent them.
type Named = Vec<(u16, Vec<u8>)>;

struct Flows {
    socket: Socket,
    seq: u32,
    buffer: Vec<u8>,
}

impl Flows {
    fn open() -> Result<Self> {
        let socket =
            super::socket::open_socket().map_err(|e| OpError::io("open", "a conntrack socket", &e).at(HOST))?;
        Ok(Self { socket, seq: 0, buffer: Vec::with_capacity(RECEIVE_LEN) })
    }

    /// The number of flows of the namespace, of all protocols, with those whose first packet is still on its way. `None` if
    /// the kernel's answer has none.
    fn count(&mut self) -> Result<Option<u32>> {
        self.seq = self.seq.wrapping_add(1);
        let mut w = Writer::default();
        w.message(Header { kind: GET_STATS, flags: REQUEST, seq: self.seq, family: 0, res_id: 0 }, |_| {});
        self.send(w, "count")?;
        loop {
            self.receive("count")?;
            for message in RawMessages(&self.buffer).filter(|message| message.seq == self.seq) {
                if message.kind == GET_STATS {
                    return Ok(message.attrs().be32(STATS_ENTRIES));
                }
                if let Body::Refused { errno, extended_ack } = parse_reply(message).body {
                    return Err(failed("count", Cause::Kernel { errno, extended_ack }));
                }
            }
        }
    }

    fn list(
        &mut self,
        family: Family,
        protocol: u8,
        is_meant: &mut dyn FnMut(&Flow) -> bool,
        filtered: bool,
    ) -> Result<Vec<Named>> {
        self.seq = self.seq.wrapping_add(1);
        let mut w = Writer::default();
        let header = Header { kind: GET, flags: REQUEST | DUMP, seq: self.seq, family: family as u8, res_id: 0 };
        w.message(header, |w| {
            if filtered {
                w.nest(TUPLE_ORIG, |w| w.nest(TUPLE_PROTO, |w| w.attr(PROTO_NUMBER, &[protocol])));
                w.nest(FILTER, |w| w.attr(FILTER_ORIG_FLAGS, &BY_PROTO_NUMBER.to_ne_bytes()));
            }
        });
        self.send(w, "list")?;
        let mut found = Vec::new();
        loop {
            self.receive("list")?;
            for message in RawMessages(&self.buffer).filter(|message| message.seq == self.seq) {
                if message.kind == NEW {
                    let flow = read(message.attrs(), protocol).filter(|flow| is_meant(flow));
                    found.extend(flow.map(|_| named(message.attrs())));
                    continue;
                }
                match parse_reply(message).body {
                    Body::Done => return Ok(found),
                    Body::Refused { errno, extended_ack } => {
                        return Err(failed("list", Cause::Kernel { errno, extended_ack }));
                    }
                    _ => {}
                }
            }
        }
    }

    fn delete(&mut self, family: Family, flows: &[Named]) -> Result<usize> {
        let mut deleted = 0;
        for part in flows.chunks(PART) {
            let first = self.seq.wrapping_add(1);
            let mut w = Writer::default();
            for flow in part {
                self.seq = self.seq.wrapping_add(1);
                let header =
                    Header { kind: DELETE, flags: REQUEST | ACK, seq: self.seq, family: family as u8, res_id: 0 };
                w.message(header, |w| {
                    for (kind, value) in flow {
                        if *kind == TUPLE_ORIG { w.nest(*kind, |w| w.raw(value)) } else { w.attr(*kind, value) }
                    }
                });
            }
            self.send(w, "delete")?;
            let mut pending = part.len();
            while pending > 0 {
                self.receive("delete")?;
                for message in RawMessages(&self.buffer).filter(|message| message.seq.wrapping_sub(first) < 1 << 31) {
                    pending = pending.saturating_sub(1);
                    match parse_reply(message).body {
                        Body::Ack => deleted += 1,
                        Body::Refused { errno: Errno::ENOENT, .. } => {} // it has ended meanwhile
                        Body::Refused { errno, extended_ack } => {
                            return Err(failed("delete", Cause::Kernel { errno, extended_ack }));
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(deleted)
    }

    fn send(&self, w: Writer, op: &'static str) -> Result<()> {
        let bytes = w.finish().ok_or_else(|| failed(op, Cause::State("a message is too long".to_owned())))?;
        self.socket.send(&bytes, 0).map(drop).map_err(|e| OpError::io(op, FLOWS, &e).at(HOST))
    }

    fn receive(&mut self, op: &'static str) -> Result<()> {
        loop {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, 0) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    return Err(failed(op, Cause::Timeout(ANSWER_TIMEOUT)));
                }
                Err(e) => return Err(OpError::io(op, FLOWS, &e).at(HOST)),
            }
        }
    }
}

const FLOWS: &str = "flows of conntrack";

fn failed(op: &'static str, cause: Cause) -> OpError {
    OpError::new(op, FLOWS, cause).at(HOST)
}

/// Reads a flow of a protocol; `None`: it is of another one.
fn read(flow: Attrs<'_>, protocol: u8) -> Option<Flow> {
    let (sent, answered) = (flow.nested(TUPLE_ORIG), flow.nested(TUPLE_REPLY));
    let proto = sent.nested(TUPLE_PROTO);
    let number = proto.get(PROTO_NUMBER).and_then(|number| number.first())?;
    let port_of = |kind| proto.get(kind).and_then(|port| port.try_into().ok()).map(u16::from_be_bytes);
    let from = [PROTO_SOURCE_PORT, PROTO_ICMP_ID, PROTO_ICMPV6_ID].into_iter().find_map(port_of)?;
    let port = port_of(PROTO_DESTINATION_PORT).unwrap_or_default();
    let from = SocketAddr::new(ip(sent.nested(TUPLE_IP), IP_SOURCE, IP6_SOURCE)?, from);
    let address = ip(sent.nested(TUPLE_IP), IP_DESTINATION, IP6_DESTINATION)?;
    let server = ip(answered.nested(TUPLE_IP), IP_SOURCE, IP6_SOURCE)?;
    (*number == protocol).then_some(Flow { from, address, port, server })
}

fn ip(tuple: Attrs<'_>, ipv4: u16, ipv6: u16) -> Option<IpAddr> {
    let v4 = tuple.get(ipv4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()).map(IpAddr::from);
    v4.or_else(|| tuple.get(ipv6).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()).map(IpAddr::from))
}

/// The ID ensures that this flow is deleted, not a later one with the same addresses and ports.
fn named(flow: Attrs<'_>) -> Named {
    [TUPLE_ORIG, ID, ZONE].into_iter().filter_map(|kind| Some((kind, flow.get(kind)?.to_vec()))).collect()
}
