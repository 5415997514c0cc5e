//! Access to private decoders for the fuzz targets of conformance/fuzz. Not a stable interface: it changes with the decoders.

use std::net::Ipv4Addr;

use netlink_packet_route::RouteNetlinkMessage;

use crate::addr::{self, Address};
use crate::bridge_port::{self, Vlans};
use crate::error::OpError;
use crate::link::{self, Link, Mac};
use crate::netlink_connection::{Request, encode_batch, parse};
use crate::netlink_frames::{Frames, NetlinkReply};
use crate::nft::{self, Transaction};
use crate::packet::Datagram;
use crate::route::{self, Route};

/// The decoded content of one frame of a routing netlink read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// The request was carried out, or its list is complete.
    Done,
    /// The request was refused, or the object cannot be decoded.
    Failed(OpError),
    /// A link, and its VLANs as a bridge port.
    Link(Box<Link>, Vec<Vlans>),
    /// An address; `None` if this crate does not read its kind.
    Address(Option<Address>),
    /// A route, or one for each next hop.
    Routes(Vec<Route>),
    /// Something else.
    Other,
}

/// Decodes one read of a routing netlink socket: sequence number, length and content of each frame.
#[must_use]
pub fn decode(bytes: &[u8]) -> Vec<(u32, usize, Decoded)> {
    Frames::new(bytes).map(|frame| (frame.sequence, frame.bytes.len(), decode_answer(frame.answer()))).collect()
}

fn decode_answer(answer: NetlinkReply<'_>) -> Decoded {
    let failed = |cause| Decoded::Failed(OpError::new("read", "an answer", cause));
    match answer {
        NetlinkReply::Object(bytes) => {
            // With the attributes that a device's settings are in, too.
            drop(
                parse(bytes, true).map(|message| link::details::take_all(&mut link::details::Values::new(), &message)),
            );
            parse(bytes, false).map_or_else(failed, |message| read(&message))
        }
        NetlinkReply::Done => Decoded::Done,
        NetlinkReply::Failed(cause) => failed(cause),
        NetlinkReply::Noise => Decoded::Other,
    }
}

fn read(message: &RouteNetlinkMessage) -> Decoded {
    match message {
        RouteNetlinkMessage::NewLink(link) => {
            let vlans = link.attributes.iter().flat_map(bridge_port::vlans_in).collect();
            Decoded::Link(Box::new(Link::from(link)), vlans)
        }
        RouteNetlinkMessage::NewAddress(address) => Decoded::Address(addr::read(message, address.header.index)),
        RouteNetlinkMessage::NewRoute(message) => Decoded::Routes(route::read(message)),
        _ => Decoded::Other,
    }
}

/// The bytes of requests. The kernel reports objects in the same form.
#[must_use]
pub fn encoded(requests: &[Request], first: u32) -> Vec<u8> {
    encode_batch(requests, first).0
}

/// The bytes of a transaction's messages. The kernel reports objects in the same form.
#[must_use]
pub fn nft_encoded(transaction: &Transaction, seq: u32) -> Option<Vec<u8>> {
    nft::encoded(transaction, seq)
}

/// The process that holds the lock of the file `id`, according to the text of `/proc/locks`.
#[must_use]
pub fn lock_holder(locks: &str, id: &str) -> Option<i32> {
    processes::holder_in(locks, id)
}

/// The indexes of the links that announcements are about.
#[must_use]
pub fn announced(bytes: &[u8]) -> Vec<u32> {
    crate::watch::seen(bytes).indexes
}

/// The UDP datagram to a port that a frame has.
#[must_use]
pub fn datagram(frame: &[u8], port: u16) -> Option<Datagram> {
    crate::packet::datagram(frame, port)
}

/// The station that has an address, or probes for it, according to a frame of ARP.
#[must_use]
pub fn arp_holder(frame: &[u8], address: Ipv4Addr) -> Option<Mac> {
    crate::arp::holder(frame, address)
}
