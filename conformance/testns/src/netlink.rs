//! Netlink as this crate needs it: messages of `netlink-packet-route` to make objects, attributes by their numbers to read them.
//!
//! Reading takes no types of others: the kernel allows names that are not UTF-8, and a snapshot shows attributes that no crate knows.

use std::os::fd::{AsRawFd, OwnedFd};

use netlink_packet_core::{
    DefaultNla, Emitable, ErrorBuffer, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL, NLM_F_REQUEST,
    NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader, NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

use crate::must::Must;

/// Flags of a request that makes an object which must not be there yet.
pub(crate) const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;

/// A netlink socket of the thread's namespace.
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

/// A message of a dump, without the netlink header.
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
    pub(crate) fn request(&mut self, flags: u16, message: &RouteNetlinkMessage) -> nix::Result<()> {
        let message = self.message(message.message_type(), flags | NLM_F_ACK, &emitted(message))?;
        send(self.fd.as_raw_fd(), &message, MsgFlags::empty())?;
        self.receive()?;
        Ok(())
    }

    /// All objects of a kind in the kernel; repeats the request if a change tore the answer.
    pub(crate) fn dump(&mut self, kind: u16, body: &[u8]) -> nix::Result<Vec<Message>> {
        loop {
            let message = self.message(kind, NLM_F_DUMP, body)?;
            send(self.fd.as_raw_fd(), &message, MsgFlags::empty())?;
            let (messages, torn) = self.receive()?;
            if !torn {
                return Ok(messages);
            }
        }
    }

    /// Sends changes of a netfilter subsystem that all happen or none does, and waits for the kernel's answer.
    pub(crate) fn change_netfilter(&mut self, changes: &[(u16, u16, &[u8])]) -> nix::Result<()> {
        const BATCH_BEGIN: u16 = 16;
        const BATCH_END: u16 = 17;
        let Some((last, (kind, ..))) = changes.len().checked_sub(1).zip(changes.first()) else {
            return Ok(());
        };
        let [subsystem, _] = kind.to_be_bytes();
        let of_subsystem = [0, 0, 0, subsystem]; // struct nfgenmsg, the last field in network byte order
        let mut batch = self.message(BATCH_BEGIN, 0, &of_subsystem)?;
        for (place, (kind, flags, body)) in changes.iter().enumerate() {
            let ack = if place == last { NLM_F_ACK } else { 0 };
            batch.extend(self.message(*kind, flags | ack, body)?);
        }
        batch.extend(self.message(BATCH_END, 0, &of_subsystem)?);
        send(self.fd.as_raw_fd(), &batch, MsgFlags::empty())?;
        self.receive()?;
        Ok(())
    }

    fn message(&mut self, kind: u16, flags: u16, body: &[u8]) -> nix::Result<Vec<u8>> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.length = u32::try_from(header.buffer_len() + body.len()).map_err(|_too_long| Errno::EMSGSIZE)?;
        header.message_type = kind;
        header.flags = flags | NLM_F_REQUEST;
        header.sequence_number = self.sequence;
        let mut message = [&emitted(&header), body].concat();
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
            while let Ok(message) = NetlinkBuffer::new_checked(rest) {
                torn |= message.flags() & NLM_F_DUMP_INTR != 0;
                match message.message_type() {
                    NLMSG_DONE => return Ok((messages, torn)),
                    NLMSG_ERROR => {
                        let error = ErrorBuffer::new_checked(message.payload()).map_err(|_short| Errno::EBADMSG)?;
                        return error.code().map_or(Ok((messages, torn)), |code| Err(Errno::from_raw(-code.get())));
                    }
                    _ => messages.push(Message { body: message.payload().to_vec() }),
                }
                let length = usize::try_from(message.length()).unwrap_or(usize::MAX);
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }
}

/// The bytes of a header, a message or attributes.
pub(crate) fn emitted(value: &impl Emitable) -> Vec<u8> {
    let mut bytes = vec![0; value.buffer_len()];
    value.emit(&mut bytes);
    bytes
}

/// The body of a netfilter request: `struct nfgenmsg` of a family, then attributes.
pub(crate) fn netfilter_body(family: u8, attributes: &[DefaultNla]) -> Vec<u8> {
    [&[family, 0, 0, 0], emitted(&attributes).as_slice()].concat()
}

/// An attribute of text, which ends with a zero byte.
pub(crate) fn text(kind: u16, value: impl AsRef<[u8]>) -> DefaultNla {
    DefaultNla::new(kind, [value.as_ref(), &[0]].concat())
}

/// An attribute of attributes.
pub(crate) fn nest(kind: u16, inner: &[DefaultNla]) -> DefaultNla {
    DefaultNla::new(kind, emitted(&inner))
}

/// A run of attributes, up to the first that is broken; types are without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Attributes<'a> {
    /// The attributes behind a fixed header of `header` bytes.
    pub(crate) fn after(body: &'a [u8], header: usize) -> Self {
        Self(body.get(header..).unwrap_or_default())
    }

    /// Type and value of each.
    pub(crate) fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        NlasIterator::new(self.0).map_while(Result::ok).map_while(|attribute| {
            let (kind, length) = (attribute.kind(), usize::from(attribute.length()));
            Some((kind, attribute.into_inner().get(4..length)?))
        })
    }

    pub(crate) fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.iter().find(|(found, _)| *found == kind).map(|(_, value)| value)
    }

    pub(crate) fn nested(self, kind: u16) -> Attributes<'a> {
        Attributes(self.get(kind).unwrap_or_default())
    }

    pub(crate) fn string(self, kind: u16) -> Option<String> {
        let value = self.get(kind)?.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    pub(crate) fn u32(self, kind: u16) -> Option<u32> {
        self.get(kind).map(|value| u32_at(value, 0))
    }

    pub(crate) fn u8(self, kind: u16) -> Option<u8> {
        self.get(kind)?.first().copied()
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
