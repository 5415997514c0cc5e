//! UDP over IPv4 on a link that may have no address yet: packet(7) sockets, as DHCP clients need them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{MsgFlags, recv, send};
use socket2::{Domain, SockFilter, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::coop::consume_budget;

use crate::error::{OpError, Result};
use crate::link::{Link, Mac};
use crate::netns::Netns;
use crate::unsafe_calls;

/// `ETH_P_IP` (linux/if_ether.h).
const ETH_P_IP: u16 = 0x0800;
const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
/// The largest frame that is read. A link whose MTU is larger carries no larger DHCP messages.
const FRAME_BYTES_MAX: usize = 9216;

#[derive(Debug)]
pub(crate) struct Frames {
    fd: AsyncFd<Socket>,
    pub(crate) mac: Mac,
}

impl Frames {
    /// Opens a socket in the link's namespace for frames of a protocol, an `ETH_P_*`, that a filter lets pass.
    pub(crate) fn open(netns: &Netns, link: &Link, protocol: u16, filter: &[SockFilter]) -> Result<Self> {
        let object = || format!("a packet socket on {}", link.name);
        let fd = netns.run(|| {
            // No protocol until it is bound: nothing of other links is queued before.
            let fd = Socket::new(Domain::PACKET, Type::RAW.nonblocking(), None)?;
            fd.attach_filter(filter)?;
            fd.bind(&unsafe_calls::packet_address(link.index, protocol))?;
            Ok(fd)
        })?;
        let fd = fd.map_err(|error: std::io::Error| OpError::io("open", object(), &error))?;
        let mac = link.mac.ok_or_else(|| OpError::state("open", object(), "the link has no Ethernet address"))?;
        let fd = watched(fd).map_err(|error| OpError::io("open", object(), &error))?;
        Ok(Self { fd, mac })
    }

    pub(crate) fn send(&self, frame: &[u8]) -> std::result::Result<(), Errno> {
        send(self.fd.get_ref().as_raw_fd(), frame, MsgFlags::empty()).map(drop)
    }

    /// Waits for the first frame that `read` makes something of. A flood leaves time for the other tasks of the thread.
    /// Errors: `ENETDOWN`: the link went down or is gone.
    pub(crate) async fn receive<T>(&self, read: impl Fn(&[u8]) -> Option<T>) -> Result<T> {
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        loop {
            // A socket that is never empty would keep this loop from yielding.
            consume_budget().await;
            let mut ready = self.fd.readable().await.map_err(|error| OpError::io("receive", "a frame", &error))?;
            match recv(self.fd.get_ref().as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => {
                    if let Some(found) = buffer.get(..length).and_then(&read) {
                        return Ok(found);
                    }
                }
                Err(Errno::EAGAIN) => ready.clear_ready(),
                Err(Errno::EINTR) => (),
                Err(errno) => return Err(OpError::errno("receive", "a frame", errno)),
            }
        }
    }
}

/// A socket that sends and receives UDP datagrams on one link, below the kernel's own UDP.
#[derive(Debug)]
pub struct LinkUdp {
    frames: Frames,
    port: u16,
}

/// A datagram that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// The sender.
    pub from: SocketAddrV4,
    /// The payload.
    pub payload: Vec<u8>,
}

impl LinkUdp {
    /// Opens a socket on `link` in its namespace that receives what is sent to UDP port `port`, whatever the address.
    /// The kernel drops all else, so other traffic costs the caller nothing.
    ///
    /// # Errors
    /// `ENODEV`: the link is gone; `EPERM` without `CAP_NET_RAW` over the namespace; `ENETDOWN`.
    pub fn open(netns: &Netns, link: &Link, port: u16) -> Result<Self> {
        Ok(Self { frames: Frames::open(netns, link, ETH_P_IP, &to_udp_port(port))?, port })
    }

    /// Sends a datagram in a frame that all stations of the link receive, whatever address it is for: no ARP request comes
    /// first. A router does not forward it.
    ///
    /// # Errors
    /// `ENETDOWN`: the link is down; `ENXIO`: it is gone; `ENOBUFS`; `EMSGSIZE`.
    pub fn send(&self, from: Ipv4Addr, to: SocketAddrV4, payload: &[u8]) -> Result<()> {
        let from = SocketAddrV4::new(from, self.port);
        let failed = |errno| OpError::errno("send", format!("a datagram to {to}"), errno);
        let frame = frame(self.frames.mac, from, to, payload).ok_or_else(|| failed(Errno::EMSGSIZE))?;
        self.frames.send(&frame).map_err(failed)
    }

    /// The next datagram.
    ///
    /// # Errors
    /// `ENETDOWN`: the link went down or is gone.
    pub async fn receive(&self) -> Result<Datagram> {
        self.frames.receive(|frame| datagram(frame, self.port)).await
    }
}

#[expect(deprecated, reason = "the successor is unsafe for types that might close their descriptor; this one does not")]
fn watched(socket: Socket) -> std::io::Result<AsyncFd<Socket>> {
    AsyncFd::with_interest(socket, Interest::READABLE)
}

