//! The netlink that is needed to read a namespace and to make links, written by hand.
//!
//! A plugin under test may have an error in its netlink library; this crate must not have the same one.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

use crate::must::Must;

const HEADER: usize = 16; // struct nlmsghdr
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// A netlink socket of the thread's namespace.
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

/// A message of a dump: its type and what follows the netlink header.
pub(crate) struct Message {
    pub(crate) body: Vec<u8>,
}

impl Socket {
    pub(crate) fn route() -> Self {
        Self::open(SockProtocol::NetlinkRoute).must("open a route netlink socket")
    }

    pub(crate) fn open(protocol: SockProtocol) -> nix::Result<Self> {
        let fd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Sends a request and waits for the kernel's acknowledgement or error.
    pub(crate) fn request(&mut self, kind: u16, flags: i32, body: &[u8]) -> nix::Result<()> {
        self.send(kind, flags | libc::NLM_F_ACK, body)?;
        self.receive()?;
        Ok(())
    }

    /// All objects of a kind in the kernel; repeats the request if a change tore the answer.
    pub(crate) fn dump(&mut self, kind: u16, body: &[u8]) -> nix::Result<Vec<Message>> {
        loop {
            self.send(kind, libc::NLM_F_DUMP, body)?;
            let (messages, torn) = self.receive()?;
            if !torn {
                return Ok(messages);
            }
        }
    }

    /// Sends a change of a netfilter subsystem, which takes changes in batches only, and waits for the kernel's answer.
    pub(crate) fn change_netfilter(&mut self, kind: u16, body: &[u8]) -> nix::Result<()> {
        self.change_netfilter_at_once(&[(kind, 0, body)])
    }

    /// Sends changes of a netfilter subsystem that all happen or none does, and waits for the kernel's answer.
    pub(crate) fn change_netfilter_at_once(&mut self, changes: &[(u16, i32, &[u8])]) -> nix::Result<()> {
        const BATCH_BEGIN: u16 = 16;
        const BATCH_END: u16 = 17;
        let Some((last, (kind, ..))) = changes.len().checked_sub(1).zip(changes.first()) else {
            return Ok(());
        };
        let [subsystem, _] = kind.to_be_bytes();
        let of_subsystem = [0, 0, 0, subsystem]; // struct nfgenmsg, the last field in network byte order
        let mut batch = self.message(BATCH_BEGIN, 0, &of_subsystem)?;
        for (place, (kind, flags, body)) in changes.iter().enumerate() {
            let ack = if place == last { libc::NLM_F_ACK } else { 0 };
            batch.extend(self.message(*kind, flags | ack, body)?);
        }
        batch.extend(self.message(BATCH_END, 0, &of_subsystem)?);
        send(self.fd.as_raw_fd(), &batch, MsgFlags::empty())?;
        self.receive()?;
        Ok(())
    }

    fn send(&mut self, kind: u16, flags: i32, body: &[u8]) -> nix::Result<()> {
        let message = self.message(kind, flags, body)?;
        send(self.fd.as_raw_fd(), &message, MsgFlags::empty())?;
        Ok(())
    }

    fn message(&mut self, kind: u16, flags: i32, body: &[u8]) -> nix::Result<Vec<u8>> {
        self.sequence += 1;
        let length = u32::try_from(HEADER + body.len()).map_err(|_too_long| Errno::EMSGSIZE)?;
        let flags = u16::try_from(flags | libc::NLM_F_REQUEST).map_err(|_unknown| Errno::EINVAL)?;
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(0_u32.to_ne_bytes());
        message.extend(body);
        message.resize(message.len().next_multiple_of(4), 0);
        Ok(message)
    }

    /// Messages up to the end mark or acknowledgement, and whether a change tore the dump.
    fn receive(&mut self) -> nix::Result<(Vec<Message>, bool)> {
        let mut messages = Vec::new();
        let mut torn = false;
        // The kernel fills at most 32 KiB at a time, and more memory than that takes longer to get than to use.
        let mut buffer = vec![0; 64 * 1024];
        loop {
            // Of a message that does not fit, MSG_TRUNC returns the whole length, which is more than there is to take.
            let length = recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC)?;
            let mut rest = buffer.get(..length).ok_or(Errno::EMSGSIZE)?;
            while let Some((header, message)) = split_message(&mut rest) {
                torn |= i32::from(header.flags) & libc::NLM_F_DUMP_INTR != 0;
                match header.kind {
                    NLMSG_DONE => return Ok((messages, torn)),
                    NLMSG_ERROR => match i32_at(message, 0) {
                        0 => return Ok((messages, torn)),
                        errno => return Err(Errno::from_raw(-errno)),
                    },
                    _ => messages.push(Message { body: message.to_vec() }),
                }
            }
        }
    }
}

struct Header {
    kind: u16,
    flags: u16,
}

fn split_message<'a>(rest: &mut &'a [u8]) -> Option<(Header, &'a [u8])> {
    let length = usize::try_from(u32_at(rest, 0)).ok()?;
    let body = rest.get(HEADER..length)?;
    let header = Header { kind: u16_at(rest, 4), flags: u16_at(rest, 6) };
    *rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((header, body))
}

/// The type and body of the first message.
pub(crate) fn split<'a>(rest: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    split_message(rest).map(|(header, body)| (header.kind, body))
}

/// A run of attributes: 16 bits length, 16 bits type, the value, padded to four bytes.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_at(self.0, 0));
        let value = self.0.get(4..length)?;
        let kind = u16_at(self.0, 2) & 0x3fff; // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

impl<'a> Attributes<'a> {
    /// The attributes behind a fixed header of `header` bytes.
    pub(crate) fn after(body: &'a [u8], header: usize) -> Self {
        Self(body.get(header..).unwrap_or_default())
    }

    pub(crate) fn get(mut self, kind: u16) -> Option<&'a [u8]> {
        self.find(|(found, _)| *found == kind).map(|(_, value)| value)
    }

    pub(crate) fn nested(self, kind: u16) -> Attributes<'a> {
        Attributes(self.get(kind).unwrap_or_default())
    }

    pub(crate) fn string(self, kind: u16) -> Option<String> {
        let value = self.get(kind)?;
        let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
        Some(String::from_utf8_lossy(value.get(..end)?).into_owned())
    }

    pub(crate) fn u32(self, kind: u16) -> Option<u32> {
        self.get(kind).map(|value| u32_at(value, 0))
    }

    pub(crate) fn u8(self, kind: u16) -> Option<u8> {
        self.get(kind)?.first().copied()
    }
}

/// The body of a request: a fixed header, then attributes.
pub(crate) struct Body(pub(crate) Vec<u8>);

impl Body {
    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.push(kind, value);
        self
    }

    pub(crate) fn string(self, kind: u16, value: &str) -> Self {
        let mut value = value.as_bytes().to_vec();
        value.push(0);
        self.attribute(kind, &value)
    }

    pub(crate) fn nest(self, kind: u16, inner: impl FnOnce(Body) -> Body) -> Self {
        let inner = inner(Body(Vec::new()));
        self.attribute(kind, &inner.0)
    }

    fn push(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(4 + value.len()).must("fit a netlink attribute into 64 KiB");
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

/// The native `u64` at an offset; 0 past the end.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let word = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u64::from_ne_bytes(*word))
}

/// The native `u32` at an offset; 0 past the end, as the kernel's headers only grow.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let word = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u32::from_ne_bytes(*word))
}

pub(crate) fn i32_at(bytes: &[u8], offset: usize) -> i32 {
    u32_at(bytes, offset).cast_signed()
}

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    let word = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u16::from_ne_bytes(*word))
}
