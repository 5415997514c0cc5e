//! Splits one netlink read into frames: acks with the extended ack's message, ends of lists, objects.
//!
//! Written by hand because the packet crates drop the attributes of the extended ack. Every function here accepts any
//! bytes: it returns some frames and never panics.

use nix::errno::Errno;

use crate::error::Cause;

const HEADER_BYTES: usize = 16; // struct nlmsghdr
const NLMSG_NOOP: u16 = 1; // include/uapi/linux/netlink.h
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
const RTM_NEWLINK: u16 = 16; // include/uapi/linux/rtnetlink.h
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const AF_UNSPEC: u8 = 0;

/// Iterates over the messages of one read. Stops at the first that is longer than the rest of the read.
pub(crate) struct Frames<'a> {
    rest: &'a [u8],
}

/// A message.
pub(crate) struct Frame<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    /// The message, header included.
    pub(crate) bytes: &'a [u8],
}

/// The link that a frame is about, or the link of its address. It is read without decoding the rest of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct About {
    kind: u16,
    /// `ifi_family`, `ifa_family`.
    pub(crate) family: u8,
    /// `ifi_index`, `ifa_index`.
    pub(crate) index: u32,
}

impl About {
    pub(crate) fn is_new_link(self) -> bool {
        self.kind == RTM_NEWLINK
    }

    /// Whether a link was removed here. A port that leaves its bridge (`AF_BRIDGE`) looks similar.
    pub(crate) fn is_removal(self) -> bool {
        self.kind == RTM_DELLINK && self.family == AF_UNSPEC
    }
}

/// What a frame says about its request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NetlinkReply<'a> {
    /// An object, header included.
    Object(&'a [u8]),
    /// The request succeeded, or its list is complete.
    Done,
    /// The request failed.
    Failed(Cause),
    /// The frame carries no information (`NLMSG_NOOP`).
    Noise,
}

impl<'a> Frames<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        let length = usize::try_from(u32_at(self.rest, 0)?).ok()?;
        if length < HEADER_BYTES {
            return None;
        }
        let frame = Frame {
            kind: u16_at(self.rest, 4)?,
            flags: u16_at(self.rest, 6)?,
            sequence: u32_at(self.rest, 8)?,
            bytes: self.rest.get(..length)?,
        };
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(frame)
    }
}

impl<'a> Frame<'a> {
    /// Whether the list was interrupted: it changed while the kernel wrote it (`NLM_F_DUMP_INTR`).
    pub(crate) fn is_interrupted(&self) -> bool {
        // In an ack this bit has another meaning.
        self.kind != NLMSG_ERROR && self.flags & NLM_F_DUMP_INTR != 0
    }

    /// The link that this frame is about, if it is about a link or an address.
    pub(crate) fn about(&self) -> Option<About> {
        // struct ifinfomsg and struct ifaddrmsg begin with the family; the index is at offset 4.
        let (family, index) = (*self.bytes.get(HEADER_BYTES)?, u32_at(self.bytes, HEADER_BYTES + 4)?);
        let kind = self.kind;
        matches!(kind, RTM_NEWLINK | RTM_DELLINK | RTM_NEWADDR | RTM_DELADDR).then_some(About { kind, family, index })
    }

    pub(crate) fn answer(&self) -> NetlinkReply<'a> {
        match self.kind {
            NLMSG_NOOP => NetlinkReply::Noise,
            NLMSG_ERROR => self.verdict(),
            // Since Linux 4.20 the end of a dump may carry an errno, too.
            NLMSG_DONE => self.verdict(),
            NLMSG_OVERRUN => NetlinkReply::Failed(Cause::State("the kernel lost data".into())),
            _ => NetlinkReply::Object(self.bytes),
        }
    }

    fn verdict(&self) -> NetlinkReply<'a> {
        match i32_at(self.bytes, HEADER_BYTES) {
            Some(0) => NetlinkReply::Done,
            Some(code) => NetlinkReply::Failed(Cause::Kernel {
                errno: Errno::from_raw(code.wrapping_neg()),
                extended_ack: self.extended_ack(),
            }),
            None if self.kind == NLMSG_DONE => NetlinkReply::Done,
            None => NetlinkReply::Noise,
        }
    }

    /// The message of the extended ack. It follows the request, of which a capped ack has the header alone.
    fn extended_ack(&self) -> Option<String> {
        if self.flags & NLM_F_ACK_TLVS == 0 {
            return None;
        }
        let start = HEADER_BYTES + 4;
        let request = match self.kind {
            NLMSG_DONE => 0,
            _ if self.flags & NLM_F_CAPPED != 0 => HEADER_BYTES,
            _ => usize::try_from(u32_at(self.bytes, start)?).ok()?.checked_next_multiple_of(4)?,
        };
        let mut rest = self.bytes.get(start.checked_add(request)?..)?;
        loop {
            let length = usize::from(u16_at(rest, 0)?);
            let kind = u16_at(rest, 2)?;
            let value = rest.get(4..length)?;
            if kind == NLMSGERR_ATTR_MSG {
                let text = value.split(|&byte| byte == 0).next()?;
                return Some(String::from_utf8_lossy(text).trim_end_matches('.').to_owned());
            }
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A refusal as a 6.x kernel sends it: errno, the request's header, one extended ack message.
    fn refusal(text: &str) -> Vec<u8> {
        let mut attribute = text.as_bytes().to_vec();
        attribute.push(0);
        let length = u16::try_from(4 + attribute.len()).unwrap();
        let total = u32::try_from(36 + usize::from(length).next_multiple_of(4)).unwrap();
        let mut bytes = total.to_ne_bytes().to_vec();
        bytes.extend(NLMSG_ERROR.to_ne_bytes());
        bytes.extend((NLM_F_ACK_TLVS | NLM_F_CAPPED).to_ne_bytes());
        bytes.extend(7u32.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend((-95i32).to_ne_bytes());
        bytes.extend([0; 16]);
        bytes.extend(length.to_ne_bytes());
        bytes.extend(NLMSGERR_ATTR_MSG.to_ne_bytes());
        bytes.extend(attribute);
        bytes.resize(total as usize, 0);
        bytes
    }

    #[test]
    fn the_extended_ack_is_found() {
        let bytes = refusal("Unknown device type.");
        let frame = Frames::new(&bytes).next().unwrap();
        assert_eq!(frame.sequence, 7);
        assert_eq!(
            frame.answer(),
            NetlinkReply::Failed(Cause::Kernel {
                errno: Errno::EOPNOTSUPP,
                extended_ack: Some("Unknown device type".into())
            })
        );
    }

    #[test]
    fn the_extended_ack_is_found_behind_a_whole_request() {
        let mut bytes = refusal("Unknown device type.");
        bytes[6..8].copy_from_slice(&NLM_F_ACK_TLVS.to_ne_bytes());
        let request = b"\x07\x00\x03\x00br0\x00";
        bytes.splice(36..36, *request);
        for (at, length) in [(0, bytes.len()), (20, HEADER_BYTES + request.len() - 1)] {
            bytes[at..at + 4].copy_from_slice(&u32::try_from(length).unwrap().to_ne_bytes());
        }
        let frame = Frames::new(&bytes).next().unwrap();
        assert_eq!(frame.extended_ack().as_deref(), Some("Unknown device type"));
        bytes[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(Frames::new(&bytes).next().unwrap().extended_ack(), None);
    }
}
