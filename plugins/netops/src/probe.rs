//! Packets that ask the kernel what it does with those of a container, and what it answered.
//!
//! Each is sent as its sender would send it: by [`Station`] from a container's interface, below its own rules; by [`from_node`] from the
//! node; by [`Outside`] as if it came in by the node's link to other networks. [`Session`] marks them, follows them by
//! [`crate::nft::trace`], and tells the [`Fate`] of each. No packet leaves the node, and nothing stays when the process ends.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};
use socket2::{Domain, Protocol, Socket, Type};

use crate::arp::{self, is_reply};
use crate::error::{OpError, Result};
use crate::file;
use crate::link::{self, Link, Mac, Settings, Target, Veth};
use crate::link_removal;
use crate::netlink_connection::Kernel;
use crate::netns::Netns;
use crate::nft::trace::{Checkpoint, Event, ICMP, ICMPV6, LEAVING, Mark, NUMBER, Outcome, Seen, TCP, Trace, UDP};
use crate::nft::{Family, conntrack};
use crate::packet::checksum;
use crate::probe_neighbours::{ETH_P_IPV6, advertisement, arp_answer, solicitation};
use crate::sysctl;
use crate::tc::{self, Qdisc};
use crate::unsafe_calls;

/// `ETH_P_IP`, `ETH_P_ALL` (linux/if_ether.h).
const ETH_P_IP: u16 = 0x0800;
const ETH_P_ALL: u16 = 3;
/// Hops: one behind the node, so that a packet which escapes is dropped by the next router.
const HOPS: u8 = 2;
/// The port that probes are sent from.
pub const PORT: u16 = 49600;
/// The identifier of echo requests.
const ECHO: u16 = 1;
const ETHERNET_BYTES: usize = 14;

/// A packet to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// The source address.
    pub from: IpAddr,
    /// The destination address.
    pub to: IpAddr,
    /// The protocol and port.
    pub kind: Kind,
}

/// The protocol of a packet, and its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An echo request.
    Ping,
    /// The first packet of a connection to a port.
    Tcp(u16),
    /// A datagram to a port.
    Udp(u16),
    /// A datagram from a port to another one: an answer.
    UdpFrom(u16, u16),
    /// The answer to an echo request.
    Pong,
    /// The answer, from a port to another one, to the first packet of a connection, which had this number.
    TcpFrom(u16, u16, Number),
}

impl Kind {
    /// The answer to a packet of this kind, as its receiver has seen that.
    #[must_use]
    pub fn answer(self, seen: &Seen, number: Number) -> Self {
        match self {
            Self::Tcp(_) | Self::TcpFrom(..) => Self::TcpFrom(seen.to_port, seen.from_port, number),
            Self::Udp(_) | Self::UdpFrom(..) => Self::UdpFrom(seen.to_port, seen.from_port),
            Self::Ping | Self::Pong => Self::Pong,
        }
    }

    /// The protocol's number in a family.
    #[must_use]
    pub fn protocol(self, is_ipv4: bool) -> u8 {
        match self {
            Self::Tcp(_) | Self::TcpFrom(..) => TCP,
            Self::Udp(_) | Self::UdpFrom(..) => UDP,
            Self::Ping | Self::Pong => {
                if is_ipv4 {
                    ICMP
                } else {
                    ICMPV6
                }
            }
        }
    }
}

/// Deletes the connection tracking's entry of a packet that has left.
pub fn forget(Packet { from, to, kind }: &Packet) {
    let (source, destination) = match kind {
        Kind::Tcp(port) | Kind::Udp(port) => (PORT, *port),
        _ => (ECHO, 0),
    };
    let protocol = kind.protocol(from.is_ipv4());
    let (source, destination) = (SocketAddr::new(*from, source), SocketAddr::new(*to, destination));
    if let Err(error) = conntrack::delete_flow(protocol, source, destination) {
        tracing::debug!(%error, "the entry of a probe ends by itself");
    }
}

