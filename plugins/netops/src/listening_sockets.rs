//! Sockets of the node that wait for packets from elsewhere, and their processes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::{fs, io};

/// A socket that listens, or an unconnected one of UDP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// UDP, otherwise TCP.
    pub is_udp: bool,
    /// The socket's address; unspecified: any.
    pub address: IpAddr,
    /// The socket's port.
    pub port: u16,
    inode: u64,
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
