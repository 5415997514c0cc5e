//! Netlink's encoding: writes messages and attributes, and reads them without trusting a length.

/// `struct nlmsghdr` and `struct nfgenmsg`, in bytes.
pub(crate) const HEADER_LEN: usize = 16;
const NFGENMSG_LEN: usize = 4;
/// `NLA_F_NESTED`.
const NESTED: u16 = 0x8000;
/// `NLA_TYPE_MASK`: without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
const TYPE_MASK: u16 = 0x3fff;

/// Writes messages one after another into one buffer.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    too_long: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) seq: u32,
    pub(crate) family: u8,
    pub(crate) res_id: u16,
}

impl Writer {
    /// Appends a message with the attributes that `body` writes.
    pub(crate) fn message(&mut self, header: Header, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&0_u32.to_ne_bytes());
        self.bytes.extend_from_slice(&header.kind.to_ne_bytes());
        self.bytes.extend_from_slice(&header.flags.to_ne_bytes());
        self.bytes.extend_from_slice(&header.seq.to_ne_bytes());
        self.bytes.extend_from_slice(&0_u32.to_ne_bytes()); // port: the kernel knows it
        self.bytes.extend_from_slice(&[header.family, 0]); // NFNETLINK_V0
        self.bytes.extend_from_slice(&header.res_id.to_be_bytes());
        body(self);
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.put_at(start, &length.to_ne_bytes());
    }

    pub(crate) fn attr(&mut self, kind: u16, value: &[u8]) {
        self.nest_as(kind, |w| w.bytes.extend_from_slice(value));
    }

    pub(crate) fn text(&mut self, kind: u16, value: &str) {
        self.nest_as(kind, |w| {
            w.bytes.extend_from_slice(value.as_bytes());
            w.bytes.push(0);
        });
    }

    /// Appends a number in network byte order, which nf_tables uses for all numbers.
    pub(crate) fn be32(&mut self, kind: u16, value: u32) {
        self.attr(kind, &value.to_be_bytes());
    }

    pub(crate) fn nest(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        self.nest_as(kind | NESTED, body);
    }

    fn nest_as(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        body(self);
        match u16::try_from(self.bytes.len() - start) {
            Ok(length) => self.put_at(start, &length.to_ne_bytes()),
            Err(_) => self.too_long = true,
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Appends attributes that are already encoded.
    pub(crate) fn raw(&mut self, attrs: &[u8]) {
        self.bytes.extend_from_slice(attrs);
    }

    fn put_at(&mut self, at: usize, value: &[u8]) {
        if let Some(place) = self.bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    }

    /// The messages; `None` if an attribute is too long for its length field.
    pub(crate) fn finish(self) -> Option<Vec<u8>> {
        (!self.too_long).then_some(self.bytes)
    }
}

/// A message in a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawMessage<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) seq: u32,
    /// Everything after `struct nlmsghdr`.
    pub(crate) body: &'a [u8],
}

/// Iterates over the messages in a buffer. Stops at the first with inconsistent lengths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawMessages<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for RawMessages<'a> {
    type Item = RawMessage<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (message, rest) = RawMessage::split_first(self.0)?;
        self.0 = rest;
        Some(message)
    }
}

impl<'a> RawMessage<'a> {
    /// Splits off the first message; `None` if its lengths are inconsistent.
    fn split_first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let length = usize::try_from(u32_ne(bytes.get(0..4)?)?).ok()?;
        let message = Self {
            kind: u16_ne(bytes.get(4..6)?)?,
            flags: u16_ne(bytes.get(6..8)?)?,
            seq: u32_ne(bytes.get(8..12)?)?,
            body: bytes.get(HEADER_LEN..length)?,
        };
        let next = length.next_multiple_of(4).min(bytes.len());
        Some((message, bytes.get(next..)?))
    }

    /// The attributes behind `struct nfgenmsg`.
    pub(crate) fn attrs(&self) -> Attrs<'a> {
        Attrs(self.body.get(NFGENMSG_LEN..).unwrap_or_default())
    }

    /// The family in `struct nfgenmsg`.
    pub(crate) fn family(&self) -> u8 {
        self.body.first().copied().unwrap_or_default()
    }
}

/// Iterates over attributes. Stops at the first that is longer than the rest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attrs<'a>(pub(crate) &'a [u8]);

impl<'a> Attrs<'a> {
    /// The first attribute of this type.
    pub(crate) fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.into_iter().find(|(found, _)| *found == kind).map(|(_, value)| value)
    }

    /// The attributes nested in the first attribute of this type; empty if it is absent.
    pub(crate) fn nested(self, kind: u16) -> Self {
        Self(self.get(kind).unwrap_or_default())
    }

    /// A text, without its final NUL.
    pub(crate) fn text(self, kind: u16) -> Option<String> {
        self.get(kind).map(c_text)
    }

    /// A number in network byte order.
    pub(crate) fn be32(self, kind: u16) -> Option<u32> {
        self.get(kind)?.try_into().ok().map(u32::from_be_bytes)
    }

    /// A number in network byte order.
    pub(crate) fn be64(self, kind: u16) -> Option<u64> {
        self.get(kind)?.try_into().ok().map(u64::from_be_bytes)
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_ne(self.0.get(0..2)?)?);
        let kind = u16_ne(self.0.get(2..4)?)? & TYPE_MASK;
        let value = self.0.get(4..length)?;
        let next = length.next_multiple_of(4).min(self.0.len());
        self.0 = self.0.get(next..)?;
        Some((kind, value))
    }
}

/// The text up to the first NUL. Invalid UTF-8 is replaced.
pub(crate) fn c_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

fn u16_ne(bytes: &[u8]) -> Option<u16> {
    bytes.try_into().ok().map(u16::from_ne_bytes)
}

/// A number in the machine's byte order, which netlink's own headers use.
pub(crate) fn u32_ne(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}