/// What became of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// The packet came to the end of its way, as a base chain saw it last.
    Passed(Seen, Exit),
    /// A rule or a chain's policy dropped it, or gave it to a program that decides.
    Dropped(Met),
    /// The packet was lost behind a place, and before the next one that tells of packets; `None`: it came to no place at all.
    Lost(Option<Lost>),
}

/// Where the way of a packet ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The node itself.
    Node,
    /// A link by which it leaves.
    Link,
}

/// A rule or a policy that a packet has met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Met {
    /// The table's family (`NFPROTO_*`).
    pub family: u8,
    /// The table.
    pub table: String,
    /// The base chain.
    pub base: String,
    /// The chain.
    pub chain: String,
    /// The rule's handle; `None`: the chain's policy.
    pub rule: Option<u64>,
    /// What became of the packet.
    pub outcome: Outcome,
}

/// A packet that was sent, as the trace tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// What became of it.
    pub fate: Fate,
    /// The rules of other programs that it met, in their order.
    pub rules: Vec<Met>,
}

/// Between which places a packet was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// The last place that told of it.
    pub behind: Checkpoint,
    /// The packet there.
    pub seen: Option<Seen>,
}

/// A session of probes.
#[derive(Debug)]
pub struct Session {
    /// The trace.
    pub trace: Trace,
    mark: Mark,
    sent: u32,
    leaving: u32,
}

/// The number of a packet that was sent.
pub type Number = u32;

/// How long a packet is waited for that has not come to its end.
const PATIENCE: Duration = Duration::from_millis(60);

impl Session {
    /// Begins a session in the calling thread's namespace. Packets come in by the first links, and leave by the second ones.
    ///
    /// # Errors
    /// As [`Trace::start`].
    pub fn begin(incoming: &[&str], outgoing: &[&str]) -> Result<Self> {
        are_loaded(&["nfnetlink", "nf_tables"])?;
        let random = RandomState::new().hash_one(std::process::id()).to_be_bytes();
        let [a, b, c, d, e, f, g, h] = random;
        let mark = Mark {
            // 0 is of many packets that are not to be fragmented.
            identification: u16::from_be_bytes([a, b | 1]),
            flow: u32::from_be_bytes([0, c & 0x0f, d, e | 1]),
            cookie: u32::from_be_bytes([f, g, h, 0]) & !NUMBER,
        };
        Ok(Self { trace: Trace::start(mark, incoming, outgoing)?, mark, sent: 0, leaving: LEAVING })
    }

    /// The bytes of a packet, with its number. One that leaves passes the last hook, and ends where a link sends it.
    pub fn packet(&mut self, packet: &Packet, leaves: bool) -> (Number, Vec<u8>) {
        let number = match leaves {
            false => {
                self.sent = (self.sent + 1) % LEAVING;
                self.sent
            }
            true => {
                self.leaving += 1;
                LEAVING + self.leaving % (NUMBER + 1 - LEAVING)
            }
        };
        (number, bytes(packet, self.mark, self.mark.cookie | number))
    }

