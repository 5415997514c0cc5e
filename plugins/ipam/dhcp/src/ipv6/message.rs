//! DHCPv6 messages (RFC 8415) as bytes: what the client sends, and what it takes of a server's answer.
//!
//! An answer may have any bytes: any machine of the network can send one. The crate's decoder panics on some; so only what is
//! used is read here, each option by itself.

use std::net::Ipv6Addr;

use dhcproto::v6::{DhcpOption, IAAddr, IANA, Message, ORO, OptionCode};
use dhcproto::{Decodable, Decoder, Encodable};

use super::{Identity, Lease, SECONDS_MIN, is_a_hosts, times};

pub use dhcproto::v6::MessageType;

/// The longest identifier of a server, in bytes (RFC 8415, 11.1).
const DUID_BYTES_MAX: usize = 130;

/// Numbers of the options that are read.
mod code {
    pub(super) const CLIENT_ID: u16 = 1;
    pub(super) const SERVER_ID: u16 = 2;
    pub(super) const IA_NA: u16 = 3;
    pub(super) const ADDRESS: u16 = 5;
    pub(super) const PREFERENCE: u16 = 7;
    pub(super) const STATUS: u16 = 13;
    pub(super) const NAME_SERVERS: u16 = 23;
    pub(super) const DOMAIN_SEARCH: u16 = 24;
}

/// Numbers of status codes (RFC 8415, 21.13).
mod status {
    pub(super) const UNSPECIFIED: u16 = 1;
    pub(super) const NO_BINDING: u16 = 3;
}

#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    pub kind: MessageType,
    /// The number of the exchange; the lower 24 bits count.
    pub xid: u32,
    /// Hundredths of a second since the exchange began.
    pub hundredths: u16,
    pub identity: &'a Identity,
    pub server: Option<&'a [u8]>,
    /// The address asked for, or given back.
    pub address: Option<Ipv6Addr>,
}

impl Outgoing<'_> {
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let [_, xid @ ..] = self.xid.to_be_bytes();
        let mut message = Message::new_with_id(self.kind, xid);
        let options = message.opts_mut();
        options.insert(DhcpOption::ClientId(self.identity.duid.clone()));
        if let Some(server) = self.server {
            options.insert(DhcpOption::ServerId(server.to_vec()));
        }
        options.insert(DhcpOption::ElapsedTime(self.hundredths));
        let address = |addr| {
            DhcpOption::IAAddr(IAAddr { addr, preferred_life: 0, valid_life: 0, opts: [].into_iter().collect() })
        };
        let opts = self.address.map(address).into_iter().collect();
        options.insert(DhcpOption::IANA(IANA { id: self.identity.iaid, t1: 0, t2: 0, opts }));
        if self.kind != MessageType::Release {
            let opts = vec![OptionCode::DomainNameServers, OptionCode::DomainSearchList];
            options.insert(DhcpOption::ORO(ORO { opts }));
        }
        message.to_vec().map_err(|error| error.to_string())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// The message answers a [`MessageType::Solicit`], and gives nothing yet; else it is a reply.
    pub is_advertisement: bool,
    pub xid: u32,
    pub server: Vec<u8>,
    /// The server's preference, 0 to 255 (RFC 8415, 21.8): the highest is chosen.
    pub preference: u8,
    lease: Result<Lease, Refusal>,
}

/// Why a message gives no lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The server has none of this client, or ends it.
    Ended(String),
    /// The server is in trouble, and may be asked again.
    Trouble(String),
    Unusable(String),
}

impl Refusal {
    pub fn why(self) -> String {
        match self {
            Self::Ended(why) | Self::Trouble(why) | Self::Unusable(why) => why,
        }
    }
}

impl Incoming {
    /// Decodes an answer to a client; `None` if it is none.
    pub fn decode(bytes: &[u8], identity: &Identity) -> Option<Self> {
        let (&[kind, a, b, c], options) = bytes.split_first_chunk::<4>()?;
        let is_advertisement = match MessageType::from(kind) {
            MessageType::Advertise => true,
            MessageType::Reply => false,
            _ => return None,
        };
        let client = find(options, code::CLIENT_ID)?;
        let server = find(options, code::SERVER_ID).filter(|duid| (1..=DUID_BYTES_MAX).contains(&duid.len()))?;
        if client != identity.duid {
            return None;
        }
        let preference = find(options, code::PREFERENCE).and_then(|value| value.first()).copied().unwrap_or_default();
        let lease = lease(options, identity.iaid, server);
        let xid = u32::from_be_bytes([0, a, b, c]);
        Some(Self { is_advertisement, xid, server: server.to_vec(), preference, lease })
    }

    pub fn lease(self) -> Result<Lease, Refusal> {
        self.lease
    }
}

