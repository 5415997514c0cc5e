//! Echo requests and router advertisements.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::{Ipv6MulticastHops, Ipv6Ttl};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, SockaddrStorage, recvfrom,
    sendto, setsockopt, socket,
};

use crate::Namespace;
use crate::must::Must;
use crate::traffic::wait_readable;

/// Neighbour resolution may lose the first requests, so they are repeated.
const REPEAT: Duration = Duration::from_millis(100);

/// More answers might not fit into a socket's buffer.
const AT_A_TIME: usize = 64;

static IDENTIFIER: AtomicU16 = AtomicU16::new(1);

impl Namespace {
    /// Checks that an address answers echo requests, v4 or v6.
    #[track_caller]
    pub fn ping(&self, to: impl Into<IpAddr>) {
        let to = to.into();
        let answered = self.pings(to, Duration::from_secs(10));
        assert!(answered, "no answer from {to} to {}", self.path().display());
    }

    /// Whether an address answers echo requests within a time.
    #[track_caller]
    pub fn pings(&self, to: impl Into<IpAddr>, within: Duration) -> bool {
        let to = to.into();
        let socket = self.enter(|| open(to.is_ipv4())).must("open an ICMP socket");
        let identifier = IDENTIFIER.fetch_add(1, Ordering::Relaxed);
        let start = Instant::now();
        for sequence in 0.. {
            let request = echo_request(to.is_ipv4(), identifier, sequence);
            // There is no route yet, or neighbour resolution has just failed: later requests may get through.
            send(&socket, to, 0, &request).ok();
            if answer_comes(&socket, to, identifier) {
                return true;
            }
            if start.elapsed() > within {
                break;
            }
        }
        false
    }

    /// Sends echo requests to many IPv4 addresses, some at a time; those that did not answer.
    #[track_caller]
    pub fn find_silent(&self, targets: &[Ipv4Addr], within: Duration) -> Vec<Ipv4Addr> {
        let socket = self.enter(|| open(true)).must("open an ICMP socket");
        let identifier = IDENTIFIER.fetch_add(1, Ordering::Relaxed);
        targets.chunks(AT_A_TIME).flat_map(|some| silent(&socket, some, identifier, within)).collect()
    }

    /// Sends a router advertisement from the link-local address of a link to all nodes there:
    /// a host that accepts it gets a default route and an address of `prefix` (a /64).
    #[track_caller]
    pub fn advertise_router(&self, link: &str, prefix: Ipv6Addr) {
        const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let is_ready = |namespace: &Namespace| {
            let all = namespace.addresses().into_iter();
            all.filter(|address| address.link == link && address.scope == 253).any(|address| !address.is_tentative())
        };
        self.wait_for("a link-local address to send from", is_ready);
        let index = self.link(link).index;
        let socket = self.enter(|| open(false)).must("open an ICMPv6 socket");
        setsockopt(&socket, Ipv6MulticastHops, &255).must("set the hop limit");
        let packet = router_advertisement(prefix);
        send(&socket, ALL_NODES.into(), index, &packet).must("send a router advertisement");
    }
}

fn open(v4: bool) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    if v4 {
        return socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Icmp);
    }
    let fd = socket(AddressFamily::Inet6, SockType::Raw, flags, SockProtocol::IcmpV6)?;
    setsockopt(&fd, Ipv6Ttl, &255)?;
    Ok(fd)
}

fn send(socket: &OwnedFd, to: IpAddr, link: u32, packet: &[u8]) -> nix::Result<usize> {
    let (fd, flags) = (socket.as_raw_fd(), MsgFlags::empty());
    match to {
        IpAddr::V4(ip) => sendto(fd, packet, &SockaddrIn::from(SocketAddrV4::new(ip, 0)), flags),
        IpAddr::V6(ip) => {
            let address = SockaddrIn6::from(SocketAddrV6::new(ip, 0, 0, link));
            sendto(fd, packet, &address, flags)
        }
    }
}