    /// The fates of the packets with these numbers. Those without a word for some time are lost.
    ///
    /// # Errors
    /// The trace could not be read.
    pub fn fates(&self, numbers: &[Number]) -> Result<BTreeMap<Number, Followed>> {
        let mut by_id: BTreeMap<u32, (Number, String)> = BTreeMap::new();
        let mut last: BTreeMap<Number, Lost> = BTreeMap::new();
        let mut rules: BTreeMap<Number, Vec<Met>> = BTreeMap::new();
        let mut fates = BTreeMap::new();
        let mut waiting = numbers.len();
        self.trace.read(PATIENCE, |event: Event| {
            if let Some(seen) = event.packet {
                match self.trace.number(&seen) {
                    Some(number) => {
                        by_id.insert(event.id, (number, event.chain.clone()));
                        if let Some(lost) = last.get_mut(&number) {
                            lost.seen = Some(seen);
                        }
                    }
                    None => drop(by_id.remove(&event.id)),
                }
            }
            let Some((number, base)) = by_id.get(&event.id).filter(|(number, _)| numbers.contains(number)) else {
                return false;
            };
            let is_end = self.trace.is_end(&event);
            let place = self.trace.checkpoint(&event);
            if let Some(behind) = place {
                last.insert(*number, Lost { behind, seen: event.packet });
            }
            let seen = event.packet.or(last.get(number).and_then(|lost| lost.seen));
            let Event { family, table, chain, rule, outcome, .. } = event;
            let fate = match (is_end, outcome, seen) {
                (true, _, Some(seen)) => {
                    let is_node = place.is_some_and(|place| place.hook == Some(crate::nft::Hook::Input));
                    Fate::Passed(seen, if is_node { Exit::Node } else { Exit::Link })
                }
                (false, outcome, _) if place.is_none() && (rule.is_some() || outcome == Outcome::Drop) => {
                    let met = Met { family, table, base: base.clone(), chain, rule, outcome };
                    rules.entry(*number).or_default().push(met.clone());
                    match outcome {
                        Outcome::Drop | Outcome::Queue => Fate::Dropped(met),
                        Outcome::Accept | Outcome::Leaves | Outcome::Goes => return false,
                    }
                }
                _ => return false,
            };
            if fates.insert(*number, fate).is_none() {
                waiting = waiting.saturating_sub(1);
            }
            waiting == 0
        })?;
        let of = |number: &Number| {
            let fate = fates.remove(number).unwrap_or_else(|| Fate::Lost(last.get(number).copied()));
            (*number, Followed { fate, rules: rules.remove(number).unwrap_or_default() })
        };
        Ok(numbers.iter().map(of).collect())
    }
}

/// Refuses where a request to the kernel would load one of these modules.
fn are_loaded(modules: &[&str]) -> Result<()> {
    // Without this file the kernel has no modules.
    let Ok(loaded) = std::fs::read_to_string("/proc/modules") else { return Ok(()) };
    let release = file::read_small("/proc/sys/kernel/osrelease").unwrap_or_default();
    let built_in = std::fs::read_to_string(format!("/lib/modules/{}/modules.builtin", release.trim_end()));
    let built_in = built_in.unwrap_or_default();
    let is_there = |module: &&&str| {
        let of_file = format!("/{module}.ko");
        loaded.lines().any(|line| line.split(' ').next() == Some(module))
            || built_in.lines().any(|line| line.ends_with(&of_file))
    };
    match modules.iter().find(|module| !is_there(module)) {
        None => Ok(()),
        Some(module) => {
            Err(OpError::state("use", format!("module {module}"), "it is not loaded, and this program loads none"))
        }
    }
}

