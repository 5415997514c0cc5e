//! Netlink messages in what a process is about to send.

use std::fmt;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use nix::libc;

use super::syscall::Syscall;

/// Bytes of a send that are looked at; no plugin sends more at once.
const BYTES_MAX: u64 = 1 << 20;
/// `struct nlmsghdr`.
const HEADER: usize = 16;
/// Length of `NFNL_MSG_BATCH_BEGIN` and `_END`, whose types are those of `RTM_NEWLINK` and `RTM_DELLINK`.
const BATCH_MARK: usize = HEADER + 4;
const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFNL_SUBSYS_NFT_COMPAT: u16 = 11;

/// A netlink message that asks for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// The thread that sends it.
    pub pid: i32,
    /// `nlmsg_type`: an `RTM_` number, or subsystem and number of nfnetlink.
    pub kind: u16,
    /// Where the message's header is in the sender's memory.
    address: u64,
}

/// What a send carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cargo {
    Other,
    /// Netlink messages; here are those that ask for a change.
    Netlink(Vec<Message>),
}

/// What a thread is about to send.
pub(crate) fn cargo(call: &Syscall) -> Cargo {
    let found = match call.number {
        libc::SYS_sendto => messages(call.pid, call.arguments[1], call.arguments[2]),
        libc::SYS_sendmsg => vector(call.pid, call.arguments[1]),
        _ => None,
    };
    found.map_or(Cargo::Other, Cargo::Netlink)
}

/// The first part of a `struct msghdr`'s vector; netlink senders use one.
fn vector(pid: i32, header: u64) -> Option<Vec<Message>> {
    let parts = u64_at(pid, header + 16)?;
    messages(pid, u64_at(pid, parts)?, u64_at(pid, parts + 8)?)
}

/// The messages that ask for a change; `None` if the bytes are not netlink messages from first to last.
fn messages(pid: i32, address: u64, length: u64) -> Option<Vec<Message>> {
    let bytes = read(pid, address, usize::try_from(length.min(BYTES_MAX)).ok()?)?;
    let (mut found, mut offset) = (Vec::new(), 0);
    while offset < bytes.len() {
        let header = bytes.get(offset..offset + HEADER)?;
        let length = usize::try_from(u32::from_ne_bytes(header.get(..4)?.try_into().ok()?)).ok()?;
        let kind = u16::from_ne_bytes(header.get(4..6)?.try_into().ok()?);
        if length < HEADER || offset + length > bytes.len() {
            return None;
        }
        if asks_for_change(kind, length) {
            found.push(Message { pid, kind, address: address + u64::try_from(offset).ok()? });
        }
        offset += length.next_multiple_of(4);
    }
    (!bytes.is_empty()).then_some(found)
}

fn asks_for_change(kind: u16, length: usize) -> bool {
    let [subsystem, number] = kind.to_be_bytes();
    match u16::from(subsystem) {
        // rtnetlink numbers in fours: new, del, get, set.
        0 => kind >= 16 && length != BATCH_MARK && (kind - 16) % 4 != 2,
        NFNL_SUBSYS_NFTABLES => !matches!(number, 1 | 4 | 7 | 10 | 13 | 16 | 19 | 21 | 23 | 25),
        NFNL_SUBSYS_NFT_COMPAT => false,
        _ => number % 4 != 1,
    }
}

impl Message {
    /// Makes it one that the kernel does not know and refuses.
    pub(crate) fn spoil(&self) {
        let unknown: u16 = match self.kind.to_be_bytes() {
            [0, _] => 0x0fff,
            [subsystem, _] => u16::from_be_bytes([subsystem, 0xff]),
        };
        let memory = OpenOptions::new().write(true).open(format!("/proc/{}/mem", self.pid));
        let written = memory.and_then(|memory| memory.write_all_at(&unknown.to_ne_bytes(), self.address + 4));
        if let Err(error) = written {
            panic!("cannot spoil {self}: {error}");
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.to_be_bytes() {
            [0, 16] => f.write_str("RTM_NEWLINK"),
            [0, 17] => f.write_str("RTM_DELLINK"),
            [0, 19] => f.write_str("RTM_SETLINK"),
            [0, 20] => f.write_str("RTM_NEWADDR"),
            [0, 21] => f.write_str("RTM_DELADDR"),
            [0, 24] => f.write_str("RTM_NEWROUTE"),
            [0, 25] => f.write_str("RTM_DELROUTE"),
            [0, number] => write!(f, "rtnetlink {number}"),
            [subsystem, number] => write!(f, "nfnetlink {subsystem}.{number}"),
        }
    }
}

/// A text that ends with a zero byte.
pub(crate) fn text_at(pid: i32, address: u64) -> Option<Vec<u8>> {
    const PAGE: u64 = 4096;
    // A page at a time: the next one may not be mapped.
    let rest = PAGE - address % PAGE;
    let mut text = read(pid, address, usize::try_from(rest).ok()?)?;
    if !text.contains(&0) {
        text.extend(read(pid, address + rest, usize::try_from(PAGE).ok()?)?);
    }
    let end = text.iter().position(|byte| *byte == 0)?;
    text.truncate(end);
    Some(text)
}

pub(crate) fn u64_at(pid: i32, address: u64) -> Option<u64> {
    let bytes = read(pid, address, 8)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

fn read(pid: i32, address: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    memory.read_exact_at(&mut bytes, address).ok()?;
    Some(bytes)
}
