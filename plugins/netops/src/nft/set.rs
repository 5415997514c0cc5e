//! Sets and maps: named collections that rules look packets up in, so that a rule need not be there for each value.

use std::fmt;
use std::net::IpAddr;

use super::expr::Verdict;
use super::object::{Family, Name, Table};
use super::reply::parse_userdata;
use super::transaction::{COMMENT, userdata};
use super::wire::{Attrs, RawMessage, Writer};

/// The type of a value, or of a field of a concatenation (`enum datatypes` of nft's datatype.h, by which it prints elements).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataType {
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// A transport protocol.
    Protocol,
    /// A port.
    Port,
    /// A mark, or any number, in the machine's byte order.
    Mark,
    /// The name of a link, or any text of at most 15 bytes.
    LinkName,
}

/// What a map has for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapOf {
    /// A verdict.
    Verdicts,
    /// A value, or a concatenation.
    Values(Vec<DataType>),
}

/// A set of keys, or a map. The kernel keeps it in a hash table that grows with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// The table it is in.
    pub table: Table,
    /// The set's name, unique in its table.
    pub name: Name,
    /// The type of its keys; several are a concatenation.
    pub key: Vec<DataType>,
    /// What a map has; `None` for a set.
    pub map: Option<MapOf>,
}

/// What an element of a map has for its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// A value; each field of a concatenation is padded to four bytes.
    Value(Vec<u8>),
    /// A verdict.
    Verdict(Verdict),
}

/// An element of a set or map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The table of its set.
    pub table: Table,
    /// The name of its set.
    pub set: Name,
    /// The key; each field of a concatenation is padded to four bytes.
    pub key: Vec<u8>,
    /// What a map has for the key.
    pub data: Option<Data>,
    /// The element's comment, at most 128 bytes: nft(8) accepts no longer one.
    pub comment: Option<String>,
}

impl DataType {
    /// The number of the type in nft(8), and its length in bytes.
    fn number_and_length(self) -> (u32, u32) {
        match self {
            Self::Ipv4 => (7, 4),
            Self::Ipv6 => (8, 16),
            Self::Protocol => (12, 1),
            Self::Port => (13, 2),
            Self::Mark => (19, 4),
            Self::LinkName => (41, 16),
        }
    }

    /// The type of the addresses of this address's family.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }
}

/// The type and length of a value; of a concatenation, nft(8) shifts the types of the fields into one number.
fn type_and_length(fields: &[DataType]) -> (u32, u32) {
    const TYPE_BITS: u32 = 6;
    match fields {
        [field] => field.number_and_length(),
        fields => fields.iter().map(|field| field.number_and_length()).fold((0, 0), |(kind, all), (number, length)| {
            (kind << TYPE_BITS | number, all + length.next_multiple_of(4))
        }),
    }
}

impl Set {
    // enum nft_set_attributes, enum nft_set_flags.
    pub(super) fn encode(&self, w: &mut Writer) {
        const MAP: u32 = 8;
        const VERDICTS: u32 = 0xffff_ff00;
        let (kind, length) = type_and_length(&self.key);
        w.text(2, &self.name);
        w.be32(3, if self.map.is_some() { MAP } else { 0 });
        w.be32(4, kind);
        w.be32(5, length);
        match &self.map {
            None => {}
            Some(MapOf::Verdicts) => w.be32(6, VERDICTS),
            Some(MapOf::Values(fields)) => {
                let (kind, length) = type_and_length(fields);
                w.be32(6, kind);
                w.be32(7, length);
            }
        }
        // A number by which the same transaction could name the set. Ours use names.
        w.be32(10, 1);
    }
}

impl Element {
    // enum nft_set_elem_list_attributes, nft_list_attributes, nft_set_elem_attributes.
    pub(super) fn encode(&self, is_whole: bool, w: &mut Writer) {
        w.text(2, &self.set);
        let encode = |w: &mut Writer| {
            w.nest(1, |w| w.attr(1, &self.key));
            match self.data.as_ref().filter(|_| is_whole) {
                None => {}
                Some(Data::Value(value)) => w.nest(2, |w| w.attr(1, value)),
                Some(Data::Verdict(verdict)) => w.nest(2, |w| verdict.encode(w)),
            }
            if let Some(comment) = self.comment.as_ref().filter(|_| is_whole) {
                w.attr(6, &userdata(COMMENT, comment));
            }
        };
        w.nest(3, |w| w.nest(1, encode));
    }

    /// The elements of a message about a set.
    pub(super) fn parse_all(message: RawMessage<'_>) -> Vec<Self> {
        let (attrs, families) =
            (message.attrs(), [Family::Inet, Family::Ip, Family::Netdev, Family::Bridge, Family::Ip6]);
        let family = families.into_iter().find(|family| *family as u8 == message.family());
        let parse = |element: Attrs<'_>| {
            let data = element.nested(2);
            let value = || data.get(1).map(|value| Data::Value(value.to_vec()));
            Some(Self {
                table: Table { family: family?, name: attrs.text(1)?.into() },
                set: attrs.text(2)?.into(),
                key: element.nested(1).get(1)?.to_vec(),
                data: Verdict::parse(data).map(Data::Verdict).or_else(value),
                comment: element.get(6).and_then(|userdata| parse_userdata(userdata, COMMENT)),
            })
        };
        attrs.nested(3).filter_map(|(_, element)| parse(Attrs(element))).collect()
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of {} {}", self.table, self.set)
    }
}