/// The bytes of a packet from its IP header on.
fn bytes(packet: &Packet, mark: Mark, cookie: u32) -> Vec<u8> {
    let cookie = cookie.to_be_bytes();
    let (protocol, mut transport, sum_at) = match (packet.kind, packet.from.is_ipv4()) {
        (Kind::Ping | Kind::Pong, is_ipv4) => {
            let kinds = if is_ipv4 { [8, 0] } else { [128, 129] };
            let [high, low] = ECHO.to_be_bytes();
            let kind = kinds[usize::from(packet.kind == Kind::Pong)];
            (packet.kind.protocol(is_ipv4), [&[kind, 0, 0, 0, high, low, 0, 1][..], &cookie, &[0; 4]].concat(), 2)
        }
        (Kind::TcpFrom(from, to, of), _) => {
            let head = [from.to_be_bytes(), to.to_be_bytes()].concat();
            let acknowledged = (mark.cookie | of).wrapping_add(1).to_be_bytes();
            // Five words, SYN and ACK, a window.
            (TCP, [&head[..], &cookie, &acknowledged, &[0x50, 0x12, 4, 0, 0, 0, 0, 0]].concat(), 16)
        }
        (Kind::Tcp(port), _) => {
            let head = [PORT.to_be_bytes(), port.to_be_bytes()].concat();
            // No acknowledgement, five words, SYN, a window.
            (TCP, [&head[..], &cookie, &[0; 4], &[0x50, 2, 4, 0, 0, 0, 0, 0]].concat(), 16)
        }
        (Kind::Udp(_) | Kind::UdpFrom(..), _) => {
            let (from, to) = match packet.kind {
                Kind::UdpFrom(from, to) => (from, to),
                Kind::Udp(to) => (PORT, to),
                _ => (0, 0),
            };
            let head = [from.to_be_bytes(), to.to_be_bytes(), 16_u16.to_be_bytes(), [0, 0]].concat();
            (UDP, [&head[..], &cookie, &[0; 4]].concat(), 6)
        }
    };
    let length = u16::try_from(transport.len()).unwrap_or_default();
    let addresses = [crate::nft::octets(packet.from), crate::nft::octets(packet.to)].concat();
    let pseudo = [&addresses[..], &u32::from(length).to_be_bytes(), &[0, 0, 0, protocol]].concat();
    let sum = match protocol {
        ICMP => checksum(&[&transport]),
        _ => checksum(&[&pseudo, &transport]),
    };
    // RFC 768: 0 means that there is none.
    let sum = if sum == 0 && protocol == UDP { 0xffff } else { sum };
    transport[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
    let header = match packet.from {
        IpAddr::V4(_) => {
            let mut header = [&[0x45, 0, 0, 0, 0, 0, 0, 0, HOPS, protocol, 0, 0][..], &addresses].concat();
            header[2..4].copy_from_slice(&(20 + length).to_be_bytes());
            header[4..6].copy_from_slice(&mark.identification.to_be_bytes());
            let sum = checksum(&[&header]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        IpAddr::V6(_) => {
            let first = 0x6000_0000 | mark.flow;
            [&first.to_be_bytes()[..], &length.to_be_bytes(), &[protocol, HOPS], &addresses].concat()
        }
    };
    [header, transport].concat()
}

/// A socket that sends and gets frames on one link, in whose namespace it was opened.
#[derive(Debug)]
pub struct Station {
    socket: Socket,
    mac: Mac,
}

impl Station {
    /// Opens a socket on a link of the calling thread's namespace.
    ///
    /// # Errors
    /// `ENODEV`: the link is gone; `EPERM`; the link has no Ethernet address.
    pub fn open(link: &Link) -> Result<Self> {
        let object = || format!("a packet socket on {}", link.name);
        let mac = link.mac.ok_or_else(|| OpError::state("open", object(), "the link has no Ethernet address"))?;
        let open = || {
            let socket = Socket::new(Domain::PACKET, Type::RAW.nonblocking(), None)?;
            socket.bind(&unsafe_calls::packet_address(link.index, ETH_P_ALL))?;
            Ok(socket)
        };
        let socket = open().map_err(|error: std::io::Error| OpError::io("open", object(), &error))?;
        Ok(Self { socket, mac })
    }

    /// Sends a packet to the station with this Ethernet address.
    ///
    /// # Errors
    /// `ENETDOWN`: the link is down; `ENOBUFS`.
    pub fn send(&self, to: Mac, packet: &[u8]) -> Result<()> {
        let is_ipv4 = packet.first().is_some_and(|first| first >> 4 == 4);
        let protocol = if is_ipv4 { ETH_P_IP } else { ETH_P_IPV6 };
        self.frame(&[&to.0[..], &self.mac.0, &protocol.to_be_bytes(), packet].concat())
    }

    fn frame(&self, frame: &[u8]) -> Result<()> {
        let sent = send(self.socket.as_raw_fd(), frame, MsgFlags::empty());
        sent.map(drop).map_err(|errno| OpError::errno("send", "a frame", errno))
    }

    /// Asks who has an address, as the station that has another one.
    ///
    /// # Errors
    /// As [`Station::send`].
    pub fn ask(&self, from: IpAddr, target: IpAddr) -> Result<()> {
        match (from, target) {
            (IpAddr::V4(from), IpAddr::V4(target)) => {
                let mut request = arp::probe(self.mac, target);
                request[28..32].copy_from_slice(&from.octets());
                self.frame(&request)
            }
            (_, IpAddr::V6(target)) => self.frame(&solicitation(self.mac, target)),
            (IpAddr::V6(_), IpAddr::V4(_)) => Ok(()),
        }
    }

    /// The station that says within a time that it has the address.
    #[must_use]
    pub fn answer(&self, target: IpAddr, within: Duration) -> Option<Mac> {
        let end = Instant::now() + within;
        let mut buffer = vec![0; 2048];
        loop {
            match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => {
                    let frame = buffer.get(..length).filter(|frame| frame.len() > ETHERNET_BYTES)?;
                    // A request of the target's own shows that it sends, and not that it answers.
                    let read = match target.is_ipv4() {
                        true => arp_answer(frame).filter(|_| is_reply(frame)),
                        false => advertisement(frame),
                    };
                    if let Some((_, mac)) = read.filter(|(address, mac)| *address == target && *mac != self.mac) {
                        return Some(mac);
                    }
                }
                Err(Errno::EAGAIN) => {
                    let left = end.saturating_duration_since(Instant::now());
                    let mut files = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
                    let waited = poll(&mut files, PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO));
                    if left.is_zero() || waited == Ok(0) {
                        return None;
                    }
                }
                Err(Errno::EINTR) => {}
                Err(_) => return None,
            }
        }
    }
}

/// Sends a packet from the node.
///
/// # Errors
/// `ENETUNREACH`, `EHOSTUNREACH`, `EACCES`, `EINVAL`: routing refuses it. A rule that drops it is no error: the trace tells of it.
pub fn from_node(to: IpAddr, packet: &[u8]) -> Result<()> {
    let send = || {
        let domain = if to.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(nix::libc::IPPROTO_RAW)))?;
        socket.send_to(packet, &SocketAddr::new(to, 0).into()).map(drop)
    };
    match send() {
        Err(error) if error.raw_os_error() == Some(nix::libc::EPERM) => Ok(()),
        sent => sent.map_err(|error| OpError::io("send", format!("a packet to {to}"), &error)),
    }
}

