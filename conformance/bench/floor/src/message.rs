//! Netlink messages, written one behind the other and read back.

use nix::errno::Errno;

/// Flags of `struct nlmsghdr`.
pub(crate) const REQUEST: u16 = 0x001;
pub(crate) const ACK: u16 = 0x004;
pub(crate) const EXCL: u16 = 0x200;
pub(crate) const CREATE: u16 = 0x400;
pub(crate) const APPEND: u16 = 0x800;

const HEADER: usize = 16;
const NESTED: u16 = 0x8000;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// Requests for one send; the first has number 1.
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: u32,
    last: usize,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::with_capacity(4096), count: 0, last: 0 }
    }

    /// Asks for an ack of the last message.
    pub(crate) fn acknowledge_last(&mut self) {
        self.bytes[self.last + 6] |= ACK.to_ne_bytes()[0];
    }

    /// Appends a message: its fixed part, then the attributes that `body` writes.
    pub(crate) fn message(&mut self, kind: u16, flags: u16, fixed: &[u8], body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        (self.count, self.last) = (self.count + 1, start);
        self.bytes.extend_from_slice(&0_u32.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(flags | REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&self.count.to_ne_bytes());
        self.bytes.extend_from_slice(&0_u32.to_ne_bytes());
        self.bytes.extend_from_slice(fixed);
        body(self);
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.within(kind, |batch| batch.bytes.extend_from_slice(value));
    }

    pub(crate) fn text(&mut self, kind: u16, value: &str) {
        self.within(kind, |batch| {
            batch.bytes.extend_from_slice(value.as_bytes());
            batch.bytes.push(0);
        });
    }

    /// A number in the machine's byte order: routing.
    pub(crate) fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    /// A number in network byte order: nf_tables.
    pub(crate) fn be32(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_be_bytes());
    }

    pub(crate) fn nest(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        self.within(kind | NESTED, body);
    }

    fn within(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        body(self);
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The kernel's answer.
pub(crate) enum Answer<'a> {
    /// The request of this number is done.
    Done { number: u32 },
    /// A request is refused.
    Refused(Errno),
    /// An object, or news of one.
    Object { kind: u16, number: u32, body: &'a [u8] },
}

/// The messages of one datagram.
pub(crate) struct Answers<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Answers<'a> {
    type Item = Answer<'a>;

    fn next(&mut self) -> Option<Answer<'a>> {
        let length = usize::try_from(u32_at(self.0, 0)?).ok()?;
        let (kind, number) = (u16_at(self.0, 4)?, u32_at(self.0, 8)?);
        let body = self.0.get(HEADER..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(match kind {
            NLMSG_ERROR => match u32_at(body, 0)?.cast_signed() {
                0 => Answer::Done { number },
                negative => Answer::Refused(Errno::from_raw(negative.saturating_neg())),
            },
            NLMSG_DONE => Answer::Done { number },
            _ => Answer::Object { kind, number, body },
        })
    }
}

/// Attributes behind a message's fixed part.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Attributes<'a> {
    pub(crate) fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.into_iter().find(|(other, _)| *other == kind).map(|(_, value)| value)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)? & !NESTED;
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}
