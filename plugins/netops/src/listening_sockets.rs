//! Sockets of the node that wait for packets from elsewhere, and their processes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::{fs, io};

use netlink_sys::{Socket, protocols::NETLINK_SOCK_DIAG};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{MsgFlags, setsockopt, sockopt::ReceiveTimeout};
use nix::sys::time::TimeVal;

use crate::Family;
use crate::error::{OpError, Result, errno_of};
use crate::netlink_connection::receive;
use crate::netlink_frames::{Frames, NetlinkReply};

/// A socket that listens, or an unconnected one of UDP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// UDP, otherwise TCP.
    pub is_udp: bool,
    /// The socket's address; unspecified: any.
    pub address: IpAddr,
    /// The socket's port.
    pub port: u16,
    /// Whether an IPv6 socket without an address takes no packets of IPv4, as far as it is known.
    pub is_ipv6_only: bool,
    inode: u64,
}

impl Listener {
    /// Whether packets of the family may be for the socket.
    #[must_use]
    pub fn takes(&self, family: Family) -> bool {
        let is_both = self.address.is_unspecified() && self.address.is_ipv6() && !self.is_ipv6_only;
        Family::from(self.address) == family || is_both && family == Family::V4
    }
}

/// The state of a TCP socket that listens, and of an unconnected one of UDP: `TCP_LISTEN` and `TCP_CLOSE` of
/// include/net/tcp_states.h.
const STATES: [(&str, bool, u8); 4] =
    [("tcp", false, 0x0a), ("tcp6", false, 0x0a), ("udp", true, 0x07), ("udp6", true, 0x07)];

/// Lists the sockets in the namespace of the calling thread.
///
/// # Errors
/// A table of `/proc/net` cannot be read. One that the kernel does not have is empty.
pub fn list() -> io::Result<Vec<Listener>> {
    let mut found = Vec::new();
    for (file, is_udp, state) in STATES {
        let text = match fs::read_to_string(PathBuf::from("/proc/thread-self/net").join(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            text => text?,
        };
        found.extend(text.lines().skip(1).filter_map(|line| parse(line, is_udp, state)));
    }
    Ok(found)
}

/// Lists the sockets in the namespace of the calling thread that wait for packets to a port of the range, by `sock_diag(7)`:
/// the kernel leaves out all others.
///
/// # Errors
/// `ENOENT`: the kernel has no `tcp_diag` or `udp_diag`.
pub fn list_on(is_udp: bool, ports: &RangeInclusive<u16>) -> Result<Vec<Listener>> {
    let mut found = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let failed =
            |errno| OpError::errno("list", format!("sockets on ports {ports:?}"), errno).request("SOCK_DIAG_BY_FAMILY");
        let socket = Socket::new(NETLINK_SOCK_DIAG).map_err(|error| failed(errno_of(error)))?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::new(5, 0)).map_err(failed)?;
        let request = dump_request(is_udp, u8::try_from(family).unwrap_or_default(), ports);
        socket.send(&request, 0).map_err(|error| failed(errno_of(error)))?;
        let mut buffer = Vec::with_capacity(1 << 15);
        let mut is_complete = false;
        while !is_complete {
            match receive(&socket, &mut buffer, MsgFlags::empty()) {
                Err(Errno::EINTR) => continue,
                read => read.map_err(failed)?,
            }
            for frame in Frames::new(&buffer) {
                match frame.answer() {
                    NetlinkReply::Object(bytes) => found.extend(parse_socket(bytes, is_udp)),
                    NetlinkReply::Done => is_complete = true,
                    NetlinkReply::Failed(cause) => {
                        return Err(OpError::new("list", format!("sockets on ports {ports:?}"), cause));
                    }
                    NetlinkReply::Noise => {}
                }
            }
        }
    }
    Ok(found)
}