/// A way for packets to come in by a link, as if another machine had sent them: a veth whose frames are redirected to what the link
/// receives. Its far end is in a namespace that this value holds, so that both ends go with a process that is killed.
#[derive(Debug)]
pub struct Outside {
    far: Station,
    near: Mac,
    _end: FarEnd,
}

/// The far end of a veth in a namespace that no other process is in, by which both ends are removed.
#[derive(Debug)]
struct FarEnd {
    link: Link,
    kernel: Kernel,
    netns: Netns,
}

impl Drop for FarEnd {
    /// Removes the veth and waits for the kernel, which takes a namespace apart only some time after its last user has closed it.
    fn drop(&mut self) {
        if let Err(error) = self.kernel.run(link_removal::request(&Target::from(&self.link))) {
            tracing::debug!(%error, "the veth of probes goes with its namespace");
        }
    }
}

impl FarEnd {
    fn new(near: &str) -> Result<Self> {
        let netns = Netns::create()?;
        let kernel = Kernel::in_netns(&netns)?;
        let own =
            Netns::current().map_err(|error| OpError::state("open", "the host's namespace", error.to_string()))?;
        let veth = Veth { peer_netns: Some(&own), ..Veth::new("far", near) };
        Ok(Self { link: link::create_free_veth(&kernel, &veth)?, kernel, netns })
    }
}

