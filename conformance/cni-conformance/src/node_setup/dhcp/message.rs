//! A DHCP message (RFC 2131, section 2) and its options (RFC 2132), as far as a server of a few addresses needs them.

use std::net::Ipv4Addr;

const REQUEST: u8 = 1;
const REPLY: u8 = 2;
/// Before it are fields of fixed length, behind it options.
const COOKIE: [u8; 4] = [99, 130, 83, 99];
const COOKIE_AT: usize = 236;

const PAD: u8 = 0;
const END: u8 = 255;
pub(super) const MASK: u8 = 1;
pub(super) const ROUTER: u8 = 3;
pub(super) const REQUESTED_ADDRESS: u8 = 50;
pub(super) const LEASE_SECONDS: u8 = 51;
const KIND: u8 = 53;
pub(super) const SERVER: u8 = 54;
const CLIENT: u8 = 61;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Discover = 1,
    Offer,
    Request,
    Decline,
    Ack,
    Nak,
    Release,
}

impl Kind {
    const ALL: [Self; 7] =
        [Self::Discover, Self::Offer, Self::Request, Self::Decline, Self::Ack, Self::Nak, Self::Release];
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) kind: Kind,
    /// `xid`, by which it knows the answer.
    transaction: [u8; 4],
    flags: [u8; 2],
    /// `ciaddr`: what it has; 0.0.0.0 if nothing.
    pub(super) has: Ipv4Addr,
    relay: [u8; 4],
    hardware: [u8; 16],
    options: Vec<(u8, Vec<u8>)>,
}

/// Reads what a client says. `None` if it is no such message.
pub(super) fn read(bytes: &[u8]) -> Option<Asked> {
    if bytes.first() != Some(&REQUEST) || field(bytes, COOKIE_AT)? != COOKIE {
        return None;
    }
    let options = options(bytes.get(COOKIE_AT + COOKIE.len()..)?)?;
    let (_, kind) = options.iter().find(|(number, _)| *number == KIND)?;
    let kind = Kind::ALL.into_iter().find(|known| kind.as_slice() == [*known as u8])?;
    Some(Asked {
        kind,
        transaction: field(bytes, 4)?,
        flags: field(bytes, 10)?,
        has: Ipv4Addr::from(field::<4>(bytes, 12)?),
        relay: field(bytes, 24)?,
        hardware: field(bytes, 28)?,
        options,
    })
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn options(mut bytes: &[u8]) -> Option<Vec<(u8, Vec<u8>)>> {
    let mut options = Vec::new();
    loop {
        match *bytes {
            [] | [END, ..] => return Some(options),
            [PAD, ref rest @ ..] => bytes = rest,
            [number, length, ref rest @ ..] => {
                let (value, rest) = rest.split_at_checked(length.into())?;
                options.push((number, value.to_vec()));
                bytes = rest;
            }
            [_] => return None,
        }
    }
}

impl Asked {
    fn option(&self, number: u8) -> Option<&[u8]> {
        self.options.iter().find(|(other, _)| *other == number).map(|(_, value)| value.as_slice())
    }

    pub(super) fn address(&self, number: u8) -> Option<Ipv4Addr> {
        self.option(number).and_then(|value| <[u8; 4]>::try_from(value).ok()).map(Ipv4Addr::from)
    }

    /// The client that the address is for: its identifier, else that of its hardware (RFC 2131, section 4.2).
    pub(super) fn client(&self) -> &[u8] {
        self.option(CLIENT).unwrap_or(&self.hardware)
    }

    /// An answer with an address, 0.0.0.0 for none, and options beside its kind.
    pub(super) fn answer(&self, kind: Kind, address: Ipv4Addr, options: &[(u8, [u8; 4])]) -> Vec<u8> {
        let mut bytes = vec![REPLY, 1, 6, 0]; // Ethernet, and the length of its addresses
        bytes.extend(self.transaction);
        bytes.extend([0, 0]); // seconds
        bytes.extend(self.flags);
        bytes.extend(if kind == Kind::Ack { self.has.octets() } else { [0; 4] });
        bytes.extend(address.octets());
        bytes.extend([0; 4]); // no server to boot from
        bytes.extend(self.relay);
        bytes.extend(self.hardware);
        bytes.resize(COOKIE_AT, 0); // no name of a server, no file
        bytes.extend(COOKIE);
        bytes.extend([KIND, 1, kind as u8]);
        for (number, value) in options {
            bytes.extend([*number, 4]);
            bytes.extend(value);
        }
        bytes.push(END);
        bytes.resize(bytes.len().max(300), PAD); // the least that BOOTP's clients take (RFC 1542, section 2.1)
        bytes
    }
}