/// `struct nlmsghdr`, `struct inet_diag_req_v2` and a filter of linux/inet_diag.h: a port from the first to the last.
fn dump_request(is_udp: bool, family: u8, ports: &RangeInclusive<u16>) -> Vec<u8> {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const DUMP_REQUEST: u16 = 0x301;
    const REQ_BYTECODE: u16 = 1;
    const S_GE: u8 = 2;
    const S_LE: u8 = 3;
    let (protocol, state) = if is_udp { (libc::IPPROTO_UDP, 0x07) } else { (libc::IPPROTO_TCP, 0x0a) };
    let mut bytes = [92u32.to_ne_bytes(), [0; 4], [0; 4], [0; 4]].concat();
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&DUMP_REQUEST.to_ne_bytes());
    bytes.extend([family, u8::try_from(protocol).unwrap_or_default(), 0, 0]);
    bytes.extend((1u32 << state).to_ne_bytes());
    bytes.extend([0; 48]);
    for word in [20, REQ_BYTECODE] {
        bytes.extend(word.to_ne_bytes());
    }
    // An operation, the bytes to the next one where it holds, and to beyond the end where it does not; then the port.
    for (code, beyond, port) in [(S_GE, 20u16, ports.start()), (S_LE, 12, ports.end())] {
        bytes.extend([code, 8]);
        bytes.extend(beyond.to_ne_bytes());
        bytes.extend([0, 0]);
        bytes.extend(port.to_ne_bytes());
    }
    bytes
}

/// `struct inet_diag_msg` and its attributes.
fn parse_socket(frame: &[u8], is_udp: bool) -> Option<Listener> {
    const SKV6ONLY: u16 = 11;
    let message = frame.get(16..)?;
    let address = match i32::from(*message.first()?) {
        libc::AF_INET => IpAddr::from(<[u8; 4]>::try_from(message.get(8..12)?).ok()?),
        _ => Ipv6Addr::from(<[u8; 16]>::try_from(message.get(8..24)?).ok()?).to_canonical(),
    };
    let port = u16::from_be_bytes(message.get(4..6)?.try_into().ok()?);
    let inode = u32::from_ne_bytes(message.get(68..72)?.try_into().ok()?).into();
    let (mut rest, mut is_ipv6_only) = (message.get(72..)?, false);
    while let Some(&[low, high, kind_low, kind_high, first, ..]) = rest.get(..5) {
        is_ipv6_only |= u16::from_ne_bytes([kind_low, kind_high]) == SKV6ONLY && first != 0;
        let length = usize::from(u16::from_ne_bytes([low, high])).max(4);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(Listener { is_udp, address, port, is_ipv6_only, inode })
}

/// A line of Documentation/networking/proc_net_tcp.rst.
fn parse(line: &str, is_udp: bool, state: u8) -> Option<Listener> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if u8::from_str_radix(words.get(3)?, 16).ok()? != state {
        return None;
    }
    let (address, port) = words.get(1)?.split_once(':')?;
    Some(Listener {
        is_udp,
        address: parse_address(address)?,
        port: u16::from_str_radix(port, 16).ok()?,
        is_ipv6_only: false,
        inode: words.get(9)?.parse().ok()?,
    })
}

/// Words of 32 bits in the machine's byte order.
fn parse_address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(hex.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(words).ok()?).to_canonical())
        }
        _ => None,
    }
}

/// The processes that have the sockets, by name and number, in the listeners' order; `None`: not found. Reads the file
/// descriptors of all processes.
#[must_use]
pub fn processes(listeners: &[&Listener]) -> Vec<Option<String>> {
    let wanted = |inode: u64| listeners.iter().any(|listener| listener.inode == inode);
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        for file in fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
            let link = fs::read_link(file.path()).unwrap_or_default();
            let inode = link.to_str().and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            if let Some(inode) = inode.filter(|inode| wanted(*inode)) {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                names.entry(inode).or_insert_with(|| format!("{} ({pid})", name.trim_end()));
            }
        }
    }
    listeners.iter().map(|listener| names.get(&listener.inode).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn a_listening_socket_is_found_with_its_process() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("[::]:0").unwrap();
        let all = list().unwrap();
        let of = |is_udp, address: &str, port| {
            let address: IpAddr = address.parse().unwrap();
            let is_it = |it: &&Listener| (it.is_udp, it.address, it.port) == (is_udp, address, port);
            all.iter().find(is_it).unwrap_or_else(|| panic!("{all:?}"))
        };
        let found = [
            of(false, "127.0.0.1", tcp.local_addr().unwrap().port()),
            of(true, "::", udp.local_addr().unwrap().port()),
        ];
        for process in processes(&found) {
            let process = process.unwrap();
            assert!(process.ends_with(&format!("({})", std::process::id())), "{process}");
        }
    }

    #[test]
    fn a_line_that_is_cut_off_is_no_listener() {
        let line = "0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 777 1";
        assert_eq!(parse(line, false, 0x0a).unwrap().inode, 777);
        for end in 0..line.len() - 6 {
            assert_eq!(parse(&line[..end], false, 0x0a), None, "{end}");
        }
        assert_eq!(parse(line, false, 0x07), None);
    }
}