fn lease(options: &[u8], iaid: u32, server: &[u8]) -> Result<Lease, Refusal> {
    refused(options)?;
    let unusable = |why: &str| Refusal::Unusable(why.to_owned());
    let mine = |value: &[u8]| value.split_first_chunk::<4>().is_some_and(|(id, _)| *id == iaid.to_be_bytes());
    let association = all(options, code::IA_NA).find(|value| mine(value));
    let association = association.ok_or_else(|| unusable("the server gives no address"))?;
    let header: &[u8; 12] = association.first_chunk().ok_or_else(|| unusable("the server's answer is torn"))?;
    let (renew, rebind) = (number(&header[4..]), number(&header[8..]));
    let inner = &association[12..];
    refused(inner)?;
    if renew > rebind && rebind != 0 {
        return Err(unusable("the server gives a T1 behind T2"));
    }
    let mut why = unusable("the server gives no address");
    for value in all(inner, code::ADDRESS) {
        let Some((octets, rest)) = value.split_first_chunk::<16>() else { continue };
        let Some(lifetimes) = rest.first_chunk::<8>() else { continue };
        let (address, preferred, valid) = (Ipv6Addr::from(*octets), number(lifetimes), number(&lifetimes[4..]));
        let refusal = refused(&rest[8..]).err();
        why = match refusal {
            Some(refusal) => refusal,
            None if !is_a_hosts(address) => {
                Refusal::Unusable(format!("the server gives address {address}, which no client can have"))
            }
            None if valid == 0 => Refusal::Ended(format!("the server ends the lease of {address}")),
            None if valid < SECONDS_MIN || preferred > valid => Refusal::Unusable(format!(
                "the server gives {address} for {valid} s, preferred for {preferred} s, which cannot be kept"
            )),
            None => {
                let (renew_seconds, rebind_seconds) = times(preferred, valid, renew, rebind);
                return Ok(Lease {
                    address,
                    server: server.to_vec(),
                    name_servers: name_servers(options),
                    search: search(options),
                    preferred_seconds: preferred,
                    seconds: valid,
                    renew_seconds,
                    rebind_seconds,
                });
            }
        };
    }
    Err(why)
}

/// A status other than success among options.
fn refused(options: &[u8]) -> Result<(), Refusal> {
    let Some((code, text)) = find(options, code::STATUS).and_then(<[u8]>::split_first_chunk::<2>) else {
        return Ok(());
    };
    let text = String::from_utf8_lossy(text).replace(char::is_control, " ");
    let why = |code: u16| format!("the server refuses with status {code}: {}", text.trim());
    match u16::from_be_bytes(*code) {
        0 => Ok(()),
        code @ status::NO_BINDING => Err(Refusal::Ended(why(code))),
        code @ status::UNSPECIFIED => Err(Refusal::Trouble(why(code))),
        code => Err(Refusal::Unusable(why(code))),
    }
}

fn name_servers(options: &[u8]) -> Vec<Ipv6Addr> {
    let value = find(options, code::NAME_SERVERS).unwrap_or_default();
    value.as_chunks::<16>().0.iter().map(|&octets| Ipv6Addr::from(octets)).collect()
}

