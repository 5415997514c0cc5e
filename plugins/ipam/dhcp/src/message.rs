//! DHCP messages (RFC 2131) as bytes: what the client sends, and what it takes of a server's answer.
//!
//! An answer may have any bytes: any machine of the network can send one. Only the options that are used are decoded,
//! each by itself: a malformed one counts as absent, and does not cost the whole message.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use dhcproto::v4::borrowed::{DhcpOptionIterator, Message as Borrowed};
use dhcproto::v4::{DhcpOption, Flags, Message, Opcode, OptionCode, UnknownOption};
use dhcproto::{Decodable, Decoder, Encodable};

use crate::options::code;

pub use dhcproto::v4::MessageType;

/// The largest message that the client takes, in bytes: an Ethernet frame without IP and UDP headers.
pub const BYTES_MAX: u16 = 1472;

/// Servers and relays of old drop shorter messages (RFC 1542, 2.1).
const BYTES_MIN: usize = 300;

#[derive(Debug, Clone)]
pub struct Outgoing<'a> {
    pub kind: MessageType,
    pub xid: u32,
    pub secs: u16,
    pub mac: [u8; 6],
    /// The client's address, if the link has it and answers ARP.
    pub ciaddr: Ipv4Addr,
    pub broadcast: bool,
    pub requested: Option<Ipv4Addr>,
    pub server: Option<Ipv4Addr>,
    pub client_id: &'a [u8],
    /// Options with their values, which replace those above.
    pub options: &'a [(u8, Vec<u8>)],
    pub request: &'a [u8],
}

impl Outgoing<'_> {
    /// The message's bytes. Values longer than 255 bytes are split (RFC 3396).
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let mut message = Message::new_with_id(
            self.xid,
            self.ciaddr,
            Ipv4Addr::UNSPECIFIED,
            Ipv4Addr::UNSPECIFIED,
            Ipv4Addr::UNSPECIFIED,
            &self.mac,
        );
        message.set_opcode(Opcode::BootRequest).set_secs(self.secs);
        if self.broadcast {
            message.set_flags(Flags::default().set_broadcast());
        }
        let mut values: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        values.insert(code::CLIENT_ID, self.client_id.to_vec());
        values.extend(self.requested.map(|address| (code::REQUESTED_ADDRESS, address.octets().to_vec())));
        values.extend(self.server.map(|address| (code::SERVER, address.octets().to_vec())));
        if matches!(self.kind, MessageType::Discover | MessageType::Request) {
            values.insert(code::MESSAGE_BYTES_MAX, BYTES_MAX.to_be_bytes().to_vec());
            if !self.request.is_empty() {
                values.insert(code::REQUEST_LIST, self.request.to_vec());
            }
        }
        values.extend(self.options.iter().cloned());
        let options = message.opts_mut();
        options.insert(DhcpOption::MessageType(self.kind));
        for (code, value) in values {
            options.insert(DhcpOption::Unknown(UnknownOption::new(OptionCode::from(code), value)));
        }
        let mut bytes = message.to_vec().map_err(|error| error.to_string())?;
        bytes.resize(bytes.len().max(BYTES_MIN), 0);
        Ok(bytes)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    pub kind: MessageType,
    pub xid: u32,
    /// The client's address.
    pub yiaddr: Ipv4Addr,
    options: BTreeMap<u8, Vec<u8>>,
}

impl Incoming {
    /// Decodes an answer to `mac`; `None` if it is none.
    pub fn decode(bytes: &[u8], mac: [u8; 6]) -> Option<Self> {
        let message = Borrowed::new(bytes).ok()?;
        // The crate's `chaddr` trusts the length that the message states, which may lie beyond its end.
        let is_for = bytes.get(2).copied() == Some(6) && bytes.get(28..34) == Some(&mac);
        if message.opcode() != Opcode::BootReply || !is_for {
            return None;
        }
        let mut options = BTreeMap::new();
        collect(&mut options, message.opts());
        // RFC 2131, 4.1: options, then file, then sname.
        let overload = options.get(&code::OVERLOAD).and_then(|value| value.first()).copied().unwrap_or_default();
        let (file, sname) = (bytes.get(108..236), bytes.get(44..108));
        for (bit, field) in [(1, file), (2, sname)] {
            if let Some(field) = field.filter(|_| overload & bit != 0) {
                collect(&mut options, DhcpOptionIterator::new(field));
            }
        }
        let kind = options.get(&code::MESSAGE_TYPE)?;
        let [kind] = **kind else { return None };
        Some(Self { kind: MessageType::from(kind), xid: message.xid(), yiaddr: message.yiaddr(), options })
    }

    pub fn find(&self, code: u8) -> Option<&[u8]> {
        self.options.get(&code).map(Vec::as_slice)
    }

    #[cfg(test)]
    pub(crate) fn set(&mut self, code: u8, value: Vec<u8>) {
        self.options.insert(code, value);
    }

    pub fn address(&self, code: u8) -> Option<Ipv4Addr> {
        let octets: [u8; 4] = self.find(code)?.try_into().ok()?;
        Some(octets.into())
    }

    /// An option that is a list of addresses; those before a torn one count.
    pub fn addresses(&self, code: u8) -> Vec<Ipv4Addr> {
        let value = self.find(code).unwrap_or_default();
        value.as_chunks::<4>().0.iter().map(|&octets| Ipv4Addr::from(octets)).collect()
    }