impl Outside {
    /// Makes the way in by `link` of the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel has no `veth`, ingress qdisc or `mirred`; `EPERM`.
    pub fn new(kernel: &Kernel, link: &Link) -> Result<Self> {
        are_loaded(&["veth", "sch_ingress", "cls_u32", "act_mirred", "nf_conntrack_netlink"])?;
        // A process may have a way in by each of several links.
        let name = format!("cniprobe{:07x}", RandomState::new().hash_one(link.index) & 0x0fff_ffff);
        let end = FarEnd::new(&name)?;
        let near = link::get(kernel, &Target::named(name.clone()))?;
        // No address, and no question to others, of its own.
        let is_silent = |name: &str| {
            let key = sysctl::Key::of_link("ipv6", name, "disable_ipv6");
            key.and_then(|key| sysctl::set(&key, "1", sysctl::Need::WhereThere)).ok();
        };
        is_silent(&name);
        end.netns.run(|| is_silent("far"))?;
        let up = || Settings { up: Some(true), ..Settings::default() };
        let up_near = link::set(&Target::from(&near), &up());
        kernel.run_all(vec![tc::add(&near, &Qdisc::Ingress), tc::redirect_in(&near, link), up_near])?;
        // Second: it has a carrier then, so the kernel lets it send at once.
        end.kernel.run(link::set(&Target::from(&end.link), &up()))?;
        let far = end.netns.run(|| Station::open(&end.link))??;
        Ok(Self { far, near: near.mac.unwrap_or(Mac([0xff; 6])), _end: end })
    }

    /// Lets a packet come in.
    ///
    /// # Errors
    /// As [`Station::send`].
    pub fn send(&self, packet: &[u8]) -> Result<()> {
        self.far.send(self.near, packet)
    }
}

/// Family of nf_tables by its number.
#[must_use]
pub fn family(number: u8) -> Option<Family> {
    [Family::Inet, Family::Ip, Family::Netdev, Family::Bridge, Family::Ip6].into_iter().find(|it| *it as u8 == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_right_checksums_and_the_mark_where_it_is_looked_for() {
        let mark = Mark { identification: 0x1235, flow: 0x0_4321, cookie: 0xabcd_e000 };
        let pairs = [["10.0.0.2", "198.51.100.9"], ["fd00::2", "2001:db8::9"]];
        for [from, to] in pairs.map(|pair| pair.map(|address| address.parse::<IpAddr>().unwrap())) {
            for kind in [
                Kind::Ping,
                Kind::Pong,
                Kind::Tcp(443),
                Kind::TcpFrom(443, PORT, 7),
                Kind::Udp(53),
                Kind::UdpFrom(53, PORT),
            ] {
                let bytes = bytes(&Packet { from, to, kind }, mark, mark.cookie | 7);
                let at = if from.is_ipv4() { 20 } else { 40 };
                let cookie_at = at + if matches!(kind, Kind::Tcp(_) | Kind::TcpFrom(..)) { 4 } else { 8 };
                assert_eq!(bytes[cookie_at..cookie_at + 4], [0xab, 0xcd, 0xe0, 7], "{kind:?}");
                let transport = &bytes[at..];
                let (protocol, addresses) = match from {
                    IpAddr::V4(_) => (bytes[9], &bytes[12..20]),
                    IpAddr::V6(_) => (bytes[6], &bytes[8..40]),
                };
                let length = u32::try_from(transport.len()).unwrap().to_be_bytes();
                let pseudo = [addresses, &length, &[0, 0, 0, protocol]].concat();
                let parts: &[&[u8]] = if protocol == ICMP { &[transport] } else { &[&pseudo, transport] };
                assert_eq!(checksum(parts), 0, "{from} {kind:?}");
                if from.is_ipv4() {
                    assert_eq!((checksum(&[&bytes[..20]]), &bytes[4..6]), (0, &[0x12, 0x35][..]));
                } else {
                    assert_eq!(bytes[..4], [0x60, 0, 0x43, 0x21]);
                }
            }
        }
    }
}