/// The domains to search (RFC 3646). The crate's decoder of this option returns errors.
fn search(options: &[u8]) -> Vec<String> {
    let Some(value) = find(options, code::DOMAIN_SEARCH) else { return Vec::new() };
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    let option = [&code::DOMAIN_SEARCH.to_be_bytes(), &length.to_be_bytes(), value].concat();
    match DhcpOption::decode(&mut Decoder::new(&option)) {
        Ok(DhcpOption::DomainSearchList(names)) => {
            let names = names.iter().map(|name| name.to_string().trim_end_matches('.').to_owned());
            names.filter(|name| !name.is_empty()).collect()
        }
        Ok(_) | Err(_) => Vec::new(),
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().copied().map(u32::from_be_bytes).unwrap_or_default()
}

fn find(options: &[u8], code: u16) -> Option<&[u8]> {
    all(options, code).next()
}

/// The values of options with this number; those before a torn one count.
fn all(mut options: &[u8], wanted: u16) -> impl Iterator<Item = &[u8]> {
    let next = move || {
        let (&[a, b, c, d], rest) = options.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(u16::from_be_bytes([c, d]).into())?;
        options = rest;
        Some((u16::from_be_bytes([a, b]), value))
    };
    std::iter::from_fn(next).filter(move |(code, _)| *code == wanted).map(|(_, value)| value)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn identity() -> Identity {
        Identity { duid: vec![0, 4, 7], iaid: 9 }
    }

    pub(crate) fn option(code: u16, value: &[u8]) -> Vec<u8> {
        [&code.to_be_bytes()[..], &u16::try_from(value.len()).unwrap().to_be_bytes(), value].concat()
    }

    /// An association with T1, T2 and options.
    pub(crate) fn association(t1: u32, t2: u32, inner: &[u8]) -> Vec<u8> {
        option(3, &[&9u32.to_be_bytes(), &t1.to_be_bytes(), &t2.to_be_bytes(), inner].concat())
    }

    pub(crate) fn address(last: u16, preferred: u32, valid: u32) -> Vec<u8> {
        let address = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last).octets();
        option(5, &[&address[..], &preferred.to_be_bytes(), &valid.to_be_bytes()].concat())
    }

    pub(crate) fn said(kind: u8, xid: u32, server: u8, more: &[u8]) -> Vec<u8> {
        let [_, xid @ ..] = xid.to_be_bytes();
        [&[kind], &xid[..], &option(1, &[0, 4, 7]), &option(2, &[0, 3, server]), more].concat()
    }

    fn given(more: &[u8]) -> Result<Lease, Refusal> {
        Incoming::decode(&said(7, 5, 1, more), &identity()).unwrap().lease()
    }

    #[test]
    fn request_names_client_server_association_and_address() {
        let address = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5);
        let (identity, server) = (identity(), [0, 3, 1]);
        let message = Outgoing {
            kind: MessageType::Request,
            xid: 0xff00_0102,
            hundredths: 150,
            identity: &identity,
            server: Some(&server),
            address: Some(address),
        };
        let bytes = message.encode().unwrap();
        assert_eq!(bytes[..4], [3, 0, 1, 2]);
        assert_eq!(find(&bytes[4..], 1), Some(&[0, 4, 7][..]));
        assert_eq!(find(&bytes[4..], 2), Some(&[0, 3, 1][..]));
        assert_eq!(find(&bytes[4..], 6), Some(&[0, 23, 0, 24][..]));
        assert_eq!(find(&bytes[4..], 8), Some(&[0, 150][..]));
        let association = find(&bytes[4..], 3).unwrap();
        assert_eq!(association[..12], [0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(find(&association[12..], 5).unwrap()[..16], address.octets());
    }

    #[test]
    fn lease_has_address_times_and_dns() {
        let dns = option(23, &Ipv6Addr::LOCALHOST.octets());
        let search = option(24, b"\x07example\x03org\0\x01a\x01b\0");
        let lease = given(&[association(0, 0, &address(5, 60, 120)), dns, search].concat()).unwrap();
        assert_eq!(lease.address, Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5));
        assert_eq!((lease.preferred_seconds, lease.seconds), (60, 120));
        assert_eq!((lease.renew_seconds, lease.rebind_seconds), (30, 48));
        assert_eq!(lease.name_servers, [Ipv6Addr::LOCALHOST]);
        assert_eq!(lease.search, ["example.org", "a.b"]);
    }

    #[test]
    fn answers_without_a_usable_address_say_why() {
        let status = |code: u8, text: &[u8]| option(13, &[&[0, code], text].concat());
        for (more, why) in [
            (vec![], "no address"),
            (status(2, b"none\nleft"), "status 2: none left"),
            (association(0, 0, &status(2, b"")), "status 2"),
            (association(9, 8, &address(5, 60, 120)), "T1 behind T2"),
            (association(0, 0, &address(5, 121, 120)), "cannot be kept"),
            (association(0, 0, &address(5, 1, 1)), "cannot be kept"),
            (association(0, 0, &option(5, &[0; 24])), "no client can have"),
            (option(3, &[0, 0, 0, 9, 1]), "torn"),
            (option(3, &[0, 0, 0, 8, 1]), "no address"),
        ] {
            let refusal = given(&more).unwrap_err();
            assert!(matches!(&refusal, Refusal::Unusable(text) if text.contains(why)), "{refusal:?} {why}");
        }
        assert!(matches!(given(&association(0, 0, &status(3, b""))), Err(Refusal::Ended(_))));
        assert!(matches!(given(&association(0, 0, &address(5, 0, 0))), Err(Refusal::Ended(_))));
        assert!(matches!(given(&status(1, b"")), Err(Refusal::Trouble(_))));
        // An address that ends beside its successor.
        let both = [address(5, 0, 0), address(6, 60, 120)].concat();
        assert_eq!(given(&association(0, 0, &both)).unwrap().address.segments()[7], 6);
    }

    #[test]
    fn answers_to_others_and_other_messages_are_none() {
        let decode = |bytes: &[u8]| Incoming::decode(bytes, &identity());
        assert!(decode(&said(2, 5, 1, &[])).is_some());
        assert!(decode(&said(1, 5, 1, &[])).is_none());
        assert!(Incoming::decode(&said(2, 5, 1, &[]), &Identity { duid: vec![0, 4, 8], iaid: 9 }).is_none());
        assert!(decode(&[&[7, 0, 0, 5][..], &option(1, &[0, 4, 7])].concat()).is_none(), "no server");
        assert!(decode(&[&[7, 0, 0, 5][..], &option(1, &[0, 4, 7]), &option(2, &[1; 131])].concat()).is_none());
    }
}