    /// An option that is a number of 32 bits.
    pub fn number(&self, code: u8) -> Option<u32> {
        self.find(code)?.try_into().ok().map(u32::from_be_bytes)
    }

    /// An option that is a text. Control characters, which could forge lines of a log or a `resolv.conf`, make it none.
    pub fn text(&self, code: u8) -> Option<String> {
        let value = self.find(code)?;
        let text = std::str::from_utf8(value).ok()?.trim_end_matches('\0');
        (!text.is_empty() && !text.chars().any(|c| c.is_control() || c.is_whitespace())).then(|| text.to_owned())
    }

    /// An option that is a sentence for people. Control characters become spaces.
    pub fn sentence(&self, code: u8) -> Option<String> {
        let text = String::from_utf8_lossy(self.find(code)?).replace(char::is_control, " ");
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// The domains to search (RFC 3397, compressed as RFC 1035 has it). The crate's decoder of this option returns errors;
    /// those of some others panic on a value of another length.
    pub fn search(&self) -> Vec<String> {
        let Some(value) = self.find(code::DOMAIN_SEARCH) else { return Vec::new() };
        let option = [&[code::DOMAIN_SEARCH, u8::try_from(value.len()).unwrap_or(u8::MAX)], value].concat();
        match DhcpOption::decode(&mut Decoder::new(&option)) {
            Ok(DhcpOption::DomainSearch(names)) => {
                names.iter().map(|name| name.to_string().trim_end_matches('.').to_owned()).collect()
            }
            Ok(_) | Err(_) => Vec::new(),
        }
    }
}

/// Adds options; the values of one that comes again are joined (RFC 3396).
fn collect(options: &mut BTreeMap<u8, Vec<u8>>, found: DhcpOptionIterator<'_>) {
    for option in found {
        options.entry(option.code().into()).or_default().extend_from_slice(option.data());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 5];

    fn discover() -> Outgoing<'static> {
        Outgoing {
            kind: MessageType::Discover,
            xid: 7,
            secs: 3,
            mac: MAC,
            ciaddr: Ipv4Addr::UNSPECIFIED,
            broadcast: true,
            requested: None,
            server: None,
            client_id: b"\0c1/net/eth0",
            options: &[],
            request: &[3, 1],
        }
    }

    fn answer(options: &[u8], file: &[u8], sname: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 240];
        bytes[..4].copy_from_slice(&[2, 1, 6, 0]);
        bytes[16..20].copy_from_slice(&[10, 0, 0, 9]);
        bytes[28..34].copy_from_slice(&MAC);
        bytes[44..44 + sname.len()].copy_from_slice(sname);
        bytes[108..108 + file.len()].copy_from_slice(file);
        bytes[236..].copy_from_slice(&[99, 130, 83, 99]);
        bytes.extend_from_slice(options);
        bytes
    }

    #[test]
    fn message_has_the_options_in_order_and_the_least_size() {
        let bytes = discover().encode().unwrap();
        assert_eq!(bytes.len(), 300);
        assert_eq!(bytes[..12], [1, 1, 6, 0, 0, 0, 0, 7, 0, 3, 0x80, 0]);
        let read: Vec<(u8, Vec<u8>)> = Borrowed::new(&bytes)
            .unwrap()
            .opts()
            .map(|option| (option.code().into(), option.data().to_vec()))
            .collect();
        let codes: Vec<u8> = read.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, [53, 55, 57, 61]);
        assert_eq!(read[3].1, b"\0c1/net/eth0");
    }

    #[test]
    fn overloaded_fields_and_repeated_options_are_joined() {
        let bytes =
            answer(&[53, 1, 2, 52, 1, 3, 12, 2, b'a', b'b', 255], &[3, 4, 10, 0, 0, 1, 255], &[12, 1, b'c', 255]);
        let answer = Incoming::decode(&bytes, MAC).unwrap();
        assert_eq!(answer.kind, MessageType::Offer);
        assert_eq!(answer.addresses(code::ROUTERS), [Ipv4Addr::new(10, 0, 0, 1)]);
        assert_eq!(answer.text(code::HOST_NAME).as_deref(), Some("abc"));
    }

    #[test]
    fn domains_are_decompressed() {
        let value = *b"\x03eng\x05apple\x03com\0\x09marketing\xc0\x04";
        let option = [&[119, 27], &value[..]].concat();
        let bytes = answer(&[&[53, 1, 5], &*option, &[255]].concat(), &[], &[]);
        let answer = Incoming::decode(&bytes, MAC).unwrap();
        assert_eq!(answer.search(), ["eng.apple.com", "marketing.apple.com"]);
    }

    #[test]
    fn answers_to_others_and_requests_are_none() {
        let bytes = answer(&[53, 1, 5, 255], &[], &[]);
        assert!(Incoming::decode(&bytes, MAC).is_some());
        assert!(Incoming::decode(&bytes, [2, 0, 0, 0, 0, 6]).is_none());
        assert!(Incoming::decode(&discover().encode().unwrap(), MAC).is_none());
        let mut long = bytes.clone();
        long[2] = 255; // a hardware address beyond the end of the message
        assert!(Incoming::decode(&long, MAC).is_none());
    }
}