/// An Ethernet frame with the datagram, to the broadcast address; `None` if it is too long for one.
fn frame(mac: Mac, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Option<Vec<u8>> {
    let udp_bytes = u16::try_from(UDP_BYTES + payload.len()).ok()?;
    let ip_bytes = u16::try_from(IPV4_BYTES + UDP_BYTES + payload.len()).ok()?;
    let mut frame = Vec::with_capacity(ETHERNET_BYTES + usize::from(ip_bytes));
    frame.extend([0xff; 6]);
    frame.extend(mac.0);
    frame.extend(ETH_P_IP.to_be_bytes());
    // Version 4, 20 bytes; low delay, as DHCP clients of all makes send it; do not fragment; 64 hops; UDP.
    let mut header = [0x45, 0x10, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[2..4].copy_from_slice(&ip_bytes.to_be_bytes());
    header[12..16].copy_from_slice(&from.ip().octets());
    header[16..20].copy_from_slice(&to.ip().octets());
    let sum = checksum(&[&header]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    let mut udp = [from.port().to_be_bytes(), to.port().to_be_bytes(), udp_bytes.to_be_bytes(), [0, 0]].concat();
    let pseudo = [&header[12..20], &[0, 17], &udp_bytes.to_be_bytes()].concat();
    let sum = match checksum(&[&pseudo, &udp, payload]) {
        0 => 0xffff, // RFC 768: 0 means that there is none
        sum => sum,
    };
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    frame.extend(udp);
    frame.extend(payload);
    Some(frame)
}

/// RFC 1071, over parts of which only the last may have an odd length.
pub(crate) fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u32 = words.map(|word| u32::from(word[0]) << 8 | word.get(1).copied().map_or(0, u32::from)).sum();
    let folded = (sum >> 16) + (sum & 0xffff);
    let [_, _, high, low] = ((folded >> 16) + (folded & 0xffff)).to_be_bytes();
    !u16::from_be_bytes([high, low])
}

/// The datagram of a frame, if it has one to the port. Checksums are not compared: those of senders on the same machine
/// are left to hardware that the frame never meets.
pub(crate) fn datagram(frame: &[u8], port: u16) -> Option<Datagram> {
    let packet = frame.get(ETHERNET_BYTES..)?;
    let version_and_words = *packet.first()?;
    let header_bytes = usize::from(version_and_words & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes(*packet.get(2..)?.first_chunk()?));
    let is_whole = u16::from_be_bytes(*packet.get(6..)?.first_chunk()?) & 0x3fff == 0;
    if version_and_words >> 4 != 4 || header_bytes < IPV4_BYTES || *packet.get(9)? != 17 || !is_whole {
        return None;
    }
    let source = Ipv4Addr::from(*packet.get(12..)?.first_chunk::<4>()?);
    let udp = packet.get(header_bytes..total)?;
    let number = |at: usize| udp.get(at..)?.first_chunk().copied().map(u16::from_be_bytes);
    if number(2)? != port {
        return None;
    }
    let payload = udp.get(UDP_BYTES..usize::from(number(4)?))?;
    Some(Datagram { from: SocketAddrV4::new(source, number(0)?), payload: payload.to_vec() })
}

/// A program for the kernel (linux/filter.h): whole IPv4 datagrams of UDP to a port.
#[expect(clippy::cast_possible_truncation, reason = "operation codes have less than 16 bits")]
fn to_udp_port(port: u16) -> [SockFilter; 9] {
    let statement = |code: u32, k: u32| SockFilter::new(code as u16, 0, 0, k);
    let jump = |code: u32, k: u32, jt: u8, jf: u8| SockFilter::new(code as u16, jt, jf, k);
    use libc::{BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_MSH, BPF_RET};
    [
        statement(BPF_LD | BPF_B | BPF_ABS, 23), // the protocol
        jump(BPF_JMP | BPF_JEQ | BPF_K, 17, 0, 6),
        statement(BPF_LD | BPF_H | BPF_ABS, 20), // flags and fragment offset
        jump(BPF_JMP | BPF_JSET | BPF_K, 0x3fff, 4, 0),
        statement(BPF_LDX | BPF_B | BPF_MSH, 14), // the header's length
        statement(BPF_LD | BPF_H | BPF_IND, 16),  // the port
        jump(BPF_JMP | BPF_JEQ | BPF_K, port.into(), 0, 1),
        statement(BPF_RET | BPF_K, u32::MAX),
        statement(BPF_RET | BPF_K, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let (from, to) = ("10.0.0.5:68".parse().unwrap(), "255.255.255.255:67".parse().unwrap());
        let bytes = frame(Mac([2, 0, 0, 0, 0, 5]), from, to, b"abc").unwrap();
        assert_eq!(datagram(&bytes, 67), Some(Datagram { from, payload: b"abc".to_vec() }));
        assert_eq!(datagram(&bytes, 68), None);
        for length in 0..bytes.len() {
            assert_eq!(datagram(&bytes[..length], 67), None);
        }
        // A right checksum makes the sum over header or datagram zero.
        assert_eq!(checksum(&[&bytes[14..34]]), 0);
        let pseudo = [&bytes[26..34], &[0, 17, 0, 11]].concat();
        assert_eq!(checksum(&[&pseudo, &bytes[34..]]), 0);
    }
}