/// The addresses of which no answer came within a time; they are asked again and again.
fn silent(socket: &OwnedFd, targets: &[Ipv4Addr], identifier: u16, within: Duration) -> BTreeSet<Ipv4Addr> {
    let mut waiting: BTreeSet<Ipv4Addr> = targets.iter().copied().collect();
    let start = Instant::now();
    let mut buffer = [0; 2048];
    for sequence in 0.. {
        for target in &waiting {
            send(socket, (*target).into(), 0, &echo_request(true, identifier, sequence)).ok();
        }
        let asked = Instant::now();
        while !waiting.is_empty() && wait_readable(socket, REPEAT.saturating_sub(asked.elapsed())).unwrap_or(false) {
            let Ok((length, _)) = recvfrom::<SockaddrStorage>(socket.as_raw_fd(), &mut buffer) else { continue };
            let packet = buffer.get(..length).unwrap_or_default();
            let Some(source) = packet.get(12..16).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()) else { continue };
            if is_answer(packet.get(usize::from(packet[0] & 15) * 4..), 0, identifier) {
                waiting.remove(&source.into());
            }
        }
        if waiting.is_empty() || start.elapsed() > within {
            break;
        }
    }
    waiting
}

/// Whether the answer comes before the request has to be repeated.
fn answer_comes(socket: &OwnedFd, from: IpAddr, identifier: u16) -> bool {
    let start = Instant::now();
    let mut buffer = [0; 2048];
    loop {
        let left = REPEAT.saturating_sub(start.elapsed());
        // Once more when the time is over: on a busy machine this thread may have had none of it.
        if !wait_readable(socket, left).unwrap_or(false) {
            return false;
        }
        let Ok((length, source)) = recvfrom::<SockaddrStorage>(socket.as_raw_fd(), &mut buffer) else {
            continue;
        };
        let packet = buffer.get(..length).unwrap_or_default();
        let is_theirs = match from {
            // A v4 raw socket shows the IP header, whose first half-byte counts its words.
            IpAddr::V4(ip) => {
                packet.get(12..16) == Some(&ip.octets())
                    && is_answer(packet.get(usize::from(packet[0] & 15) * 4..), 0, identifier)
            }
            IpAddr::V6(ip) => {
                source.and_then(|source| source.as_sockaddr_in6().map(SockaddrIn6::ip)) == Some(ip)
                    && is_answer(Some(packet), 129, identifier)
            }
        };
        if is_theirs {
            return true;
        }
    }
}

fn is_answer(packet: Option<&[u8]>, kind: u8, identifier: u16) -> bool {
    let packet = packet.unwrap_or_default();
    packet.first() == Some(&kind) && packet.get(4..6) == Some(&identifier.to_be_bytes())
}

fn echo_request(v4: bool, identifier: u16, sequence: u16) -> Vec<u8> {
    let mut packet = vec![if v4 { 8 } else { 128 }, 0, 0, 0];
    packet.extend(identifier.to_be_bytes());
    packet.extend(sequence.to_be_bytes());
    packet.extend(*b"is anybody there");
    if v4 {
        let sum = checksum(&packet).to_be_bytes(); // the kernel fills it in for v6 only
        packet[2..4].copy_from_slice(&sum);
    }
    packet
}

/// Internet checksum, RFC 1071, of an even number of bytes.
fn checksum(packet: &[u8]) -> u16 {
    let words = packet.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or_default()
}

/// RFC 4861, 4.2, with one prefix information option (4.6.2).
fn router_advertisement(prefix: Ipv6Addr) -> Vec<u8> {
    let lifetime_s = 1800_u32.to_be_bytes();
    let mut packet = vec![134, 0, 0, 0, 64, 0];
    packet.extend(1800_u16.to_be_bytes()); // router lifetime
    packet.extend([0; 8]); // reachable and retransmission time: unspecified
    packet.extend([3, 4, 64, 0xc0]); // on link, and for autonomous addresses
    packet.extend(lifetime_s);
    packet.extend(lifetime_s);
    packet.extend([0; 4]);
    packet.extend(prefix.octets());
    packet
}
