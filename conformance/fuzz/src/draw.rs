//! Values drawn from bytes, for objects that are built and not decoded. Bytes that have run out are zeros.

use ipnetwork::IpNetwork;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The rest of the bytes.
pub(crate) struct Draw<'a>(&'a [u8]);

impl<'a> Draw<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    fn bytes<const COUNT: usize>(&mut self) -> [u8; COUNT] {
        [(); COUNT].map(|()| self.byte())
    }

    pub(crate) fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                *byte
            }
            None => 0,
        }
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub(crate) fn number(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    pub(crate) fn number16(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }

    pub(crate) fn ipv4(&mut self) -> Ipv4Addr {
        self.bytes::<4>().into()
    }

    pub(crate) fn ipv6(&mut self) -> Ipv6Addr {
        self.bytes::<16>().into()
    }

    /// An address with prefix length, of either family.
    pub(crate) fn network(&mut self) -> IpNetwork {
        let (address, bits): (IpAddr, u8) =
            if self.flag() { (self.ipv6().into(), 129) } else { (self.ipv4().into(), 33) };
        let prefix = self.byte() % bits;
        IpNetwork::new(address, prefix).expect("the prefix is of the family")
    }

    /// Draws a name of one to fifteen letters.
    pub(crate) fn name(&mut self) -> String {
        let length = self.byte() % 15 + 1;
        (0..length).map(|_| char::from(b'a' + self.byte() % 26)).collect()
    }

    /// Something, or nothing.
    pub(crate) fn maybe<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| draw(self))
    }
}
